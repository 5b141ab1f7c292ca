"""SS-MARL's update through the world: smooth images of reward and costs, constrained steps."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algorithms.learner import Learner, Progress, Schedule, SsmarlConfig
from ssmarl.algorithms.scope import Scope, alone, pooled
from ssmarl.nets.team import AnyActor, Team
from ssmarl.optim.update import Report, Sharing, constrained_update
from ssmarl.rl.chunks import chunk_length, first_of_chunks, in_chunks, some_of
from ssmarl.rl.pathwise import Imagined, imagine
from ssmarl.rl.score import Sight
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
    order_key, sample_key = jax.random.split(key)

    def turn(learner: Learner, whose: tuple[Scope, Count]) -> tuple[Learner, tuple]:
        scope, agent = whose
        learner, seen, report = _step(
            env, config, learner, scope, agent, now, keys, sample_key, sharing
        )
        return learner, (seen.outcome, report)

    if config.in_one_step:
        scope = pooled(env, config.cost_scope)
        learner, (outcome, report) = turn(learner, (scope, jnp.zeros((), jnp.int32)))
        reports = jax.tree.map(lambda leaf: leaf[None], report)
    else:
        # Each agent's turn is played anew with those before it as they have become: what the
        # factor M estimates from old samples is simulated here.
        order = jax.random.permutation(order_key, env.world.num_agents)
        scopes = jax.vmap(lambda agent: alone(env, agent))(order)
        learner, (outcomes, reports) = jax.lax.scan(turn, learner, (scopes, order))
        outcome = jax.tree.map(lambda leaf: leaf[0], outcomes)
    learner = Learner(learner.team, None, learner.ledger.closed(config.cost_memory))
    explained = jnp.full(1 + len(env.constraints), jnp.nan)
    return Progress(learner, outcome, reports, explained)


def _step(
    env: Env,
    config: SsmarlConfig,
    learner: Learner,
    scope: Scope,
    agent: Count,
    now: Schedule,
    keys: Array,
    sample_key: Key,
    sharing: Sharing,
) -> tuple[Learner, Imagined, Report]:
    """One constrained step of one actor."""
    team, steps = learner.team, env.world.episode_length
    parts = sharing.parts if len(keys) % sharing.parts == 0 else 1
    # What one agent's step counts in the mean of one part: sensitivities are cut in this unit, so
    # that neither the number of devices nor whose costs a row holds matters.
    weight = parts / (len(keys) * steps * env.world.num_agents)
    unit = 1 / (env.world.num_agents * scope.cost.max(axis=(0, 1), initial=0.0))

    def objective(actor: AnyActor) -> tuple[Float[Array, "P R"], Imagined]:
        played = team.replaced(agent, actor)
        seen = jax.vmap(lambda key: imagine(env, played, key, config.path, weight))(keys)
        reward = seen.reward.mean(axis=(1, 2))[:, None]
        rows = jnp.concatenate([reward, unit * scope.rows(seen.cost.mean(axis=1))], axis=1)
        return rows.reshape(parts, -1, rows.shape[1]).mean(axis=1), seen

    here, pull, seen = jax.vjp(objective, team.member(agent), has_aux=True)
    newest_cost, newest_image = jax.tree.map(
        lambda costs: scope.rows(sharing.mean(costs.sum(axis=1).mean(axis=0))),
        (seen.outcome.cost, seen.cost),
    )
    ledger = learner.ledger.entered(
        agent,
        newest_cost,
        newest_image,
        scope.limit,
        now.slack,
        config.cost_memory,
        config.make_up,
    )
    cost, image, debt = ledger.cost[agent], ledger.image[agent], ledger.debt[agent]
    # The images' costs are not contact-steps. Relative changes are taken to agree: a step that
    # halves what is foreseen halves the cost. So violations are brought to the images' units.
    exchange = unit * jnp.clip(image / jnp.maximum(cost, 1e-6), 1e-3, 1e3)
    sight = _sight(env, config, team, seen, sample_key)
    actor, report = constrained_update(
        team.member(agent),
        (here, pull),
        lambda actor: objective(actor)[0],
        sight.policy,
        sight.weight(scope.reward),
        scope.violation(cost, steps, now.slack, config.haste, debt) * exchange,
        config.step,
        whole=steps / exchange,
        calm=now.calm,
        sharing=sharing,
    )
    return Learner(team.replaced(agent, actor), None, ledger), seen, report


def _sight(env: Env, config: SsmarlConfig, team: Team, seen: Imagined, key: Key) -> Sight:
    """Some of the chunks of what was seen."""
    length = chunk_length(env.world.episode_length, config.chunk)
    states = in_chunks(seen.state, length)
    memory = first_of_chunks(seen.memory, length)
    chosen = some_of(states.position.shape[0], config.fisher_share, key)
    states, memory = jax.tree.map(lambda leaf: leaf[chosen], (states, memory))
    return Sight(jax.vmap(jax.vmap(lambda state: team.observe(env, state)))(states), memory)
