"""SS-MARL: constrained joint policy optimisation of graph policies.

`iteration` is the method on one page. Equations are numbered as in the paper: 1 objective, 2
multi-agent advantage, 3 joint surrogate, 4 sequential update, 5 practical problem, 6 linearised
problem, 7 recovery, 8 β, 9 recovery step.

Two estimators provide the gradients (`estimator`): `likelihood_ratio`, the paper's, and `analytic`,
through the differentiable world. One subproblem is solved for all agents together (shared
parameters), or one for each agent in random order, given the agents updated before it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algos.base import Algorithm, Metrics
from ssmarl.algos.limits import CostTracker
from ssmarl.algos.metrics import episode_metrics, explained_metrics, update_metrics
from ssmarl.algos.ssmarl_config import PRESETS, SsmarlConfig
from ssmarl.core.devices import Collectives
from ssmarl.core.errors import InputError
from ssmarl.core.types import Key, Rng
from ssmarl.diffsim.analytic import AnalyticEstimator
from ssmarl.diffsim.checks import NoGradientError, check_analytic
from ssmarl.env.env import Env
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.optim import trust_region
from ssmarl.optim.constrained_step import MAX_CONSTRAINTS
from ssmarl.rl.advantages import (
    AdvantageBatch,
    centered,
    collect,
    fit_to_batch,
    reward_and_costs,
)
from ssmarl.rl.chunks import chunk_length
from ssmarl.rl.critics import Critics
from ssmarl.rl.estimate import Estimator
from ssmarl.rl.likelihood_ratio import LikelihoodRatioEstimator
from ssmarl.rl.samples import SampleBatch
from ssmarl.rl.subproblem import Subproblem, subproblems

MAX_RATIO_KL = 0.1
"""Largest KL divergence of a step, in nats, for which samples of the old policy are valid: beyond
it likelihood ratios of some actions are tens, and their products noise."""


class SsmarlState(eqx.Module):
    """All that one iteration passes to the next."""

    policy: JointPolicy
    critics: Critics | None
    """Of the reward and of every cost; None for the analytic estimator, which needs none."""
    tracker: CostTracker


def iteration(
    env: Env,
    config: SsmarlConfig,
    state: SsmarlState,
    progress: Float[Array, ""],
    keys: Array,
    key: Key,
    collectives: Collectives,
) -> tuple[SsmarlState, Metrics]:
    """One iteration: episodes → gradient estimates → constrained steps → critics."""
    order_key, batch_key, fit_key = jax.random.split(key, 3)
    slack = config.limits.slack(progress)
    radius_scale = jnp.asarray(config.trust_region_decay) ** progress
    # Trajectories of the joint policy, with advantages of the reward and of each cost (Eq. 2).
    data = collect_batch(env, config, state.policy, state.critics, keys)
    estimator = make_estimator(env, config, data, keys, batch_key, collectives)

    def solve(carry: tuple, subproblem: Subproblem) -> tuple:
        """One actor's subproblem, given the agents updated before it (Eq. 4)."""
        policy, tracker, ratio = carry
        actor = policy.actor_of(subproblem.agent)
        estimate = estimator.estimate(policy, subproblem, ratio)  # Eq. 5
        tracker = tracker.update(subproblem, estimate, slack, config.limits)
        violation = tracker.violation(
            subproblem, estimate, slack, config.limits, env.params.episode_length
        )
        new_actor, info = trust_region.update(  # Eq. 6 to 9
            actor, estimate, violation, config.trust_region, radius_scale, collectives
        )
        if not config.pooled:
            ratio = estimator.update_ratio(ratio, new_actor, subproblem.agent)
        return (policy.with_actor(subproblem.agent, new_actor), tracker, ratio), (
            info,
            estimate.result,
        )

    order = subproblems(env, config.cost_aggregation, config.pooled, config.minibatches, order_key)
    start = (state.policy, state.tracker, estimator.initial_ratio)
    (policy, tracker, _), (info, results) = jax.lax.scan(solve, start, order)
    tracker = tracker.end_iteration(config.limits.cost_decay)

    critics, fit_metrics = state.critics, {}
    if data is not None and critics is not None:
        critics, explained = fit_to_batch(critics, data, fit_key, config.critics, collectives)
        fit_metrics = explained_metrics(env, explained)
    metrics = {
        **episode_metrics(env, jax.tree.map(lambda leaf: leaf[0], results), collectives),
        **update_metrics(env, info, tracker),
        **fit_metrics,
        "limit_slack": slack,
        "simulated_episodes": jnp.ones(()) if data is not None else _replays(info),
    }
    return SsmarlState(policy, critics, tracker), metrics


