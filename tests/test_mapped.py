"""What is mapped equals what is looped, for the whole package.

`jax.vmap` on CPUs has returned wrong numbers without a message (docs/performance.md). So every
function that the package maps, over episodes × agents × neighbours or over time × episodes, runs
here under as many `vmap`s inside `jit`, and alone for each case; both must agree. `MAPPED_IN` names
every file that maps something: a new one has to be entered here, with cases that cover it.
"""

import functools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.algos.dgppo import penetration, worst_ahead
from ssmarl.control.braking import braking_path
from ssmarl.control.certificate import make_rule
from ssmarl.control.controllers import controller
from ssmarl.control.filters import filter_action
from ssmarl.control.half_planes import HalfPlanes, nearest_within
from ssmarl.control.hulls import separate
from ssmarl.control.liveness import Liveness, LivenessState, escape
from ssmarl.control.local_view import Bodies, LocalView
from ssmarl.control.nearest_action import nearest_allowed, nearest_point
from ssmarl.diffsim.geodesic import GeodesicConfig, solve_geodesic
from ssmarl.env.geometry import closest_approach, direction
from ssmarl.eval.episodes import run_episode
from ssmarl.optim.cg import conjugate_gradient
from ssmarl.optim.constrained_step import Problem, solve
from ssmarl.rl.gae import gae
from ssmarl.rl.rollout import rollout
from ssmarl.rl.subproblem import own_subproblem
from tests.helpers import replace

ENV = ssmarl.make("navigation", 4, episode_length=6)
CROWD = ssmarl.make("navigation", 9, side_scale=0.4, episode_length=3)
"""More bodies than the classical filters keep."""
UNICYCLE = ssmarl.make("navigation", 3, dynamics="unicycle")


@functools.cache
def states(name: str, count: int) -> Any:
    """Random states of a world, in motion and close together, [count, …]."""
    env = {"env": ENV, "crowd": CROWD, "unicycle": UNICYCLE}[name]
    start = jax.vmap(env.reset)(jax.random.split(jax.random.key(3), count))
    rng = np.random.default_rng(4)
    velocity = rng.uniform(-1, 1, start.velocity.shape)
    if name == "unicycle":
        heading = np.asarray(start.body.internal)
        velocity = velocity[..., :1] * np.concatenate([np.cos(heading), np.sin(heading)], -1)
    return replace(start, velocity=jnp.asarray(velocity, jnp.float32))


def state_of(name: str) -> Callable[[np.random.Generator], Any]:
    """Arguments: one state each, in turn."""

    def arguments(rng: np.random.Generator) -> tuple:
        several = states(name, 16)
        chosen = int(rng.integers(16))
        return (jax.tree.map(lambda leaf: leaf[chosen], several),)

    return arguments


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple]:
    """Arguments: normally distributed arrays."""
    return lambda rng: tuple(jnp.asarray(rng.normal(size=s), jnp.float32) for s in shapes)


def view(env, state) -> LocalView:
    return LocalView.of(env, state)


def filtered(name: str, env) -> Callable:
    def act(state):
        wanted = 3 * jnp.sin(7 * state.position)
        return filter_action(name, view(env, state), wanted)

    return act


def allowed(state):
    return nearest_allowed(make_rule(view(ENV, state)), 3 * jnp.sin(9 * state.position), 4)


def escaping(state):
    before = LivenessState.initial(ENV.params.num_agents)
    before = replace(before, wait=0 * before.wait, attempts=jnp.arange(4))
    return escape(Liveness(), view(ENV, state), jnp.ones((4, 2)), before)


def planes(rng: np.random.Generator) -> tuple:
    angle = rng.uniform(0, 2 * math.pi, (5,))
    normals = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    bound = rng.uniform(-0.2, 1.0, (5,))
    present = rng.random(5) < 0.8
    return tuple(
        jnp.asarray(x, jnp.float32) if x.dtype != bool else jnp.asarray(x)
        for x in (rng.normal(size=2), normals, bound, present)
    )


