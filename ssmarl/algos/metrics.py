"""Metrics that algorithms log: how the team does, and how updates go."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algos.base import Metrics
from ssmarl.algos.limits import CostTracker
from ssmarl.core.devices import Collectives
from ssmarl.env.env import Env, StepResult
from ssmarl.optim.constrained_step import Case
from ssmarl.optim.trust_region import UpdateInfo


def episode_metrics(env: Env, result: StepResult, collectives: Collectives) -> Metrics:
    """Of whole episodes [E, T, …], with the action noise of training."""
    names = [item.name for item in env.constraints]
    arrived = result.distance[:, -1] < env.params.arrival_radius
    cost = result.cost.sum(axis=1)
    means = {
        "reward": result.reward.sum(axis=(1, 2)).mean(),
        "contacts": result.contacts.sum(axis=(1, 2)).mean() / env.params.num_agents,
        **{f"cost_{name}": cost[..., c].mean() for c, name in enumerate(names)},
        "success": arrived.all(axis=-1).mean(),
        "reach": arrived.mean(),
        "safe": (result.contacts.sum(axis=1) == 0).mean(),
    }
    if env.filter is not None:
        means["filter_interventions"] = result.intervened.mean()
    means = collectives.mean(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), means))
    worst = collectives.mean(cost.mean(axis=0)).max(axis=0)
    return {**means, **{f"worst_{name}": worst[c] for c, name in enumerate(names)}}


def row_names(env: Env, rows: int) -> list[str]:
    """A name for every constraint row: the constraint's, with the agent's index if it has one."""
    names = [item.name for item in env.constraints]
    if rows == len(names):
        return names
    return [f"{name}_agent{agent}" for agent in range(env.params.num_agents) for name in names]


def update_metrics(env: Env, info: UpdateInfo, tracker: CostTracker) -> Metrics:
    """Of the constrained steps of an iteration, means over subproblems (leading axis)."""
    step, search = info.step, info.search
    rejected = ~search.accepted
    names = row_names(env, step.nu.shape[1])
    by_row = {"nu": step.nu, "tracked_cost": tracker.cost, "integral": tracker.integral}
    by_row |= {"agreement": info.agreement[:, 1:], "transfer": info.transfer[:, 1:]}
    values = {
        "step_free": (step.case == Case.FREE) & ~rejected,
        "step_constrained": (step.case == Case.CONSTRAINED) & ~rejected,
        "step_recovery": (step.case == Case.RECOVERY) & ~rejected,
        "step_rejected": rejected,
        "not_finite": ~info.finite,
        "kl": jnp.where(search.accepted, search.improvement.kl, 0.0),
        "step_fraction": search.fraction,
        "line_search_tries": search.tries,
        "std": info.std,
        "lambda": step.lam,
        "agreement_reward": info.agreement[:, 0],
        "transfer_reward": info.transfer[:, 0],
        **{
            f"{kind}_{name}": values[:, row]
            for kind, values in by_row.items()
            for row, name in enumerate(names)
        },
    }
    return {name: value.astype(jnp.float32).mean() for name, value in values.items()}


def explained_metrics(env: Env, explained: Float[Array, " S"]) -> Metrics:
    """Explained variance of each critic's stream: the reward, then the costs."""
    names = ["reward", *(item.name for item in env.constraints)]
    return {f"explained_{name}": value for name, value in zip(names, explained, strict=False)}
