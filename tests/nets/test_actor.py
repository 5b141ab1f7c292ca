"""The networks: any number of agents, no order, no padding; features that tell left from right."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.env.graph import Edges
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.edge_features import EdgeFeatureConfig, edge_features
from ssmarl.nets.gaussian import Gaussian, kl_divergence
from ssmarl.nets.gnn import GraphEncoder, GraphEncoderConfig
from ssmarl.nets.layers import orthogonal
from tests.helpers import replace

KEY = jax.random.key(0)
ACTOR: Any = RecurrentActorConfig().build(np.random.default_rng(0))
ACT = eqx.filter_jit(lambda actor, graph, memory: actor(graph, memory))


def moving(env, seed=0):
    keys = jax.random.split(jax.random.key(seed))
    state = jax.jit(env.reset)(keys[0])
    return replace(state, velocity=jax.random.normal(keys[1], state.velocity.shape))


def linear(layer, x):
    y = x @ np.asarray(layer.weight)
    return y if layer.bias is None else y + np.asarray(layer.bias)


def normalized(norm, x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * np.asarray(norm.scale)


@pytest.mark.parametrize("depth", [1, 3])
def test_the_encoder_is_the_papers_formulas(depth):
    """Vertex by vertex and edge by edge, with f2 and f4 applied to every edge."""
    config = GraphEncoderConfig(message_layers=depth, message=8)
    encoder = config.build(np.random.default_rng(1))
    env = ssmarl.make("navigation", 6, num_obstacles=4, side_scale=0.6)
    graph = jax.device_get(jax.jit(env.graph)(moving(env, 2)))
    relu = partial(np.maximum, 0.0)
    types = relu(linear(encoder.f1, np.asarray(encoder.type_embedding)))
    vertex = np.stack([types[1]] * 6)
    for k, layer in enumerate(encoder.layers):
        known = types if k == 0 else linear(encoder.type_residual[k - 1], types)
        new = []
        for i in range(6):
            messages = []
            for edges, kind in ((graph.agents, 1), (graph.obstacles, 0), (graph.goals, 2)):
                features = edge_features(
                    config.edges, jax.tree.map(jnp.asarray, edges), goals=kind == 2
                )
                for slot in np.flatnonzero(edges.mask[i]):
                    hears = edges.communicates[i, slot]
                    sender = vertex[edges.source[i, slot]] if hears else known[kind]
                    message = linear(layer.f2_receiver, vertex[i])
                    message = message + linear(layer.f2_edge, np.asarray(features[i, slot]))
                    message = message + linear(layer.f2_sender, sender)
                    if depth > 1:
                        message = normalized(layer.f2_norms[0], message)
                    message = relu(message)
                    for deeper, norm in zip(layer.f2_deeper, layer.f2_norms[1:], strict=True):
                        message = relu(normalized(norm, linear(deeper, message)))
                    messages.append(message)
            score = np.exp([linear(layer.f3, m) for m in messages])
            attention = score / score.sum(axis=0)
            value = np.stack([linear(layer.f4, m).reshape(2, -1) for m in messages])
            received = (attention[..., None] * value).sum(axis=0).ravel()
            new.append(relu(received + linear(layer.residual, vertex[i])))
        vertex = np.stack(new)
    result = eqx.filter_jit(encoder)(jax.tree.map(jnp.asarray, graph))
    np.testing.assert_allclose(result, vertex, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("agents", "obstacles"), [(1, 0), (1, 1), (3, 3), (40, 40), (300, 300)])
def test_the_same_weights_run_at_any_size(agents, obstacles):
    env = ssmarl.make("navigation", agents, num_obstacles=obstacles)
    graph = jax.jit(env.graph)(moving(env))
    action, memory = ACT(ACTOR, graph, ACTOR.initial_state(agents))
    assert action.mean.shape == (agents, 2)
    assert memory.hidden.shape == (agents, 64)
    assert np.isfinite(np.asarray(action.mean)).all()


def test_padding_changes_nothing():
    """More slots than neighbours, or exactly enough: the same actions."""
    results = []
    for slots in (4, 9):
        env = ssmarl.make(
            "navigation",
            10,
            neighbor_config=ssmarl.NeighborConfig(agent_slots=slots, obstacle_slots=slots),
        )
        graph = jax.jit(env.graph)(moving(env, 3))
        assert int(graph.overflow) == 0
        results.append(ACT(ACTOR, graph, ACTOR.initial_state(10))[0].mean)
    np.testing.assert_allclose(*results, atol=1e-5)


def test_the_order_of_agents_and_obstacles_changes_nothing():
    env = ssmarl.make("navigation", 8)
    state = moving(env, 1)
    order = jax.random.permutation(KEY, 8)
    shuffled = replace(
        state,
        position=state.position[order],
        velocity=state.velocity[order],
        target=state.target[order],
        obstacle=state.obstacle[order[::-1]],
    )
    graph = jax.jit(env.graph)
    memory = ACTOR.initial_state(8)
    one = ACT(ACTOR, graph(state), memory)[0].mean
    other = ACT(ACTOR, graph(shuffled), memory)[0].mean
    np.testing.assert_allclose(one[order], other, atol=1e-5)


def test_two_rounds_of_messages_reach_two_links_far():
    """A – B – C in a row: C's velocity reaches A through B, but not past the second round."""
    layout = {
        "agents": [[-1.4, 0], [-0.6, 0], [0.2, 0], [1.0, 0]],
        "goals": [[-1.4, 1], [-0.6, 1], [0.2, 1], [1.0, 1]],
        "side": 4,
    }
    env = ssmarl.make(layout=layout)
    state = env.reset(KEY)
    memory = ACTOR.initial_state(4)

    def first_action(mover):
        faster = replace(state, velocity=state.velocity.at[mover].set(jnp.array([0.5, 0.5])))
        return np.asarray(ACT(ACTOR, env.graph(faster), memory)[0].mean[0])

    still = np.asarray(ACT(ACTOR, env.graph(state), memory)[0].mean[0])
    assert np.abs(first_action(1) - still).max() > 1e-5
    assert np.abs(first_action(2) - still).max() > 1e-6
    np.testing.assert_array_equal(first_action(3), still)


