"""Where metrics go: what the files hold, and what a disk that is full does to a run."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from events import events, scalars
from leeward import cli, recorder
from leeward.algorithms import fisher_brc
from leeward.data.dataset import Dataset
from leeward.errors import DiskError
from leeward.evaluate import Evaluation
from leeward.event_files import EventFile
from leeward.growing_files import GrowingFile
from leeward.job import Job, Position
from leeward.logging import JsonLines, Logger, make_loggers
from leeward.options import RunOptions, check_options
from leeward.progress import View
from leeward.recorder import Recorder

FULL = "cannot be written (No space left on device): free some space and continue with --resume"


def job(dataset: Dataset, *logger: str) -> Job:
    """Fisher-BRC, two seeds: 20 updates of the behavior, then 30."""
    return Job(
        algorithm=fisher_brc.ALGORITHM,
        config=fisher_brc.Config(bc_pretraining_steps=20, steps=30),
        settings=({}, {}),
        seeds=(0, 7),
        steps=30,
        options=RunOptions(logger=logger),
        dataset=dataset,
        environment=None,
    )


@pytest.fixture
def recorders(tmp_path: Path, continuous_dataset: Dataset) -> Iterator[Any]:
    """Makes recorders of the directory run/."""
    with contextlib.ExitStack() as stack:

        def make(*logger: str) -> Recorder:
            directory = tmp_path / "run"
            directory.mkdir(exist_ok=True)
            view = View(directory / "log.txt", quiet=True)
            made = Recorder(job(continuous_dataset, *logger), directory, view, None)
            return stack.enter_context(contextlib.closing(made))

        yield make


def fill_up(file: GrowingFile) -> None:
    """From now on the disk of an open file is full."""
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._file.fileno())
    os.close(full)


# --- TensorBoard ---


def test_event_files_hold_the_reference_s_names_and_steps(recorders: Any, tmp_path: Path) -> None:
    writer = recorders("tensorboard")
    writer.begin(Position())
    both = np.array([1.5, 2.5], np.float32)
    writer.metrics(0, 10, {"behavior/loss": both, "behavior/entropy": -both}, 100.0, [])
    writer.metrics(1, 30, {"critic/loss": both, "critic/q1": both * np.nan}, 100.0, [])
    played = Evaluation(
        returns=np.array([[10.0, 20.0], [30.0, 50.0]]),
        lengths=np.array([[5, 7], [8, 8]]),
        scores=np.array([[1.0, 2.0], [3.0, 5.0]]),
    )
    writer.evaluation(1, 30, played, without=[0])
    writer.close()
    found = scalars(tmp_path / "run" / "tensorboard" / "seed-7")
    assert found["training/bc_actor_loss"] == [(-10, 2.5)]
    assert found["training/bc_entropy"] == [(-10, -2.5)]
    assert found["training/critic_loss"] == [(30, 2.5)]
    assert "training/q1" not in found  # it is not finite
    assert found["evaluation/returns"] == [(30, 4.0)]  # normalized, as the reference has it
    assert found["evaluation/length"] == [(30, 8.0)]
    other = scalars(tmp_path / "run" / "tensorboard" / "seed-0")
    assert other["training/critic_loss"] == [(30, 1.5)]
    assert "evaluation/returns" not in other


def test_a_resumed_run_hides_what_it_repeats(recorders: Any, tmp_path: Path) -> None:
    for position in (Position(), Position(phase=1, step=20, updates=40)):
        writer = recorders("tensorboard")
        writer.begin(position)
        writer.metrics(1, 30, {"critic/loss": np.ones(2)}, 100.0, [])
        writer.close()
    found = events(tmp_path / "run" / "tensorboard" / "seed-0")
    assert [event.file_version for event in found if event.file_version] == ["brain.Event:2"] * 2
    begun = [event.step for event in found if event.HasField("session_log")]
    assert begun == [21]
    assert len(list((tmp_path / "run" / "tensorboard" / "seed-0").iterdir())) == 2


def test_a_full_disk_ends_event_files_with_one_line(tmp_path: Path) -> None:
    file = EventFile(tmp_path, None)
    fill_up(file._file)
    for _ in range(30):  # as often as one likes: nothing waits for a writer that has died
        with pytest.raises(DiskError) as error:
            file.scalars(1, {"critic/loss": 1.0})
    assert str(error.value) == f"{file._file.path}: {FULL}"
    file.close()


# --- JSON lines ---


class Noted:
    """A logger that only knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def scalars(self, run: int, step: int, values: Mapping[str, float]) -> None:
        """Does nothing."""

    def close(self) -> None:
        self.closed = True


