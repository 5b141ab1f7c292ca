"""Smooth images of reward and costs: what a gradient through the world can hold on to.

Contacts are rare, short and counted in whole steps: their number has no useful derivative. A
contact is *foreseen* instead, at the closest approach that present velocities lead to within a
horizon. Going down its gradient turns sideways, round the other body, where the gradient of a
penetration mostly brakes.

Images steer, they do not judge: whether a limit is kept is decided by the true costs. To give a
constraint of your own an image, register a function here (docs/constraints.md).
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ssmarl.errors import InputError
from ssmarl.settings import POSITIVE, check_ranges
from ssmarl.world.constraints import Constraint
from ssmarl.world.env import Env
from ssmarl.world.geometry import closest_approach, length
from ssmarl.world.near import agent_radii
from ssmarl.world.neighbours import Pairs
from ssmarl.world.state import World, WorldState


@dataclass(frozen=True)
class Foresight:
    """How far and how sharply the images look."""

    horizon: float = 0.8
    """How far ahead contacts are foreseen, in seconds."""
    margin: float = 0.06
    """Gap below which a foreseen passage counts, in metres."""
    unit: float = 0.005
    """Metres of missing gap that cost 1."""
    near_goal: float = 0.4
    """The margin shrinks to 0 within this distance of the target, in metres: goals may lie next to
    obstacles, and parked agents would pay for ever."""
    speed_margin: float = 0.1
    """Metres a second below its limit at which speed begins to count."""
    pull: float = 1.0
    """Reward a step for every metre nearer to the target. Gradients fade over some 20 steps, so 1,
    the reward's own, says too little of how good it is to arrive early from far away."""
    impatience: float = 0.0
    """By how many times the pull grows on an agent that is stuck: what blocks its way for good
    costs it the rest of the episode, not just the next steps."""
    patience: float = 1.5
    """Time over which velocities are averaged to see whether an agent is stuck, in seconds."""
    stuck: float = 0.3
    """Length of that mean, in metres a second, below which an agent away from its target begins to
    count as stuck."""
    bonus: tuple[tuple[float, float], ...] = ((6.0, 0.1), (4.0, 0.03))
    """(height, width in metres) of smooth bumps at the target in place of the reward's jump."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            horizon=POSITIVE,
            margin=(0, 1e12),
            unit=POSITIVE,
            near_goal=POSITIVE,
            speed_margin=POSITIVE,
            patience=POSITIVE,
            stuck=POSITIVE,
        )


Image = Callable[..., Float[Array, " A"]]
"""(env, state after the step, applied action, foresight, **parameters) → cost per agent."""


def smooth_reward(
    state: WorldState,
    foresight: Foresight,
    extra: Float[Array, " A"] | float = 0.0,
    urgency: Float[Array, " A"] | float = 1.0,
) -> Float[Array, " A"]:
    """Minus the distance to the target and what a detour adds to it, plus bumps round it."""
    straight = length(state.position - stop_gradient(state.target))
    bumps = [height * jnp.exp(-((straight / width) ** 2)) for height, width in foresight.bonus]
    return sum(bumps, start=-foresight.pull * urgency * (straight + extra))


def urgency(
    state: WorldState, drift: Float[Array, "A 2"], foresight: Foresight
) -> Float[Array, " A"]:
    """How many times harder than usual each agent is pulled; `drift`: its mean velocity of late.

    The mean of velocities, not of speeds: a jittering agent is stuck too.
    """
    slow = jax.nn.relu(1 - length(drift) / foresight.stuck)
    away = length(state.position - state.target) > foresight.near_goal / 2
    return 1 + foresight.impatience * stop_gradient(slow * away)


def smooth_costs(
    env: Env, state: WorldState, action: Float[Array, "A 2"], foresight: Foresight
) -> Float[Array, "A C"]:
    """The image of every constraint of the environment."""
    costs = [
        image_of(constraint)(env, state, action, foresight, **dict(constraint.params))
        for constraint in env.constraints
    ]
    return jnp.stack(costs, axis=1)


def image_of(constraint: Constraint) -> Image:
    """The smooth image of a constraint's cost."""
    if constraint.name not in IMAGES:
        raise InputError(
            f"constraint {constraint.name!r} has no smooth image: register one in "
            f"ssmarl.rl.foresight.IMAGES, or train with --set gradient=score"
        )
    return IMAGES[constraint.name]


