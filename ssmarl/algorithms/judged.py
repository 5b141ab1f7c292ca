"""Episodes played, and what critics make of them: the beginning of every update from samples."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.nets.team import Memory, Team
from ssmarl.rl.advantages import gae
from ssmarl.rl.chunks import first_of_chunks, in_chunks
from ssmarl.rl.rollout import Rollout, play
from ssmarl.rl.score import Samples, Sight
from ssmarl.rl.values import Values
from ssmarl.world.env import Env, Outcome

Signals = Callable[[Outcome], Float[Array, "E T A R"]]
"""What to learn from an outcome: rewards, then costs, per agent."""


class Judged(eqx.Module):
    """One episode in every environment [E, T, …]."""

    rollout: Rollout
    seen: Any
    """Before each step, as the networks read it."""
    end: Any
    """After the last step."""
    traces: tuple[Memory, ...]
    """The critics' memories after each step."""
    value: Float[Array, "E T1 A R"]
    """What the critics expect, at the end too."""
    advantage: Float[Array, "E T A R"]
    returns: Float[Array, "E T A R"]

    def samples(self, advantage: Float[Array, "E T A R"], length: int) -> Samples:
        """The same in chunks, praised and blamed as given."""
        rollout = self.rollout
        return Samples(
            sight=Sight(in_chunks(self.seen, length), first_of_chunks(rollout.memory, length)),
            action=in_chunks(rollout.action, length),
            log_prob=in_chunks(rollout.log_prob, length),
            advantage=in_chunks(advantage, length),
        )


def play_and_judge(
    env: Env,
    team: Team,
    values: Values,
    keys: Array,
    signals: Signals,
    gammas: tuple[float, ...],
    lam: float,
) -> Judged:
    """Episodes from one key each, with advantages of every signal under its own discount."""
    rollout, last = jax.vmap(lambda key: play(env, team, key))(keys)
    see = jax.vmap(lambda state: team.observe(env, state))
    seen = jax.vmap(see)(with_end(rollout.state, last))
    value, traces = jax.vmap(lambda seen: values.unroll(seen, env.world.num_agents))(seen)
    signal = signals(rollout.outcome)
    over = jnp.broadcast_to(rollout.outcome.truncated[..., None], signal.shape[:-1])

    def estimate(stream: int) -> tuple[Float[Array, "E T A"], Float[Array, "E T A"]]:
        return jax.vmap(lambda s, v, o: gae(s, v[:-1], v[1:], o, gammas[stream], lam))(
            signal[..., stream], value[..., stream], over
        )

    pairs = [estimate(stream) for stream in range(signal.shape[-1])]
    advantage, returns = (jnp.stack(part, axis=-1) for part in zip(*pairs, strict=True))
    end = jax.tree.map(lambda leaf: leaf[:, -1], seen)
    seen, traces = jax.tree.map(lambda leaf: leaf[:, :-1], (seen, traces))
    return Judged(rollout, seen, end, traces, value, advantage, returns)


def with_end(run: Any, end: Any) -> Any:
    """[E, T, …] and what follows [E, …] → [E, T + 1, …]."""
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y[:, None]], axis=1), run, end)


def rewards_and_costs(scope: str, *, contact: float = 0.0, costs: bool = True) -> Signals:
    """Each agent's own reward or the team's sum, contacts priced in; then every cost."""

    def signals(outcome: Outcome) -> Float[Array, "E T A R"]:
        reward = for_agents(outcome.reward + contact * outcome.contacts, scope)[..., None]
        return jnp.concatenate([reward, outcome.cost], axis=-1) if costs else reward

    return signals


def for_agents(reward: Float[Array, "*n A"], scope: str) -> Float[Array, "*n A"]:
    """What each agent is praised for: its own reward, or the team's sum."""
    if scope == "own":
        return reward
    return jnp.broadcast_to(reward.sum(axis=-1, keepdims=True), reward.shape)
