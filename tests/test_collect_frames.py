"""Collected frames: a collection that was killed goes on, to the file it would have made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest

from leeward import collect_frames
from leeward.behaviors import disturbed, random_behavior
from leeward.collect_frames import Part, write_frames
from leeward.rollout import Behavior
from leeward.types import Discrete
from memory import peak_of

ACTIONS = Discrete(3)


class Frames(gymnasium.Env[np.ndarray, Any]):
    """Two stacked frames of random bytes; episodes of 3 to 8 steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 4, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, Any]:
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(3, 9))
        self._frame = self.np_random.integers(0, 256, (4, 4)).astype(np.uint8)
        return np.stack([self._frame] * 2), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        before = self._frame
        self._frame = (self.np_random.integers(0, 256, (4, 4)) // (1 + action)).astype(np.uint8)
        self._left -= 1
        return np.stack([before, self._frame]), float(action), self._left == 0, False, {}


class Clock:
    """Counts a behavior's actions, and interrupts it at one of them."""

    def __init__(self, behavior: Behavior, stop: int | None = None) -> None:
        self.behavior, self.stop, self.steps = behavior, stop, []

    def __call__(self, observation: np.ndarray, step: int) -> np.ndarray:
        if step == self.stop:
            raise KeyboardInterrupt
        self.steps.append(step)
        return self.behavior(observation, step)


def collected(path: Path, fingerprint: str = "same", stop: int | None = None) -> list[int]:
    """Two behaviors, 30 and 25 transitions; the numbers of the steps that were made."""
    first = random_behavior(ACTIONS, 5)
    behaviors = [first, disturbed(first, ACTIONS, 0.0, 0.5, 5)]
    clocks = [Clock(behavior, stop) for behavior in behaviors]
    parts = [Part(clock, n, tag) for clock, n, tag in zip(clocks, (30, 25), (3, 4), strict=True)]
    write_frames(path, Frames, parts, 0, lambda r: {"returns": r}, lambda rows: None, fingerprint)
    return [step for clock in clocks for step in clock.steps]


def columns(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        names = [key for key in file if key != "metadata"]
        return {key: file[key][()] for key in names} | {"returns": file["metadata/returns"][()]}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_frames, "CHECKPOINT", 7)


@pytest.mark.parametrize("stop", [3, 28, 50])
def test_a_killed_collection_goes_on_as_if_nothing_had_happened(tmp_path: Path, stop: int) -> None:
    assert collected(tmp_path / "whole.hdf5") == list(range(55))
    with pytest.raises(KeyboardInterrupt):
        collected(tmp_path / "killed.hdf5", stop=stop)
    assert not (tmp_path / "killed.hdf5").exists()
    made = collected(tmp_path / "killed.hdf5")
    assert made == list(range(made[0], 55))
    assert (made[0] > 0) == (stop > 20)  # episodes have eight steps at most
    whole, killed = columns(tmp_path / "whole.hdf5"), columns(tmp_path / "killed.hdf5")
    assert whole.keys() == killed.keys()
    for name, column in whole.items():
        np.testing.assert_array_equal(column, killed[name], name)


def test_another_collection_begins_anew(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        collected(tmp_path / "one.hdf5", "one", stop=50)
    assert collected(tmp_path / "one.hdf5", "another") == list(range(55))


class Large(gymnasium.Env[np.ndarray, Any]):
    """Frames of 84 × 84 bytes in episodes of 100 steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, Any]:
        self._step = 0
        return np.zeros((2, 84, 84), np.uint8), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return np.full((2, 84, 84), self._step, np.uint8), 0.0, self._step == 100, False, {}


def test_rows_that_were_written_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect_frames, "BLOCK", 64)
    monkeypatch.setattr(collect_frames, "CHECKPOINT", 1_000)
    count, path = 2_400, tmp_path / "large.hdf5"

    def write() -> None:
        part = Part(random_behavior(ACTIONS, 5), count, 3)
        write_frames(path, Large, [part], 0, lambda r: {"returns": r}, lambda rows: None)

    peak = peak_of(write)
    assert peak < count * 84 * 84 / 3
    assert columns(path)["recorded"].sum() == count
