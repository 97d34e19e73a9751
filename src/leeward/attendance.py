"""What stands around a run's updates, offline and online: interruption, view, files, appraiser."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from leeward.appraisal import Appraiser, make_appraiser
from leeward.job import Job
from leeward.progress import View
from leeward.recorder import Recorder

OnMetrics = Callable[[Mapping[str, Any]], None]


@contextlib.contextmanager
def attendance(
    job: Job, directory: Path, on_metrics: OnMetrics | None
) -> Iterator[tuple[threading.Event, View, Recorder, Appraiser | None]]:
    """What stands around a run's updates, closed at the end.

    Yields:
        Whether it was interrupted, its view, its recorder, and its appraiser where it has one.
    """
    with contextlib.ExitStack() as stack:
        interrupted = stack.enter_context(interruptions())
        view = stack.enter_context(
            contextlib.closing(View(directory / "log.txt", job.options.quiet))
        )
        recorder = stack.enter_context(
            contextlib.closing(Recorder(job, directory, view, on_metrics))
        )
        for note in job.dataset.metadata.get("notes", ()):
            view.event(f"note: {note}")
        appraiser = make_appraiser(job)
        if appraiser is not None:
            stack.enter_context(contextlib.closing(appraiser))
        yield interrupted, view, recorder, appraiser


@contextlib.contextmanager
def interruptions() -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets; a second one interrupts at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def handle(number: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
