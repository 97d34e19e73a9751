"""The size limits of files and functions, and what a file may not be called."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = [
    p for folder in ("src", "tests", "benchmarks") for p in sorted((ROOT / folder).rglob("*.py"))
]
MOST_LINES_OF_FILE = 400
MOST_LINES_OF_FUNCTION = 60
VAGUE = {"utils", "util", "helpers", "common", "misc", "base"}


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, signature and docstring left out."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or function.lineno) - body[0].lineno + 1 if body else 0


def test_no_file_is_over_400_lines() -> None:
    assert FILES
    length = {str(p.relative_to(ROOT)): len(p.read_text("utf-8").splitlines()) for p in FILES}
    assert {name: n for name, n in length.items() if n > MOST_LINES_OF_FILE} == {}


def test_no_function_is_over_60_lines() -> None:
    long = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = lines_of_code(node)
                if lines > MOST_LINES_OF_FUNCTION:
                    long[f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"] = lines
    assert long == {}


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert [str(p.relative_to(ROOT)) for p in FILES if p.stem.strip("_") in VAGUE] == []
