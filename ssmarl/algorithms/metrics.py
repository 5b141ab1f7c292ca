"""How the team does, in numbers that every algorithm logs."""

import jax
import jax.numpy as jnp

from ssmarl.algorithms.algorithm import Metrics
from ssmarl.nets.team import Team
from ssmarl.optim.update import Sharing
from ssmarl.world.env import Env, Outcome


def outcome_metrics(env: Env, outcome: Outcome, sharing: Sharing) -> Metrics:
    """Of whole episodes [E, T, …], with the noise of training."""
    names = [item.name for item in env.constraints]
    arrived = outcome.distance[:, -1] < env.world.reach
    cost = outcome.cost.sum(axis=1)
    shown = {
        "reward": outcome.reward.sum(axis=(1, 2)).mean(),
        "cost": outcome.contacts.sum(axis=(1, 2)).mean() / env.world.num_agents,
        **{f"cost_{name}": cost[..., c].mean() for c, name in enumerate(names)},
        "success": arrived.all(axis=-1).mean(),
        "reach": arrived.mean(),
        "safe": (outcome.contacts.sum(axis=1) == 0).mean(),
    }
    shown = sharing.mean(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), shown))
    worst = sharing.mean(cost.mean(axis=0)).max(axis=0)
    return {**shown, **{f"worst_{name}": worst[c] for c, name in enumerate(names)}}


def spread(team: Team) -> Metrics:
    """Mean standard deviation of the actions."""
    actor = team.actor
    return {"std": jnp.maximum(jnp.exp(actor.log_std), actor.config.least_std).mean()}
