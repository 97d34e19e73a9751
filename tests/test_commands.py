"""The main job through the command, as a user types it, and what it says where it cannot go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from events import scalars
from leeward import cli

SHIPPED = "inverteddoublependulum-replay-v5"
SMALL = ("--hidden", "8", "--batch-size", "8", "--quiet", "--eval-episodes", "1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two seeds of BC on the shipped data."""
    run = tmp_path_factory.mktemp("commands") / "run"
    line = ["train", "bc", SHIPPED, "--steps", "20", "--eval-every", "10", "--log-every", "10"]
    assert cli.main([*line, "--seeds", "0", "1", "--run-dir", str(run), *SMALL]) == 0
    return run


def test_the_reference_s_smoke_line_works_under_our_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    line = ["train", "fisher-brc", SHIPPED, "--preset", "reference", "--seeds", "42"]
    line += ["--bc-pretraining-steps", "100", "--steps", "100", "--eval-every", "100"]
    assert cli.main([*line, "--run-dir", str(run)]) == 0
    rows = [json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(row["phase"], row["step"]) for row in rows] == [("behavior", 100), ("train", 100)]
    assert all(
        np.isfinite(value) for row in rows for value in row.values() if value != row["phase"]
    )
    evaluations = (run / "evaluations.jsonl").read_text().splitlines()
    assert [len(json.loads(row)["returns"]) for row in evaluations] == [10]
    drawn = scalars(run / "tensorboard" / "seed-42")
    assert [step for step, _ in drawn["training/bc_actor_loss"]] == [0]
    assert [step for step, _ in drawn["training/critic_loss"]] == [100]
    ((step, score),) = drawn["evaluation/returns"]
    assert (step, score) == (100, pytest.approx(json.loads(evaluations[0])["score_mean"]))
    assert {path.name for path in run.iterdir()} >= {"final", "best", "checkpoints", "tensorboard"}
    assert "leeward evaluate" in capsys.readouterr().out


def test_training_without_compilation(tmp_path: Path) -> None:
    run = tmp_path / "run"
    line = ["train", "bc", SHIPPED, "--eager", "--steps", "2", "--eval-every", "0"]
    assert cli.main([*line, "--run-dir", str(run), *SMALL]) == 0
    assert (run / "final" / "policy.npz").exists()


