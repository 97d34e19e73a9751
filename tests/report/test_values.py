"""V in the report: close-ups and their figures; held-out measures; episodes played afterwards."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabricated import write_run
from leeward.errors import CheckpointError
from leeward.played import keep
from leeward.pretraining.closeup import main_axes, shown_walks
from leeward.report import report
from leeward.report.values import LEVELS, levels


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# --- Close-ups ---


def test_the_main_axes_are_those_of_the_largest_variance() -> None:
    """Points on an ellipse that is turned by 30 degrees, in three dimensions."""
    angle = np.linspace(0.0, 2.0 * np.pi, 60, endpoint=False)
    flat = np.stack([3.0 * np.cos(angle), np.sin(angle)], axis=1)
    turn = np.asarray([[np.cos(np.pi / 6), np.sin(np.pi / 6), 0.0],
                       [-np.sin(np.pi / 6), np.cos(np.pi / 6), 0.0]])  # fmt: skip
    place, explained = main_axes(7.0 + flat @ turn)
    np.testing.assert_allclose(place, flat, atol=1e-9)
    np.testing.assert_allclose(explained, [0.9, 0.1], atol=1e-9)
    narrow, share = main_axes(np.arange(4.0)[:, None])
    np.testing.assert_allclose(narrow, [[-1.5, 0], [-0.5, 0], [0.5, 0], [1.5, 0]])
    np.testing.assert_allclose(share, [1.0, 0.0])
    still = main_axes(np.ones((4, 2)))
    np.testing.assert_array_equal(still[1], 0.0)


def test_the_worst_the_middle_and_the_best_walk_are_shown() -> None:
    steps_left = np.asarray([2, 1, 1, 3, 2, 1, 2, 1, 2, 1])
    reward = np.asarray([5.0, 0, 99, 1, 1, 1, 0, 1, 8, 0])  # returns 5, (99), 3, 1, 8
    walks = shown_walks(steps_left, reward)
    assert [walk.tolist() for walk in walks] == [[6, 7], [0, 1], [8, 9]]
    assert shown_walks(np.ones(5, int), np.ones(5)) == []
    (long,) = shown_walks(np.arange(1_500, 0, -1), np.zeros(1_500))
    assert (len(long), long[0]) == (1_000, 0)


def test_colors_follow_the_ranks_of_v() -> None:
    found = levels(np.asarray([7.0, -3.0, 100.0, 5.0, 6.0, 2.0, 0.0, 8.0]))
    assert found.tolist() == [2, -4, 4, -1, 1, -2, -3, 3]
    assert np.abs(levels(np.arange(101.0))).max() == LEVELS


# --- In the report ---


def close_up(directory: Path, **changes: Any) -> None:
    """Two scattered states and a walk of three, of one run."""
    arrays = {
        "transition": np.arange(5),
        "walk": np.asarray([-1, -1, 0, 0, 0]),
        "component": np.asarray([[0.0, 1.0], [2.0, 3.0], *[[np.nan, np.nan]] * 3]),
        "explained": np.asarray([0.7, 0.2]),
        "value": np.asarray([[1.0, 2.0, 3.0, 4.0, 5.0]]),
        "return": np.asarray([[1.0, np.nan, 3.5, 4.5, np.nan]]),
    } | changes
    (directory / "closeups").mkdir()
    kept = {name: array for name, array in arrays.items() if array is not None}
    np.savez(directory / "closeups" / "value.npz", allow_pickle=False, **kept)


def measured(directory: Path, phase: str, **values: float) -> None:
    """A line of what a phase measured, for every seed."""
    rows = json.loads((directory / "config.json").read_text())["runs"]
    with (directory / "metrics.jsonl").open("a") as file:
        for row in rows:
            named = {name.replace("__", "/"): value for name, value in values.items()}
            file.write(json.dumps({"phase": phase, "step": 10, **row, **named}) + "\n")


def test_v_is_drawn_beside_its_numbers(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [1.0], algorithm="fmr")
    close_up(run)
    measured(
        run, "value", held_out__v_mean=3.0, held_out__v_std=1.0, held_out__td_error=0.25,
        held_out__return_correlation=0.125, value__rewardless=0.0, value__flat=0.0,
    )  # fmt: skip
    out = tmp_path / "out"
    text = report(run, out).read_text()
    assert "Is the value network to be trusted?" in text
    assert "fmr on made-up-v0: values and returns correlate by 0.12 only" in text
    states = rows_of(out / "figures" / "value-states-fmr-made-up-v0.csv")
    assert states == [
        {"axis_1": "0", "axis_2": "1", "value": "1", "return": "1"},
        {"axis_1": "2", "axis_2": "3", "value": "2", "return": ""},
    ]
    walks = rows_of(out / "figures" / "value-walks-fmr-made-up-v0.csv")
    assert [row["return"] for row in walks] == ["3.5", "4.5", ""]
    (numbers,) = rows_of(out / "tables" / "values.csv")
    assert (numbers["Mean |TD error|"], numbers["Correlation with returns"]) == ("0.25", "0.125")
    assert "Discriminator's accuracy" not in numbers


def test_a_value_that_stands_every_test_is_said_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [1.0], algorithm="fmr")
    close_up(run, value=np.full((1, 5), 2.0))  # drawn in one color
    measured(
        run, "value", held_out__v_mean=3.0, held_out__v_std=1.0, held_out__return_correlation=0.9,
        value__rewardless=0.0, value__flat=0.0,
    )  # fmt: skip
    assert "fmr on made-up-v0: nothing speaks against V" in report(run, tmp_path / "o").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"walk": None}, "the close-up of V has no 'walk' (damaged)"),
        ({"value": np.ones((1, 4))}, "the arrays of the close-up of V differ in length (damaged)"),
    ],
)
def test_a_damaged_close_up_is_one_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    run = write_run(tmp_path / "run", [1.0], algorithm="fmr")
    close_up(run, **changes)
    with pytest.raises(CheckpointError) as caught:
        report(run, tmp_path / "out")
    assert str(caught.value) == f"{run / 'closeups'}: {message}"
    (run / "closeups" / "value.npz").write_bytes(b"PK nothing")
    with pytest.raises(CheckpointError, match=r"value.npz: damaged \("):
        report(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


LIKELIHOODS = ({"held_out__log_likelihood": 2.0}, {"held_out__log_likelihood": 1.0})


def two_methods(
    folder: Path, fraction: float = 0.1, numbers: Sequence[dict[str, float]] = LIKELIHOODS
) -> tuple[Path, Path]:
    """FMR and BC, three seeds each, measured on held-out episodes."""
    directories = []
    for algorithm, phase, share, own in (
        ("fmr", "policy", 0.1, numbers[0]),
        ("bc", "train", fraction, numbers[1]),
    ):
        directory = write_run(
            folder / algorithm, [30.0, 31.0, 32.0], algorithm=algorithm,
            config={"validation_fraction": share},
        )  # fmt: skip
        measured(directory, "behavior", held_out__log_likelihood=99.0)  # not the policy's
        measured(directory, phase, **own)
        directories.append(directory)
    return directories[0], directories[1]


def test_held_out_episodes_favor_a_method(tmp_path: Path) -> None:
    runs = two_methods(tmp_path)
    text = report(runs, tmp_path / "out").read_text()
    assert "On made-up-v0 held-out episodes favor fmr: log-likelihood 2 against 1 of bc." in text
    rows = rows_of(tmp_path / "out" / "tables" / "held-out.csv")
    found = [(row["Method"], row["Seeds"], row["Log-likelihood"]) for row in rows]
    assert found == [("fmr", "3", "2"), ("bc", "3", "1")]


def test_a_policy_without_a_likelihood_is_compared_by_its_error(tmp_path: Path) -> None:
    """The smaller error is the better one, here of the method that has no density."""
    both = {"held_out__log_likelihood": 2.0, "held_out__squared_error": 0.04}
    runs = two_methods(tmp_path, numbers=(both, {"held_out__squared_error": 0.01}))
    text = report(runs, tmp_path / "out").read_text()
    assert (
        "On made-up-v0 held-out episodes favor bc: squared error 0.01 against 0.04 of fmr." in text
    )


def test_other_held_out_episodes_are_not_compared(tmp_path: Path) -> None:
    text = report(two_methods(tmp_path, 0.25), tmp_path / "out").read_text()
    assert "favor" not in text
    assert (
        "On made-up-v0 these methods held out different episodes (--validation-fraction 0.1 and "
        "0.25), so their numbers do not compare."
    ) in text


def test_disturbed_episodes_stand_beside_those_of_bc(tmp_path: Path) -> None:
    runs = two_methods(tmp_path)
    for directory, level in zip(runs, (50.0, 20.0), strict=True):
        for noise in (0.0, 0.1):
            rows = [
                {"run": i, "seed": i, "returns": [1.0], "score_mean": level + i - 100.0 * noise}
                for i in range(3)
            ]
            keep(
                directory,
                {
                    "environment": "MadeUp-v0", "checkpoint": "last", "start_noise": 0.0,
                    "action_noise": noise, "evaluation_seed": 1, "episodes": 7, "runs": rows,
                },
            )  # fmt: skip
    text = report(runs, tmp_path / "out").read_text()
    assert "Played after training" in text
    rows = rows_of(tmp_path / "out" / "tables" / "played.csv")
    shown = [(r["Method"], r["Action noise"], r["Mean"], r["Episodes"]) for r in rows]
    assert shown == [
        ("fmr", "0", "51", "7"), ("bc", "0", "21", "7"),
        ("fmr", "0.1", "41", "7"), ("bc", "0.1", "11", "7"),
    ]  # fmt: skip
    assert [r["Beats cloning with probability"] for r in rows] == ["1", "", "1", ""]


def test_fmr_without_its_divergence_is_plain_cloning(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", [1.0, 2.0], algorithm="fmr", config={"fmr_weight": 0.0},
        rows=[{"run": i, "seed": 0, "fmr_weight": w} for i, w in enumerate((0.0, 1.0))],
    )  # fmt: skip
    rows = [{"run": i, "seed": 0, "returns": [5.0 - i], "score_mean": None} for i in range(2)]
    keep(
        run,
        {
            "environment": "E", "checkpoint": "best", "start_noise": 0.1, "action_noise": 0.0,
            "evaluation_seed": 1, "episodes": 1, "runs": rows,
        },
    )  # fmt: skip
    report(run, tmp_path / "out")
    found = rows_of(tmp_path / "out" / "tables" / "played.csv")
    assert [(r["Method"], r["Quantity"], r["Beats cloning with probability"]) for r in found] == [
        ("fmr (fmr-weight 0)", "return", ""),
        ("fmr (fmr-weight 1)", "return", "0"),
    ]
