"""Where metrics go: JSON lines always, TensorBoard and Weights & Biases when asked for."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from leeward.errors import DiskError, MissingExtra


class JsonLines:
    """A file of one flat JSON object a line, that a resumed run cuts back to where it was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab")  # open for the whole run

    def write(self, row: Mapping[str, Any]) -> None:
        """Appends one line; numbers that are not finite become null."""
        clean = {name: _finite_or_none(value) for name, value in row.items()}
        try:
            self._file.write(json.dumps(clean).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise DiskError(
                f"{self.path}: cannot be written ({error.strerror}): free some space and continue "
                "with --resume"
            ) from error

    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def cut(self, size: int) -> None:
        """Drops everything after the first `size` bytes."""
        self._file.truncate(size)
        self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


@runtime_checkable
class Logger(Protocol):
    """A destination of scalars besides the JSON lines."""

    def scalars(self, run: int, step: int, values: Mapping[str, float]) -> None:
        """Writes named scalars of one run; steps before the last phase are negative."""
        ...

    def close(self) -> None:
        """Flushes and closes."""
        ...


class TensorBoard:
    """Event files, one folder a run, named as the reference code names its scalars."""

    def __init__(self, directory: Path, runs: list[str], first_step: int | None) -> None:
        from tensorboardX import SummaryWriter

        # Steps before the last phase are negative; a resumed run hides what it repeats.
        self._writers = [
            SummaryWriter(str(directory / name), purge_step=first_step, flush_secs=10)
            for name in runs
        ]

    def scalars(self, run: int, step: int, values: Mapping[str, float]) -> None:
        """Writes the scalars at this step."""
        for name, value in values.items():
            self._writers[run].add_scalar(name, value, step)

    def close(self) -> None:
        """Flushes and closes the event files."""
        for writer in self._writers:
            writer.close()


class WeightsAndBiases:
    """One Weights & Biases run for all of ours: every scalar under its run's name."""

    def __init__(self, directory: Path, runs: list[str], config: Mapping[str, Any]) -> None:
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise MissingExtra("wandb", "wandb", "--logger wandb") from error
        self._runs = runs
        self._wandb = wandb.init(
            project="leeward",
            dir=str(directory),
            name=directory.name,
            id=directory.name.replace("/", "-"),
            resume="allow",
            config=dict(config),
        )

    def scalars(self, run: int, step: int, values: Mapping[str, float]) -> None:
        """Writes the scalars; the step is a value of its own, since W&B allows none below 0."""
        prefix = f"{self._runs[run]}/"
        self._wandb.log({prefix + n: v for n, v in values.items()} | {"update": step})

    def close(self) -> None:
        """Finishes the run."""
        self._wandb.finish()


def make_loggers(
    names: tuple[str, ...],
    directory: Path,
    runs: list[str],
    config: Mapping[str, Any],
    first_step: int | None,
) -> list[Logger]:
    """The loggers called `names` (of options.LOGGERS); a resumed run goes on at `first_step`.

    Raises:
        MissingExtra: wandb is not installed.
    """
    loggers: list[Logger] = []
    for name in names:
        if name == "tensorboard":
            loggers.append(TensorBoard(directory / "tensorboard", runs, first_step))
        else:
            loggers.append(WeightsAndBiases(directory, runs, config))
    return loggers


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
