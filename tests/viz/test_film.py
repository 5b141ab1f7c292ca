"""Films and stills: what they show is what happened."""

import sys
import warnings

import jax
import numpy as np
import pytest
from PIL import Image

import ssmarl
from ssmarl.control.drivers import straight
from ssmarl.env.recording import record
from ssmarl.viz import scene
from ssmarl.viz.film import PIXELS, extent, frames, save_film
from ssmarl.viz.links import links_of
from ssmarl.viz.still import GAP, save_still, still
from ssmarl.viz.still import PIXELS as HALF

# Agent 0 passes free; agent 1 runs into the obstacle on its way; both stand within sight.
ENV = ssmarl.make(
    layout={
        "agents": [[-1, 0], [-1, 0.8]],
        "goals": [[1, 0], [1, 0.8]],
        "obstacles": [[0.0, 0.8]],
    },
    episode_length=12,
)


@pytest.fixture(scope="module")
def episode():
    play = jax.jit(lambda key: record(ENV, key, lambda s, carry, k: (straight(ENV, s, k), carry)))
    return jax.device_get(play(jax.random.key(0)))


@pytest.fixture(scope="module")
def links(episode):
    return links_of(ENV, episode)


def colour(picture, point, episode, pixels=PIXELS, left=0):
    """The colour at a place of the world."""
    half = extent(episode, ENV)
    x, y = (point[0] + half) / (2 * half) * pixels, (half - point[1]) / (2 * half) * pixels
    return tuple(int(v) for v in np.asarray(picture.convert("RGB"))[int(y), left + int(x)])


def near(one, name, tolerance=30):
    from PIL import ImageColor

    return np.abs(np.subtract(one, ImageColor.getrgb(name))).max() < tolerance


def test_discs_are_drawn_where_they_are(episode):
    first, last = frames(episode, ENV, None, [0, 12])
    assert near(colour(first, (-1, 0), episode), scene.AGENT)
    assert near(colour(first, (0, 0.8), episode), scene.OBSTACLE)
    assert near(colour(last, (-1, 0), episode), scene.PAPER), "it has moved on"
    assert near(colour(last, episode.state.position[-1][0], episode), scene.AGENT)


def test_contacts_are_shown_in_their_own_colour(episode):
    touching = int(np.argmax(episode.contacts[:, 1])) + 1
    assert episode.contacts[touching - 1, 1] > 0
    (picture,) = frames(episode, ENV, None, [touching])
    assert near(colour(picture, episode.state.position[touching][1], episode), scene.CONTACT)
    assert near(colour(picture, episode.state.position[touching][0], episode), scene.AGENT)


def test_links_join_those_who_see_each_other(episode, links):
    """Within sight or not, by plain distances; and drawn in between."""
    apart = np.linalg.norm(episode.state.position[:, 0] - episode.state.position[:, 1], axis=-1)
    np.testing.assert_array_equal(links.agents_weight[:, 0, 0] > 0, apart <= 1.0)
    obstacle = np.linalg.norm(episode.state.position - episode.state.obstacle[0], axis=-1)
    np.testing.assert_array_equal(links.obstacles_weight[..., 0] > 0, obstacle <= 1.0)
    with_links, without = (next(frames(episode, ENV, shown, [0])) for shown in (links, None))
    middle = (-1, 0.4)
    assert near(colour(without, middle, episode), scene.PAPER, 5)
    assert not near(colour(with_links, middle, episode), scene.PAPER, 5)


def test_links_carry_the_attention_of_the_policy():
    policy = ssmarl.load("pretrained:navigation")
    env = ssmarl.make("navigation", 3, num_obstacles=2, side_scale=0.4, episode_length=2)
    play = jax.jit(lambda key: record(env, key, lambda s, carry, k: (straight(env, s, k), carry)))
    recording = jax.device_get(play(jax.random.key(1)))
    found = links_of(env, recording, policy.attention)
    graph = env.graph(env.reset(jax.random.split(jax.random.key(1))[0]))
    weights = np.asarray(policy.joint.attention(graph))
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(
        found.agents_weight[0], weights[:, :2] * graph.agents.mask, rtol=1e-4
    )
    np.testing.assert_allclose(
        found.obstacles_weight[0], weights[:, 2:4] * graph.obstacles.mask, rtol=1e-4
    )
    assert (found.agents_weight[0] > 0).any()


def test_the_same_episode_gives_the_same_bytes(episode, links, tmp_path):
    watched = []

    def watch(shown):
        for step in shown:
            watched.append(step)
            yield step

    for name in ("a.gif", "b.gif"):
        save_film(episode, ENV, tmp_path / "new" / name, links=links, every=5, track=watch)
    files = [(tmp_path / "new" / name).read_bytes() for name in ("a.gif", "b.gif")]
    assert files[0] == files[1]
    assert watched == [0, 5, 10, 12] * 2
    with Image.open(tmp_path / "new" / "a.gif") as film:
        assert getattr(film, "n_frames", 1) == 4
        assert film.info["duration"] == 500
    with pytest.raises(ssmarl.InputError, match="gif or"):
        save_film(episode, ENV, tmp_path / "film.avi")


def test_mp4_films_have_all_frames(episode, tmp_path):
    from imageio_ffmpeg import count_frames_and_secs

    save_film(episode, ENV, tmp_path / "film.mp4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # it forks
        count, seconds = count_frames_and_secs(str(tmp_path / "film.mp4"))
    assert count == 13
    assert seconds == pytest.approx(1.3, abs=0.05)


def test_without_its_extra_mp4_is_refused_in_one_line(episode, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ssmarl.InputError, match=r"ssmarl\[video\]"):
        save_film(episode, ENV, tmp_path / "film.mp4")


def test_a_still_shows_the_beginning_and_the_way_to_the_end(episode, links, tmp_path):
    picture = still(episode, ENV, links)
    assert picture.size == (2 * HALF + GAP, HALF)
    right = HALF + GAP
    assert near(colour(picture, (-1, 0), episode, HALF), scene.AGENT)
    end = episode.state.position[-1][0]
    assert near(colour(picture, end, episode, HALF, right), scene.AGENT)
    # Along the way yellow gives way to blue: ever less red.
    reds = [
        colour(picture, episode.state.position[t][0], episode, HALF, right)[0] for t in (1, 4, 7)
    ]
    assert reds[0] > reds[1] > reds[2]
    save_still(episode, ENV, tmp_path / "new" / "still.png", links=links)
    with Image.open(tmp_path / "new" / "still.png") as stored:
        assert stored.size == picture.size
