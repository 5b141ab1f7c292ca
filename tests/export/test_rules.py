"""Every rule of the conversion, alone: onnxruntime against JAX, at two sizes of one model."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jax import export, lax

from ssmarl.core.errors import InputError
from ssmarl.export.onnx_model import build_model

INDEX = np.array([[0, 2], [1, 1], [2, 0]], np.int32)


def loop(x, y):
    """Carried values, a constant and a captured array."""
    return lax.fori_loop(0, 5, lambda i, c: (c[0] * 0.5 + y, c[1] + c[0].sum(axis=1)), (x, x[:, 0]))


FUNCTIONS = {
    "arithmetic": lambda x, y: (x + y, x - y, x * y, x / (1 + y * y), -x, abs(x), x**3, x**2),
    "powers": lambda x, y: (jnp.exp(x), jnp.log(1 + y * y), jnp.sqrt(x * x), lax.rsqrt(1 + x * x)),
    "waves": lambda x, y: (jnp.sin(x), jnp.cos(x), jnp.tanh(x), jax.nn.sigmoid(x), jnp.floor(x)),
    "comparisons": lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y, jnp.sign(x)),
    "logic": lambda x, y: ((x > 0) & (y > 0), (x > 0) | (y > 0), ~(x > 0), jnp.isfinite(1 / x)),
    "chosen_flags": lambda x, y: (jnp.where(x > y, x > 1, y > 1), lax.optimization_barrier((x, y))),
    "bounds": lambda x, y: (jnp.clip(x, -0.5, 0.5), jnp.minimum(x, y), jnp.maximum(x, y)),
    "choice": lambda x, y: (jnp.where(x > y, x, y), jax.nn.relu(x), jax.nn.softmax(x, axis=1)),
    "remainder": lambda x, y: (lax.rem(x, y), jnp.arange(x.shape[0]) % 2),
    "types": lambda x, y: (x.astype(jnp.int32), (x > 0).astype(jnp.float32), x.astype(bool)),
    "sums": lambda x, y: (x.sum(axis=0), x.max(axis=1), x.min(axis=1), (x > y).any(axis=1)),
    "flags": lambda x, y: ((x > y).all(axis=0), x.argmax(axis=1), x.argmin(axis=1)),
    "largest": lambda x, y: lax.top_k(x, 2),
    "product": lambda x, y: (
        x @ np.ones((4, 3), np.float32),
        x[:, None] @ np.eye(4, dtype=np.float32),
    ),
    "shapes": lambda x, y: (x.reshape(x.shape[0], 2, 2), x.T, x[:, None], jnp.stack([x, y], -1)),
    "joined": lambda x, y: (jnp.concatenate([x, y, x[:, :1]], axis=1), jnp.split(x, [1], axis=1)),
    "broadcast": lambda x, y: (jnp.broadcast_to(x[:, None, :1], (x.shape[0], 5, 4)), x + 1),
    "parts": lambda x, y: (x[:, 0], x[:, 1:3], x[1:], x[:, ::2], jnp.pad(x, ((0, 0), (1, 2)))),
    "written": lambda x, y: (x.at[:, 1:3].set(y[:, :2]), x.at[:, 0].set(7.0)),
    "rows": lambda x, y: (x[INDEX], x[:, INDEX]),
    "along": lambda x, y: jnp.take_along_axis(x, y.argmax(axis=1)[:, None], axis=1),
    "along_wide": lambda x, y: jnp.take_along_axis(
        jnp.stack([x, y], -1), x.argmax(axis=1)[:, None, None], axis=1
    ),
    "loop": loop,
    "size": lambda x, y: x / x.shape[0],
}


def converted(function, *shapes):
    """A session of the function for arguments of any length."""
    (a,) = export.symbolic_shape("a", constraints=["a >= 3"])
    specs = [jax.ShapeDtypeStruct((a, *shape), jnp.float32) for shape in shapes]
    flat = lambda *args: jax.tree.leaves(function(*args))  # noqa: E731
    closed = jax.make_jaxpr(flat)(*specs)
    names = tuple(f"in_{i}" for i in range(len(specs)))
    outputs = tuple(f"out_{i}" for i in range(len(closed.out_avals)))
    model = build_model(closed, names, outputs, {}).SerializeToString()
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]), flat


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_rule_computes_what_jax_computes(name):
    session, flat = converted(FUNCTIONS[name], (4,), (4,))
    rng = np.random.default_rng(0)
    for size in (3, 8):
        x, y = rng.normal(size=(2, size, 4)).astype(np.float32)
        y[0] = x[0]
        inputs = {
            item.name: value for item, value in zip(session.get_inputs(), (x, y), strict=False)
        }
        wanted_all = flat(jnp.asarray(x), jnp.asarray(y))
        for got, wanted in zip(session.run(None, inputs), wanted_all, strict=True):
            got = np.asarray(got)  # noqa: PLW2901
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


def test_what_has_no_rule_is_named():
    with pytest.raises(InputError, match="cumsum has no rule"):
        converted(lambda x: jnp.cumsum(x, axis=1), (4,))
    with pytest.raises(InputError, match="known only at run time"):
        converted(lambda x: x.at[jnp.argmax(x[:, 0])].set(0.0), (4,))
