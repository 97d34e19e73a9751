"""benchmarks/pong.py, cartpole.py and speed.py: rows, yardsticks and tables. Nothing trains."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

from leeward.algorithms import ALGORITHMS, get_algorithm
from leeward.options import option_names
from leeward.published import scores
from leeward.settings import make_config

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modules of benchmarks/, which is no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture
def pong(load: Any) -> ModuleType:
    return load("pong")


@pytest.fixture
def cartpole(load: Any) -> ModuleType:
    return load("cartpole")


def check_settings(algorithm: str, preset: str | None, settings: dict[str, Any]) -> None:
    """Settings are fields of the algorithm's discrete form or of a run."""
    own = {name: value for name, value in settings.items() if name not in option_names()}
    form = ALGORITHMS.get(f"discrete_{algorithm}", get_algorithm(algorithm))
    make_config(form, preset, own)


def test_pong_s_rows_have_settings_that_exist_and_published_numbers(pong: ModuleType) -> None:
    for row in (*pong.ROWS, pong.IQL):
        check_settings(row.algorithm, pong.PRESET if row is not pong.IQL else None, row.settings)
        if row.published is not None:
            assert scores.find(row.published).quantity == "return"


def test_cartpole_s_rows_have_settings_that_exist(cartpole: ModuleType) -> None:
    for algorithm, settings in cartpole.ROWS.values():
        check_settings(algorithm, None, cartpole.SETTINGS | settings)


def pong_file(path: Path) -> Path:
    """Two episodes of three frames; the second is cut."""
    generator = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file["frames"] = generator.integers(0, 256, (6, 84, 84), np.uint8)
        file["final_frames"] = generator.integers(0, 256, (2, 84, 84), np.uint8)
        file["episode_offsets"] = np.array([0, 3, 6])
        file["actions"] = np.arange(6)
        file["rewards"] = np.array([0.0, 1.0, 1.0, 0.0, -1.0, 0.0])
        file["terminals"] = np.arange(6) == 2
        file["timeouts"] = np.arange(6) == 5
    return path


def test_frames_after_an_episode_s_last_step_are_found(pong: ModuleType, tmp_path: Path) -> None:
    path = pong_file(tmp_path / "pong.hdf5")
    data = pong.read(path)
    assert (data.transitions, data.frame_stack, data.action_space.size) == (6, 4, 6)
    assert data.episode_returns().tolist() == [2.0, -1.0]
    with h5py.File(path) as file:
        frames, final = file["frames"][()], file["final_frames"][()]
    following = [frames[1], frames[2], final[0], frames[4], frames[5], final[1]]
    row = data.start
    found = data.observation[row + 1] if data.next_observation is None else data.next_observation
    np.testing.assert_array_equal(found, following)


def test_pong_s_rows_are_not_made_twice_and_stop_at_the_budget(
    pong: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, float | None]] = []

    class Trained:
        algorithm = "discrete_bc"
        table = ({"run": 0, "seed": 0},)
        finished = True

        def evaluations(self) -> list[dict[str, Any]]:
            return [{"returns": [20.0, 18.0]}]

        def metrics(self) -> list[dict[str, Any]]:
            return [{"time/updates_per_second": rate} for rate in (1.0, 30.0, 40.0)]

    def train(row: Any, data: Any, options: Any, left: float | None) -> tuple[Any, float]:
        made.append((row.name, left))
        return Trained(), 120.0

    monkeypatch.setattr(pong, "train", train)
    flags = ["--data", str(pong_file(tmp_path / "small.hdf5")), "--episodes", "2"]
    flags += ["--out", str(tmp_path / "pong.jsonl"), "--only", "CRR", "IL"]
    assert pong.main([*flags, "--budget-minutes", "0"]) == 1
    assert made == []
    assert pong.main(flags) == 0
    assert pong.main(flags) == 0
    assert made == [("IL", None), ("CRR", None)]
    lines = [json.loads(line) for line in (tmp_path / "pong.jsonl").read_text().splitlines()]
    assert [line["published"] for line in lines] == [20.0, -21.0]
    assert [line["preset"] for line in lines] == ["tianshou", "tianshou"]
    assert lines[0]["updates_per_second"] == 35.0  # without the first, which compiles
    assert (tmp_path / "pong.md").read_text().splitlines()[2:5] == [
        "| the data (small, 6 transitions) | | | 0.5 | | 60.1 | 6.8 | | |",
        "| IL | 10,000 | 1 | 19.0 | 18, 20 | 112.5 | 20.0 | 35 | 2.0 |",
        "| CRR | 10,000 | 1 | 19.0 | 18, 20 | 112.5 | -21.0 | 35 | 2.0 |",
    ]


def test_cartpole_s_table_counts_seeds_above_the_data(cartpole: ModuleType) -> None:
    line = {"data": "cartpole-medium-v1.hdf5", "data_mean_return": 100.0, "steps": 6_000}
    line |= {"algorithm": "discrete_bcq", "returns": [188.4, 99.0, 301.0]}
    assert cartpole.table([line]).splitlines()[2:4] == [
        "| the data (cartpole-medium-v1.hdf5) | | | | 100.0 | |",
        "| bcq | 6,000 | 3 | 188.4, 99.0, 301.0 | 196.1 | 2 of 3 |",
    ]


def test_yardsticks_stand_beside_their_rows_where_their_python_is_named(load: Any) -> None:
    speed = load("speed")
    pythons = argparse.Namespace(torch_python="torch", tianshou_python=None, scale=0.1)
    found = speed.yardsticks(pythons, "pixel cql")
    assert list(found) == ["pixel cql, eager PyTorch", "pixel cql, d3rlpy"]
    assert all(line[0] == "torch" and line[2:] == ["cql", "20"] for line in found.values())
    assert list(speed.yardsticks(pythons, "iql")) == []
    rows = {row.name for row in speed.ROWS}
    for one in speed.YARDSTICKS:
        assert one.row in rows
        assert (BENCHMARKS / one.script).is_file(), one.script
