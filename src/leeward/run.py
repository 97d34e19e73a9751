"""`Run`: what a run directory holds, readable while the run goes on.

config.json, metrics.jsonl, evaluations.jsonl, log.txt, tensorboard/, checkpoints/, best/, final/.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import filelock
import numpy as np

from leeward.errors import CheckpointError, ConfigError, DiskError
from leeward.whole_files import write_whole

FORMAT = 1
"""Version of the run directory's layout."""
SWEEP = "sweep.json"
"""The file that makes a folder of runs a sweep's: its plan."""
FAVORED = "favored.json"
"""Which of the settings that were trained together held-out episodes favor."""
ESTIMATES = "ope.json"
"""The file with what `leeward ope` found, in a run directory or beside runs: reports show it."""


class Run:
    """A run directory."""

    def __init__(self, directory: str | Path) -> None:
        """Opens a run directory.

        Raises:
            CheckpointError: it does not exist, is not a run, or is newer than this version.
        """
        self.directory = Path(directory)
        path = self.directory / "config.json"
        if not path.is_file():
            raise CheckpointError(f"{self.directory}: not a run directory (it has no config.json)")
        try:
            self.config: dict[str, Any] = json.loads(path.read_text())
        except ValueError as error:
            raise CheckpointError(f"{path}: not valid JSON ({error})") from error
        if self.config.get("format", 0) > FORMAT:
            raise CheckpointError(
                f"{path}: format {self.config['format']} is newer than this version of leeward "
                f"reads ({FORMAT}): upgrade leeward"
            )

    def __repr__(self) -> str:
        return f"Run({str(self.directory)!r})"

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return self.config["algorithm"]

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row a run: its index `run`, its `seed` and any swept settings."""
        return [dict(row) for row in self.config["runs"]]

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return (self.directory / "final").is_dir()

    @property
    def favored(self) -> tuple[int, ...]:
        """Runs with the settings that held-out episodes favor; none if nothing was held out."""
        return favored_runs(self.directory)

    @property
    def all_combinations(self) -> bool:
        """Whether its runs are all combinations of their seeds and settings, as `train` makes."""
        return all_combinations(self.config["runs"])

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return _read_lines(self.directory / "metrics.jsonl")

    def evaluations(self) -> list[dict[str, Any]]:
        """The lines of evaluations.jsonl."""
        return _read_lines(self.directory / "evaluations.jsonl")

    def returns(self, protocol: Literal["last", "best"] = "last") -> np.ndarray:
        """[N] mean return of every run at its last (or best) evaluation.

        Raises:
            ConfigError: the run was never evaluated.
        """
        return self._per_run("return_mean", protocol)

    def scores(self, protocol: Literal["last", "best"] = "last") -> np.ndarray:
        """[N] normalized score (0 random, 100 expert) at every run's last (or best) evaluation.

        Raises:
            ConfigError: the run was never evaluated, or no reference returns are known for it.
        """
        return self._per_run("score_mean", protocol)

    def _per_run(self, quantity: str, protocol: str) -> np.ndarray:
        evaluations = self.evaluations()
        if not evaluations:
            raise ConfigError(
                f"{self.directory} was never evaluated: train with --env, or "
                "`leeward evaluate` it in an environment"
            )
        if any(row.get(quantity) is None for row in evaluations):
            raise ConfigError(
                f"{self.directory}: no reference returns are known for this task, so there is no "
                "normalized score: use returns()"
            )
        result = []
        for row in self.table:
            values = [e[quantity] for e in evaluations if e["run"] == row["run"]]
            if not values:  # it diverged before it was ever evaluated
                result.append(np.nan)
            else:
                result.append(max(values) if protocol == "best" else values[-1])
        return np.array(result)


def all_combinations(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the rows of a run's table are all combinations of their seeds and settings."""
    names = [name for name in rows[0] if name != "run"]
    return len(rows) == math.prod(len({row[name] for row in rows}) for name in names)


def favored_runs(directory: Path) -> tuple[int, ...]:
    """Indices of the runs of a directory whose settings held-out episodes favor; often none.

    Raises:
        CheckpointError: the file that says so is damaged.
    """
    path = directory / FAVORED
    if not path.is_file():
        return ()
    try:
        return tuple(int(run) for run in json.loads(path.read_text())["runs"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: delete it, and name the run yourself") from error


def keep_favored(directory: Path, choice: Mapping[str, Any] | None) -> None:
    """Writes what `favored_runs` reads, or removes it where nothing is favored (any more).

    Raises:
        CheckpointError: it cannot be written.
        DiskError: the disk is full.
    """
    try:
        if choice is None:
            (directory / FAVORED).unlink(missing_ok=True)
        else:
            write_json(directory / FAVORED, choice)
    except OSError as error:
        raise _cannot_write(directory, error) from error


def has_numbers(directory: Path) -> bool:
    """Whether a run has written metrics or evaluations."""
    files = (directory / name for name in ("metrics.jsonl", "evaluations.jsonl"))
    return any(file.is_file() and file.stat().st_size for file in files)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a JSONL file; a last line still being written is left out."""
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines if line]


def create(directory: Path, config: Mapping[str, Any]) -> None:
    """Makes a run directory with its config.json.

    Raises:
        CheckpointError: the directory holds another run or other files, or cannot be written.
    """
    if (directory / "config.json").exists():
        raise CheckpointError(
            f"{directory} holds a run already: continue it with --resume {directory}, or choose "
            "another --run-dir"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        others = [p.name for p in directory.iterdir() if not p.name.startswith(OWN)]
        if others:
            raise CheckpointError(
                f"{directory} is not empty (it has {others[0]}): choose another --run-dir"
            )
        write_json(directory / "config.json", config)
    except OSError as error:
        raise _cannot_write(directory, error) from error


def default_directory(data_name: str, algorithm: str) -> Path:
    """runs/DATASET/ALGORITHM-TIME, with a number behind it where that exists already."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in data_name) or "data"
    time = dt.datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / safe / f"{algorithm.replace('_', '-')}-{time}"
    directory, number = base, 2
    while directory.exists():
        directory, number = base.with_name(f"{base.name}-{number}"), number + 1
    return directory


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes JSON so that readers see the old file or the new one, never a part."""
    write_whole(path, json.dumps(value, indent=1).encode())


LOCK = ".lock"
OWN = (LOCK, ".config.json-")
"""What a start that was killed leaves in a run directory."""


@contextlib.contextmanager
def locked(directory: Path, flag: str = "--run-dir") -> Iterator[None]:
    """Holds the run directory for this process; a killed process lets go of it.

    Args:
        directory: a folder, made where it does not exist.
        flag: what chooses another folder, for messages.

    Raises:
        CheckpointError: another process trains in it, or it cannot be written.
    """
    lock = filelock.FileLock(directory / LOCK)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise CheckpointError(
            f"{directory} is in use by another process: wait for it, or choose another {flag}"
        ) from error
    except OSError as error:
        raise _cannot_write(directory, error) from error
    try:
        yield
    finally:
        lock.release()


def _cannot_write(directory: Path, error: OSError) -> CheckpointError | DiskError:
    if error.errno in (28, 122):  # no space left, quota exceeded
        return DiskError(f"{directory}: {error.strerror}: free some space")
    return CheckpointError(
        f"{directory} cannot be written ({error.strerror}): choose another --run-dir"
    )
