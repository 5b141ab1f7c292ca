"""Contracts of actors and encoders."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ssmarl.core.config import from_json, to_json
from ssmarl.env.env import Env
from ssmarl.env.make import make
from ssmarl.nets.actor import ActorConfig, RecurrentActorConfig
from ssmarl.nets.encoder import EncoderConfig
from ssmarl.testing.envs import assert_finite


def check_actor(config: ActorConfig, env: Env | None = None) -> None:
    """Settings that survive JSON; finite distributions; unrolling equals stepping.

    Args:
        config: of the actor.
        env: where to check it; None: navigation with 4 agents.
    """
    env = env or make("navigation", 4)
    agents = env.params.num_agents
    config = config.for_env(env)
    assert from_json(ActorConfig, to_json(config)) == config, "settings must survive JSON"
    actor = config.build(np.random.default_rng(0))
    observe = jax.jit(lambda key: actor.observe(env, env.reset(key)))
    observations = [observe(key) for key in jax.random.split(jax.random.key(0), 3)]
    call = eqx.filter_jit(lambda actor, o, s: actor(o, s))
    state, means = actor.initial_state(agents), []
    for observation in observations:
        policy, state = call(actor, observation, state)
        assert policy.mean.shape == (agents, env.dynamics.action_dim), "means must be [A, U]"
        assert_finite((policy, state), "actor")
        means.append(policy.mean)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *observations)
    policy, states = eqx.filter_jit(lambda actor, o, s: actor.unroll(o, s))(
        actor, stacked, actor.initial_state(agents)
    )
    np.testing.assert_allclose(
        policy.mean, jnp.stack(means), atol=1e-4, err_msg="unroll must equal stepping"
    )
    for last, every in zip(jax.tree.leaves(state), jax.tree.leaves(states), strict=True):
        np.testing.assert_allclose(last, every[-1], atol=1e-4, err_msg="states of unroll")


def check_encoder(config: EncoderConfig, env: Env | None = None) -> None:
    """The number of features that it announces, and everything that an actor over it needs."""
    env = env or make("navigation", 4)
    filled = config.for_env(env)
    encoder = filled.build(np.random.default_rng(0))
    features = encoder(encoder.observe(env, env.reset(jax.random.key(0))))
    expected = (env.params.num_agents, filled.out)
    assert features.shape == expected, f"features are {features.shape}, out says {expected}"
    check_actor(RecurrentActorConfig(encoder=config, recurrent_size=8), env)