def ahead(side):
    """An obstacle half a metre ahead, a little to the left or right of the way."""
    env = ssmarl.make(
        layout={
            "agents": [[0.0, 0.0]],
            "goals": [[1.8, 0.0]],
            "obstacles": [[0.5, side * 0.1]],
            "side": 4,
        }
    )
    return env.graph(env.reset(KEY))


def test_the_rich_encoding_feels_left_from_right():
    """What reaches the memory differs clearly between the two, many times more than raw edges."""
    graphs = ahead(1), ahead(-1)
    see = eqx.filter_jit(lambda net, graph: net(graph)[0])

    def difference(features):
        shares = []
        for seed in range(10):
            net = GraphEncoder(np.random.default_rng(seed), GraphEncoderConfig(edges=features))
            left, right = (np.asarray(see(net, graph)) for graph in graphs)
            shares.append(np.linalg.norm(left - right) / np.linalg.norm(left))
        return np.mean(shares)

    rich, raw = (
        difference(EdgeFeatureConfig()),
        difference(EdgeFeatureConfig(rich=False, radius=False)),
    )
    assert rich > 0.05
    assert rich > 1.5 * raw


def test_with_a_horizon_the_features_tell_who_will_be_met():
    """Two that come nearer equally fast, one to meet, one to miss: only in the rbf of the closest
    approach do they differ by much, and those are as computed by hand."""
    config = EdgeFeatureConfig(horizon=0.8)
    feature = jnp.array([[[0.6, 0.0, -1.0, 0.0], [0.6, 0.0, -1.0, 1.0]]])
    present = jnp.ones((1, 2), bool)
    edges = Edges(feature, jnp.zeros((1, 2), int), jnp.full((1, 2), 0.1), present, present)
    met, missed = np.asarray(edge_features(config, edges, goals=False))[0]
    assert met.shape == (config.size(4),)
    rbf = slice(4 + 11 + 3 + 2, 4 + 11 + 3 + 2 + 3)
    np.testing.assert_allclose(met[rbf], 1.0, atol=1e-3)
    # Nearest after 0.3 s, 0.3·√2 m away.
    np.testing.assert_allclose(missed[4 + 11], 0.3 / 0.8, atol=1e-3)
    np.testing.assert_allclose(missed[4 + 12 : 4 + 14], [0.3, 0.3], atol=1e-3)
    expected = np.exp(-2 * (0.3 / np.array(config.rbf_widths)) ** 2)
    np.testing.assert_allclose(missed[rbf], expected, atol=1e-3)
    plain = edge_features(EdgeFeatureConfig(), edges, goals=False)
    np.testing.assert_array_equal(plain[..., :15], np.stack([met, missed])[None, :, :15])


