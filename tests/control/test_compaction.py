"""Computing only the rows that need it gives what computing all of them gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssmarl.control.certificate import make_rule
from ssmarl.control.compaction import chunk_size, flat_under_vmap, map_selected
from ssmarl.control.local_view import LocalView
from ssmarl.control.nearest_action import nearest_allowed, search, settle
from ssmarl.env.dynamics.base import bound_action
from tests.control.test_certificate import certified_states, wanted, world


def double(rows):
    """Something that differs from row to row."""
    return {"sum": rows[0] + rows[1][:, 0], "both": 2 * rows[1]}


@pytest.mark.parametrize("chunk", [1, 3, 8, 50])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_selected_rows_are_computed_and_the_others_left(chunk, share):
    rng = np.random.default_rng(int(10 * share) + chunk)
    rows = (
        jnp.asarray(rng.normal(size=29), jnp.float32),
        jnp.asarray(rng.normal(size=(29, 2)), jnp.float32),
    )
    selected = jnp.asarray(rng.random(29) < share)
    default = {"sum": jnp.zeros(29), "both": jnp.ones((29, 2))}
    found = jax.jit(lambda r, s: map_selected(double, r, s, default, chunk))(rows, selected)
    every = double(rows)
    np.testing.assert_array_equal(found["sum"], np.where(selected, every["sum"], 0))
    np.testing.assert_array_equal(found["both"], np.where(selected[:, None], every["both"], 1))


def test_mapped_twice_it_equals_a_plain_loop():
    rng = np.random.default_rng(5)
    values = jnp.asarray(rng.normal(size=(3, 4, 7)), jnp.float32)
    selected = jnp.asarray(rng.random((3, 4, 7)) < 0.3)
    shift = jnp.asarray(rng.normal(size=7), jnp.float32)  # the same for all: not mapped

    def some(values, shift, selected):
        return map_selected(lambda row: row[0] * row[1], (values, shift), selected, values, 5)

    flat = flat_under_vmap(some)
    mapped = jax.vmap(jax.vmap(flat, (0, None, 0)), (0, None, 0))(values, shift, selected)
    for i in range(3):
        for j in range(4):
            alone = np.where(selected[i, j], values[i, j] * shift, values[i, j])
            np.testing.assert_allclose(mapped[i, j], alone, rtol=1e-6)


@pytest.mark.parametrize("name", ["box", "unicycle"])
def test_the_search_of_a_few_agents_equals_the_search_of_all(name):
    """In chunks of 3, of all at once, and per row with neither compaction nor `settle`."""
    env = world(name)
    state = jax.tree.map(lambda leaf: leaf[:60], certified_states(name, 900, 20))
    nominal = wanted(state, 21)
    rule = jax.jit(jax.vmap(lambda s: make_rule(LocalView.of(env, s))))(state)

    def run(chunk):
        return jax.jit(jax.vmap(lambda r, u: nearest_allowed(r, u, chunk)))(rule, nominal)

    few, whole = run(3), run(180)
    np.testing.assert_array_equal(few[1], whole[1])
    np.testing.assert_allclose(few[0], whole[0], atol=1e-6)

    def plain(rule, nominal):
        nominal = bound_action(env.params, nominal)
        direct = rule.allows(rule.path(nominal))
        action, settled = settle(rule, nominal)
        action = jnp.where(settled[:, None], action, search(rule, nominal)[0])
        return jnp.where(direct[:, None], nominal, action)

    np.testing.assert_allclose(few[0], jax.jit(jax.vmap(plain))(rule, nominal), atol=1e-6)


def test_what_settles_at_once_is_what_a_search_finds():
    env = world("box")
    state = certified_states("box", 1500, 22)
    nominal = wanted(state, 23)

    def both(state, nominal):
        rule = make_rule(LocalView.of(env, state))
        nominal = bound_action(env.params, nominal)
        action, settled = settle(rule, nominal)
        found, _ = search(rule, nominal)
        direct = rule.allows(rule.path(nominal))

        def far(u):
            return jnp.linalg.norm(u - nominal, axis=-1)

        return settled & ~direct, far(action) - far(found)

    settled, worse = jax.jit(jax.vmap(both))(state, nominal)
    assert int(settled.sum()) > 100
    assert float(worse[settled].max()) <= 0.01
    assert float(jnp.quantile(worse[settled], 0.95)) <= 1e-4


def test_gradients_pass_where_the_nominal_action_is_allowed_and_only_there():
    env = world("box")
    state = jax.tree.map(lambda leaf: leaf[:40], certified_states("box", 600, 24))
    nominal = wanted(state, 25)
    nominal = jnp.where(jnp.isnan(nominal), 0.0, nominal)

    def total(nominal):
        def one(state, nominal):
            return nearest_allowed(make_rule(LocalView.of(env, state)), nominal)[0]

        return jax.vmap(one)(state, nominal).sum()

    gradient = jax.jit(jax.grad(total))(nominal)

    def is_direct(state, nominal):
        rule = make_rule(LocalView.of(env, state))
        return rule.allows(rule.path(bound_action(env.params, nominal)))

    direct = jax.jit(jax.vmap(is_direct))(state, nominal)
    within = direct[..., None] & (jnp.abs(nominal) < 1)
    np.testing.assert_array_equal(gradient, within.astype(jnp.float32))


def test_chunks_grow_with_the_number_of_rows():
    assert [chunk_size(n) for n in (3, 100, 1000, 10_000)] == [32, 32, 125, 1250]
