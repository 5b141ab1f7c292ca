"""SS-MARL: constrained joint policy optimisation of graph policies.

One iteration: play one episode in every environment, estimate how reward and costs change with the
parameters, take the best step inside the trust region that keeps every limit.

Two estimators feed the same step (`gradient`):

* `score` (by_score), the paper's: likelihood ratios times advantages of learned critics;
* `pathwise` (by_path), through the differentiable world: smooth images of reward and costs.

With shared parameters one pooled step is taken over all agents' samples, or one per agent in random
order (`order`); without, agents update their own networks in random order, each taking into account
what those before it have become (Eq. opt1).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algorithms import by_path, by_score
from ssmarl.algorithms.algorithm import Algorithm, Metrics
from ssmarl.algorithms.learner import PRESETS, Learner, Progress, Schedule, SsmarlConfig, schedule
from ssmarl.algorithms.ledger import Ledger
from ssmarl.algorithms.metrics import outcome_metrics, spread
from ssmarl.algorithms.scope import pooled
from ssmarl.errors import InputError
from ssmarl.nets.team import Team
from ssmarl.optim.step import Case
from ssmarl.optim.update import Sharing
from ssmarl.rl.foresight import image_of
from ssmarl.rl.values import Values
from ssmarl.types import Key, Rng
from ssmarl.world.env import Env


def init(env: Env, config: SsmarlConfig, rng: Rng) -> Learner:
    """Untrained networks; settings that cannot work are refused here."""
    costs = len(env.constraints)
    if config.gradient == "pathwise":
        for constraint in env.constraints:
            image_of(constraint)
        if config.path.detours and env.scenario.goal_edges != "target":
            raise InputError(
                f"path.detours: the targets of {env.scenario.name} move with the team, "
                "and ways are found once an episode"
            )
    shape = (env.world.num_agents, costs)
    if config.in_one_step:
        shape = (1, pooled(env, config.cost_scope).limit.shape[0])
    members = None if config.share else env.world.num_agents
    return Learner(
        team=Team.create(rng, config.actor.for_world(env), members),
        values=(
            Values.create(rng, env, (1, costs), config.value)
            if config.gradient == "score"
            else None
        ),
        ledger=Ledger.blank(*shape),
    )


def iterate(
    env: Env,
    config: SsmarlConfig,
    learner: Learner,
    progress: Float[Array, ""],
    keys: Array,
    key: Key,
    sharing: Sharing,
) -> tuple[Learner, Metrics]:
    """One iteration on one device's share of the environments."""
    now = schedule(config, progress)
    estimator = by_path if config.gradient == "pathwise" else by_score
    made = estimator.update(env, config, learner, now, keys, key, sharing)
    return made.learner, _metrics(env, made, now, sharing)


def _metrics(env: Env, made: Progress, now: Schedule, sharing: Sharing) -> Metrics:
    """Everything worth a column: how the team does, and how the update went."""
    reports = made.reports
    step, search = reports.step, reports.search
    names = [item.name for item in env.constraints]
    refused, ledger = ~search.accepted, made.learner.ledger
    went = {
        "free": (step.case == Case.FREE) & ~refused,
        "constrained": (step.case == Case.CONSTRAINED) & ~refused,
        "recovery": (step.case == Case.RECOVERY) & ~refused,
        "refused": refused,
        "not_finite": ~reports.finite,
        "kl": jnp.where(search.accepted, search.promise.kl, 0.0),
        "fraction": search.fraction,
        "tries": search.tries,
        "lambda": step.lam,
        **{f"nu_{row}": step.nu[:, row] for row in range(step.nu.shape[1])},
        **{f"running_{row}": ledger.cost[:, row] for row in range(step.nu.shape[1])},
        **{f"debt_{row}": ledger.debt[:, row] for row in range(step.nu.shape[1])},
        "agreement_reward": reports.agreement[:, 0],
        "transfer_reward": reports.transfer[:, 0],
        **{f"agreement_{row}": reports.agreement[:, 1 + row] for row in range(step.nu.shape[1])},
        **{f"transfer_{row}": reports.transfer[:, 1 + row] for row in range(step.nu.shape[1])},
    }
    return {
        **outcome_metrics(env, made.outcome, sharing),
        "slack": now.slack,
        **spread(made.learner.team),
        **{name: value.astype(jnp.float32).mean() for name, value in went.items()},
        "explained_reward": made.explained[0],
        **{f"explained_{name}": made.explained[1 + c] for c, name in enumerate(names)},
    }


def team(learner: Learner) -> Team:
    """Whoever acts."""
    return learner.team


SSMARL = Algorithm(
    name="ssmarl",
    summary="constrained joint policy optimisation of graph policies (the paper)",
    presets=dict(PRESETS),
    init=init,
    iterate=iterate,
    team=team,
)
