"""Training on data that stays on disk gives what training in memory gives, to the bit."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import leeward
from leeward.algorithms import ALGORITHMS
from leeward.data.convert import write_file
from leeward.data.dataset import Dataset
from leeward.errors import ConfigError, DataError
from training import lines, train, weights


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of seven updates, which fit no other interval; even small columns lie in files."""
    monkeypatch.setattr("leeward.streaming.BLOCK_UPDATES", 7)
    for module in ("allocation", "hdf5", "npz"):
        monkeypatch.setattr(f"leeward.data.{module}.SMALL", 1)


def assert_same_run(one: Path, other: Path) -> None:
    """Same lines of metrics, same final weights."""
    assert lines(one) == lines(other)
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def assert_location_changes_nothing(
    folder: Path, data: Any, algorithm: str, **settings: Any
) -> None:
    settings = {"log_every": 5} | settings
    memory = train(folder / "memory", data, algorithm, **settings)
    disk = train(folder / "disk", data, algorithm, data_location="disk", **settings)
    assert_same_run(memory, disk)


def test_seeds_and_settings_drawn_with_replacement(tmp_path: Path, npz: Path) -> None:
    """Of Cal-QL, whose returns-to-go come from all episodes, by each run's own discount."""
    settings = {"seeds": (0, 3), "discount": [0.9, 0.99], "steps": 15}
    small = {"sampled_actions": 2, "hidden": (), "max_backup": False, "tune_alpha": False}
    assert_location_changes_nothing(tmp_path, npz, "cal_ql", **settings, **small)


def test_early_stopping(tmp_path: Path, npz: Path) -> None:
    settings = {"validation_fraction": 0.3, "validation_every": 4, "patience": 2, "lr": 0.05}
    assert_location_changes_nothing(tmp_path, npz, "bc", steps=60, **settings)
    rows = lines(tmp_path / "disk")
    assert any(name.startswith("held_out/") for row in rows for name in row)


def test_transitions_in_any_order(tmp_path: Path) -> None:
    """Next observations that are no rows, in arrays of this process, with episodes held out."""
    generator = np.random.default_rng(0)
    data = Dataset.from_arrays(
        generator.normal(size=(60, 3)),
        generator.uniform(-1, 1, (60, 2)),
        generator.normal(size=60),
        generator.random(60) < 0.2,
        next_observation=generator.normal(size=(60, 3)),
    )
    assert not data.next_rows_chain()
    settings = {"validation_fraction": 0.3, "validation_every": 4}
    assert_location_changes_nothing(tmp_path, data, "bc", **settings)


def test_stacked_frames(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    data = Dataset.from_arrays(
        generator.integers(0, 256, (40, 36, 36), np.uint8),
        generator.integers(0, 3, 40),
        generator.normal(size=40),
        np.arange(40) % 10 == 9,
        action_count=3,
        metadata={"frame_stack": 4},
    )
    path = tmp_path / "frames.hdf5"
    write_file(path, data)
    assert_location_changes_nothing(tmp_path, path, "bc", steps=9, log_every=9)


EPOCHS: dict[str, Any] = {"sampling": "epoch", "n_step": 3, "steps": 60}


def test_a_run_stopped_within_a_block_goes_on_to_the_same_end(tmp_path: Path, npz: Path) -> None:
    """In shuffled epochs of three-step returns."""
    settings = EPOCHS | {"data_location": "disk", "checkpoint_every": 16, "log_every": 9}
    whole = train(tmp_path / "whole", npz, **settings)
    stopped = tmp_path / "stopped"

    def stop(row: Any) -> None:
        if row["step"] == 27:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        train(stopped, npz, on_metrics=stop, **settings)
    leeward.resume(stopped, quiet=True)
    assert_same_run(whole, stopped)
    assert_same_run(train(tmp_path / "memory", npz, log_every=9, **EPOCHS), whole)


def test_a_run_is_not_resumed_on_changed_data(tmp_path: Path, npz: Path) -> None:
    run = train(tmp_path / "run", npz, data_location="disk", **EPOCHS)
    with np.load(npz) as archive:
        columns = dict(archive)
    np.savez(npz, **columns | {"rewards": columns["rewards"] + 1})
    with pytest.raises(DataError, match="was trained on other data than small holds now"):
        leeward.resume(run, steps=70, quiet=True)


CHILD = """
    import resource, sys, threading
    import numpy as np
    import leeward

    threading.stack_size(2**20)  # stacks count: 8 MiB of each thread that saves a checkpoint

    def private():
        lines = open("/proc/self/status").read().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmData:")) * 1024

    small, large, folder = sys.argv[1:4]
    settings = dict(steps=600, batch_size=8, hidden=(8,), quiet=True, logger=())
    settings |= dict(log_every=600, data_location="disk")
    leeward.train("td3_bc", small, run_dir=f"{folder}/small", **settings)
    limit = private() + 208 * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        np.ones((2**18, 256), np.float32)
    except MemoryError:
        print("the rows do not fit into memory")
    leeward.train("td3_bc", large, run_dir=f"{folder}/large", **settings)
    print("trained")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of private memory are Linux's")
def test_data_larger_than_the_memory_allowed_trains(tmp_path: Path) -> None:
    for name, rows in (("small", 2**10), ("large", 2**18)):
        write_wide(tmp_path / f"{name}.hdf5", rows)
    arguments = [str(tmp_path / "small.hdf5"), str(tmp_path / "large.hdf5"), str(tmp_path)]
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), *arguments], capture_output=True, text=True
    )
    assert child.stdout.splitlines() == ["the rows do not fit into memory", "trained"], child.stderr
    assert lines(tmp_path / "large")[0]["step"] == 600


def write_wide(path: Path, rows: int) -> None:
    """Steps of 256 numbers (256 MiB where there are 2¹⁸), not stored as one plain block."""
    part = np.random.default_rng(0).normal(size=(2**10, 256)).astype(np.float32)
    with h5py.File(path, "w") as file:
        shape = (rows, 256)
        observations = file.create_dataset("observations", shape, np.float32, chunks=(2**10, 256))
        for begin in range(0, rows, len(part)):
            observations[begin : begin + len(part)] = part + begin
        row = np.arange(rows)
        file["actions"] = np.sin(row).astype(np.float32)[:, None]
        file["rewards"] = np.cos(row).astype(np.float32)
        file["terminals"] = row % 200 == 199
        file["timeouts"] = row == rows - 1


def test_algorithms_that_look_at_all_rows_say_so() -> None:
    going_over_the_data = {
        name
        for name, algorithm in ALGORITHMS.items()
        if any(
            phase.enter is not None
            or (phase.measurement is not None and phase.measurement.closeup is not None)
            for phase in algorithm.phases
        )
    }
    streamed = {name for name in going_over_the_data if ALGORITHMS[name].all_rows is None}
    assert streamed == {"cql", "cal_ql"}  # their returns-to-go need small columns only, see above


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        (
            "fmr",
            {},
            "fmr asks its frozen networks about all rows at once, so its data cannot stay on disk: "
            "use --data-location memory, or another algorithm",
        ),
        (
            "td3_bc",
            {"select": "ope"},
            "--select ope estimates from all rows at once, so the data cannot stay on disk: use "
            "--data-location memory, or --select evaluation",
        ),
    ],
)
def test_what_needs_all_rows_is_refused_before_a_run_is_made(
    tmp_path: Path, npz: Path, algorithm: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        train(tmp_path / "run", npz, algorithm, data_location="disk", **settings)
    assert str(error.value) == message
    assert not (tmp_path / "run").exists()
