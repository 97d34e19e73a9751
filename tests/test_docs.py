"""The documentation tells the truth: its Python runs, its commands parse, its tables are fresh."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import tyro

import leeward
from leeward import cli
from leeward.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEW_ALGORITHM = ROOT / "docs" / "writing-an-algorithm.md"


class Block(NamedTuple):
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Every fenced block, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start(2)) + 1, match[1], match[2])
        for match in FENCE.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
COMMANDS = sorted(
    {
        line.removeprefix(".venv/bin/")
        for block in BLOCKS
        if block.language == "sh"
        for line in block.text.replace("\\\n", " ").splitlines()
        if line.removeprefix(".venv/bin/").startswith("leeward ")
    }
)


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return str(page.relative_to(ROOT))


def python_blocks(page: Path) -> list[Block]:
    """A page's Python, which shares one namespace."""
    return [block for block in blocks_of(page) if block.language == "python"]


def test_every_block_says_what_it_is() -> None:
    wrong = [f"{name_of(b.page)}:{b.line}" for b in BLOCKS if b.language not in LANGUAGES]
    assert wrong == []


LANGUAGES = {"python", "sh", "text", "json"}
RUNNABLE = [p for p in PAGES if python_blocks(p) and p != NEW_ALGORITHM]


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in python_blocks(page):
        padded = "\n" * (block.line - 1) + block.text  # so that errors name the page's line
        exec(compile(padded, name_of(page), "exec"), namespace)


class ParsedError(Exception):
    """Raised in place of what a command would do, once its flags are understood."""


@pytest.fixture
def parse_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands stop when their flags are parsed."""
    real = tyro.cli

    def parse(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        raise ParsedError

    monkeypatch.setattr(tyro, "cli", parse)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("parse_only")
@pytest.mark.parametrize("line", COMMANDS)
def test_commands_parse(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = shlex.split(line, comments=True)[1:]
    for flag, value in itertools.pairwise(arguments):
        if flag == "--config":
            Path(value).parent.mkdir(parents=True)
            Path(value).write_text("{}")
    if arguments[0] in ("list", "--help"):  # cheap enough to run
        assert cli.main(arguments) == 0
        return
    try:
        code: Any = cli.main(arguments)
    except ParsedError:
        return
    except SystemExit as stop:
        code = stop.code
    pytest.fail(f"exit code {code}: {capsys.readouterr().err}")


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shell = "\n".join(block.text for block in BLOCKS if block.language == "sh")
    named = set(re.findall(r"^make (\w+)", shell, re.MULTILINE))
    assert {"quickstart", "test"} <= named
    assert named <= targets


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {
        extra
        for page in PAGES
        for extras in re.findall(r"(?:leeward|\.)\[([\w,]+)\]'", page.read_text())
        for extra in extras.split(",")
    }
    assert named <= set(project["optional-dependencies"])
    assert "cuda" in named


def test_tables_are_up_to_date() -> None:
    update_docs = _module_at("update_docs", ROOT / "scripts" / "update_docs.py")
    stale = [
        name_of(page)
        for page in PAGES
        if update_docs.updated(page.read_text("utf-8")) != page.read_text("utf-8")
    ]
    assert stale == [], "run: python scripts/update_docs.py"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert listed == {str(p.relative_to(ROOT / "docs")) for p in PAGES if p.parent != ROOT}


def test_every_algorithm_has_a_page_with_its_settings() -> None:
    pages = "".join(p.read_text("utf-8") for p in PAGES if p.parent.name == "algorithms")
    documented = set(re.findall(r"<!-- settings: ([\w-]+) -->", pages))
    assert {name.replace("_", "-") for name in ALGORITHMS} - documented == set()


@pytest.fixture
def new_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The algorithm that the guide writes, as a module of the package and in its dictionary."""
    (block,) = python_blocks(NEW_ALGORITHM)
    file = tmp_path / "awc.py"
    file.write_text(block.text, encoding="utf-8")
    module = _module_at("leeward.algorithms.awc", file)
    monkeypatch.setitem(ALGORITHMS, "awc", module.ALGORITHM)
    yield "awc"
    del sys.modules["leeward.algorithms.awc"]


def _module_at(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_guide_s_algorithm_trains(
    new_algorithm: str, continuous_dataset: leeward.Dataset, tmp_path: Path
) -> None:
    run = leeward.train(
        new_algorithm,
        continuous_dataset,
        seeds=range(2),
        steps=400,
        lr=3e-3,
        log_every=100,
        run_dir=tmp_path / "run",
        quiet=True,
    )
    policy = leeward.load_policy(run.directory, seed=1)
    start = continuous_dataset.start
    predicted, action = (
        policy(continuous_dataset.observation[start]),
        continuous_dataset.action[start],
    )
    # The data's noise has a std of 0.3; the spread of its actions is twice that.
    assert np.square(predicted - action).mean() < 0.5 * action.var()


@pytest.mark.usefixtures("parse_only")
def test_the_guide_s_algorithm_has_flags(
    new_algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", new_algorithm, "--help"])
    assert "How sharply the weight follows the advantage" in capsys.readouterr().out
