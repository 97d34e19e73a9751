"""Imports point downwards only, without cycles, and name only declared dependencies."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"

# From top to bottom; a module may import from layers below its own, and, where SIDEWAYS says so,
# from its own layer. "*" is every module that no other line names.
LAYERS: dict[str, tuple[str, ...]] = {
    "command": ("cli", "commands", "__main__"),
    "programs": ("report", "sweep", "export", "collect", "quickstart", "reproduce"),
    "engine": ("*",),
    "algorithms": ("algorithms",),
    "phases": ("pretraining",),
    "parts": ("losses", "optim", "nn", "data"),
    "foundation": ("types", "config", "errors"),
}
SIDEWAYS = ("command", "programs", "engine", "foundation")
# What `data` may use of the layers below: it knows nothing of configs.
DATA_MAY_IMPORT = ("data", "types", "errors")


class Import(NamedTuple):
    """One import statement: the module it stands in, what it names and where."""

    module: str
    target: str
    line: int
    lazy: bool  # inside a function

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def module_name(path: Path) -> str:
    """leeward.data.dataset for …/leeward/data/dataset.py."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports_of(module: str) -> Iterator[Import]:
    """Every import of a module, with `from package import submodule` resolved."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(child) for function in functions for child in ast.walk(function)}
    for node in ast.walk(tree):
        lazy = id(node) in inside
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, lazy)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno} has a relative import"
            assert node.module is not None
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                target = submodule if submodule in MODULES else node.module
                yield Import(module, target, node.lineno, lazy)


IMPORTS = [found for module in MODULES for found in imports_of(module)]


def part_of(module: str) -> str:
    """The module or package directly below leeward; "" for leeward itself."""
    return module.split(".")[1] if "." in module else ""


def layer_of(module: str) -> str:
    """The line of LAYERS that names the module's part."""
    named = [layer for layer, parts in LAYERS.items() if part_of(module) in parts]
    return named[0] if named else "engine"


def fault(found: Import) -> str | None:
    """What is wrong with one import inside the package, or None."""
    if found.module == "leeward":
        return None if layer_of(found.target) != "command" else "the package imports its command"
    if found.target == "leeward":
        return None if layer_of(found.module) == "command" else "names the package's root"
    own, other = part_of(found.module), part_of(found.target)
    if own == "data" and other not in DATA_MAY_IMPORT:
        return f"data may import {DATA_MAY_IMPORT} only"
    if own == "algorithms" == other and found.module != "leeward.algorithms":
        return "an algorithm imports another"
    if own == other:
        return None
    order = list(LAYERS)
    above, below = order.index(layer_of(found.module)), order.index(layer_of(found.target))
    if above < below or (above == below and layer_of(found.module) in SIDEWAYS):
        return None
    return f"{layer_of(found.module)} may not import {layer_of(found.target)}"


def test_imports_point_downwards() -> None:
    internal = [i for i in IMPORTS if i.target.split(".")[0] == "leeward"]
    assert len(internal) > 20  # the parser finds them at all
    faults = [f"{found}: {wrong}" for found in internal if (wrong := fault(found))]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("leeward.pretraining.value", "leeward.algorithms.bc"),
        ("leeward.types", "leeward.losses"),
        ("leeward.losses", "leeward.nn.layers"),
        ("leeward.nn.actors", "leeward.algorithms"),
        ("leeward.data.dataset", "leeward.config"),
        ("leeward.algorithms.bc", "leeward.algorithms.td3_bc"),
        ("leeward.algorithms.bc", "leeward.train"),
        ("leeward.train", "leeward.report"),
        ("leeward.train", "leeward"),
        ("leeward", "leeward.cli"),
    ],
)
def test_an_upward_import_is_found(module: str, target: str) -> None:
    assert fault(Import(module, target, 1, lazy=False))


def test_modules_import_without_cycles() -> None:
    edges: dict[str, set[str]] = {module: set() for module in MODULES}
    for found in IMPORTS:
        if found.target in MODULES and found.target != found.module and not found.lazy:
            edges[found.module].add(found.target)
    while edges:
        leaves = {module for module, targets in edges.items() if not targets}
        assert leaves, f"these import one another in a circle: {sorted(edges)}"
        edges = {m: targets - leaves for m, targets in edges.items() if m not in leaves}


def declared() -> tuple[set[str], set[str]]:
    """Names of the base dependencies, and of those in extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    return distributions(project["dependencies"]), distributions(extras)


def distributions(requirements: list[str]) -> set[str]:
    """Normalized names of requirement lines."""
    return {_normalized(re.split(r"[\[<>=!~; ]", line)[0]) for line in requirements}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


WITH_AN_EXTRA = {"leeward.data.table", "leeward.data.cells"}
"""Modules that need an extra as a whole: `load_dataset` imports them, once it is there."""


def test_modules_with_an_extra_are_imported_late() -> None:
    into = [i for i in IMPORTS if i.target in WITH_AN_EXTRA and i.module not in WITH_AN_EXTRA]
    assert {(found.module, found.lazy) for found in into} == {("leeward.data.load", True)}


def test_third_party_imports_are_declared() -> None:
    base, extra = declared()
    installed = importlib.metadata.packages_distributions()
    faults = []
    for found in IMPORTS:
        top = found.target.split(".")[0]
        if top == "leeward" or top in sys.stdlib_module_names:
            continue
        providers = {_normalized(name) for name in installed.get(top, [top])}
        allowed = base | extra if found.lazy or found.module in WITH_AN_EXTRA else base
        if not providers & allowed:
            faults.append(f"{found}, which is no {'' if found.lazy else 'base '}dependency")
    assert not faults, "\n".join(faults)


def test_base_dependencies_have_a_user() -> None:
    base, _ = declared()
    installed = importlib.metadata.packages_distributions()
    tops = {found.target.split(".")[0] for found in IMPORTS} - {"leeward"}
    used = {_normalized(name) for top in tops for name in installed.get(top, [])}
    # gymnasium[mujoco] imports it; pinned here since scores depend on its version.
    assert base - used == {"mujoco"}