def nearest_row(wanted, normals, bound, present):
    return nearest_point(HalfPlanes(normals[None], bound[None], present[None]), wanted[None])


def problems(rng: np.random.Generator) -> tuple:
    root = rng.normal(size=(3, 6))
    gradient = rng.normal(size=6)
    return tuple(
        jnp.asarray(x, jnp.float32)
        for x in (gradient @ gradient, root @ gradient, root @ root.T, rng.normal(size=3), 0.01)
    )


def step_of(q, r, s, c, delta):
    return solve(Problem(q, r, s, c, delta))


def inverse(root, right):
    matrix = root @ root.T + jnp.eye(5)
    return conjugate_gradient(lambda x: matrix @ x, right, 8)


def advantages(signal, value, after, done):
    return gae(signal, value, after, done > 1, 0.97, 0.9)


def policy():
    return ssmarl.load("pretrained:navigation")


def acting(state):
    shipped = policy()
    return shipped.act(shipped.observe(ENV, state), shipped.initial_state(4))


def over_time(state):
    """The actor's own map over time: three states as one sequence."""
    joint = policy().joint
    following = [state]
    for action in (0.3, -0.5):
        following.append(ENV.step(following[-1], jnp.full((4, 2), action))[0])
    seen = [joint.observe(ENV, one) for one in following]
    sequence = jax.tree.map(lambda *leaves: jnp.stack(leaves), *seen)
    return joint.actor.unroll(sequence, joint.actor.initial_state(4))[0].mean


def episode(key):
    found = run_episode(ENV, controller("pretrained:navigation", filter="certificate"), key)
    return found.reward_team, found.distance, found.filter


def keys(rng: np.random.Generator) -> tuple:
    return (jax.random.key(int(rng.integers(1 << 30))),)


def brake(observed):
    return braking_path(ENV.params, ENV.dynamics, observed, 4)


CASES: dict[str, tuple[Callable, Callable, int]] = {
    "direction": (direction, normal((2,)), 3),
    "closest_approach": (lambda p, v: closest_approach(p, v, 2.0), normal((2,), (2,)), 3),
    "separate": (separate, normal((3, 2), (2, 2)), 3),
    "braking_path": (brake, normal((4,)), 3),
    "nearest_within": (lambda u, n, b, p: nearest_within(u, HalfPlanes(n, b, p), 1.0), planes, 3),
    "nearest_point": (nearest_row, planes, 3),
    "nearest_allowed": (allowed, state_of("env"), 2),
    "certificate": (filtered("certificate", CROWD), state_of("crowd"), 2),
    "certificate, unicycle": (filtered("certificate", UNICYCLE), state_of("unicycle"), 2),
    "orca": (filtered("orca", CROWD), state_of("crowd"), 2),
    "cbf": (filtered("cbf", CROWD), state_of("crowd"), 2),
    "bodies": (lambda s: Bodies.of(view(CROWD, s), 0.02), state_of("crowd"), 2),
    "liveness": (escaping, state_of("env"), 2),
    "reset": (ENV.reset, keys, 2),
    "step": (lambda s: ENV.step(s, jnp.sin(5 * s.position)), state_of("env"), 2),
    "graph": (CROWD.graph, state_of("crowd"), 2),
    "geodesic": (
        lambda s: solve_geodesic(ENV.params, s, GeodesicConfig()),
        state_of("env"),
        1,
    ),
    "policy": (acting, state_of("env"), 2),
    "actor over time": (over_time, state_of("env"), 1),
    "rollout": (lambda key: rollout(ENV, policy().joint, key)[0].result.reward, keys, 1),
    "episode": (episode, keys, 1),
    "gae": (advantages, normal((7, 2), (7, 2), (7, 2), (7, 2)), 3),
    "subproblem": (
        lambda agent: own_subproblem(ENV, agent),
        lambda rng: (jnp.asarray(rng.integers(4)),),
        1,
    ),
    "constrained step": (step_of, problems, 3),
    "conjugate gradients": (inverse, normal((5, 5), (3, 5)), 3),
    "penetration": (lambda s: penetration(ENV, ENV.graph(s), 0.01), state_of("env"), 2),
    "worst_ahead": (lambda h, v: worst_ahead(h, v, 0.9, 0.8), normal((5, 3), (6, 3)), 2),
    "permutation": (lambda key: jax.random.permutation(key, 9), keys, 1),
}
"""Function of one case, its arguments from a generator, and how deep it is mapped."""

