"""Imports point one way only: along the data flow, from the world to the command line."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "ssmarl"

# A module may import those above it, never those below it or beside it.
FLOW = [
    ["errors", "types", "devices"],
    ["settings", "arrays"],
    ["world.geometry"],
    ["world.state"],
    ["world.neighbours"],
    ["world.near"],
    ["world.assignment", "world.placement", "world.physics"],
    ["world.scenario"],
    ["world.scenarios.navigation", "world.scenarios.formation"],
    ["world.scenarios.safety", "world.scenarios.line"],
    ["world.scenarios"],
    ["world.constraints", "world.graph"],
    ["world.env", "world.layout"],
    ["world.make", "world.batch", "world.observation", "world.drivers", "world.trajectory"],
    ["zoo.plain"],
    ["zoo.constrained"],
    ["zoo"],
    ["nets.dead_ends"],
    ["nets.layers", "nets.encoding", "nets.gaussian"],
    ["nets.message_passing", "nets.vector", "nets.unimp", "nets.memory"],
    ["nets.actor", "nets.critic", "nets.recurrent", "nets.tem"],
    ["nets.team"],
    ["optim.step", "optim.cg", "optim.fisher", "optim.linesearch"],
    ["optim.update"],
    [
        "rl.advantages",
        "rl.normalise",
        "rl.rollout",
        "rl.foresight",
        "rl.detours",
        "rl.chunks",
        "rl.score",
    ],
    ["rl.pathwise", "rl.values"],
    [
        "algorithms.algorithm",
        "algorithms.common",
        "algorithms.scope",
        "algorithms.judged",
        "algorithms.ledger",
    ],
    ["algorithms.learner", "algorithms.metrics"],
    ["algorithms.by_score", "algorithms.by_path", "algorithms.ppo"],
    ["algorithms.ssmarl", "algorithms.rmappo", "algorithms.informarl", "algorithms.tem"],
    ["algorithms.rmacpo", "algorithms.mappo_lagrangian", "algorithms.dgppo"],
    ["algorithms"],
    ["policy", "classical.halfplanes", "classical.sight"],
    ["classical.orca", "classical.cbf"],
    ["classical"],
    ["controllers"],
    ["evaluation.episodes", "evaluation.intervals"],
    ["evaluation.evaluate"],
    ["evaluation.policies"],
    ["training.config", "training.engine", "training.progress", "training.selection"],
    ["training.files"],
    ["training.run"],
    ["pictures.scene", "pictures.links", "pictures.figure"],
    ["pictures.film", "pictures.curves", "pictures.scalability"],
    ["pictures.still", "pictures.report"],
    ["view.session", "view.protocol"],
    ["view.server"],
    ["bench.env"],
    ["bench.scale", "bench.train", "bench.view"],
    [""],
    ["cli.options", "cli.list"],
    ["cli.simulate", "cli.bench", "cli.eval", "cli.render", "cli.plot", "cli.report", "cli.view"],
    ["cli.train"],
    ["cli.main"],
]
RANK = {name: rank for rank, names in enumerate(FLOW) for name in names}
EMPTY = {
    "world",
    "optim",
    "nets",
    "rl",
    "evaluation",
    "training",
    "pictures",
    "view",
    "bench",
    "cli",
}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imported(path):
    """Names inside the package that a module imports, wherever in the file."""
    known = {name for name, _ in modules()}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path.name}"
            base = node.module or ""
            inside = base.removeprefix("ssmarl").lstrip(".")
            deeper = [f"{inside}.{alias.name}".strip(".") for alias in node.names]
            names = [f"ssmarl.{name}" if name in known else base for name in deeper]
        else:
            continue
        for name in names:
            if name == "ssmarl" or name.startswith("ssmarl."):
                yield name.removeprefix("ssmarl").lstrip(".")


def test_every_module_has_its_place_in_the_flow():
    found = {name for name, _ in modules()} - EMPTY
    assert found == set(RANK)
    for name, path in modules():
        if name in EMPTY:
            assert not list(imported(path)), f"{name}/__init__.py should import nothing"


def test_imports_point_backwards_along_the_flow():
    wrong = [
        f"{name} imports {other}"
        for name, path in modules()
        if name not in EMPTY
        for other in imported(path)
        if other not in EMPTY and RANK[other] >= RANK[name]
    ]
    assert not wrong


def test_the_check_sees_a_wrong_import(tmp_path):
    path = tmp_path / "state.py"
    path.write_text("def late():\n    from ssmarl.world import env\n    import ssmarl.zoo\n")
    assert set(imported(path)) == {"world.env", "zoo"}
    assert RANK["world.env"] > RANK["world.state"]


def test_files_stay_small():
    long = {name: n for name, path in modules() if (n := len(path.read_text().splitlines())) > 350}
    assert not long
