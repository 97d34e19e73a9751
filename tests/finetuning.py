"""Short fine-tunings on the line, and what they see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leeward
import small_environments  # noqa: F401 (registers the line)
from collecting import LINE
from leeward import replay_mixed as replay
from leeward.collect import CollectOptions, collect
from leeward.errors import LeewardError
from training import SMALL

FEW: dict[str, Any] = {
    "steps": 60,
    "log_every": 10,
    "eval_every": 30,
    "eval_episodes": 2,
    "checkpoint_every": 25,
    "quiet": True,
    "logger": (),
}
TINY = {"cal_ql": {"sampled_actions": 2}}
OFFLINE = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """line.hdf5, random actions on the line, and a tiny run with two seeds of each algorithm."""
    folder = tmp_path_factory.mktemp("offline")
    path = folder / "line.hdf5"
    collect(LINE, path, CollectOptions(policy="random", transitions=100))
    for algorithm in ("td3_bc", "cal_ql"):
        settings = SMALL | {"steps": OFFLINE, "eval_every": 0, "seeds": (0, 3)}
        settings |= {"reward_scale": 0.1} | TINY.get(algorithm, {})
        leeward.train(algorithm, path, run_dir=folder / algorithm, **settings)
    return folder


def finetuned(folder: Path, target: Path, algorithm: str = "td3_bc", **options: Any) -> Path:
    """A short fine-tuning; returns its directory."""
    leeward.finetune(folder / algorithm, run_dir=target, **FEW | options)
    return target


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Fine-tunings that were never stopped, and what they saw and learned."""
    place = tmp_path_factory.mktemp("whole")
    return {name: finetuned(folder, place / name, name) for name in ("td3_bc", "cal_ql")}


def error_of(call: Callable[[], object], kind: type[LeewardError]) -> str:
    """The text of the error that a call must raise."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[replay.Seen]:
    """Every step that a fine-tuning remembers, in order."""
    real, steps = replay.remember, []

    def remember(online: Any, seen: replay.Seen, n_step: int) -> Any:
        steps.append(seen)
        return real(online, seen, n_step)

    monkeypatch.setattr(replay, "remember", remember)
    return steps
