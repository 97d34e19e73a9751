"""The live view of a training run: a bar with rate and time left, or nothing."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from leeward.data.download import Progress as OnProgress
from leeward.data.download import watched
from leeward.growing_files import disk_errors


class View:
    """Shows progress on a terminal and keeps log.txt; off a terminal it only prints events."""

    def __init__(self, log: Path | None, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._log = log
        self._bar: Progress | None = None
        self._task = None
        if self._console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("[dim]{task.fields[note]}"),
                console=self._console,
                refresh_per_second=4,
            )
            self._bar.start()

    def start(self, phase: str, step: int, steps: int | None) -> None:
        """A phase of `steps`, if that is known, begins (or goes on) at `step`."""
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(
                phase, total=steps, completed=step, rate="compiling", note=""
            )

    def advance(self, step: int, rate: float, unit: str = "updates") -> None:
        """`step` units of the phase are done, at `rate` a second (updates: over all runs)."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, rate=f"{rate:,.0f} {unit}/s")

    def note(self, metrics: Mapping[str, float]) -> None:
        """The latest metrics, a few of them."""
        if self._bar is not None and self._task is not None:
            shown = [n for n in metrics if n.endswith("/loss")][:3]
            text = "  ".join(f"{name} {metrics[name]:.3g}" for name in shown)
            self._bar.update(self._task, note=text)

    def event(self, text: str) -> None:
        """One line worth keeping: on the screen and in log.txt.

        Raises:
            DiskError: log.txt cannot be written.
        """
        if self._log is not None:
            stamp = dt.datetime.now().isoformat(sep=" ", timespec="seconds")
            with disk_errors(self._log), self._log.open("a") as file:
                file.write(f"{stamp}  {text}\n")
        if not self._quiet:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def shown_downloads(quiet: bool) -> contextlib.AbstractContextManager[None]:
    """Shows what is fetched within on a terminal, unless `quiet`."""
    return watched(functools.partial(_download, quiet))


@contextlib.contextmanager
def _download(quiet: bool, name: str) -> Iterator[OnProgress]:
    """A bar of one download, in MiB, from its first bytes until it is over."""
    view, begin = View(None, quiet), time.monotonic()
    first: list[int] = []

    def show(have: int, total: int | None) -> None:
        if not first:
            first.append(have)
            view.start(f"fetching {name} (MiB)", have >> 20, None if total is None else total >> 20)
        rate = (have - first[0]) / max(time.monotonic() - begin, 1e-3)
        view.advance(have >> 20, rate / 2**20, "MiB")

    with contextlib.closing(view):
        yield show
