"""What a configuration means: worlds that take turns, estimators, the policy that is kept."""

import itertools

import pytest

import ssmarl
from ssmarl.algos.ssmarl_config import LIKELIHOOD_RATIO
from ssmarl.env.costs import parse_constraint
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.eval.evaluate import Result
from ssmarl.train import run as training
from ssmarl.train.config import TrainConfig
from ssmarl.train.files import read_metrics
from ssmarl.train.selection import Score, better, score
from tests.helpers import replace
from tests.train.small import CONFIG, SMALL


@pytest.mark.slow
def test_several_sizes_take_turns(tmp_path):
    config = replace(CONFIG, num_agents=(2, 3), steps=4 * 4 * 6, num_obstacles=())
    run = training.train(config, tmp_path / "run", quiet=True)
    assert run.policy.metadata.num_agents == 3
    assert len(read_metrics(run.folder)["steps"]) == 4


def test_worlds_that_take_turns_are_listed_and_checked(tmp_path):
    config = replace(CONFIG, num_obstacles=(1, 2), side_scale=(1.0, 0.9))
    worlds = [env.params for env in config.training_envs()]
    assert [(w.num_agents, w.num_obstacles) for w in worlds] == [(2, 1), (2, 2)]
    assert worlds[1].side == pytest.approx(0.9 * worlds[0].side)
    (reported,) = config.evaluation_envs()
    assert (reported.params.num_obstacles, reported.params.side) == (2, worlds[0].side)
    with pytest.raises(ssmarl.InputError, match="num_obstacles has 2 values"):
        replace(CONFIG, num_obstacles=(1, 2), side_scale=(1.0, 0.9, 2.0))
    config = replace(CONFIG, num_agents=(2, 3), num_obstacles=())
    each = replace(SMALL, share_parameters=False)
    with pytest.raises(ssmarl.InputError, match="several team sizes"):
        training.train(replace(config, settings=each), tmp_path / "no", quiet=True)
    assert not (tmp_path / "no").exists()


def test_without_its_extra_wandb_is_refused_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ssmarl.InputError, match="extra"):
        training.train(CONFIG, tmp_path / "run", wandb=True, quiet=True)
    assert not list(tmp_path.iterdir())


def test_other_worlds_join_after_the_warm_up():
    config = replace(CONFIG, num_obstacles=(1, 2, 3), steps=10 * 4 * 6)
    assert config.round_robin() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    late = replace(config, warm_up_fraction=0.4)
    assert late.round_robin() == [0, 0, 0, 0, 0, 1, 2, 0, 1, 2]
    # 107 agents play 211 steps an episode where 3 play 100: the budget is one of steps.
    sizes = replace(
        config,
        num_agents=(3, 107),
        num_obstacles=(),
        episode_length=None,
        warm_up_fraction=0.25,
        steps=4000,
    )
    assert sizes.round_robin() == [0, 0, 0, 0, 1, 0, 1, 0]
    with pytest.raises(ssmarl.InputError, match="warm_up_fraction"):
        replace(CONFIG, warm_up_fraction=1.5)


def test_a_task_without_gradients_is_trained_by_likelihood_ratios(capsys):
    """Default settings are exchanged, and one line says so; other tasks keep theirs."""
    reward = ssmarl.register_scenario(
        replace(
            SCENARIOS["navigation"],
            name="at_goal",
            reward=lambda now: (now.distance < 0.1).astype(now.distance.dtype),
            reward_surrogate=None,
        )
    )
    config = TrainConfig(scenario=reward.name, num_agents=(2,))
    assert training.adapted(config).settings == LIKELIHOOD_RATIO
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert training.adapted(TrainConfig(num_agents=(2,))) == TrainConfig(num_agents=(2,))
    assert not capsys.readouterr().err


def test_the_best_policy_is_within_the_limits_first():
    limits = (parse_constraint("collision=1"), parse_constraint("speed=2"))

    def result(reward, collision, speed):
        costs = {"collision": collision, "speed": speed}
        figures = {
            "reward_agent": reward,
            "num_agents": 3,
            "cost_by_constraint": costs,
            "cost_most_by_constraint": {name: 2 * cost for name, cost in costs.items()},
        }
        ci95 = {f"cost_{name}": (cost - 0.1, cost + 0.1) for name, cost in costs.items()}
        return Result(figures, ci95)

    inside = score([result(10.0, 0.5, 2.0)], limits, 1)
    outside = score([result(99.0, 0.5, 3.0)], limits, 2)
    far = score([result(99.0, 4.0, 3.0)], limits, 3)
    best = score([result(11.0, 1.0, 2.0)], limits, 4)
    assert outside.violation == 0.5
    # The same costs against limits for the costliest agent, and for all together.
    assert score([result(10.0, 0.5, 2.0)], limits, 1, "per_agent").violation == 1.0
    assert score([result(10.0, 0.5, 2.0)], limits, 1, "team").violation == 2.0
    ranking = [Score(), far, outside, inside, best]
    for worse, good in itertools.pairwise(ranking):
        assert better(worse, good).iteration == good.iteration
        assert better(good, worse).iteration == good.iteration
    # A policy within one limit's interval of the least violation and with more reward is kept; so
    # clearly differs from it and does not violate.
    idle = score([result(1.0, 1.5, 0.0)], limits, 5)
    able = score([result(50.0, 1.55, 0.0)], limits, 6)
    costly = score([result(99.0, 1.65, 0.0)], limits, 7)
    kept = Score()
    for now, iteration in ((idle, 5), (able, 6), (costly, 6), (inside, 1), (able, 1)):
        kept = better(kept, now)
        assert kept.iteration == iteration
