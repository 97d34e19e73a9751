"""Leeward: offline reinforcement learning and offline imitation in JAX.

>>> import leeward
>>> data = leeward.load_dataset("hopper-medium-v2")  # doctest: +SKIP
>>> run = leeward.train("td3_bc", data, seeds=range(5), steps=100_000)  # doctest: +SKIP
>>> policy = leeward.load_policy(run.directory, seed=0)  # doctest: +SKIP

Names are imported when they are first used, so that `leeward --help` need not wait for JAX.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leeward.compare import compare
    from leeward.data.checks import inspect
    from leeward.data.dataset import Dataset
    from leeward.data.load import load_dataset
    from leeward.errors import (
        CheckpointError,
        ConfigError,
        DataError,
        LeewardError,
        MissingExtra,
        SimulationError,
        SpecError,
        TrainingError,
    )
    from leeward.evaluate import evaluate
    from leeward.export import export, load_exported
    from leeward.finetune import finetune
    from leeward.policy import Policy, load_policy
    from leeward.report import report
    from leeward.run import Run
    from leeward.sweep import sweep
    from leeward.train import resume, train

_PLACES = {
    "CheckpointError": "errors",
    "ConfigError": "errors",
    "DataError": "errors",
    "Dataset": "data.dataset",
    "LeewardError": "errors",
    "MissingExtra": "errors",
    "Policy": "policy",
    "Run": "run",
    "SimulationError": "errors",
    "SpecError": "errors",
    "TrainingError": "errors",
    "compare": "compare",
    "evaluate": "evaluate",
    "export": "export",
    "finetune": "finetune",
    "inspect": "data.checks",
    "load_dataset": "data.load",
    "load_exported": "export",
    "load_policy": "policy",
    "report": "report",
    "resume": "train",
    "sweep": "sweep",
    "train": "train",
}

__all__ = [
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
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'leeward' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"leeward.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """Keeps `leeward.train` the function when the module of that name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PLACES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
