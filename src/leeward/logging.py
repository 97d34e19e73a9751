"""Where metrics go: JSON lines always, TensorBoard and Weights & Biases when asked for."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from leeward.errors import MissingExtra
from leeward.growing_files import GrowingFile, disk_errors
from leeward.whole_files import write_whole

WANDB_ID = "wandb-id.txt"
"""The file of a run directory that holds its id at Weights & Biases."""


class JsonLines:
    """A file of one flat JSON object a line, that a resumed run cuts back to where it was."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)

    def write(self, row: Mapping[str, Any]) -> None:
        """Appends one line; numbers that are not finite become null."""
        clean = {name: _finite_or_none(value) for name, value in row.items()}
        self._file.write(json.dumps(clean).encode() + b"\n")

    def settle(self) -> int:
        """Bytes written so far, which are on the disk itself from now on."""
        return self._file.settle()

    def cut(self, size: int) -> bool:
        """Drops everything after the first `size` bytes; False where there are fewer."""
        return self._file.cut(size)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


@runtime_checkable
class Opened(Protocol):
    """Anything to be closed."""

    def close(self) -> None:
        """Closes it."""
        ...


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
        from leeward.event_files import EventFile  # tensorboardX takes a while to import

        # Steps before the last phase are negative; a resumed run hides what it repeats.
        self._files = [EventFile(directory / name, first_step) for name in runs]

    def scalars(self, run: int, step: int, values: Mapping[str, float]) -> None:
        """Writes the scalars at this step."""
        self._files[run].scalars(step, values)

    def close(self) -> None:
        """Closes the event files."""
        close_all(*self._files)


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
            id=_wandb_id(directory),
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
        DiskError: a file cannot be written.
    """
    loggers: list[Logger] = []
    for name in names:
        if name == "tensorboard":
            loggers.append(TensorBoard(directory / "tensorboard", runs, first_step))
        else:
            loggers.append(WeightsAndBiases(directory, runs, config))
    return loggers


def close_all(*opened: Opened) -> None:
    """Closes every one, whether or not another fails to."""
    with contextlib.ExitStack() as stack:
        for one in opened:
            stack.callback(one.close)


def _wandb_id(directory: Path) -> str:
    """The id of a run directory at Weights & Biases, the same whenever it is resumed.

    Its name alone is that of other directories elsewhere, whose runs would become one.
    """
    path = directory / WANDB_ID
    with disk_errors(path):
        if not path.is_file():
            write_whole(path, f"{secrets.token_hex(8)}\n".encode())
        return path.read_text().strip()


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
