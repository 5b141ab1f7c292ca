"""The documentation: code blocks run, commands parse, links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ssmarl.cli.main import parse
from tools import pages, tables

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNNABLE = [page for page in PAGES if "```python" in page.read_text()]


def blocks(page, language):
    """The fenced blocks of a language; "" for plain ones."""
    found, inside = [], None
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            if inside is None:
                inside = (line.removeprefix("```").strip(), [])
            else:
                kind, lines = inside
                found += ["\n".join(lines) + "\n"] if kind == language else []
                inside = None
        elif inside is not None:
            inside[1].append(line)
    return found


def test_marked_tables_are_those_of_the_result_files():
    marked = [page for page in PAGES if "<!-- numbers: " in page.read_text()]
    assert len(marked) >= 3
    for page in marked:
        text = page.read_text()
        assert tables.renewed(text) == text, f"{page.name}: run make docs-numbers"
    readme = (ROOT / "README.md").read_text()
    assert tables.renewed(readme.replace("2,706", "2,707")) == readme


def test_the_command_that_renews_the_tables_runs():
    command = [sys.executable, "tools/tables.py", "--check"]
    subprocess.run(command, cwd=ROOT, check=True)
    command = [
        sys.executable,
        "-c",
        "import runpy, sys; sys.path.insert(0, 'tools'); runpy.run_path('tools/pages.py')",
    ]
    subprocess.run(command, cwd=ROOT, check=True)


@pytest.mark.parametrize("name", pages.stored())
def test_pages_of_experiments_are_those_of_their_results(name, tmp_path):
    page = pages.PAGES / name / pages.PAGE
    assert pages.draw(name, tmp_path) == page.read_text(), f"{name}: run make docs-numbers"
    drawn = {path.name for path in tmp_path.glob("*.png")}
    named = set(re.findall(r"\]\(([^)]+\.png)\)", page.read_text()))
    assert drawn <= named
    assert all((page.parent / picture).is_file() for picture in named)


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_python_blocks_run(page, monkeypatch):
    """In order, in one namespace, as a reader would type them."""
    monkeypatch.chdir(ROOT)
    names: dict = {}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_parse(page, monkeypatch):
    """Every `ssmarl` command of a plain block has the options that it uses."""
    monkeypatch.chdir(ROOT)
    for block in blocks(page, ""):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["ssmarl"] and words[1:]:
                parse(words[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_no_machine_in_the_docs():
    home = os.sep.join(ROOT.parts[:2]).replace("//", "/")
    for page in PAGES:
        assert f"{home}/" not in page.read_text(), page.name
