"""Films and curves: what they show is what happened."""

import csv
import json

import jax
import numpy as np
import pytest
from PIL import Image

import ssmarl
from ssmarl.pictures.curves import save_curves
from ssmarl.pictures.film import SIZE, frames, save_film
from ssmarl.training.config import TrainConfig
from ssmarl.world.drivers import straight
from ssmarl.world.trajectory import record

ENV = ssmarl.make(
    layout={"agents": [[-1, 0], [0, 1]], "goals": [[1, 0], [0, -1]], "obstacles": [[0.5, 0.5]]},
    episode_length=12,
)


def episode():
    key = jax.random.key(0)
    return jax.device_get(
        jax.jit(lambda key: record(ENV, key, lambda s, k: straight(ENV, s, k)))(key)
    )


def colour(frame, point):
    """The colour at a place of the world."""
    half = 0.55 * ENV.world.side
    x, y = (point[0] + half) / (2 * half) * SIZE, (half - point[1]) / (2 * half) * SIZE
    return tuple(int(v) for v in np.asarray(frame.convert("RGB"))[int(y), int(x)])


def test_discs_are_drawn_where_they_are():
    trajectory = episode()
    pictures = list(frames(trajectory, ENV))
    assert len(pictures) == 13
    agent, obstacle = colour(pictures[0], (-1, 0)), colour(pictures[0], (0.5, 0.5))
    assert agent[2] > agent[0] + 80, "agents are blue"
    assert max(obstacle) - min(obstacle) < 20, "obstacles are grey"
    assert min(colour(pictures[-1], (-1, 0))) > 245, "it has moved on"
    moved = colour(pictures[-1], trajectory.position[-1][0])
    assert min(moved) < 200


def test_the_same_episode_gives_the_same_bytes(tmp_path):
    trajectory = episode()
    for name in ("a.gif", "b.gif"):
        save_film(trajectory, ENV, tmp_path / "new" / name, every=5)
    files = [(tmp_path / "new" / name).read_bytes() for name in ("a.gif", "b.gif")]
    assert files[0] == files[1]
    with Image.open(tmp_path / "new" / "a.gif") as film:
        assert getattr(film, "n_frames", 1) == 4
    with pytest.raises(ssmarl.InputError, match="gif"):
        save_film(trajectory, ENV, tmp_path / "film.avi")


def test_curves_are_drawn_from_the_metrics(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(TrainConfig().to_json()))
    names = ["steps", "reward", "cost", "success", "eval_reward", "eval_cost", "eval_success"]
    with (run / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for i in range(30):
            shown = [i, 1 / (i + 1), 0.9] if i % 10 == 9 else ["nan"] * 3
            writer.writerow([100 * i, i, 2 / (i + 1), i / 30, *shown])
    for out in (tmp_path / "curves.png", tmp_path / "plots" / "curves.svg"):
        save_curves([run], out)
        assert out.stat().st_size > 5000
    picture = np.asarray(Image.open(tmp_path / "curves.png").convert("RGB"))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10
    with pytest.raises(ssmarl.InputError, match="no metrics"):
        save_curves([tmp_path], tmp_path / "none.png")
