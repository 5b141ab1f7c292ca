"""SS-MARL's update from what happened: critics, advantages, surrogates, constrained steps."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algorithms.learner import Learner, Progress, Schedule, SsmarlConfig, track
from ssmarl.algorithms.scope import Scope, alone, pooled
from ssmarl.nets.actor import Actor
from ssmarl.nets.team import Team
from ssmarl.optim.update import Report, Sharing, constrained_update
from ssmarl.rl.advantages import gae
from ssmarl.rl.chunks import chunk_length, first_of_chunks, in_chunks, some_of
from ssmarl.rl.rollout import Rollout, play
from ssmarl.rl.score import Samples, Sight, surrogate
from ssmarl.rl.values import explained_variance, fit
from ssmarl.types import Count, Key
from ssmarl.world.env import Env, Outcome


def update(
    env: Env,
    config: SsmarlConfig,
    learner: Learner,
    now: Schedule,
    keys: Array,
    key: Key,
    sharing: Sharing,
) -> Progress:
    """One iteration."""
    fit_key, order_key, sample_key = jax.random.split(key, 3)
    rollout, last = jax.vmap(lambda key: play(env, learner.team, key))(keys)
    states = jax.tree.map(
        lambda run, end: jnp.concatenate([run, end[:, None]], axis=1), rollout.state, last
    )
    graph = jax.vmap(jax.vmap(env.graph))(states)
    critics = learner.values
    assert critics is not None, "init builds critics for this estimator"
    value, traces = jax.vmap(critics.unroll)(graph)
    advantage, returns = _advantages(config, rollout.outcome, value)
    graph, traces = jax.tree.map(lambda leaf: leaf[:, :-1], (graph, traces))

    length = chunk_length(env.world.episode_length, config.chunk)
    samples = _samples(rollout, graph, advantage, length)
    episode_cost = sharing.mean(rollout.outcome.cost.sum(axis=1).mean(axis=0))
    learner = _track(env, config, learner, episode_cost)
    team, reports = _steps(env, config, learner, samples, now, order_key, sample_key, sharing)
    values = fit(critics, graph, traces, returns, fit_key, config.value, length, sharing)
    explained = explained_variance(value[:, :-1], returns, sharing)
    learner = Learner(team, values, learner.cost, learner.image, learner.weight)
    return Progress(learner, rollout.outcome, reports, explained)


def _track(env: Env, config: SsmarlConfig, learner: Learner, cost: Float[Array, "A C"]) -> Learner:
    """The running means of costs with the newest episodes taken in."""
    newest = pooled(env, config.cost_scope).rows(cost)[None] if config.in_one_step else cost
    tracked = jax.vmap(lambda old, new: track(config, learner, old, new))(learner.cost, newest)
    weight = config.cost_memory * learner.weight + 1 - config.cost_memory
    return Learner(learner.team, learner.values, tracked, learner.image, weight)


def _advantages(
    config: SsmarlConfig, outcome: Outcome, value: Float[Array, "E T1 A R"]
) -> tuple[Float[Array, "E T A R"], Float[Array, "E T A R"]]:
    """Of the reward and of every cost, and the returns that critics should have expected."""
    reward = outcome.reward
    if config.reward_scope == "team":
        reward = jnp.broadcast_to(reward.sum(axis=-1, keepdims=True), reward.shape)
    over = jnp.broadcast_to(outcome.truncated[..., None], reward.shape)

    def estimate(
        signal: Float[Array, "E T A"], value: Float[Array, "E T1 A"], gamma: float
    ) -> tuple[Float[Array, "E T A"], Float[Array, "E T A"]]:
        return jax.vmap(lambda s, v, o: gae(s, v[:-1], v[1:], o, gamma, config.lam))(
            signal, value, over
        )

    signals = [(reward, config.gamma)]
    signals += [(outcome.cost[..., c], config.gamma_cost) for c in range(outcome.cost.shape[-1])]
    pairs = [estimate(signal, value[..., i], gamma) for i, (signal, gamma) in enumerate(signals)]
    advantage, returns = (jnp.stack(part, axis=-1) for part in zip(*pairs, strict=True))
    if config.cost_credit == "joint":
        everyone = advantage[..., 1:].sum(axis=-2, keepdims=True)
        advantage = advantage.at[..., 1:].set(jnp.broadcast_to(everyone, advantage[..., 1:].shape))
    return advantage, returns


def _samples(
    rollout: Rollout, graph: object, advantage: Float[Array, "E T A R"], length: int
) -> Samples:
    return Samples(
        sight=Sight(in_chunks(graph, length), first_of_chunks(rollout.memory, length)),
        action=in_chunks(rollout.action, length),
        log_prob=in_chunks(rollout.log_prob, length),
        advantage=in_chunks(advantage, length),
    )


def _steps(
    env: Env,
    config: SsmarlConfig,
    learner: Learner,
    samples: Samples,
    now: Schedule,
    order_key: Key,
    sample_key: Key,
    sharing: Sharing,
) -> tuple[Team, Report]:
    """One pooled step, or one per agent in random order."""
    agents = env.world.num_agents

    def step(
        team: Team, scope: Scope, agent: Count, factor: Float[Array, "N L A"]
    ) -> tuple[Team, Report]:
        steps = env.world.episode_length
        violation = scope.violation(learner.cost[agent], steps, now.slack, config.haste)
        actor, report = _step(
            config,
            team.member(agent),
            samples,
            scope,
            factor,
            violation,
            steps,
            now,
            sample_key,
            sharing,
        )
        return team.replaced(agent, actor), report

    if config.in_one_step:
        first = jnp.zeros((), jnp.int32)
        scope = pooled(env, config.cost_scope)
        team, report = step(learner.team, scope, first, jnp.ones_like(samples.log_prob))
        return team, jax.tree.map(lambda leaf: leaf[None], report)

    def turn(carry: tuple, agent: Count) -> tuple:
        team, factor = carry
        before = team.member(agent)
        team, report = step(
            team, alone(env, agent), agent, jnp.broadcast_to(factor, samples.log_prob.shape)
        )
        factor = factor * changed(samples, before, team.member(agent), agent)
        return (team, factor), report

    order = jax.random.permutation(order_key, agents)
    start = (learner.team, jnp.ones_like(samples.log_prob[..., :1]))
    (team, _), reports = jax.lax.scan(turn, start, order)
    return team, reports


def changed(samples: Samples, before: Actor, after: Actor, agent: Count) -> Float[Array, "N L 1"]:
    """π_after/π_before of an agent's own actions: its share of the factor M."""
    new, old = samples.sight.policy(after), samples.sight.policy(before)
    ratio = jnp.exp(new.log_prob(samples.action) - old.log_prob(samples.action))
    return ratio[..., agent][..., None]


def _step(
    config: SsmarlConfig,
    actor: Actor,
    samples: Samples,
    scope: Scope,
    factor: Float[Array, "N L A"],
    violation: Float[Array, " rows"],
    steps: int,
    now: Schedule,
    sample_key: Key,
    sharing: Sharing,
) -> tuple[Actor, Report]:
    """One constrained step of one actor, for the agents that the scope gives weight."""
    rows = 1 + violation.shape[0]
    who = jnp.zeros((scope.reward.shape[0], samples.advantage.shape[-1], rows))
    who = who.at[:, 0, 0].set(scope.reward).at[:, 1:, 1:].set(scope.cost)
    chunks = samples.log_prob.shape[0]
    parts = sharing.parts if chunks % sharing.parts == 0 else 1
    sight = samples.sight.some(some_of(chunks, config.fisher_share, sample_key))

    def objective(actor: Actor) -> Float[Array, "P R"]:
        return surrogate(samples, actor, factor, who, parts)

    return constrained_update(
        actor,
        jax.vjp(objective, actor),
        objective,
        sight.policy,
        sight.weight(scope.reward),
        violation,
        config.step,
        steps=steps,
        calm=now.calm,
        sharing=sharing,
    )
