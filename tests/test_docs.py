"""The documentation tells the truth: its Python runs, its commands parse, its tables are fresh.

The pages that are stories have tests of their own: test_your_data.py, test_writing_an_algorithm.py.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import re
import shlex
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tyro

from leeward import cli
from leeward.algorithms import ALGORITHMS
from pages import DOCS, PAGES, ROOT, blocks_of, name_of, run_python, shell_lines

LANGUAGES = {"python", "sh", "text", "json", "toml"}
STORIES = {DOCS / "your-data.md", DOCS / "writing-an-algorithm.md"}
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
RUNNABLE = [p for p in PAGES if blocks_of(p, "python") and p not in STORIES]
COMMANDS = sorted(
    {
        line
        for block in BLOCKS
        if block.language == "sh"
        for line in shell_lines(block)
        if line.startswith("leeward ")
    }
)
MENTIONED = sorted(
    {
        (name_of(page), text)
        for page in PAGES
        for text in re.findall(r"(?<!`)`(leeward [^`\n]+)`(?!`)", page.read_text("utf-8"))
    }
)
"""Commands in running text, which often leave parts out: only their words are checked."""


RUN_PATH = re.compile(r"""(--(?:run|sweep)-dir |\b(?:run|sweep)_dir=")?\b(runs(?:/[\w.-]+)+)""")
"""A path below runs/, behind what gives it to a run or a sweep where that is there."""


@pytest.fixture
def update_docs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/ is no package."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("update_docs")


def test_every_block_says_what_it_is() -> None:
    wrong = [f"{name_of(b.page)}:{b.line}" for b in BLOCKS if b.language not in LANGUAGES]
    assert wrong == []


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page, "python"):
        run_python(block, namespace)


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


def paths_never_given(page: Path) -> list[str]:
    """Paths below runs/ in a page's blocks that nothing on the page made before."""
    made, wrong = set[Path](), list[str]()
    for block in blocks_of(page):
        if block.language not in ("sh", "python"):
            continue
        for line in shell_lines(block) if block.language == "sh" else block.text.splitlines():
            found = [(bool(gives), Path(text)) for gives, text in RUN_PATH.findall(line)]
            made.update(path for gives, path in found if gives)
            wrong += [
                f"{name_of(page)}:{block.line}: {path}"
                for _, path in found
                if not any(
                    one == path or one in path.parents or path in one.parents for one in made
                )
            ]
    return wrong


def test_run_directories_are_given_before_they_are_used() -> None:
    assert [wrong for page in PAGES for wrong in paths_never_given(page)] == []


def test_commands_in_running_text_have_words_that_exist(update_docs: ModuleType) -> None:
    dataclass_types = [*update_docs.OPTIONS.values(), *(a.config_type for a in ALGORITHMS.values())]
    fields = {field.name for cls in dataclass_types for field in dataclasses.fields(cls)}
    flags = {f"--{name.replace('_', '-')}" for name in fields} | {"--help", "--version", "--list"}
    wrong = []
    for page, text in MENTIONED:
        command, named = text.split()[1], re.findall(r"--[a-z][\w-]*", text)
        known = command in cli.COMMANDS or command in ("COMMAND", "--help", "--version")
        wrong += [f"{page}: {text}"] if not known or set(named) - flags else []
    assert len(MENTIONED) > 20
    assert wrong == []


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shell = "\n".join(block.text for block in BLOCKS if block.language == "sh")
    named = set(re.findall(r"^make (\w+)", shell, re.MULTILINE))
    assert {"quickstart", "test"} <= named
    assert named <= targets


def _extras() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_extras_exist() -> None:
    named = {
        extra
        for page in PAGES
        for extras in re.findall(r"(?:leeward|\.)\[([\w,]+)\]'", page.read_text())
        for extra in extras.split(",")
    }
    assert named <= set(_extras())
    assert "cuda" in named


def test_every_dependency_has_its_row() -> None:
    """Once in the table of docs/dependencies.md, under "base" or the names of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted: dict[str, set[str]] = {}
    for extra, lines in {"base": project["dependencies"], **_extras()}.items():
        for line in lines:
            name = re.split(r"[<>=!~; ]", line)[0]
            if not name.startswith("leeward["):
                wanted.setdefault(name, set()).add(extra)
    rows = re.findall(r"^\| `([^`]+)` \| ([\w, ]+) \|", _page("dependencies.md"), re.MULTILINE)
    assert {name: set(extras.split(", ")) for name, extras in rows} == wanted
    assert len(rows) == len(wanted)


def test_tables_are_up_to_date(update_docs: ModuleType) -> None:
    stale = [
        name_of(page)
        for page in PAGES
        if update_docs.updated(page.read_text("utf-8")) != page.read_text("utf-8")
    ]
    assert stale == [], "run: python scripts/update_docs.py"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert listed == {str(p.relative_to(DOCS)) for p in PAGES if p.parent != ROOT}


@pytest.mark.parametrize("kind", ["settings", "results"])
def test_every_algorithm_has_a_page_with_its(kind: str) -> None:
    pages = "".join(p.read_text("utf-8") for p in PAGES if p.parent.name == "algorithms")
    blocks = re.findall(rf"<!-- {kind}: ([\w -]+) -->", pages)
    documented = sorted(name for names in blocks for name in names.split())
    assert documented == sorted(name.replace("_", "-") for name in ALGORITHMS)


def _page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")
