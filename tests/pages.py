"""The documentation's pages and their fenced blocks, for tests of what they say."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str


def blocks_of(page: Path, language: str | None = None) -> list[Block]:
    """Every fenced block, or those of one language, in order."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(page, text.count("\n", 0, match.start(2)) + 1, match[1], match[2])
        for match in FENCE.finditer(text)
    ]
    return [block for block in found if language in (None, block.language)]


def shell_lines(block: Block) -> list[str]:
    """What is typed in a block of shell, one command a line."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line.removeprefix(".venv/bin/") for line in lines if line.strip()]


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return str(page.relative_to(ROOT))


def run_python(block: Block, namespace: dict[str, Any]) -> None:
    """Runs a block so that errors name the page's line."""
    padded = "\n" * (block.line - 1) + block.text
    exec(compile(padded, name_of(block.page), "exec"), namespace)


def module_at(name: str, file: Path) -> ModuleType:
    """A Python file as a module of that name."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