def test_evaluate_counts_every_episode(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", str(trained), "--episodes", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["seed"] for row in result["runs"]] == [0, 1]
    assert all(len(row["returns"]) == len(row["lengths"]) == 3 for row in result["runs"])


def test_a_finished_run_goes_on_with_more_steps(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    line = ["train", "bc", SHIPPED, "--steps", "5", "--eval-every", "0", "--run-dir", str(run)]
    assert cli.main([*line, *SMALL]) == 0
    assert cli.main(["train", "--resume", str(run), "--steps", "9", "--quiet"]) == 0
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 9


def test_inspect_reports_the_shipped_data_as_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", SHIPPED, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [found for found in report["findings"] if found["severity"] != "info"] == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [("algorithms", "fisher-brc"), ("datasets", "hopper-medium-v2"), ("environments", "Hopper-v4")],
)
def test_lists_name_what_there_is(kind: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", kind]) == 0
    assert name in capsys.readouterr().out


def test_the_quickstart_ends_with_a_table_and_what_to_type_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["quickstart", "--seeds", "0", "--fraction", "0.002"]) == 0
    said = capsys.readouterr().out
    assert "the data" in said
    assert "fisher-brc run: runs/quickstart/fisher-brc" in said
    assert "leeward watch runs/quickstart/fisher-brc" in said


def test_python_m_leeward_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "leeward", "trian"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("leeward: error: unknown command 'trian'. Did you mean train?")


# --- Bad input: one line that says what is wrong, where and what to do; exit code 2 ---


@pytest.fixture
def refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Runs `leeward train bc DATA …`, which must fail; its one line, folders cut off."""
    monkeypatch.chdir(tmp_path)

    def run(data: str | Path, *flags: str, algorithm: str = "bc", code: int = 2) -> str:
        assert cli.main(["train", algorithm, str(data), *flags, *SMALL]) == code
        (line,) = capsys.readouterr().err.splitlines()
        assert not (tmp_path / "runs").exists()
        return line.removeprefix("leeward: error: ").replace(f"{tmp_path}/", "")

    return run


def columns() -> dict[str, np.ndarray]:
    """Twenty rows of two episodes."""
    draw = np.random.default_rng(0)
    return {
        "observations": draw.normal(size=(20, 3)).astype(np.float32),
        "actions": draw.uniform(-1.0, 1.0, size=(20, 2)).astype(np.float32),
        "rewards": draw.normal(size=20).astype(np.float32),
        "terminals": np.arange(20) % 10 == 9,
        "timeouts": np.zeros(20, bool),
    }


def hdf5(path: Path, **changed: np.ndarray | None) -> Path:
    """A file in D4RL's layout with some columns changed, or left out."""
    with h5py.File(path, "w") as file:
        for name, values in (columns() | changed).items():
            if values is not None:
                file[name] = values
    return path


def test_a_wrong_name_is_met_with_the_nearest(refused: Callable[..., str]) -> None:
    assert "hopper-medium-v2" in refused("hoper-medium-v2")
    assert "td3-bc" in refused(SHIPPED, algorithm="td3-cb")


def test_a_missing_column_is_named(refused: Callable[..., str], tmp_path: Path) -> None:
    line = refused(hdf5(tmp_path / "few.hdf5", rewards=None))
    assert line.startswith("few.hdf5")
    assert "rewards" in line


def test_a_cut_file_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    whole = hdf5(tmp_path / "cut.hdf5").read_bytes()
    (tmp_path / "cut.hdf5").write_bytes(whole[: len(whole) // 2])
    line = refused(tmp_path / "cut.hdf5")
    assert line.startswith("cut.hdf5")
    assert "truncated" in line


def test_an_empty_file_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "empty.hdf5").touch()
    assert refused(tmp_path / "empty.hdf5").startswith("empty.hdf5")


def test_nan_is_named_with_its_row(refused: Callable[..., str], tmp_path: Path) -> None:
    observation = columns()["observations"]
    observation[7, 1] = np.nan
    line = refused(hdf5(tmp_path / "nan.hdf5", observations=observation))
    assert "NaN" in line
    assert "row 7" in line


def test_actions_outside_the_box_are_named(refused: Callable[..., str], tmp_path: Path) -> None:
    action = columns()["actions"]
    action[3, 0] = 1.5
    flags = ("--action-low", "-1", "--action-high", "1")
    line = refused(hdf5(tmp_path / "outside.hdf5", actions=action), *flags)
    assert "row 3" in line


def test_an_environment_of_other_shapes_is_refused(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    line = refused(hdf5(tmp_path / "small.hdf5"), "--env", "Hopper-v4")
    assert line == (
        "small does not match the environment: its actions have 2 dimensions, the environment's 3: "
        "use the environment that it comes from, Hopper-v4"
    )


def test_another_environment_than_the_data_s_is_refused(refused: Callable[..., str]) -> None:
    line = refused(SHIPPED, "--env", "InvertedPendulum-v5")
    assert "InvertedPendulum-v5" in line


def test_a_file_in_the_run_directory_s_place_is_refused(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "taken").touch()
    line = refused(hdf5(tmp_path / "small.hdf5"), "--run-dir", str(tmp_path / "taken" / "run"))
    assert line.startswith("taken/run cannot be written")


def test_a_run_is_not_overwritten(refused: Callable[..., str], trained: Path) -> None:
    line = refused(SHIPPED, "--run-dir", str(trained))
    assert "--resume" in line


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 300 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_full_disk_ends_training_with_one_line(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = hdf5(small_disk.parent / "small.hdf5")
    run = small_disk / "run"
    line = ["train", "bc", str(data), "--hidden", "256", "256", "--steps", "20", "--batch-size"]
    line += ["8", "--checkpoint-every", "5", "--run-dir", str(run), "--quiet"]
    assert cli.main(line) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(
        f"leeward: error: {run}/checkpoints: the checkpoint 5 could not be written (No space left "
        "on device: it takes "
    )
    assert not (run / "final").exists()
