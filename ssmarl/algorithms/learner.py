"""SS-MARL's settings, each with its source, and the state that one iteration hands to the next."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algorithms.common import CommonConfig
from ssmarl.algorithms.ledger import Ledger
from ssmarl.algorithms.scope import CostScope
from ssmarl.errors import InputError
from ssmarl.nets.actor import ActorConfig
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.encoding import Encoding
from ssmarl.nets.message_passing import GraphNetConfig
from ssmarl.nets.team import AnyActorConfig, Team
from ssmarl.optim.update import Report, StepConfig
from ssmarl.rl.pathwise import Pathwise
from ssmarl.rl.values import ValueConfig, Values
from ssmarl.settings import SHARE, check_ranges
from ssmarl.world.env import Outcome


@dataclass(frozen=True)
class SsmarlConfig(CommonConfig):
    """Settings of SS-MARL. "Paper" is the appendix's table; the rest is measured (docs)."""

    gradient: Literal["pathwise", "score"] = "pathwise"
    """Through the differentiable world, or by likelihood ratios (paper)."""
    order: Literal["pooled", "sequential"] = "pooled"
    """With shared parameters: one step over all agents' samples, or one per agent in turn."""
    cost_credit: Literal["own", "joint"] = "own"
    """What `score` blames an agent for: its own costs (paper), or everyone's. Own costs are less
    noisy, but miss what agents do to each other; costs that all share need joint. `pathwise` always
    knows what agents do to each other."""
    cost_scope: CostScope = "mean"
    """Whose costs keep the limits: the agents' mean, each agent's, or the team's sum. Agents that
    take turns (share=false, order=sequential) keep each their own."""
    fisher_share: float = 0.1
    """Share of the chunks that the Fisher matrix and KL divergence are estimated from."""
    loose_start: float = 2.0
    """Limits begin this much above their own, in cost per agent and episode, …"""
    loose_until: float = 0.15
    """… and tighten to it until this share of training: a tight limit from the start freezes."""
    haste: float = 0.3
    """Largest share of a cost above its limit that one step is asked to take off; 1: all of it."""
    calm: float = 0.3
    """Share of the trust region's radius that is left at the end of training: large steps learn
    fast, small ones settle."""
    cost_memory: float = 0.8
    """How much of the old estimate of episode costs is kept an iteration; 0: only the newest."""
    make_up: float = 0.05
    """Share of an iteration's excess over a limit that later ones are asked to make up for."""
    actor: AnyActorConfig = ActorConfig(
        graph=GraphNetConfig(widths=(32, 64), encoding=Encoding(ahead=0.8)),
        log_std=-1.5,
        least_std=0.15,
    )
    value: ValueConfig = ValueConfig()
    step: StepConfig = StepConfig(delta=0.3, iterations=8)
    path: Pathwise = Pathwise()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(
            self,
            fisher_share=SHARE,
            loose_start=(0, 1e12),
            loose_until=SHARE,
            haste=SHARE,
            calm=(1e-6, 1),
            cost_memory=(0, 0.9999),
            make_up=SHARE,
        )
        if self.gradient == "pathwise" and self.order == "sequential" and self.share:
            raise InputError("order=sequential with shared parameters needs gradient=score")
        if self.cost_credit == "joint" and not (self.in_one_step and self.cost_scope != "each"):
            raise InputError(
                "cost_credit=joint needs share=true, order=pooled, cost_scope=mean or team"
            )
        if self.cost_scope == "team" and not self.in_one_step:
            raise InputError("cost_scope=team needs share=true, order=pooled")

    @property
    def in_one_step(self) -> bool:
        """All agents' samples make one step; otherwise every agent takes its turn."""
        return self.share and self.order == "pooled"


_PLAIN = GraphNetConfig(encoding=Encoding(rich=False, radius=False, goal_bound=None))
PAPER = SsmarlConfig(
    gradient="score",
    reward_scope="team",
    fisher_share=1.0,
    loose_start=0.0,
    loose_until=0.0,
    haste=1.0,
    calm=1.0,
    cost_memory=0.0,
    make_up=0.0,
    actor=ActorConfig(graph=_PLAIN, log_std=-0.5, least_std=0.0, mean_bound=None),
    value=ValueConfig(
        critic=CriticConfig(graph=_PLAIN, own_vertex=False), learning_rate=7e-3, epochs=5
    ),
    step=StepConfig(delta=0.05, iterations=10, first=0.05),
)
"""The paper to the letter: team reward, plain edge features, Graph Aggregation critics."""

PRESETS = {"default": SsmarlConfig(), "paper": PAPER}


class Learner(eqx.Module):
    """All that learning carries from one iteration to the next."""

    team: Team
    values: Values | None
    """Critics, where the estimator needs them."""
    ledger: Ledger
    """What costs have been so far."""


class Schedule(eqx.Module):
    """What changes as training goes on."""

    slack: Float[Array, ""]
    """By how much limits are loosened at present."""
    calm: Float[Array, ""]
    """Share of the trust region in use."""


def schedule(config: SsmarlConfig, progress: Float[Array, ""]) -> Schedule:
    """At a share of training from 0 to 1: slack falls to 0 evenly, the radius geometrically."""
    tightened = progress / config.loose_until if config.loose_until > 0 else jnp.ones(())
    return Schedule(
        slack=config.loose_start * jnp.maximum(0.0, 1 - tightened),
        calm=jnp.asarray(config.calm) ** progress,
    )


class Progress(eqx.Module):
    """What an estimator made of an iteration."""

    learner: Learner
    outcome: Outcome
    """Of every environment and step [E, T, …]."""
    reports: Report
    """One per step taken [agents in turn, or 1]."""
    explained: Float[Array, " R"]
    """Share of the variance of returns that each critic explains; NaN without critics."""
