"""An online QR-DQN learner that dies between two updates."""

from __future__ import annotations

from typing import Any

import pytest

from leeward import online_qrdqn


def kill_at(monkeypatch: pytest.MonkeyPatch, update: int) -> None:
    """Lets update number `update` (from 0) raise MemoryError; those after it are made."""
    learn, count = online_qrdqn.learn, iter(range(1_000))

    def until_killed(*given: Any) -> Any:
        if next(count) == update:
            raise MemoryError("killed")
        return learn(*given)

    monkeypatch.setattr(online_qrdqn, "learn", until_killed)
