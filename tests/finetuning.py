"""Short fine-tunings on the line, of runs whose data only ever push to the right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leeward
import small_environments  # noqa: F401 (registers the line)
from collecting import LINE
from leeward import replay_mixed as replay
from leeward.data.write import write_d4rl
from leeward.errors import LeewardError
from leeward.rollout import roll_out

OFFLINE = 300
SETTINGS: dict[str, dict[str, Any]] = {
    "td3_bc": {},
    "iql": {"hidden": ()},
    "cal_ql": {  # what compiles quickly
        "sampled_actions": 2,
        "batch_size": 16,
        "hidden": (),
        "max_backup": False,
        "tune_alpha": False,
    },
}
FEW: dict[str, Any] = {
    "steps": 60,
    "updates_per_step": 2,
    "log_every": 10,
    "eval_every": 30,
    "eval_episodes": 2,
    "checkpoint_every": 25,
    "quiet": True,
    "logger": (),
}


def write_rightwards(path: Path) -> None:
    """200 steps of a point that is only ever pushed to the right, where it leaves the line."""
    draw = np.random.default_rng(0)

    def push(observation: np.ndarray, step: int) -> np.ndarray:
        del observation, step
        return draw.uniform(0.2, 1.0, 1).astype(np.float32)

    rows = roll_out(LINE, push, transitions=200, tag=3, seed=0)
    facts = {"env_id": LINE, "action_low": [-2.0], "action_high": [2.0]}
    write_d4rl(path, **rows._asdict(), metadata=facts)


def trained(folder: Path, algorithm: str, **settings: Any) -> Path:
    """A run with two seeds on FOLDER/line.hdf5, trained offline."""
    data = settings.pop("data", folder / "line.hdf5")
    common: dict[str, Any] = {
        "steps": OFFLINE,
        "batch_size": 32,
        "hidden": (16,),
        "discount": 0.9,
        "actor_lr": 3e-3,
        "critic_lr": 3e-3,
        "reward_scale": 0.5,
        "seeds": (0, 3),
        "eval_every": 0,
        "quiet": True,
        "logger": (),
    }
    settings = common | SETTINGS[algorithm] | settings
    return leeward.train(algorithm, data, run_dir=folder / algorithm, **settings).directory


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """line.hdf5, and a run of TD3+BC, of IQL and of Cal-QL."""
    folder = tmp_path_factory.mktemp("offline")
    write_rightwards(folder / "line.hdf5")
    for algorithm in ("td3_bc", "iql", "cal_ql"):
        trained(folder, algorithm)
    return folder


def finetuned(folder: Path, target: Path, algorithm: str = "td3_bc", **options: Any) -> Path:
    """A short fine-tuning; returns its directory."""
    leeward.finetune(folder / algorithm, run_dir=target, **FEW | options)
    return target


@pytest.fixture(scope="session")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Fine-tunings that were never stopped."""
    place = tmp_path_factory.mktemp("whole")
    return {name: finetuned(folder, place / name, name) for name in ("iql", "cal_ql")}


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