def collision(
    env: Env,
    state: WorldState,
    action: Float[Array, "A 2"],
    foresight: Foresight,
    *,
    margin: float = 0.0,
) -> Float[Array, " A"]:
    """Foreseen contacts with agents and obstacles."""
    with_agents = agent_collision(env, state, action, foresight, margin=margin)
    return with_agents + obstacle_collision(env, state, action, foresight, margin=margin)


def agent_collision(
    env: Env,
    state: WorldState,
    action: Float[Array, "A 2"],
    foresight: Foresight,
    *,
    margin: float = 0.0,
) -> Float[Array, " A"]:
    """Foreseen contacts with other agents."""
    near = env.near(jax.tree.map(stop_gradient, state))
    others = (state.position, state.velocity, agent_radii(env.world, state))
    return _foresee(env.world, state, near.agents, others, env.world.agent_range, foresight, margin)


def obstacle_collision(
    env: Env,
    state: WorldState,
    action: Float[Array, "A 2"],
    foresight: Foresight,
    *,
    margin: float = 0.0,
) -> Float[Array, " A"]:
    """Foreseen contacts with obstacles."""
    near = env.near(jax.tree.map(stop_gradient, state))
    obstacles = (state.obstacle, jnp.zeros_like(state.obstacle), state.obstacle_radius)
    return _foresee(
        env.world, state, near.obstacles, obstacles, env.world.perception, foresight, margin
    )


def boundary(
    env: Env,
    state: WorldState,
    action: Float[Array, "A 2"],
    foresight: Foresight,
    *,
    side: float | None = None,
) -> Float[Array, " A"]:
    """How far outside the square, `margin` early."""
    half = (env.world.side if side is None else side) / 2
    outside = jnp.abs(state.position) - (half - foresight.margin)
    return jax.nn.relu(outside).sum(axis=1) / foresight.unit


def speed(
    env: Env,
    state: WorldState,
    action: Float[Array, "A 2"],
    foresight: Foresight,
    *,
    v_max: float = 1.5,
) -> Float[Array, " A"]:
    """How much faster than `v_max`, a little early."""
    excess = length(state.velocity) - (v_max - foresight.speed_margin)
    return jax.nn.relu(excess) / foresight.speed_margin


def effort(
    env: Env, state: WorldState, action: Float[Array, "A 2"], foresight: Foresight
) -> Float[Array, " A"]:
    """The cost itself: it is smooth."""
    return jnp.full(state.position.shape[:1], (action**2).sum(axis=1).mean())


IMAGES: dict[str, Image] = {
    function.__name__: function
    for function in (collision, agent_collision, obstacle_collision, boundary, speed, effort)
}


def _foresee(
    world: World,
    state: WorldState,
    pairs: Pairs,
    entities: tuple[Float[Array, "N 2"], Float[Array, "N 2"], Float[Array, " N"]],
    reach: float,
    foresight: Foresight,
    margin: float,
) -> Float[Array, " A"]:
    """Missing gap at the closest approach ahead, less the later it is, summed over all near.

    Only what an agent perceives counts: it cannot learn to avoid what it does not see.
    """
    position, velocity, radius = entities
    offset = pairs.other(position) - pairs.own(state.position)
    drift = pairs.other(velocity) - pairs.own(state.velocity)
    ahead, then = closest_approach(offset, drift, foresight.horizon)
    touch = world.agent_radius + pairs.other(radius) + margin
    gap = length(then) - touch
    away = length(state.position - stop_gradient(state.target)) / foresight.near_goal
    wanted = foresight.margin * pairs.own(jnp.minimum(away, 1.0))
    missing = jax.nn.relu(wanted - gap) / foresight.unit * (1 - ahead / foresight.horizon)
    perceived = pairs.valid & (length(offset) <= reach)
    return pairs.total(jnp.where(perceived, missing, 0.0))
