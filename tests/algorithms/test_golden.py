"""Every algorithm in the real engine: metrics are those stored; interruptions change nothing.

A change that should change no result leaves the stored metrics as they are. One that should says so
in its commit and writes them anew:

    python tests/write_golden.py [ALGORITHM …]
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leeward
from leeward.algorithms import ALGORITHMS
from small_runs import CASES, UPDATES, metrics, train, whole_run
from subjects import small_dataset

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_metrics_are_those_stored(name: str, kind: str) -> None:
    path = GOLDEN / f"{name}-{kind}.json"
    assert path.exists(), f"none stored yet: python tests/write_golden.py {name}"
    stored, found = json.loads(path.read_text("utf-8")), metrics(whole_run(name, kind))
    assert [list(row) for row in found] == [list(row) for row in stored]
    for row, expected in zip(found, stored, strict=True):
        for quantity, value in expected.items():
            where = f"{quantity}, {row['phase']} {row['step']}, seed {row['seed']}"
            if value is None or isinstance(value, str):
                assert row[quantity] == value, where
            else:
                # Machines round differently, and 50 updates let that grow.
                np.testing.assert_allclose(
                    row[quantity], value, rtol=1e-3, atol=1e-5, err_msg=where
                )


def test_nothing_else_is_stored() -> None:
    stored = sorted(path.stem for path in GOLDEN.iterdir())
    assert stored == sorted(f"{name}-{kind}" for name, kind in CASES)


def weights(directory: Path) -> dict[str, np.ndarray]:
    """The final policy's arrays."""
    with np.load(directory / "final" / "policy.npz", allow_pickle=False) as archive:
        return dict(archive)


def train_in_pieces(name: str, kind: str, directory: Path) -> int:
    """The same run, interrupted in every phase and resumed; how often it was resumed."""

    def interrupt(row: Mapping[str, Any]) -> None:
        if row["run"] == 1 and row["step"] == 20:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(name, kind, directory, interrupt)
    for count in range(1, 1 + len(ALGORITHMS[name].phases)):
        with contextlib.suppress(KeyboardInterrupt):
            leeward.resume(directory, data=small_dataset(kind), quiet=True, on_metrics=interrupt)
            return count
    raise AssertionError("interrupted more often than there are phases")


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_interrupted_and_resumed_is_the_same_to_the_bit(
    name: str, kind: str, tmp_path: Path
) -> None:
    whole, pieces = whole_run(name, kind), tmp_path / "pieces"
    assert train_in_pieces(name, kind, pieces) == len(ALGORITHMS[name].phases)
    assert metrics(pieces) == metrics(whole)
    assert metrics(whole)[-1]["step"] == UPDATES
    first, second = weights(whole), weights(pieces)
    assert first.keys() == second.keys()
    for part, value in first.items():
        np.testing.assert_array_equal(value, second[part], err_msg=part)


def test_normalized_observations_are_what_training_and_the_policy_see(tmp_path: Path) -> None:
    for folder, normalize in (("plain", False), ("scaled", True)):
        train("bc", "continuous", tmp_path / folder, normalize_observations=normalize)
    plain, scaled = weights(tmp_path / "plain"), weights(tmp_path / "scaled")
    first = "policy/mlp/layers/0/weight"
    assert not np.array_equal(plain[first], scaled[first])
    dataset = small_dataset("continuous")
    used = dataset.observation[dataset.start]
    np.testing.assert_array_equal(plain["scaling/observation_mean"], np.zeros(3))
    for part, expected in (("mean", used.mean(axis=0)), ("std", used.std(axis=0) + 1e-3)):
        np.testing.assert_allclose(scaled[f"scaling/observation_{part}"], expected, rtol=1e-5)
