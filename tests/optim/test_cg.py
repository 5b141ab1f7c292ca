"""Conjugate gradients against a dense solve, for several right-hand sides."""

import jax
import jax.numpy as jnp
import numpy as np

from ssmarl.optim.cg import conjugate_gradient


def test_all_right_hand_sides_at_once():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(9, 9))
    H = jnp.asarray(root @ root.T + 0.1 * np.eye(9))
    right = jnp.asarray(rng.normal(size=(3, 9)) * np.array([[1.0], [1e3], [0.0]]))
    solution = jax.jit(lambda right: conjugate_gradient(lambda x: x @ H, right, 40, 1e-7))(right)
    expected = np.linalg.solve(np.asarray(H), np.asarray(right).T).T
    size = np.abs(expected).max(axis=1, keepdims=True) + 1e-9
    np.testing.assert_allclose(solution / size, expected / size, atol=2e-3)
    assert not np.asarray(solution)[2].any()


def test_few_iterations_already_descend():
    """Every iterate lowers ½xᵀHx − bᵀx: a stopped solve is still a step in the right direction."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(9, 9))
    H = jnp.asarray(root @ root.T + 0.1 * np.eye(9))
    b = jnp.asarray(rng.normal(size=(1, 9)))
    last = 0.0
    for iterations in range(1, 6):
        x = conjugate_gradient(lambda x: x @ H, b, iterations)[0]
        value = float(0.5 * x @ H @ x - b[0] @ x)
        assert value < last
        last = value
