"""What a run shows on a terminal, and off one."""

from __future__ import annotations

import functools
import io
from pathlib import Path

import pytest
from rich.console import Console

from leeward import progress
from leeward.progress import View


def on_screen(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> io.StringIO:
    """All that views write from now on, to a terminal 200 columns wide or elsewhere."""
    screen = io.StringIO()
    console = functools.partial(Console, file=screen, force_terminal=terminal, width=200)
    monkeypatch.setattr(progress, "Console", lambda stderr: console(color_system=None))
    return screen


def show(view: View) -> None:
    """A run with two phases."""
    view.start("behavior", 0, 10)
    view.advance(10, 50.0)
    view.start("train", 20, 40)
    view.advance(30, 1234.4)
    view.note({"critic/loss": 0.51239, "critic/q": 3.0, "actor/loss": -2.0})
    view.event("step 30: return 7.5")
    view.close()


def test_a_terminal_shows_a_bar_with_rate_and_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = on_screen(monkeypatch, terminal=True)
    show(View(tmp_path / "log.txt", quiet=False))
    shown = screen.getvalue()
    (last,) = [line for line in shown.splitlines() if "critic/loss" in line][-1:]
    assert "train" in last
    assert "━" in last
    assert "30/40" in last
    assert "1,234 updates/s" in last
    assert last.rstrip().endswith("critic/loss 0.512  actor/loss -2")
    assert "behavior" not in last  # the phase before is gone
    assert "step 30: return 7.5" in shown
    (logged,) = (tmp_path / "log.txt").read_text().splitlines()
    assert logged.endswith("  step 30: return 7.5")


def test_elsewhere_only_events_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch, terminal=False)
    show(View(None, quiet=False))
    assert screen.getvalue() == "step 30: return 7.5\n"


def test_quiet_shows_nothing_and_logs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = on_screen(monkeypatch, terminal=True)
    show(View(tmp_path / "log.txt", quiet=True))
    assert screen.getvalue() == ""
    assert "return 7.5" in (tmp_path / "log.txt").read_text()
