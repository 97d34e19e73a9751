"""benchmarks/peers/: what the runners share, beside what Leeward itself does."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

import small_environments
from leeward.data.load import load_dataset
from leeward.data.transforms import reward_transform
from leeward.evaluate import episode_seed

LINE = "LeewardTest/Line-v0"
PEERS = Path(__file__).parents[1] / "benchmarks" / "peers"


@pytest.fixture
def protocol(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(PEERS))  # no package
    return importlib.import_module("protocol")


def job(protocol: ModuleType, data: Path, **changes: Any) -> Any:
    values = {
        "algorithm": "iql",
        "updates": 5,
        "seeds": [0, 1],
        "data": str(data),
        "env": LINE,
        "episodes": 3,
        "settings": {"reward_transform": "return-range"},
        "warm_up": 1,
        "probe": False,
        "started": 0.0,
        "result": str(data.with_name("result.json")),
    }
    return protocol.Job(**values | changes)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A D4RL file: an episode that ends with return 3, and one that is cut with return 13."""
    path = tmp_path / "rows.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"] = np.arange(8.0).reshape(4, 2)
        file["next_observations"] = 2.0 + np.arange(8.0).reshape(4, 2)
        file["actions"] = np.zeros((4, 1))
        file["rewards"] = np.array([1.0, 2.0, 5.0, 8.0])
        file["terminals"] = np.array([0, 1, 0, 0], np.uint8)
        file["timeouts"] = np.array([0, 0, 0, 1], np.uint8)
    return path


def test_rewards_are_scaled_by_the_range_of_returns(protocol: ModuleType, rows: Path) -> None:
    found = protocol.read_transitions(job(protocol, rows))
    assert found.rewards.tolist() == [100.0, 200.0, 500.0, 800.0]
    assert found.terminals.tolist() == [False, True, False, False]
    plain = protocol.read_transitions(job(protocol, rows, settings={}))
    assert plain.rewards.tolist() == [1.0, 2.0, 5.0, 8.0]
    assert plain.observations.dtype == np.float32


def test_returns_of_cut_off_episodes_are_refused(protocol: ModuleType, rows: Path) -> None:
    with h5py.File(rows, "a") as file:
        file["timeouts"][3] = 0
    with pytest.raises(ValueError, match="whole episodes only"):
        protocol.read_transitions(job(protocol, rows))


def test_leeward_sees_the_transitions_of_its_peers(protocol: ModuleType, rows: Path) -> None:
    own = reward_transform(load_dataset(rows, env=LINE), "return-range", 1.0, 0.0)
    theirs = protocol.read_transitions(job(protocol, rows))
    assert own.reward[own.start].tolist() == theirs.rewards.tolist()
    assert own.observation[own.start].tolist() == theirs.observations.tolist()
    assert own.termination[own.start].tolist() == theirs.terminals.tolist()


def test_the_rate_counts_all_seeds_after_the_warm_up(
    protocol: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {"wall": 0.0}
    monkeypatch.setattr(protocol.time, "perf_counter", lambda: now["wall"])
    monkeypatch.setattr(protocol.time, "process_time", lambda: 1.5 * now["wall"])
    monkeypatch.setattr(protocol.time, "time", lambda: now["wall"])
    monkeypatch.setattr(protocol, "busy_seconds", lambda: 1.75 * now["wall"])
    stopwatch = protocol.Stopwatch(job(protocol, tmp_path / "rows.hdf5", started=-2.0))
    for step, wall in enumerate([10.0, 11.0, 11.5, 12.0, 14.0], 1):
        now["wall"] = wall
        stopwatch.after(step)
    assert stopwatch.first_update == 12.0
    assert stopwatch.result() == {
        "updates_per_second": 2 * 4 / 4.0,
        "training_seconds": 4.0,
        "cores_of_others": 0.25,
    }


def test_episodes_start_as_leewards_evaluation_starts_them(
    protocol: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    line_class = small_environments.Line
    reset = line_class.reset

    def noted(self: Any, *, seed: int | None = None, options: dict | None = None) -> Any:
        if seed is not None:
            seeds.append(seed)
        return reset(self, seed=seed, options=options)

    monkeypatch.setattr(line_class, "reset", noted)
    returns = protocol.episode_returns(
        lambda observation: np.zeros((len(observation), 1), np.float32),
        job(protocol, tmp_path / "rows.hdf5"),
        seed=7,
    )
    assert seeds == [episode_seed(0, 7, episode) for episode in range(3)]
    assert len(returns) == 3
    assert max(returns) < 0.0
