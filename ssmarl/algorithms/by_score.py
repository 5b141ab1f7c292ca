"""SS-MARL's update from what happened: critics, advantages, surrogates, constrained steps."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algorithms.judged import play_and_judge, rewards_and_costs
from ssmarl.algorithms.learner import Learner, Progress, Schedule, SsmarlConfig
from ssmarl.algorithms.ledger import Ledger
from ssmarl.algorithms.scope import Scope, alone, pooled
from ssmarl.nets.team import AnyActor, Team
from ssmarl.optim.update import Report, Sharing, constrained_update
from ssmarl.rl.chunks import chunk_length, some_of
from ssmarl.rl.score import Samples, surrogate
from ssmarl.rl.values import explained_variance, fit
from ssmarl.types import Count, Key
from ssmarl.world.env import Env


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
    critics = learner.values
    assert critics is not None, "init builds critics for this estimator"
    gammas = (config.gamma, *[config.gamma_cost] * len(env.constraints))
    judged = play_and_judge(
        env,
        learner.team,
        critics,
        keys,
        rewards_and_costs(config.reward_scope),
        gammas,
        config.lam,
    )
    length = chunk_length(env.world.episode_length, config.chunk)
    samples = judged.samples(_credited(config, judged.advantage), length)
    outcome = judged.rollout.outcome
    episode_cost = sharing.mean(outcome.cost.sum(axis=1).mean(axis=0))
    ledger = _entered(env, config, learner.ledger, episode_cost, now)
    learner = Learner(learner.team, critics, ledger)
    team, reports = _steps(env, config, learner, samples, now, order_key, sample_key, sharing)
    values = fit(
        critics, judged.seen, judged.traces, judged.returns, fit_key, config.value, sharing
    )
    explained = explained_variance(judged.value[:, :-1], judged.returns, sharing)
    return Progress(Learner(team, values, ledger), outcome, reports, explained)


def _entered(
    env: Env, config: SsmarlConfig, ledger: Ledger, cost: Float[Array, "A C"], now: Schedule
) -> Ledger:
    """With the newest episodes taken in: pooled, or of each agent by itself."""
    if config.in_one_step:
        scope = pooled(env, config.cost_scope)
        newest, limit = scope.rows(cost)[None], scope.limit
    else:
        newest, limit = cost, alone(env, jnp.zeros((), jnp.int32)).limit
    return ledger.entered(
        slice(None),
        newest,
        ledger.image,
        limit,
        now.slack,
        config.cost_memory,
        config.make_up,
    ).closed(config.cost_memory)


def _credited(config: SsmarlConfig, advantage: Float[Array, "E T A R"]) -> Float[Array, "E T A R"]:
    """Advantages with every agent blamed for its own costs, or for everyone's."""
    if config.cost_credit == "own":
        return advantage
    everyone = advantage[..., 1:].sum(axis=-2, keepdims=True)
    return advantage.at[..., 1:].set(jnp.broadcast_to(everyone, advantage[..., 1:].shape))


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
        cost, debt = learner.ledger.cost[agent], learner.ledger.debt[agent]
        violation = scope.violation(cost, steps, now.slack, config.haste, debt)
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
        factor = factor * samples.changed(before, team.member(agent), agent)
        return (team, factor), report

    order = jax.random.permutation(order_key, agents)
    start = (learner.team, jnp.ones_like(samples.log_prob[..., :1]))
    (team, _), reports = jax.lax.scan(turn, start, order)
    return team, reports


def _step(
    config: SsmarlConfig,
    actor: AnyActor,
    samples: Samples,
    scope: Scope,
    factor: Float[Array, "N L A"],
    violation: Float[Array, " rows"],
    steps: int,
    now: Schedule,
    sample_key: Key,
    sharing: Sharing,
) -> tuple[AnyActor, Report]:
    """One constrained step of one actor, for the agents that the scope gives weight."""
    rows = 1 + violation.shape[0]
    who = jnp.zeros((scope.reward.shape[0], samples.advantage.shape[-1], rows))
    who = who.at[:, 0, 0].set(scope.reward).at[:, 1:, 1:].set(scope.cost)
    chunks = samples.log_prob.shape[0]
    parts = sharing.parts if chunks % sharing.parts == 0 else 1
    sight = samples.sight.some(some_of(chunks, config.fisher_share, sample_key))

    def objective(actor: AnyActor) -> Float[Array, "P R"]:
        return surrogate(samples, actor, factor, who, parts)

    return constrained_update(
        actor,
        jax.vjp(objective, actor),
        objective,
        sight.policy,
        sight.weight(scope.reward),
        violation,
        config.step,
        whole=float(steps),
        calm=now.calm,
        sharing=sharing,
    )
