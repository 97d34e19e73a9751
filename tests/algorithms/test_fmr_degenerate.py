"""FMR on what it cannot learn from: settings that are refused, data that never change."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leeward.algorithms.fmr import ALGORITHM, Config, check
from leeward.data.dataset import Dataset
from leeward.errors import ConfigError, DataError, LeewardError
from training import lines, train, weights


def walks(kind: str = "") -> Dataset:
    """Ten walks of eight steps between two places, with rewards where there are any."""
    place = np.tile([-1.0, 1.0], 40)
    last = np.arange(80) % 8 == 7
    if kind == "one episode":
        last = np.arange(80) == 79
    action: Any = 0.5 * place[:, None]
    space: dict[str, Any] = {"action_low": -1.0, "action_high": 1.0}
    if kind == "discrete":
        action, space = np.arange(80) % 3, {"action_count": 3}
    if kind == "still":
        place, action = np.zeros(80), np.zeros((80, 1))
    return Dataset.from_arrays(
        place[:, None],
        action,
        np.zeros(80) if kind == "no rewards" else np.ones(80),
        last,
        np.zeros(80, bool),
        **space,
        metadata={"name": "walks"},
    )


# --- What does not fit together ---


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (
            "one episode",
            {},
            "walks has one episode, so none can be held out for early stopping: add episodes, or "
            "set --validation-fraction 0",
        ),
        (
            "no rewards",
            {"value_reward": "data"},
            "every reward of walks is 0, so there is no value to learn: use --value-reward "
            "constant (1 a step, 0 at a termination), or plain bc",
        ),
        (
            "",
            {"behavior": "deterministic", "divergence": "js"},
            "--divergence js needs densities, but --density or --behavior is deterministic, where "
            "the squared distance takes its place: leave --divergence out",
        ),
        ("", {"fmr_weight": -0.1}, "--fmr-weight must be at least 0, got -0.1"),
        ("", {"bandwidth": 0.0}, "--bandwidth must be at least 1e-06, got 0"),
    ],
)
def test_data_and_settings_that_do_not_fit(kind: str, changes: Any, message: str) -> None:
    with pytest.raises(LeewardError) as caught:
        check(dataclasses.replace(Config(), **changes), walks(kind))
    assert str(caught.value) == message
    assert isinstance(caught.value, DataError) == (kind != "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            (
                {setting: kind},
                f"--{setting} {kind} is for continuous actions, and discrete ones get a "
                f"categorical distribution: leave --{setting} out, and --preset where that sets it",
            )
            for setting, kind in (
                ("density", "mixture"),
                ("density", "deterministic"),
                ("behavior", "mixture"),
                ("behavior", "joint-mixture"),
                ("behavior", "deterministic"),
            )
        ),
        (
            dict(ALGORITHM.presets["multimodal"]),
            "--density joint-mixture is for continuous actions, and discrete ones get a "
            "categorical distribution: leave --density out, and --preset where that sets it",
        ),
        (
            {"behavior": "kernel", "bandwidth": 1.5},
            "--bandwidth of discrete actions is the share that is spread evenly over all of them: "
            "it must be at most 1, got 1.5",
        ),
    ],
)
def test_settings_that_mean_nothing_for_discrete_actions(changes: Any, message: str) -> None:
    config = dataclasses.replace(Config(), **changes)
    with pytest.raises(ConfigError) as caught:
        check(config, walks("discrete"))
    assert str(caught.value) == message
    check(config, walks())


def test_there_is_a_safe_course_for_each() -> None:
    check(Config(validation_fraction=0.0), walks("one episode"))
    check(Config(), walks("no rewards"))
    check(Config(divergence="js"), walks())
    check(Config(), walks("discrete"))
    check(Config(behavior="kernel", bandwidth=1.0), walks("discrete"))


# --- Data that never change ---

SETTINGS: dict[str, Any] = {
    "hidden": (4,),
    "value_steps": 2,
    "behavior_steps": 120,
    "steps": 120,
    "behavior_lr": 0.1,
    "actor_lr": 0.1,
    "value_ensemble": 1,
    "log_every": 120,
}
FLAT = (
    "seed-0: the value is the same at all states, so it weighs them all alike: use data with "
    "rewards or terminations, or plain bc"
)
FLOOR = (
    "seed-0: 100 % of the behavior model's log-stds are at their floor of -10, where KL explodes: "
    "actions that hardly vary are better modeled by --behavior deterministic, or compared by "
    "--divergence js"
)


def test_states_and_actions_that_never_change_are_said_and_do_no_harm(tmp_path: Path) -> None:
    directory = train(tmp_path / "run", walks("still"), "fmr", **SETTINGS)
    log = (directory / "log.txt").read_text("utf-8")
    assert FLAT in log
    assert FLOOR in log
    assert all(np.isfinite(array).all() for array in weights(directory).values())
    (row,) = (row for row in lines(directory) if "actor/weight" in row)
    assert row["actor/weight"] == pytest.approx(np.log(2.0), rel=1e-5)  # softplus(0)
    assert row["actor/weight_variance"] == pytest.approx(0.0, abs=1e-12)
    assert np.isfinite(row["actor/loss"])


def test_the_course_that_the_log_names_is_safe(tmp_path: Path) -> None:
    directory = train(tmp_path / "run", walks("still"), "fmr", **SETTINGS, behavior="deterministic")
    log = (directory / "log.txt").read_text("utf-8")
    assert FLAT in log
    assert "floor" not in log
    assert all(np.isfinite(array).all() for array in weights(directory).values())
    (row,) = (row for row in lines(directory) if "held_out/divergence" in row)
    assert row["held_out/divergence"] < 0.01
    assert row["held_out/squared_error"] < 0.01