def test_a_full_disk_is_said_in_one_line_and_everything_is_closed(
    recorders: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Noted()
    assert isinstance(noted, Logger)
    monkeypatch.setattr(recorder, "make_loggers", lambda *_: [noted])
    writer = recorders()
    writer.begin(Position())
    fill_up(writer._metrics._file)
    with pytest.raises(DiskError) as error, contextlib.closing(writer):
        writer.metrics(1, 30, {"critic/loss": np.ones(2)}, 100.0, [])
    assert str(error.value) == f"{tmp_path / 'run' / 'metrics.jsonl'}: {FULL}"
    assert noted.closed
    assert writer._evaluations._file._file.closed


def test_a_disk_that_fails_only_when_closing_is_named(tmp_path: Path) -> None:
    file = GrowingFile(tmp_path / "file")
    file._file.write(b"still in a buffer")
    fill_up(file)
    with pytest.raises(DiskError, match=r"file: cannot be written \(No space left on device\)"):
        file.close()


def test_log_txt_on_a_full_disk_is_one_line() -> None:
    with pytest.raises(DiskError) as error:
        View(Path("/dev/full"), quiet=True).event("resumed")
    assert str(error.value) == f"/dev/full: {FULL}"


def test_a_disk_that_fills_up_while_training_ends_the_command_with_one_line(
    tmp_path: Path,
    npz: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write = GrowingFile.write

    def filled(self: GrowingFile, content: bytes) -> None:
        if self.path.name == "metrics.jsonl":
            fill_up(self)
        write(self, content)

    monkeypatch.setattr(GrowingFile, "write", filled)
    run = tmp_path / "run"
    line = ["train", "bc", str(npz), "--steps", "20", "--hidden", "8", "--batch-size", "8"]
    assert cli.main([*line, "--log-every", "5", "--run-dir", str(run), "--quiet"]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said == f"leeward: error: {run / 'metrics.jsonl'}: {FULL}"
    assert not (run / "final").exists()


def test_a_checkpoint_s_lines_are_on_the_disk_itself(
    recorders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = recorders()
    writer.begin(Position())
    writer.metrics(1, 30, {"critic/loss": np.ones(2)}, 100.0, [])
    settled: list[int] = []
    monkeypatch.setattr(os, "fsync", settled.append)
    position = Position()
    writer.mark(position)
    files = [writer._metrics._file, writer._evaluations._file]
    assert settled == [file._file.fileno() for file in files]
    sizes = [position.metrics_size, position.evaluations_size]
    assert sizes == [file.path.stat().st_size for file in files]
    assert sizes[0] > sizes[1] == 0


@pytest.mark.parametrize(
    ("content", "size", "kept", "whole"),
    [
        (b"one\ntwo\nthree\n", 8, b"one\ntwo\n", True),
        (b"one\ntwo\n", 8, b"one\ntwo\n", True),
        (b"one\ntwo\nthr", 20, b"one\ntwo\n", False),
        (b"on", 20, b"", False),
        (b"a\n" + b"b" * 200_000, 300_000, b"a\n", False),
    ],
)
def test_cutting_keeps_whole_lines_and_never_makes_a_file_longer(
    content: bytes, size: int, kept: bytes, whole: bool, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    file = JsonLines(path)
    assert file.cut(size) is whole
    file.write({"step": 1, "loss": float("nan")})
    file.close()
    assert path.read_bytes() == kept + b'{"step": 1, "loss": null}\n'


def test_lines_that_a_power_cut_took_are_told(recorders: Any, tmp_path: Path) -> None:
    writer = recorders()
    writer.begin(Position(metrics_size=100))
    assert "metrics.jsonl or evaluations.jsonl is shorter than at the checkpoint" in (
        (tmp_path / "run" / "log.txt").read_text()
    )


# --- Weights & Biases ---

WANDB = """
runs = []


class Run:
    def __init__(self, arguments):
        self.arguments, self.logged, self.finished = arguments, [], False

    def log(self, values):
        self.logged.append(values)

    def finish(self):
        self.finished = True


def init(**arguments):
    runs.append(Run(arguments))
    return runs[-1]
"""


@pytest.fixture
def wandb_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The runs of a stand-in for W&B's package."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "wandb.py").write_text(WANDB)
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    yield importlib.import_module("wandb").runs
    del sys.modules["wandb"]


def test_weights_and_biases_gets_one_run_a_directory(tmp_path: Path, wandb_runs: list[Any]) -> None:
    for folder in ("hopper/td3-bc", "walker/td3-bc", "hopper/td3-bc"):
        directory = tmp_path / folder
        directory.mkdir(parents=True, exist_ok=True)
        (logger,) = make_loggers(("wandb",), directory, ["seed-3"], {"algorithm": "bc"}, None)
        logger.scalars(0, -10, {"training/bc_loss": 1.5})
        logger.close()
    first, other, resumed = (run.arguments for run in wandb_runs)
    assert first["id"] == resumed["id"] != other["id"]
    assert first["id"] == (tmp_path / "hopper" / "td3-bc" / "wandb-id.txt").read_text().strip()
    assert (first["name"], first["resume"], first["config"]) == (
        "td3-bc", "allow", {"algorithm": "bc"},
    )  # fmt: skip
    assert wandb_runs[0].logged == [{"seed-3/training/bc_loss": 1.5, "update": -10}]
    assert wandb_runs[0].finished
    check_options(RunOptions(logger=("wandb",)))  # it is there
