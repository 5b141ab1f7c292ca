"""Settings of SS-MARL, each with its source, and its presets."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

from ssmarl.algos.base import AlgorithmConfig, Preset
from ssmarl.algos.limits import LimitConfig
from ssmarl.core.config import COUNT, FRACTION, check_ranges
from ssmarl.core.errors import InputError
from ssmarl.diffsim.rollout import AnalyticConfig
from ssmarl.nets.actor import ActorConfig, RecurrentActorConfig
from ssmarl.nets.aggregation import TeamGraphEncoderConfig
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.deadlock import DeadlockEscapeConfig
from ssmarl.nets.edge_features import EdgeFeatureConfig
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.optim.trust_region import TrustRegionConfig
from ssmarl.rl.critics import CriticFitConfig
from ssmarl.rl.subproblem import CostAggregation


@dataclass(frozen=True)
class SsmarlConfig(AlgorithmConfig):
    """Settings of SS-MARL. "Paper" is the appendix's table; the rest is measured (docs)."""

    estimator: Literal["analytic", "likelihood_ratio"] = "analytic"
    """Gradients through the differentiable world, or by likelihood ratios (paper)."""
    update_order: Literal["pooled", "sequential"] = "pooled"
    """With shared parameters: one step over all agents' samples, or one per agent in turn."""
    minibatches: int = 1
    """Parts of an iteration's samples, each with a constrained step of its own (paper: 2)."""
    center_advantages: bool = True
    """Subtract the batch's mean from every agent's advantages, in likelihood ratios."""
    cost_credit: Literal["own", "joint"] = "own"
    """Costs that likelihood ratios attribute to an agent's actions: its own (paper), or everyone's.
    Own costs are less noisy, but miss what agents do to each other; costs that all share need
    joint. Analytic gradients always include what agents do to each other."""
    cost_aggregation: CostAggregation = "mean"
    """What a limit applies to: the agents' mean, each agent, or the team's sum. Agents with
    separate updates (share_parameters=false, update_order=sequential) each have their own limit."""
    fisher_fraction: float = 0.1
    """Fraction of the chunks on which the Fisher matrix and the KL divergence are estimated."""
    trust_region_decay: float = 0.3
    """Fraction of the trust region's radius at the end of training (geometric): large steps learn
    fast, small ones settle."""
    limits: LimitConfig = LimitConfig()
    actor: ActorConfig = RecurrentActorConfig(
        encoder=GraphEncoderConfig(widths=(32, 64), edges=EdgeFeatureConfig(horizon=0.8)),
        log_std=-1.5,
        min_std=0.15,
    )
    deadlock_escape: DeadlockEscapeConfig = DeadlockEscapeConfig()
    critics: CriticFitConfig = CriticFitConfig()
    trust_region: TrustRegionConfig = TrustRegionConfig(delta=0.3, cg_iterations=8)
    analytic: AnalyticConfig = AnalyticConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(
            self, minibatches=COUNT, fisher_fraction=FRACTION, trust_region_decay=(1e-6, 1)
        )
        if self.estimator == "analytic" and self.minibatches > 1:
            raise InputError("minibatches: analytic gradients use whole episodes, all at once")
        if (
            self.estimator == "analytic"
            and self.update_order == "sequential"
            and self.share_parameters
        ):
            raise InputError(
                "update_order=sequential with shared parameters needs estimator=likelihood_ratio"
            )
        if self.cost_credit == "joint" and not (
            self.pooled and self.cost_aggregation != "per_agent"
        ):
            raise InputError(
                "cost_credit=joint needs share_parameters=true, update_order=pooled, "
                "cost_aggregation=mean or team"
            )
        if self.cost_aggregation == "team" and not self.pooled:
            raise InputError(
                "cost_aggregation=team needs share_parameters=true, update_order=pooled"
            )

    @property
    def pooled(self) -> bool:
        """One step over all agents' samples; otherwise every agent has its own."""
        return self.share_parameters and self.update_order == "pooled"

    @property
    def limit_aggregation(self) -> CostAggregation:
        """What the limits apply to."""
        return self.cost_aggregation if self.pooled else "per_agent"


LIKELIHOOD_RATIO = dataclasses.replace(
    SsmarlConfig(),
    estimator="likelihood_ratio",
    actor=RecurrentActorConfig(
        encoder=GraphEncoderConfig(widths=(32, 64), edges=EdgeFeatureConfig(horizon=0.8)),
        log_std=-1.2,
        min_std=0.05,
    ),
    critics=CriticFitConfig(epochs=2),
    trust_region=TrustRegionConfig(delta=0.02, damping=0.1),
)
"""For worlds without gradients: the paper's estimator with what measurably helps it."""

_PAPER_GRAPH = GraphEncoderConfig(
    # The paper: f2 is an MLP; its depth and width are ours.
    message=32,
    message_layers=2,
    edges=EdgeFeatureConfig(rich=False, radius=False, goal_bound=None),
)
PAPER = SsmarlConfig(
    estimator="likelihood_ratio",
    reward_credit="team",
    trust_region_decay=1.0,
    limits=LimitConfig(
        cost_decay=0.0, integral_gain=0.0, max_reduction=1.0, anneal_start=0.0, anneal_until=0.0
    ),
    actor=RecurrentActorConfig(encoder=_PAPER_GRAPH, log_std=-1.2, mean_bound=None),
    critics=CriticFitConfig(
        # Graph Aggregation beside the own vertex: with the aggregate alone, learning stopped at a
        # success of 20 to 40 % (docs/training.md).
        critic=CriticConfig(encoder=TeamGraphEncoderConfig(graph=_PAPER_GRAPH)),
        learning_rate=7e-3,
        epochs=2,
    ),
    # The line search begins at a twentieth of the step (fraction coefficient): with δ = 4 steps
    # have a KL divergence of 0.05²·4 = 0.01, and remove a twentieth of a violation.
    trust_region=TrustRegionConfig(delta=4.0, damping=0.1, first_fraction=0.05),
)
"""As the paper says: team reward, plain edge features, Graph Aggregation critics, its tables. The
critics read the own vertex beside the aggregate, which the paper's do not. docs/algorithm.md lists
what the paper leaves open, and every deviation."""

PRESETS = {
    "default": Preset(SsmarlConfig()),
    "likelihood_ratio": Preset(LIKELIHOOD_RATIO),
    "paper": Preset(PAPER, unclipped=True),
}
