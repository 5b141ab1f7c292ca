"""Fisher products against the dense Hessian of the KL divergence."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import ssmarl
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.edge_features import EdgeFeatureConfig
from ssmarl.nets.gaussian import Gaussian, kl_divergence
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.optim.fisher import fisher_product

SMALL = RecurrentActorConfig(
    GraphEncoderConfig(
        embedding=2, hidden=3, widths=(4, 4), message=4, edges=EdgeFeatureConfig(rbf_widths=(0.4,))
    ),
    recurrent_size=3,
)


def test_products_equal_the_dense_hessian():
    """A whole small actor with LSTM, over two steps in time."""
    with jax.enable_x64(True):
        env = ssmarl.make("navigation", 3)
        actor = SMALL.build(np.random.default_rng(1))
        state = jax.jit(env.reset)(jax.random.key(0))
        after, _ = jax.jit(env.step)(state, jnp.ones((3, 2)))
        graphs = [jax.jit(env.graph)(moment) for moment in (state, after)]
        params, static = eqx.partition(actor, eqx.is_inexact_array)
        flat, unravel = ravel_pytree(params)

        def policy(params):
            actor = eqx.combine(params, static)
            first, memory = actor(graphs[0], actor.initial_state(3))
            second, _ = actor(graphs[1], memory)
            return Gaussian(jnp.concatenate([first.mean, second.mean]), first.log_std)

        old = jax.jit(policy)(params)
        weight = jnp.array([0.1, 0.0, 0.2, 0.3, 0.15, 0.25])

        def mean_kl(x):
            return (weight * kl_divergence(old, policy(unravel(x)))).sum()

        hessian = jax.jit(jax.hessian(mean_kl))
        product = jax.jit(fisher_product(policy, params, weight, damping=0.0))
        damped = jax.jit(fisher_product(policy, params, weight, damping=0.3))
        dense = np.asarray(hessian(flat))
        assert np.abs(dense).max() > 0.1
        rng = np.random.default_rng(0)
        for _ in range(5):
            x = jnp.asarray(rng.normal(size=flat.shape))
            np.testing.assert_allclose(ravel_pytree(product(unravel(x)))[0], dense @ x, atol=1e-8)
            np.testing.assert_allclose(
                ravel_pytree(damped(unravel(x)))[0], dense @ x + 0.3 * x, atol=1e-8
            )
