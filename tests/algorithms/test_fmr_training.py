"""FMR trained whole: a corridor whose middle no demonstration shows, where drift is exact."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leeward
from leeward import closeups
from leeward.data.dataset import Dataset
from training import lines, weights

STEP = 0.1
GAIN = 0.5
START = 0.6
WEIGHTS = (0.0, 3.0)
SETTINGS: dict[str, Any] = {
    "fmr_weight": list(WEIGHTS),
    "steps": 400,
    "value_steps": 400,
    "behavior_steps": 200,
    "batch_size": 32,
    "hidden": (16,),
    "discount": 0.9,
    "tau": 0.1,
    "actor_lr": 3e-3,
    "behavior_lr": 3e-3,
    "value_lr": 3e-3,
    "validation_fraction": 0.25,
    "validation_every": 100,
    "patience": 3,
    "normalize_observations": False,
    "log_every": 200,
    "checkpoint_every": 200,
    "quiet": True,
    "logger": (),
}


def corridor() -> Dataset:
    """Walks along a corridor that steer back to its middle line, y ← y/2; none between 0.4 and 0.6.

    Those that begin at 0 are cut at 0.4; those that begin at 0.6 end at 1. No rewards.
    """
    draw = np.random.default_rng(0)
    rows: list[tuple[float, float, float, bool, bool]] = []
    for episode in range(32):
        place, y = (0.0, 0.6)[episode % 2], float(draw.uniform(-0.8, 0.8))
        for step in range(4):
            action = float(np.clip(-GAIN * y + 0.05 * draw.normal(), -1.0, 1.0))
            last = step == 3
            rows.append((place, y, action, last and episode % 2 == 1, last and episode % 2 == 0))
            place, y = place + STEP, y + action
    place, y, action, termination, truncation = map(np.asarray, zip(*rows, strict=True))
    observation = np.stack([place, y], axis=1)
    following = np.stack([place + STEP, y + action], axis=1)
    return Dataset.from_arrays(
        observation,
        action[:, None],
        np.zeros(len(rows)),
        termination,
        truncation,
        next_observation=following,
        action_low=-1.0,
        action_high=1.0,
        metadata={"name": "corridor"},
    )


def drift(policy: Any) -> float:
    """The largest distance between the policy's walk and the demonstrator's from the same start."""
    y, expert, largest = START, START, 0.0
    for step in range(10):
        action = policy(np.asarray([step * STEP, y], np.float32))
        y, expert = y + float(action[0]), expert * (1.0 - GAIN)
        largest = max(largest, abs(y - expert))
    return largest


def train(directory: Path, on_metrics: Any = None, **changes: Any) -> Path:
    """One run for each weight of the divergence."""
    leeward.train(
        "fmr", corridor(), run_dir=directory, on_metrics=on_metrics, **(SETTINGS | changes)
    )
    return directory


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("fmr") / "run")


def measured(directory: Path, phase: str, run: int = 0) -> dict[str, float]:
    """What a phase measured at its end."""
    found = [
        row
        for row in lines(directory)
        if row["phase"] == phase and row["run"] == run and any("held_out/" in n for n in row)
    ]
    assert len(found) == 1
    return found[0]


def test_drift_is_exact() -> None:
    assert drift(lambda observation: [-GAIN * observation[1]]) < 1e-6
    assert drift(lambda observation: [0.0]) == pytest.approx(START * (1.0 - 0.5**10))


def test_policies_cross_the_gap_and_hold_to_the_behavior_the_more_the_weight(
    trained: Path,
) -> None:
    drifts = []
    for run, weight in enumerate(WEIGHTS):
        assert leeward.load_policy(trained, run=run).run.settings["fmr_weight"] == weight
        drifts.append(drift(leeward.load_policy(trained, run=run)))
    assert drifts[1] < 0.25
    assert drifts[1] < 1.1 * drifts[0]  # where there is no data, the hold costs little or nothing
    loose, held = (measured(trained, "policy", run) for run in range(2))
    assert held["held_out/divergence"] < 0.5 * loose["held_out/divergence"]
    assert np.isfinite([loose["held_out/log_likelihood"], held["held_out/squared_error"]]).all()


def test_every_phase_reports_what_it_measures_on_held_out_episodes(trained: Path) -> None:
    value = measured(trained, "value")
    assert value["value/rewardless"] == 1.0
    # Only walks that end, from 0.6 on, have known returns, and these are the steps left.
    assert 0.0 < value["held_out/return_known"] < 1.0
    assert value["held_out/return_correlation"] > 0.9
    assert value["held_out/td_error"] < 1.0
    behavior = measured(trained, "behavior")
    assert behavior["held_out/at_floor"] == 0.0
    assert behavior["held_out/log_likelihood"] > 0.0  # the std of the data's noise is 0.05
    steps = {
        phase: [r["step"] for r in lines(trained) if "validation/loss" in r and r["phase"] == phase]
        for phase in ("value", "behavior", "policy")
    }
    assert steps["value"] == [100, 100, 200, 200, 300, 300, 400, 400]
    log = (trained / "log.txt").read_text("utf-8")
    assert (
        "seed-0-fmr_weight-3: the value learns from a reward of 1 a step and 0 at terminations: it "
        "only tells how long episodes go on"
    ) in log


def test_the_weight_is_chosen_by_held_out_likelihood(trained: Path) -> None:
    """As docs/algorithms/fmr.md does; the log says it too."""
    run = leeward.Run(trained)
    rows = [row for row in run.metrics() if "held_out/divergence" in row]
    best = max(rows, key=lambda row: row["held_out/log_likelihood"])
    assert len(rows) == len(WEIGHTS)
    assert best["fmr_weight"] in WEIGHTS
    assert leeward.load_policy(run.directory, run=best["run"]).run.settings["fmr_weight"] in WEIGHTS
    ranked = sorted(rows, key=lambda row: -row["held_out/log_likelihood"])
    shown = [f"fmr_weight={r['fmr_weight']:g} {r['held_out/log_likelihood']:.4g}" for r in ranked]
    assert (
        f"held-out episodes favor fmr_weight={best['fmr_weight']:g}, by log likelihood (1 seed): "
        + ", ".join(shown)
        + f"; run {best['run']} is the one that is exported and loaded unless --run-index names "
        "another"
    ) in (trained / "log.txt").read_text("utf-8")
    assert run.favored == (best["run"],)
    chosen = leeward.load_policy(trained)
    assert chosen.run.settings["fmr_weight"] == best["fmr_weight"]
    assert chosen.note == (
        f"run {best['run']}: held-out episodes favor fmr_weight {best['fmr_weight']:g}"
    )


def test_v_is_kept_at_single_states_beside_the_returns(trained: Path) -> None:
    arrays = closeups.read(trained, "value")
    assert arrays is not None
    walk = arrays["walk"]
    assert walk.max() == 2  # three of the eight held-out walks
    assert arrays["value"].shape == arrays["return"].shape == (len(WEIGHTS), len(walk))
    known = np.isfinite(arrays["return"][0])
    # A walk that ends in a termination has the steps left but one as returns, discounted by 0.9.
    found = np.unique(arrays["return"][0][known].round(3))
    np.testing.assert_allclose(found, [0.0, 1.0, 1.9, 2.71], atol=1e-3)
    assert np.corrcoef(arrays["value"][0][known], arrays["return"][0][known])[0, 1] > 0.9


def test_one_report_shows_v_the_distance_and_whether_bc_is_beaten(
    trained: Path, tmp_path: Path
) -> None:
    """BC holds out the same episodes and measures the same."""
    cloned = tmp_path / "bc"
    leeward.train(
        "bc", corridor(), run_dir=cloned, density="gaussian", validation_fraction=0.25,
        **{name: SETTINGS[name] for name in ("steps", "batch_size", "hidden", "quiet", "logger",
                                             "normalize_observations")},
    )  # fmt: skip
    (found,) = (row for row in lines(cloned) if "held_out/squared_error" in row)
    text = leeward.report([trained, cloned], tmp_path / "out").read_text()
    for words in (
        "Is the value network to be trusted?",
        "On held-out episodes",
        "On corridor held-out episodes favor",
        "Divergence from the behavior model",
        "fmr on corridor: the value learns from a reward of 1 a step",
    ):
        assert words in text, words
    table = (tmp_path / "out" / "tables" / "held-out.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in table[1:]] == [
        "fmr (fmr-weight 0)", "fmr (fmr-weight 3)", "bc",
    ]  # fmt: skip
    assert float(table[3].split(",")[3]) == pytest.approx(
        found["held_out/log_likelihood"], rel=1e-5
    )
    names = {path.stem for path in (tmp_path / "out" / "figures").iterdir()}
    assert {"value-states-fmr-corridor", "value-walks-fmr-corridor"} <= names


def test_interrupted_in_every_phase_and_resumed_is_the_same(trained: Path, tmp_path: Path) -> None:
    directory = tmp_path / "pieces"

    def interrupt(row: Mapping[str, Any]) -> None:
        if row["run"] == 1 and row["step"] == 200 and "validation/loss" not in row:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(directory, interrupt)
    for _ in range(6):  # a phase's measures may come between
        with contextlib.suppress(KeyboardInterrupt):
            leeward.resume(directory, data=corridor(), quiet=True, on_metrics=interrupt)
            break
    assert lines(directory) == lines(trained)
    first, second = weights(trained), weights(directory)
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


def test_a_kernel_density_needs_no_updates(tmp_path: Path) -> None:
    directory = train(
        tmp_path / "run", behavior="kernel", divergence="js", fmr_weight=1.0, steps=20,
        value_steps=20,
    )  # fmt: skip
    rows = [row for row in lines(directory) if row["phase"] == "behavior"]
    assert len(rows) == 1
    assert rows[0]["step"] == 0
    assert rows[0]["held_out/log_likelihood"] > 0.0
    assert 0.0 <= measured(directory, "policy")["held_out/divergence"] <= np.log(2.0)
