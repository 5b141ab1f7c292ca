"""IPPO against JaxMARL's interface, with JaxMARL's own logger around the environment.

    python examples/clients/jaxmarl_ippo.py

The learner knows nothing of ssmarl: one network for all agents, dictionaries by agent, environments
mapped, time scanned, everything in one compiled function. JaxMARL's `LogWrapper` sums the returns
of episodes; costs are in `infos`.
"""

# pyright: reportMissingImports=false
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxmarl.wrappers.baselines import LogWrapper

from ssmarl.adapters.jaxmarl import JaxMarlEnv

ENVS, STEPS, EPOCHS, MINIBATCHES = 32, 50, 4, 4
GAMMA, LAMBDA, CLIP, RATE = 0.99, 0.95, 0.2, 1e-3
HIDDEN = 64


class Transition(NamedTuple):
    """One step of all actors (agents of all environments)."""

    observation: Any
    action: Any
    log_prob: Any
    value: Any
    reward: Any
    done: Any


def init(key: Any, observations: int, actions: int) -> dict:
    """Weights of actor and critic, two hidden layers each."""
    sizes = {"actor": (observations, HIDDEN, HIDDEN, actions)}
    sizes["critic"] = (observations, HIDDEN, HIDDEN, 1)
    weights: dict = {"log_std": jnp.full(actions, -0.5)}
    for name, widths in sizes.items():
        keys = jax.random.split(jax.random.fold_in(key, len(weights)), len(widths) - 1)
        weights[name] = [
            (jax.nn.initializers.orthogonal(1.0)(k, (fan_in, fan_out)), jnp.zeros(fan_out))
            for k, fan_in, fan_out in zip(keys, widths[:-1], widths[1:], strict=True)
        ]
    return weights


def forward(layers: list, x: Any) -> Any:
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return x @ layers[-1][0] + layers[-1][1]


def log_prob(weights: dict, observation: Any, action: Any) -> Any:
    mean, log_std = forward(weights["actor"], observation), weights["log_std"]
    return jax.scipy.stats.norm.logpdf(action, mean, jnp.exp(log_std)).sum(axis=-1)


def batchify(values: dict, agents: list[str]) -> Any:
    """{agent: [E, ...]} → [agents · E, ...]."""
    return jnp.concatenate([values[agent] for agent in agents])


def unbatchify(values: Any, agents: list[str]) -> dict:
    return dict(zip(agents, jnp.split(values, len(agents)), strict=True))


def loss(weights: dict, batch: Transition, advantage: Any, target: Any) -> Any:
    """PPO's clipped objective and the critic's squared error."""
    ratio = jnp.exp(log_prob(weights, batch.observation, batch.action) - batch.log_prob)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
    value = forward(weights["critic"], batch.observation)[:, 0]
    return 0.5 * ((value - target) ** 2).mean() - gain.mean()


def make_train(env: Any, updates: int) -> Any:
    """Key → history of mean episode returns and of costs per agent and episode, one per update."""
    env = LogWrapper(env)
    agents = env.agents
    observations = env.observation_space(agents[0]).shape[0]
    actions = env.action_space(agents[0]).shape[0]
    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(RATE))

    def act(carry: tuple, key: Any) -> tuple:
        weights, state, seen = carry
        key_action, key_step = jax.random.split(key)
        observation = batchify(seen, agents)
        mean = forward(weights["actor"], observation)
        noise = jax.random.normal(key_action, mean.shape)
        action = mean + jnp.exp(weights["log_std"]) * noise
        seen, state, rewards, dones, infos = jax.vmap(env.step)(
            jax.random.split(key_step, ENVS), state, unbatchify(action, agents)
        )
        step = Transition(
            observation,
            action,
            log_prob(weights, observation, action),
            forward(weights["critic"], observation)[:, 0],
            batchify(rewards, agents),
            batchify(dones, agents),
        )
        return (weights, state, seen), (step, infos)

    def advantages(steps: Transition, last: Any) -> Any:
        def back(carry: tuple, step: Transition) -> tuple:
            advantage, following = carry
            going = GAMMA * (1 - step.done)
            error = step.reward + going * following - step.value
            advantage = error + LAMBDA * going * advantage
            return (advantage, step.value), advantage

        start = (jnp.zeros_like(last), last)
        return jax.lax.scan(back, start, steps, reverse=True)[1]

    def update(carry: tuple, key: Any) -> tuple:
        weights, moments, state, seen = carry
        key_act, key_fit = jax.random.split(key)
        (_, state, seen), (steps, infos) = jax.lax.scan(
            act, (weights, state, seen), jax.random.split(key_act, STEPS)
        )
        last = forward(weights["critic"], batchify(seen, agents))[:, 0]
        advantage = advantages(steps, last)
        data = (steps, advantage, advantage + steps.value)
        flat = jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[2:])), data)

        def fit(carry: tuple, rows: Any) -> tuple:
            weights, moments = carry
            gradient = jax.grad(loss)(weights, *jax.tree.map(lambda leaf: leaf[rows], flat))
            change, moments = optimiser.update(gradient, moments, weights)
            return (optax.apply_updates(weights, change), moments), None

        count = flat[1].shape[0]
        orders = [jax.random.permutation(k, count) for k in jax.random.split(key_fit, EPOCHS)]
        rows = jnp.concatenate(orders).reshape(EPOCHS * MINIBATCHES, -1)
        (weights, moments), _ = jax.lax.scan(fit, (weights, moments), rows)
        history = {name: infos[name].sum(axis=0).mean() for name in infos if "cost" in name}
        history["return"] = infos["returned_episode_returns"][-1].mean()
        return (weights, moments, state, seen), history

    def train(key: Any) -> dict:
        key, key_init, key_reset = jax.random.split(key, 3)
        weights = init(key_init, observations, actions)
        seen, state = jax.vmap(env.reset)(jax.random.split(key_reset, ENVS))
        start = (weights, optimiser.init(weights), state, seen)
        return jax.lax.scan(update, start, jax.random.split(key, updates))[1]

    return train


def learn(updates: int = 60, seed: int = 0) -> dict:
    """Train in a world of two agents; returns, and costs by name, per update."""
    env = JaxMarlEnv("navigation", 2, constraints=["collision=1", "speed=5"], episode_length=STEPS)
    # JaxMARL's learners use keys of the older kind.
    return jax.jit(make_train(env, updates))(jax.random.PRNGKey(seed))


if __name__ == "__main__":
    history = jax.device_get(learn())
    for i in range(0, len(history["return"]), 5):
        row = "  ".join(f"{name} {values[i]:8.2f}" for name, values in history.items())
        print(f"update {i:3d}  {row}")
