"""Imports point one way only: along the data flow, from the core to the command line."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "ssmarl"

# A package may import those before it, never those after it (docs/architecture.md).
ROOMS = [
    ["core"],
    ["env"],
    ["nets"],
    ["rl", "diffsim"],
    ["optim"],
    ["algos"],
    ["policy", "control", "export"],
    ["eval", "train"],
    ["viz", "adapters"],
    ["robots"],
    ["experiments"],
    ["bench", "testing", "", "cli"],  # "": the public names of the package itself
]
"""Twelve ranks; the packages of one are ordered too."""
RANKS = [package for room in ROOMS for package in room]
PURE = ["optim/cg.py", "optim/constrained_step.py", "optim/line_search.py"]
"""Algebra that knows no network: it imports nothing of the package but types."""


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def package_of(path):
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def imported(path):
    """Packages that a module imports, wherever in the file; no relative imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path}"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, *rest = name.split(".")
            if first == "ssmarl":
                inside = rest[0] if rest and rest[0] in RANKS else ""
                yield inside


def test_every_package_has_its_rank():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(RANKS) - {""}


def test_imports_point_backwards_along_the_data_flow():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports ssmarl.{other}"
        for path in modules()
        for other in imported(path)
        if RANKS.index(other) > RANKS.index(package_of(path))
    ]
    assert not wrong


def test_the_check_sees_a_wrong_import(tmp_path):
    path = tmp_path / "state.py"
    path.write_text("def late():\n    from ssmarl.algos import base\n    import ssmarl.cli.main\n")
    assert set(imported(path)) == {"algos", "cli"}
    assert RANKS.index("algos") > RANKS.index("env")


def test_the_algebra_of_the_step_knows_no_network():
    for name in PURE:
        assert set(imported(PACKAGE / name)) <= {"core"}, name


def test_files_stay_small():
    long = {
        str(path.relative_to(PACKAGE)): n
        for path in modules()
        if (n := len(path.read_text().splitlines())) > 350
    }
    assert not long