def test_far_goals_look_like_nearer_ones_in_the_same_direction():
    def action(distance):
        env = ssmarl.make(
            layout={"agents": [[0, 0]], "goals": [[distance, 0.0]], "side": 4 * distance}
        )
        return np.asarray(ACT(ACTOR, env.graph(env.reset(KEY)), ACTOR.initial_state(1))[0].mean)

    np.testing.assert_allclose(action(3.0), action(30.0), atol=1e-6)
    assert np.abs(action(0.5) - action(30.0)).max() > 1e-4


def test_how_large_a_scenario_draws_its_goals_is_not_seen():
    """Obstacles of another size look different, goals do not."""
    feature, source = jnp.array([[[0.3, 0.1, -1.0, 0.0]]]), jnp.zeros((1, 1), int)

    def seen(radius, goals):
        present = jnp.ones((1, 1), bool)
        edges = Edges(feature, source, jnp.full((1, 1), radius), present, present)
        return np.asarray(edge_features(EdgeFeatureConfig(), edges, goals=goals))

    np.testing.assert_array_equal(seen(0.02, goals=True), seen(0.1, goals=True))
    assert np.abs(seen(0.02, goals=False) - seen(0.1, goals=False)).max() > 0.5


def test_attention_is_a_distribution_over_present_edges():
    env = ssmarl.make("navigation", 6)
    graph = jax.jit(env.graph)(moving(env, 2))
    _, attention = eqx.filter_jit(ACTOR.encoder.messages)(graph)
    mask = np.concatenate([graph.agents.mask, graph.obstacles.mask, graph.goals.mask], axis=1)
    assert len(attention) == 2
    for weights in attention:
        np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
        assert not np.asarray(weights)[~mask].any()


def test_gaussian_against_scipy_and_sampling():
    from scipy.stats import norm

    rng = np.random.default_rng(1)
    old = Gaussian(jnp.asarray(rng.normal(size=(7, 2))), jnp.array([-0.3, 0.4]))
    new = Gaussian(jnp.asarray(rng.normal(size=(7, 2))), jnp.array([0.1, -0.2]))
    action = jnp.asarray(rng.normal(size=(7, 2)))
    expected = norm.logpdf(action, old.mean, np.exp(old.log_std)).sum(axis=1)
    np.testing.assert_allclose(old.log_prob(action), expected, rtol=1e-4)
    draws = jax.vmap(old.sample)(jax.random.split(KEY, 200_000))
    estimate = (jax.vmap(old.log_prob)(draws) - jax.vmap(new.log_prob)(draws)).mean(axis=0)
    np.testing.assert_allclose(kl_divergence(old, new), estimate, rtol=0.03)
    np.testing.assert_allclose(kl_divergence(old, old), 0, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (5, 5), (1, 4)])
def test_first_weights_are_orthogonal(shape: tuple[int, int]) -> None:
    weight = orthogonal(np.random.default_rng(0), *shape)
    small = weight @ weight.T if shape[0] <= shape[1] else weight.T @ weight
    np.testing.assert_allclose(small, np.eye(min(shape)), atol=1e-12)
    draws = [orthogonal(np.random.default_rng(seed), *shape) for seed in range(2000)]
    # Evenly distributed: no entry leans to one side, all are of one size.
    np.testing.assert_allclose(np.mean(draws, axis=0), 0, atol=0.1)
    np.testing.assert_allclose(np.mean(np.square(draws), axis=0), 1 / max(shape), rtol=0.2)


def row(distance):
    """Three agents of formation in a row; their communication range is 0.7, perception 1."""
    env = ssmarl.make("formation", 3)
    state = env.reset(KEY)
    x = jnp.array([0.0, distance, 2 * distance])
    return env, replace(state, position=jnp.stack([x, jnp.zeros(3)], axis=1))


@pytest.mark.parametrize(("distance", "heard"), [(0.6, True), (0.8, False)])
def test_messages_pass_only_in_communication_range(distance, heard):
    """A perceives B either way, but hears of C through B only where they communicate."""
    env, state = row(distance)
    graph = env.graph(state)
    assert bool(graph.agents.mask[0].any()), "B is perceived"
    assert bool(graph.agents.communicates[0].any()) is heard

    def first_action(agent):
        faster = replace(state, velocity=state.velocity.at[agent].set(jnp.array([0.5, 0.5])))
        return np.asarray(ACT(ACTOR, env.graph(faster), ACTOR.initial_state(3))[0].mean[0])

    still = np.asarray(ACT(ACTOR, graph, ACTOR.initial_state(3))[0].mean[0])
    assert np.abs(first_action(1) - still).max() > 1e-5, "B's own state is perceived"
    assert bool(np.abs(first_action(2) - still).max() > 1e-6) is heard
