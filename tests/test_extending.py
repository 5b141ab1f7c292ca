"""The examples of extending: each keeps its contract, and each runs from the command line."""

import dataclasses
import re
from pathlib import Path

import jax.numpy as jnp
import pytest

import ssmarl
from ssmarl import Body, testing
from ssmarl.algos import ALGORITHMS
from ssmarl.cli.main import main
from ssmarl.env.costs import COSTS
from ssmarl.env.dynamics import DYNAMICS
from ssmarl.env.dynamics.double_integrator import DoubleIntegrator
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.nets.encoder import EncoderConfig
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.nets.tem import TemActorConfig

EXTENDING = Path(__file__).parent.parent / "examples" / "extending"
TINY = ["--num-agents", "2", "--episode-length", "6", "--steps", "24", "--set", "num_envs=4"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_built_in_scenarios_keep_the_contract(name):
    testing.check_scenario(SCENARIOS[name])


@pytest.mark.parametrize("name", COSTS)
def test_built_in_costs_keep_the_contract(name):
    testing.check_cost(COSTS[name])


@pytest.mark.parametrize("name", DYNAMICS)
def test_built_in_dynamics_keep_the_contract(name):
    testing.check_dynamics(DYNAMICS[name])


def test_built_in_networks_keep_the_contract():
    testing.check_encoder(GraphEncoderConfig(widths=(4, 8), message=8))
    testing.check_actor(TemActorConfig(size=8, recurrent_size=4))


def test_examples_keep_their_contracts():
    testing.check_scenario(SCENARIOS.find(f"{EXTENDING / 'scenario.py'}:rendezvous"), 5)
    testing.check_cost(COSTS.find(f"{EXTENDING / 'cost.py'}:near_wall"))
    testing.check_dynamics(DYNAMICS.find(f"{EXTENDING / 'dynamics.py'}:hovercraft"))
    module = ssmarl.load_file(EXTENDING / "encoder.py")
    testing.check_encoder(module.DeepSetsConfig(width=8))
    unicycles = ssmarl.make("navigation", 3, dynamics="unicycle")
    testing.check_encoder(module.DeepSetsConfig(width=8), unicycles)
    testing.check_algorithm(ALGORITHMS.find(f"{EXTENDING / 'algorithm.py'}:apg"))


def test_broken_extensions_fail_their_contracts():
    """Each check can fail: it is given something that breaks one rule."""
    negative = ssmarl.Cost("negative", lambda now: -now.distance)
    with pytest.raises(AssertionError, match="negative"):
        testing.check_cost(negative)

    class Slippery(DoubleIntegrator):
        def brake(self, params, body):
            return 0.1 * super().brake(params, body)

    with pytest.raises(AssertionError, match="brake must stop"):
        testing.check_dynamics(Slippery(damping=0.01))

    class Lagged(DoubleIntegrator):
        """The thrust follows the action, and nobody observes it."""

        def initial(self, position, key):
            return Body(position, jnp.zeros_like(position), jnp.zeros_like(position))

        def step(self, params, body, action, force):
            thrust = 0.5 * (body.internal + action)
            return dataclasses.replace(super().step(params, body, thrust, force), internal=thrust)

        def body(self, observed):
            return Body(observed[:, :2], observed[:, 2:], jnp.zeros_like(observed[:, :2]))

    with pytest.raises(AssertionError, match="body must determine the motion"):
        testing.check_dynamics(Lagged(name="lagged"))
    navigation = SCENARIOS["navigation"]
    ranked = dataclasses.replace(
        navigation, name="ranked", reward=lambda now: now.distance * jnp.arange(len(now.distance))
    )
    with pytest.raises(AssertionError, match="rewards must not depend on the order"):
        testing.check_scenario(ranked)
    lazy = ALGORITHMS["rmappo"]
    with pytest.raises(AssertionError, match="change the policy"):
        testing.check_algorithm(
            ssmarl.Algorithm(
                "lazy",
                "learns nothing",
                lazy.presets,
                lazy.init,
                lambda env, settings, state, *_: (state, {"reward": jnp.float32(0)}),
                lazy.policy,
            )
        )


def test_a_cost_is_checked_in_the_environment_that_is_given():
    env = ssmarl.make("navigation", 4, num_obstacles=9, action_limit=None, dynamics="unicycle")
    found = []

    def record(now):
        params = now.params
        found.append((params.num_obstacles, params.action_limit, now.state.body.internal.shape[1]))
        return now.distance

    testing.check_cost(ssmarl.Cost("recorded", record), env)
    assert set(found) == {(9, None, 1)}


def test_a_built_in_network_keeps_its_tag():
    with pytest.raises(ssmarl.InputError, match="tag 'graph' is that of a built-in network"):

        class Mine(EncoderConfig, tag="graph"):
            pass

    assert EncoderConfig.kinds["graph"] is GraphEncoderConfig


@pytest.mark.parametrize(
    ("args", "load"),
    [
        (
            ["--scenario", "ring.py:ring", "--constraint", "cost.py:near_wall=0.5"],
            ["ring.py", "cost.py"],
        ),
        (
            ["--algo", "algorithm.py:apg", "--dynamics", "dynamics.py:hovercraft"],
            ["algorithm.py", "dynamics.py"],
        ),
        pytest.param(["--load", "encoder.py"], ["encoder.py"], marks=pytest.mark.slow),
    ],
    ids=["scenario-cost", "algorithm-dynamics", "encoder"],
)
def test_extensions_train_resume_evaluate_render_and_plot(
    args, load, tmp_path, monkeypatch, capsys
):
    """Trained with the user's files; afterwards they run only where the user names them again."""
    from ssmarl.core import registry

    monkeypatch.chdir(EXTENDING)
    run = tmp_path / "run"
    extra = ['actor.encoder={"type": "deep_sets", "width": 8}'] if "encoder.py" in load else []
    assert main(["train", *args, *TINY, *extra, "--no-report", "--out", str(run)]) == 0
    forget(registry)
    commands = [
        ["eval", str(run), "--episodes", "2", "--episode-length", "5"],
        ["render", str(run), "--episode-length", "3", "--out", str(tmp_path / "still.png")],
        ["train", "--resume", str(run), "--no-report"],
    ]
    needed = commands if "encoder.py" in load or "ring.py" in load else commands[2:]
    for command in needed:
        capsys.readouterr()
        assert main(command) == 2
        assert "--load" in capsys.readouterr().err
        assert not registry._LOADED, "no file of the user's may have run"
    # Plots and reports need no code.
    assert main(["plot", str(run)]) == 0
    assert main(["report", str(run)]) == 0
    assert not registry._LOADED
    for command in commands:
        assert main([*command, "--load", *load]) == 0


def test_a_changed_file_is_not_taken_for_the_one_a_run_was_trained_with(tmp_path, capsys):
    from ssmarl.core import registry

    mine = tmp_path / "ring.py"
    mine.write_text((EXTENDING / "ring.py").read_text())
    run = tmp_path / "run"
    args = ["train", "--scenario", f"{mine}:ring", *TINY, "--no-report", "--out", str(run)]
    assert main(args) == 0
    forget(registry)
    mine.write_text(mine.read_text() + "\n# changed\n")
    for command in (["train", "--resume", str(run)], ["eval", str(run), "--episodes", "1"]):
        assert main([*command, "--load", str(mine)]) == 2
        assert "another version of ring.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "COST = ssmarl.Cost('bad', lambda now: now.distance.sum())",
            "cost 'bad'.*(shape|TypeCheckError)",
        ),
        ("COST = ssmarl.Cost('bad', lambda now: now.nothing)", "cost 'bad' fails: AttributeError"),
        (
            "def fn(now, *, a: float = 1.0): return now.distance\n"
            "COST = ssmarl.Cost('bad', fn, lambda now: now.distance)",
            "parameters none, it must have those of the cost: a",
        ),
    ],
)
def test_broken_costs_are_named_in_one_line(code, message, tmp_path, capsys):
    (tmp_path / "bad.py").write_text(f"import ssmarl\n{code}\n")
    assert main(["simulate", "--constraint", f"{tmp_path / 'bad.py'}:bad=1"]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('side')", r"scenario 'bad' fails: KeyError: 'side' \(bad.py:5\)"),
        ("return None", "scenario 'bad': params returned None, it must be a WorldParams"),
    ],
)
def test_a_scenario_without_a_world_is_named_in_one_line(body, message, tmp_path, capsys):
    (tmp_path / "bad.py").write_text(
        "import dataclasses, ssmarl\n"
        "from ssmarl.env.scenarios import SCENARIOS\n\n"
        f"def world(agents, obstacles):\n    {body}\n\n"
        "BAD = dataclasses.replace(SCENARIOS['navigation'], name='bad', params=world)\n"
    )
    for command in (["simulate"], ["train", "--out", str(tmp_path / "run")]):
        assert main([*command, "--scenario", f"{tmp_path / 'bad.py'}:bad"]) == 2
        error = capsys.readouterr().err
        assert re.search(message, error)
        assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_an_algorithm_that_raises_is_named_in_one_line(tmp_path, capsys):
    (tmp_path / "bad.py").write_text(
        "import dataclasses\nfrom ssmarl.algos import ALGORITHMS\n\n"
        "def check(env, settings):\n    raise ZeroDivisionError('of mine')\n\n"
        "BAD = dataclasses.replace(ALGORITHMS['rmappo'], name='bad', check=check)\n"
    )
    args = ["train", "--algo", f"{tmp_path / 'bad.py'}:bad", "--num-agents", "2"]
    assert main([*args, "--out", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err == "ssmarl: ZeroDivisionError: of mine (bad.py:5)\n"
    assert not (tmp_path / "run").exists()


def test_a_broken_vehicle_is_named_in_one_line(tmp_path, capsys):
    text = (EXTENDING / "dynamics.py").read_text().replace("[int] = 4", "[int] = 6")
    (tmp_path / "bad.py").write_text(text)
    args = ["simulate", "--dynamics", f"{tmp_path / 'bad.py'}:hovercraft", "--driver", "random"]
    assert main(args) == 2
    assert "dynamics 'hovercraft' fails" in capsys.readouterr().err


TWINS = """
import dataclasses
import ssmarl
from ssmarl.env.dynamics.double_integrator import DoubleIntegrator
from ssmarl.env.scenarios import SCENARIOS

{}
"""


@pytest.mark.parametrize(
    ("body", "args", "message"),
    [
        (
            "A = dataclasses.replace(SCENARIOS['navigation'], name='two')\n"
            "B = dataclasses.replace(A, reward=lambda now: -100 * now.distance)",
            ["--scenario", "mine.py:A"],
            "A and B are both called 'two'",
        ),
        (
            "A = DoubleIntegrator(gain=1.0, name='mine')\n"
            "B = DoubleIntegrator(gain=20.0, name='mine')",
            ["--dynamics", "mine.py:B"],
            "A and B are both called 'mine'",
        ),
        (
            "HEAVY = DoubleIntegrator(mass=2.0)",
            ["--dynamics", "mine.py:HEAVY"],
            "'double_integrator' is built in: give yours another name",
        ),
        (
            "class Half:\n    name, action_dim, state_dim = 'half', 2, 4\n"
            "    initial = step = observe = frame = None\nHALF = Half()",
            ["--dynamics", "mine.py:HALF"],
            "lacks brake, linear_response",
        ),
    ],
    ids=["scenarios", "dynamics", "built-in", "incomplete"],
)
def test_the_record_that_was_named_or_none(body, args, message, tmp_path, monkeypatch, capsys):
    """Records are stored by name, so that a name must stand for one record."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TWINS.format(body))
    assert main(["train", *args, *TINY, "--out", "run"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_file_with_another_record_under_a_built_in_name_is_refused_as_a_whole(tmp_path):
    """Otherwise `--load mine.py --scenario navigation` would silently run the built-in one."""
    mine = tmp_path / "mine.py"
    change = "reward=lambda now: -now.distance"
    mine.write_text(TWINS.format(f"N = dataclasses.replace(SCENARIOS['navigation'], {change})"))
    with pytest.raises(ssmarl.InputError, match="'navigation' is built in"):
        ssmarl.load_file(mine)


def test_built_in_dynamics_with_other_numbers_have_a_name_of_their_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        TWINS.format("HEAVY = DoubleIntegrator(mass=2.0, name='heavy')\nSAME = DoubleIntegrator()")
    )
    heavy = DYNAMICS.named(f"{tmp_path / 'mine.py'}:HEAVY")
    assert DYNAMICS["heavy"] == DoubleIntegrator(mass=2.0, name="heavy")
    testing.check_dynamics(heavy)


def test_a_layer_without_features_is_refused(tmp_path, capsys):
    encoder = 'actor.encoder={"type": "deep_sets", "width": -3}'
    args = ["train", "--load", str(EXTENDING / "encoder.py"), *TINY, encoder]
    assert main([*args, "--out", str(tmp_path / "run")]) == 2
    assert "-3 features: at least 1 each" in capsys.readouterr().err


def forget(registry):
    """As in a new process: nothing of the user's is known."""
    registry._LOADED.clear()
    for known in registry._REGISTRIES:
        known._records = {name: known[name] for name in known._builtin}
        known._sources = {}