SIZES = (2, 3, 4)
"""Of the mapped axes: episodes, agents, neighbours."""

MAPPED_IN: dict[str, tuple[str, ...]] = {
    "env/autoreset": ("reset", "step"),
    "nets/actor": ("actor over time",),
    "nets/critic": ("actor over time",),
    "nets/joint_policy": ("policy", "actor over time"),
    "rl/critics": ("actor over time",),
    "rl/samples": ("actor over time",),
    "rl/rollout": ("reset", "rollout"),
    "rl/subproblem": ("subproblem",),
    "rl/chunks": ("permutation",),
    "rl/advantages": ("rollout", "graph", "gae"),
    "diffsim/geodesic": ("geodesic",),
    "diffsim/analytic": ("geodesic", "step", "policy"),
    "diffsim/checks": ("step", "policy"),
    "optim/trust_region": ("conjugate gradients",),
    "optim/constrained_step": ("constrained step",),
    "optim/cg": ("conjugate gradients",),
    "algos/ppo": ("policy",),
    "algos/tem": ("policy",),
    "algos/dgppo": ("penetration", "worst_ahead", "rollout"),
    "control/filters": ("orca", "cbf", "nearest_within"),
    "control/local_view": ("bodies",),
    "control/compaction": ("nearest_allowed", "certificate", "certificate, unicycle"),
    "eval/episodes": ("episode",),
    "train/checks": ("step",),
    "testing/envs": ("step",),
    "bench/env": ("graph",),
    "bench/train": ("rollout",),
    "core/compiler": (),
}
"""Files that map functions, and the cases that stand for them; the last checks the compiler."""


SLOW = ("certificate, unicycle",)
"""To compile, half a minute; the others together take as long."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES],
)
def test_mapped_equals_looped(name):
    function, arguments, depth = CASES[name]
    sizes = SIZES[:depth]
    rng = np.random.default_rng(sum(map(ord, name)))
    cases = [arguments(rng) for _ in range(math.prod(sizes))]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *cases)
    mapped = function
    for _ in sizes:
        mapped = jax.vmap(mapped)
    shaped = jax.tree.map(lambda leaf: leaf.reshape(*sizes, *leaf.shape[1:]), stacked)
    together = jax.device_get(jax.jit(mapped)(*shaped))
    alone = jax.jit(function)
    for i, case in enumerate(cases):
        place = np.unravel_index(i, sizes)
        expected = jax.device_get(alone(*case))
        found = jax.tree.map(lambda leaf, place=place: leaf[place], together)
        jax.tree.map(close, found, expected)


def close(found: Any, expected: Any) -> None:
    """Equal but for rounding."""
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_every_file_that_maps_something_has_its_cases():
    root = Path(ssmarl.__file__).parent
    maps = re.compile(r"\bjax\.vmap\(|filter_vmap\(|custom_vmap\(")
    code = {
        str(file.relative_to(root).with_suffix("")): re.sub(r'"""[\s\S]*?"""', "", file.read_text())
        for file in root.rglob("*.py")
    }
    found = {name for name, text in code.items() if maps.search(text)}
    assert found == set(MAPPED_IN)
    assert {case for cases in MAPPED_IN.values() for case in cases} <= set(CASES)
