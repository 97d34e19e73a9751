"""The public interface: what it is, that it can be imported, and that it is documented."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import leeward

PACKAGES = ("leeward", "leeward.data")
PROMISED = {
    "leeward": {
        "CheckpointError",
        "ConfigError",
        "DataError",
        "Dataset",
        "LeewardError",
        "MissingExtra",
        "Policy",
        "Run",
        "SimulationError",
        "SpecError",
        "TrainingError",
        "compare",
        "evaluate",
        "export",
        "finetune",
        "inspect",
        "load_dataset",
        "load_exported",
        "load_policy",
        "report",
        "resume",
        "sweep",
        "train",
    },
}


def public(package: ModuleType) -> list[str]:
    """Names in `__all__` whose objects are there."""
    return [name for name in package.__all__ if hasattr(package, name)]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_can_be_imported(name: str) -> None:
    package = importlib.import_module(name)
    assert public(package) == package.__all__
    assert sorted(set(package.__all__)) == sorted(package.__all__)


def test_the_interface_changes_only_on_purpose() -> None:
    assert set(leeward.__all__) == PROMISED["leeward"]


@pytest.mark.parametrize(
    ("package", "name"),
    [(p, name) for p in PACKAGES for name in importlib.import_module(p).__all__],
)
def test_public_names_are_documented(package: str, name: str) -> None:
    value = getattr(importlib.import_module(package), name)
    if not callable(value):
        return
    assert inspect.getdoc(value), f"{package}.{name} has no docstring"
    if inspect.isclass(value):
        undocumented = [
            f"{name}.{attribute}"
            for attribute, method in vars(value).items()
            if not attribute.startswith("_")
            and (inspect.isfunction(method) or isinstance(method, property | staticmethod))
            and not inspect.getdoc(method)
        ]
        assert undocumented == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'leeward' has no attribute 'trian'"):
        leeward.trian  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_train_is_the_function_even_after_its_module_was_imported() -> None:
    code = (
        "import leeward.train, leeward.evaluate, leeward\n"
        "assert callable(leeward.train), leeward.train\n"
        "assert callable(leeward.evaluate), leeward.evaluate\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_imports_neither_jax_nor_the_engine() -> None:
    code = "import sys, leeward; print([m for m in ('jax', 'numpy', 'tyro') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