def _replays(info: trust_region.UpdateInfo) -> Float[Array, ""]:
    """Episodes that analytic gradients play: one per subproblem, and one per line-search try."""
    return (1.0 + info.search.tries).sum()


def collect_batch(
    env: Env, config: SsmarlConfig, policy: JointPolicy, critics: Critics | None, keys: Array
) -> AdvantageBatch | None:
    """One episode per environment, with advantages by GAE; None without critics."""
    if critics is None:
        return None
    gammas = (config.gamma, *[config.gamma_cost] * len(env.constraints))
    signals = reward_and_costs(config.reward_credit)
    return collect(env, policy, critics, keys, signals, gammas, config.gae_lambda)


def make_estimator(
    env: Env,
    config: SsmarlConfig,
    data: AdvantageBatch | None,
    keys: Array,
    key: Key,
    collectives: Collectives,
) -> Estimator:
    """The paper's estimator on a batch of trajectories; without one, analytic gradients.

    Args:
        env: the environment.
        config: settings.
        data: trajectories with advantages.
        keys: of the episodes that analytic gradients play.
        key: of samples.
        collectives: combine devices.
    """
    if data is not None:
        return likelihood_ratio_estimator(env, config, data, key, collectives)
    return AnalyticEstimator(
        env, keys, config.analytic, config.chunk, config.fisher_fraction, key, collectives
    )


def likelihood_ratio_estimator(
    env: Env, config: SsmarlConfig, data: AdvantageBatch, key: Key, collectives: Collectives
) -> LikelihoodRatioEstimator:
    """The paper's estimator on a batch of trajectories."""
    advantage = data.advantage
    if config.center_advantages:
        advantage = centered(advantage, collectives)
    if config.cost_credit == "joint":
        everyone = advantage[..., 1:].sum(axis=-2, keepdims=True)
        everyone = jnp.broadcast_to(everyone, advantage[..., 1:].shape)
        advantage = advantage.at[..., 1:].set(everyone)
    length = chunk_length(env.params.episode_length, config.chunk)
    samples = SampleBatch.from_trajectories(data, advantage, length)
    result = data.trajectory.result
    return LikelihoodRatioEstimator(
        samples, result, config.minibatches, config.fisher_fraction, key, collectives
    )


def init(env: Env, config: SsmarlConfig, rng: Rng) -> SsmarlState:
    """Untrained networks; impossible settings are refused here."""
    agents, costs = env.params.num_agents, len(env.constraints)
    rows = agents * costs if config.pooled and config.cost_aggregation == "per_agent" else costs
    if rows > MAX_CONSTRAINTS:
        raise InputError(
            f"{agents} agents with {costs} constraints, cost_aggregation="
            f"{config.cost_aggregation}, make {rows} constraint rows: at most {MAX_CONSTRAINTS}"
        )
    config.deadlock_escape.check(env)
    policy = JointPolicy.create(
        rng,
        config.actor.for_env(env),
        None if config.share_parameters else agents,
        config.deadlock_escape,
    )
    critics = None
    if config.estimator == "likelihood_ratio":
        critics = Critics.create(rng, env, (1, costs), config.critics)
    tracker = CostTracker.initial(1 if config.pooled else agents, rows)
    return SsmarlState(policy, critics, tracker)


def check(env: Env, config: SsmarlConfig) -> None:
    """Analytic gradients need rewards and costs with a gradient; likelihood ratios small steps."""
    if config.estimator == "analytic":
        check_analytic(env, config.analytic)
        return
    region = config.trust_region
    first = region.first_fraction**2 * region.delta
    if first > MAX_RATIO_KL:
        raise InputError(
            f"trust_region: first steps of a KL divergence of {first:.2g}, where likelihood ratios "
            f"hold up to {MAX_RATIO_KL:g}; --preset likelihood_ratio has settings for them"
        )


def adapt(envs: list[Env], config: SsmarlConfig) -> tuple[SsmarlConfig, str] | None:
    """Default settings on a task without gradients: likelihood ratios, which need none."""
    if config != PRESETS["default"].settings:
        return None
    try:
        for env in envs:
            check_analytic(env, config.analytic)
    except NoGradientError as error:
        return PRESETS["likelihood_ratio"].settings, f"{error}; doing that now"
    return None


SSMARL = Algorithm(
    name="ssmarl",
    summary="constrained joint policy optimisation of graph policies (the paper)",
    presets=PRESETS,
    init=init,
    iteration=iteration,
    policy=lambda state: state.policy,
    check=check,
    adapt=adapt,
)
