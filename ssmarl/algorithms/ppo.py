"""Clipped policy optimisation (PPO) of any actor: what the baselines share.

One iteration: play one episode in every environment, estimate advantages with learned critics,
climb the clipped surrogate by Adam for some passes over the data, fit the critics. Algorithms
differ in their networks and in what they praise: `Recipe` holds the latter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ssmarl.algorithms.algorithm import Algorithm, Metrics
from ssmarl.algorithms.common import CommonConfig
from ssmarl.algorithms.judged import Judged, play_and_judge, rewards_and_costs
from ssmarl.algorithms.metrics import outcome_metrics, spread
from ssmarl.nets.recurrent import RecurrentActorConfig, RecurrentCriticConfig
from ssmarl.nets.team import AnyActor, AnyActorConfig, Team
from ssmarl.optim.update import Sharing
from ssmarl.rl.chunks import chunk_length, in_passes
from ssmarl.rl.score import Samples, Sight
from ssmarl.rl.values import ValueConfig, Values, explained_variance, fit
from ssmarl.settings import COUNT, POSITIVE, SHARE, check_ranges
from ssmarl.types import Count, Key, Rng
from ssmarl.world.env import Env

Tree = Any


@dataclass(frozen=True)
class PpoConfig(CommonConfig):
    """Settings of PPO (on-policy's MAPPO on particle worlds, unless said)."""

    collision_reward: float = -5.0
    """Added to the reward for every contact, in learning only (paper: −r_goal/2)."""
    clip: float = 0.2
    """Largest change of a likelihood ratio that is praised."""
    epochs: int = 10
    """Passes over the data in an iteration."""
    minibatches: int = 1
    """Parts of each pass."""
    learning_rate: float = 7e-4
    """Of Adam, at the start."""
    fade: float = 0.1
    """Share of the learning rate that is left at the end of training; it falls evenly."""
    epsilon: float = 1e-5
    """Of Adam."""
    gradient_clip: float = 10.0
    """Largest norm of a gradient."""
    entropy: float = 0.01
    """Weight of the entropy of actions."""
    actor: AnyActorConfig = RecurrentActorConfig()
    value: ValueConfig = ValueConfig(critic=RecurrentCriticConfig())

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(
            self,
            clip=(1e-3, 1),
            fade=SHARE,
            epochs=COUNT,
            minibatches=COUNT,
            learning_rate=POSITIVE,
            epsilon=POSITIVE,
            gradient_clip=POSITIVE,
        )

    def optimiser(self) -> optax.GradientTransformation:
        """Adam with a bound on the gradient."""
        return optax.chain(
            optax.clip_by_global_norm(self.gradient_clip),
            optax.adam(self.learning_rate, eps=self.epsilon),
        )


class PpoLearner(eqx.Module):
    """All that learning carries from one iteration to the next."""

    team: Team
    optimiser: optax.OptState
    values: Values
    own: Any
    """The algorithm's own: multipliers, further critics; or None."""


class Now(eqx.Module):
    """Where an iteration stands."""

    progress: Float[Array, ""]
    keys: Array
    """One per environment."""
    key: Key
    sharing: Sharing = eqx.field(static=True)

    def drawing(self, key: Key) -> "Now":
        """With a key of its own for one of its parts."""
        return Now(self.progress, self.keys, key, self.sharing)


Praise = Callable[[Env, Any, PpoLearner, Judged, Now], tuple[Float[Array, "E T A"], Any, Metrics]]
"""(env, config, learner, what was judged, now) → (one advantage per action, the learner's own
state, what to log)."""
Aside = Callable[[AnyActor, Sight], Float[Array, ""]]
"""A further loss of an actor on what it saw."""


@dataclass(frozen=True)
class Recipe:
    """In what an algorithm differs."""

    praise: Praise
    costs: bool = False
    """Learn critics of the costs too."""
    own: Callable[[Env, Any, Rng], Any] = lambda *_: None
    """(env, config, rng) → its own state at the start."""
    aside: Aside | None = None


def praise_reward(
    env: Env, config: PpoConfig, learner: PpoLearner, judged: Judged, now: Now
) -> tuple[Float[Array, "E T A"], Any, Metrics]:
    """The advantage of the reward alone."""
    return standardised(judged.advantage[..., 0], now.sharing), learner.own, {}


def standardised(x: Float[Array, "*n"], sharing: Sharing) -> Float[Array, "*n"]:
    """Zero mean and unit variance over all devices."""
    mean, square = sharing.mean((x.mean(), (x**2).mean()))
    return (x - mean) / jnp.sqrt(jnp.maximum(square - mean**2, 1e-8))


def clipped_gain(
    ratio: Float[Array, "*n"], advantage: Float[Array, "*n"], clip: float
) -> Float[Array, "*n"]:
    """min(ρA, clip(ρ)A): beyond the clip, going further the same way gains nothing."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def algorithm(name: str, summary: str, presets: dict[str, Any], recipe: Recipe) -> Algorithm:
    """An algorithm on this engine."""

    def init(env: Env, config: PpoConfig, rng: Rng) -> PpoLearner:
        members = None if config.share else env.world.num_agents
        team = Team.create(rng, config.actor.for_world(env), members)
        streams = (1, len(env.constraints)) if recipe.costs else (1,)
        start: Callable = config.optimiser().init
        return PpoLearner(
            team,
            jax.jit(start if config.share else jax.vmap(start))(team.actor),
            Values.create(rng, env, streams, config.value),
            recipe.own(env, config, rng),
        )

    def iterate(
        env: Env,
        config: PpoConfig,
        learner: PpoLearner,
        progress: Float[Array, ""],
        keys: Array,
        key: Key,
        sharing: Sharing,
    ) -> tuple[PpoLearner, Metrics]:
        return _iterate(env, config, learner, recipe, Now(progress, keys, key, sharing))

    return Algorithm(name, summary, presets, init, iterate, lambda learner: learner.team)


def _iterate(
    env: Env, config: PpoConfig, learner: PpoLearner, recipe: Recipe, now: Now
) -> tuple[PpoLearner, Metrics]:
    fit_key, learn_key, own_key = jax.random.split(now.key, 3)
    sharing = now.sharing

    signals = rewards_and_costs(
        config.reward_scope, contact=config.collision_reward, costs=recipe.costs
    )
    gammas = (config.gamma, *[config.gamma_cost] * len(env.constraints))
    judged = play_and_judge(
        env, learner.team, learner.values, now.keys, signals, gammas, config.lam
    )
    advantage, own, told = recipe.praise(env, config, learner, judged, now.drawing(own_key))
    length = chunk_length(env.world.episode_length, config.chunk)
    samples = judged.samples(advantage[..., None], length)
    team, optimiser, went = _climb(
        env, config, learner, samples, recipe.aside, now.drawing(learn_key)
    )
    values = fit(
        learner.values, judged.seen, judged.traces, judged.returns, fit_key, config.value, sharing
    )
    explained = explained_variance(judged.value[:, :-1], judged.returns, sharing)
    names = ["reward", *(item.name for item in env.constraints)]
    metrics = {
        **outcome_metrics(env, judged.rollout.outcome, sharing),
        **spread(team),
        **went,
        **told,
        **{f"explained_{name}": value for name, value in zip(names, explained, strict=False)},
    }
    return PpoLearner(team, optimiser, values, own), metrics


def _climb(
    env: Env,
    config: PpoConfig,
    learner: PpoLearner,
    samples: Samples,
    aside: Aside | None,
    now: Now,
) -> tuple[Team, optax.OptState, Metrics]:
    """All agents together, or one after the other with the factor M of those before."""
    agents = env.world.num_agents
    if config.share:
        weight = jnp.full(agents, 1 / agents)
        one: Tree = _improve(
            config, learner.team.actor, learner.optimiser, samples, weight, aside, now
        )
        actor, optimiser, went = one
        return Team(actor, None), optimiser, went
    order_key, learn_key = jax.random.split(now.key)

    def turn(carry: tuple, agent: Count) -> tuple:
        team, optimiser, factor = carry
        before = team.member(agent)
        scaled = eqx.tree_at(lambda s: s.advantage, samples, samples.advantage * factor[..., None])
        actor, state, went = _improve(
            config,
            before,
            jax.tree.map(lambda leaf: leaf[agent], optimiser),
            scaled,
            (jnp.arange(agents) == agent).astype(jnp.float32),
            aside,
            now.drawing(jax.random.fold_in(learn_key, agent)),
        )
        optimiser = jax.tree.map(lambda all, new: all.at[agent].set(new), optimiser, state)
        factor = factor * samples.changed(before, actor, agent)
        return (team.replaced(agent, actor), optimiser, factor), went

    start = (learner.team, learner.optimiser, jnp.ones_like(samples.log_prob[..., :1]))
    (team, optimiser, _), went = jax.lax.scan(
        turn, start, jax.random.permutation(order_key, agents)
    )
    return team, optimiser, {name: value.mean() for name, value in went.items()}


def _improve(
    config: PpoConfig,
    actor: AnyActor,
    state: optax.OptState,
    samples: Samples,
    weight: Float[Array, " A"],
    aside: Aside | None,
    now: Now,
) -> tuple[AnyActor, optax.OptState, Metrics]:
    """Some passes of Adam over the data, for the agents that have weight."""
    optimiser, sharing = config.optimiser(), now.sharing
    pace = 1 - (1 - config.fade) * now.progress

    def loss(actor: AnyActor, batch: Samples) -> tuple[Float[Array, ""], Metrics]:
        policy = batch.sight.policy(actor)
        change = policy.log_prob(batch.action) - batch.log_prob
        ratio, advantage = jnp.exp(change), batch.advantage[..., 0]
        gain = clipped_gain(ratio, advantage, config.clip)
        total = -(gain * weight).sum(axis=-1).mean() - config.entropy * policy.log_std.sum()
        if aside is not None:
            total = total + aside(actor, batch.sight)
        went = {
            "kl": ((ratio - 1 - change) * weight).sum(axis=-1).mean(),
            "clipped": ((jnp.abs(ratio - 1) > config.clip) * weight).sum(axis=-1).mean(),
        }
        return total, went

    def step(carry: Tree, chosen: Array) -> tuple:
        actor, state = carry
        batch = jax.tree.map(lambda leaf: leaf[chosen], samples)
        gradient, went = jax.grad(loss, has_aux=True)(actor, batch)
        updates, state = optimiser.update(sharing.mean(gradient), state)
        updates = jax.tree.map(lambda leaf: pace * leaf, updates)
        return (optax.apply_updates(actor, updates), state), went

    batches = in_passes(samples.log_prob.shape[0], config.epochs, config.minibatches, now.key)
    (actor, state), went = jax.lax.scan(step, (actor, state), batches)
    return actor, state, sharing.mean(jax.tree.map(lambda values: values[-1], went))
