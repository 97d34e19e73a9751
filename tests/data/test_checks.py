"""The data doctor: clean data passes, and each planted fault is found where it lies."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from leeward.data.build import build
from leeward.data.checks import Report, inspect
from leeward.data.dataset import Dataset
from masses import Columns, masses


@pytest.fixture
def clean() -> Columns:
    return masses()


def look(columns: Columns, **arguments: Any) -> Report:
    """The report on columns in a box of ±1."""
    bounds = {"action_low": -1.0, "action_high": 1.0, "strict": False, **arguments}
    return inspect(build(**columns, **bounds))


def codes(report: Report) -> dict[str, str]:
    return {found.code: found.severity for found in report.findings}


def rows_of(report: Report, code: str) -> list[int]:
    (found,) = (found for found in report.findings if found.code == code)
    return list(found.rows)


def ends(columns: Columns, flag: str) -> np.ndarray:
    return np.flatnonzero(columns[flag])


def test_clean_data_has_both_kinds_of_ends_and_no_finding(clean: Columns) -> None:
    assert len(ends(clean, "termination")) == 40
    assert len(ends(clean, "truncation")) == 20
    assert codes(look(clean)) == {}


def test_clean_data_without_stored_next_observations_has_no_warning(clean: Columns) -> None:
    del clean["next_observation"]
    report = look(clean)
    assert codes(report) == {"last_observation_missing": "info"}
    assert rows_of(report, "last_observation_missing") == ends(clean, "truncation")[:20].tolist()


def test_clean_discrete_data_has_no_warning(discrete_dataset: Dataset) -> None:
    names = "tiny_data", "observation_constant", "observation_integer", "last_observation_missing"
    assert codes(inspect(discrete_dataset)) == dict.fromkeys(names, "info")


@pytest.mark.parametrize("column", ["observation", "action", "reward", "next_observation"])
def test_values_that_are_not_finite(clean: Columns, column: str) -> None:
    row = int(ends(clean, "truncation")[1])
    clean[column][row] = np.inf if column == "reward" else np.nan
    report = look(clean)
    assert codes(report)[f"non_finite_{column}"] == "error"
    assert rows_of(report, f"non_finite_{column}") == [row]
    assert report.errors
    json.dumps(report.to_json(), allow_nan=False)


def test_values_that_are_not_finite_are_found_in_wide_observations() -> None:
    """As training refuses them: other checks leave such observations out."""
    wide = np.random.default_rng(0).normal(size=(300, 600)).astype(np.float32)
    following = np.roll(wide, -1, axis=0)
    wide[7, 599] = np.nan
    following[6, 599] = np.nan  # the same row once more
    following[19, 0] = np.inf
    end = np.arange(300) % 20 == 19
    report = inspect(
        build(
            wide,
            np.sin(np.arange(300.0))[:, None],
            np.cos(np.arange(300.0)),
            end,
            next_observation=following,
            action_low=-1.0,
            action_high=1.0,
            strict=False,
        )
    )
    assert rows_of(report, "non_finite_observation") == [7]
    assert rows_of(report, "non_finite_next_observation") == [19]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_value_that_is_not_finite_hides_no_other_fault(clean: Columns, value: float) -> None:
    shifted = {key: np.copy(array) for key, array in clean.items()}
    del clean["next_observation"]
    lost = ends(clean, "truncation")[[3, 8, 12]]
    clean["truncation"][lost] = 0
    clean["observation"][[0, 200], 1] = value  # a first state, and one in the middle
    report = look(clean)
    assert rows_of(report, "end_not_marked") == lost.tolist()
    assert rows_of(report, "non_finite_observation") == [0, 200]
    for column in ("action", "observation", "reward"):
        columns = {key: np.copy(array) for key, array in shifted.items()}
        columns["action"] = np.roll(columns["action"], 1, axis=0)
        columns[column][500] = value
        assert codes(look(columns))["action_off_by_one"] == "warning", column


def test_actions_outside_the_box(clean: Columns) -> None:
    clean["action"][7] = [1.5, 0.0]
    report = look(clean)
    assert codes(report) == {"action_outside_box": "error"}
    (found,) = report.findings
    assert found.to_json() == {
        "code": "action_outside_box",
        "severity": "error",
        "count": 1,
        "rows": [7],
        "message": found.message,
        "remedy": ("give the true bounds with --action-low and --action-high, or clip the actions"),
    }
    assert found.message.startswith("actions leave the box in 1 rows: these span [")


def test_actions_on_the_bounds_are_information(clean: Columns) -> None:
    clean["action"] = np.clip(3 * clean["action"], -1, 1)
    report = look(clean)
    assert codes(report) == {"action_on_bounds": "info"}
    assert "--margin" in report.findings[0].remedy


def test_actions_that_never_change_or_barely_use_their_box(clean: Columns) -> None:
    clean["action"][:, 1] = 0.25
    assert codes(look(clean)) == {"action_constant": "warning"}
    clean["action"][:, 1] = 0.01 * clean["action"][:, 0]
    assert codes(look(clean)) == {"action_box_barely_used": "warning"}


def test_time_limits_stored_as_terminations(clean: Columns) -> None:
    limits = ends(clean, "truncation")
    clean["termination"][limits] = 1
    clean["truncation"][:] = 0
    report = look(clean)
    assert codes(report) == {"termination_is_time_limit": "warning"}
    assert rows_of(report, "termination_is_time_limit") == limits.tolist()


def test_terminations_at_the_limit_of_the_known_task(clean: Columns) -> None:
    few = {key: value[:1000] for key, value in clean.items()}
    few["observation"] = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)
    few["next_observation"] = np.append(few["observation"][1:], few["observation"][:1] + 1, axis=0)
    few["termination"] = (np.arange(1000) == 999).astype(np.float32)
    few["truncation"] = np.zeros(1000, np.float32)
    report = look(few, metadata={"env": "Hopper-v4"})
    assert codes(report)["termination_is_time_limit"] == "warning"
    assert "termination_is_time_limit" not in codes(look(few))


def test_both_flags_at_once(clean: Columns) -> None:
    limits = ends(clean, "truncation")
    clean["termination"][limits[:2]] = 1
    report = look(clean)
    assert codes(report)["flags_overlap"] == "warning"
    assert rows_of(report, "flags_overlap") == limits[:2].tolist()


def test_ends_that_were_not_marked(clean: Columns) -> None:
    del clean["next_observation"]
    lost = ends(clean, "truncation")[[3, 8, 12]]
    clean["truncation"][lost] = 0
    report = look(clean)
    assert codes(report)["end_not_marked"] == "warning"
    assert rows_of(report, "end_not_marked") == lost.tolist()


def test_timeouts_at_fixed_intervals_that_the_resets_do_not_keep(clean: Columns) -> None:
    """As in AntMaze's files, whose timeouts are out of step with the jumps of the position."""
    del clean["next_observation"]
    resets = np.flatnonzero(clean["termination"] + clean["truncation"])
    clean["termination"][:] = 0
    clean["truncation"] = (np.arange(len(clean["reward"])) % 61 == 60).astype(np.float32)
    report = look(clean)
    assert codes(report)["end_not_marked"] == "warning"
    (found,) = (found for found in report.findings if found.code == "end_not_marked")
    missed = np.setdiff1d(resets[:-1], np.flatnonzero(clean["truncation"]))
    assert np.isin(found.every_row, missed).all()
    assert len(found.every_row) > 0.75 * len(missed)


def test_ends_of_all_kinds_stored_as_terminations(clean: Columns) -> None:
    """As where episode_terminals are taken for terminals."""
    limits = ends(clean, "truncation")
    clean["termination"] = np.maximum(clean["termination"], clean["truncation"])
    report = look(clean)
    assert codes(report)["flags_overlap"] == "warning"
    assert codes(report)["termination_is_time_limit"] == "warning"
    assert rows_of(report, "termination_is_time_limit") == limits.tolist()


def test_no_ends_at_all(clean: Columns) -> None:
    del clean["next_observation"]
    clean["termination"][:] = 0
    clean["truncation"][:] = 0
    assert codes(look(clean))["no_episode_ends"] == "warning"


@pytest.mark.parametrize(("shift", "word"), [(1, "late"), (-1, "early")])
@pytest.mark.parametrize("flags", ["truncation", "both"])
@pytest.mark.parametrize("stored", [True, False])
def test_flags_one_row_off(clean: Columns, shift: int, word: str, flags: str, stored: bool) -> None:
    for flag in ("truncation", "termination") if flags == "both" else ("truncation",):
        clean[flag] = np.roll(clean[flag], shift)
    if not stored:
        del clean["next_observation"]
    report = look(clean)
    assert codes(report)["ends_off_by_one"] == "warning"
    (found,) = (found for found in report.findings if found.code == "ends_off_by_one")
    assert f"one row too {word}" in found.message


def test_last_observations_of_the_next_episode(clean: Columns) -> None:
    clean["next_observation"] = np.roll(clean["observation"], -1, axis=0)
    report = look(clean)
    assert codes(report) == {"next_observation_of_next_episode": "warning"}
    every_end = np.flatnonzero(clean["termination"] + clean["truncation"])[:20]
    assert rows_of(report, "next_observation_of_next_episode") == every_end.tolist()


def test_last_observations_of_the_next_episode_do_no_harm_after_terminations(
    clean: Columns,
) -> None:
    following = np.roll(clean["observation"], -1, axis=0)
    terminated = clean["termination"] > 0
    clean["next_observation"][terminated] = following[terminated]
    assert codes(look(clean)) == {"next_observation_of_next_episode": "info"}


def test_last_observations_that_are_blank(clean: Columns) -> None:
    clean["next_observation"][(clean["termination"] + clean["truncation"]) > 0] = 0
    report = look(clean)
    assert codes(report) == {"last_observation_blank": "warning"}
    assert rows_of(report, "last_observation_blank") == ends(clean, "truncation").tolist()


def test_next_observations_that_break_inside_an_episode(clean: Columns) -> None:
    clean["next_observation"][[4, 40]] += 0.01
    report = look(clean)
    assert codes(report)["next_observation_breaks"] == "warning"
    assert rows_of(report, "next_observation_breaks") == [4, 40]


@pytest.mark.parametrize("shift", [0, -2])
def test_next_observations_of_another_row(clean: Columns, shift: int) -> None:
    clean["next_observation"] = np.roll(clean["observation"], shift, axis=0)
    assert codes(look(clean))["next_observation_off_by_one"] == "warning"


def test_shuffled_transitions_are_no_fault(clean: Columns) -> None:
    order = np.random.default_rng(0).permutation(len(clean["reward"]))
    shuffled = {key: value[order] for key, value in clean.items()}
    assert codes(look(shuffled)) == {"shuffled_transitions": "info"}


@pytest.mark.parametrize(("shift", "word"), [(1, "late"), (-1, "early")])
@pytest.mark.parametrize("column", ["action", "reward"])
def test_actions_and_rewards_one_row_off(
    clean: Columns, column: str, shift: int, word: str
) -> None:
    clean[column] = np.roll(clean[column], shift, axis=0)
    report = look(clean)
    assert codes(report) == {f"{column}_off_by_one": "warning"}
    assert f"one row too {word}" in report.findings[0].remedy


def test_copied_rows_and_episodes(clean: Columns) -> None:
    twice = {key: np.concatenate([value, value[:2000]]) for key, value in clean.items()}
    report = look(twice)
    assert codes(report)["episode_copied"] == "warning"
    assert rows_of(report, "episode_copied")[0] == len(clean["reward"])
    for key in ("observation", "action", "reward", "next_observation"):
        clean[key][100] = clean[key][50]
    assert rows_of(look(clean), "row_copied") == [100]


def test_rewards_that_say_nothing(clean: Columns) -> None:
    clean["reward"][:] = 0
    assert codes(look(clean)) == {"reward_zero": "warning"}
    clean["reward"][:] = 1
    assert codes(look(clean)) == {"reward_constant": "info"}
    del clean["next_observation"]
    keep = clean["termination"] == 0
    clean = {key: value[keep] for key, value in clean.items()}
    assert codes(look(clean))["reward_constant"] == "warning"


def test_observations_that_are_odd(clean: Columns) -> None:
    odd = np.column_stack([clean["observation"], np.full(len(clean["reward"]), 3.0)])
    without_next = {key: value for key, value in clean.items() if key != "next_observation"}
    report = look({**without_next, "observation": odd})
    assert codes(report)["observation_constant"] == "info"
    odd[:, 4] = 1e6 * clean["observation"][:, 0]
    assert codes(look({**without_next, "observation": odd}))["observation_unscaled"] == "info"
    whole = np.round(100 * clean["observation"])
    assert codes(look({**without_next, "observation": whole}))["observation_integer"] == "info"
    whole[:, 0] += 1e9
    found = codes(look({**without_next, "observation": whole}))
    assert found["observation_integer_inexact"] == "warning"


def test_actions_leaked_into_observations(clean: Columns) -> None:
    del clean["next_observation"]
    clean["observation"] = np.column_stack([clean["observation"], clean["action"][:, 1]])
    report = look(clean)
    (found,) = (found for found in report.findings if found.code == "action_leaked")
    assert found.message == "observation dimension 4 is the action (dimension 1) of the same row"


def test_small_data_and_no_transition(clean: Columns) -> None:
    assert codes(look({key: value[:200] for key, value in clean.items()}))["tiny_data"] == "warning"
    assert codes(look({key: value[:900] for key, value in clean.items()}))["tiny_data"] == "info"
    one = {key: value[:1] for key, value in clean.items() if key != "next_observation"}
    assert codes(look(one))["no_transition"] == "error"


def test_terminations_in_a_row(clean: Columns) -> None:
    del clean["next_observation"]
    first = int(ends(clean, "termination")[0])
    clean["termination"][first - 2 : first] = 1
    report = look(clean)
    assert codes(report)["terminations_in_a_row"] == "info"
    assert rows_of(report, "terminations_in_a_row") == [first - 1, first]


def test_actions_never_taken() -> None:
    generator = np.random.default_rng(0)
    report = inspect(
        build(
            generator.normal(size=(300, 2)),
            generator.choice([0, 2], 300),
            generator.normal(size=300),
            np.arange(300) % 10 == 9,
            action_count=4,
        )
    )
    (found,) = (found for found in report.findings if found.code == "action_never_taken")
    assert found.message == "actions [1, 3] of 4 are never taken"
    assert report.summary["action"]["taken"][1] == 0


def test_images_are_counted_but_not_searched() -> None:
    images = np.random.default_rng(0).integers(0, 255, (300, 12, 12), np.uint8)
    report = inspect(
        build(
            images,
            np.arange(300) % 3,
            np.arange(300.0),
            np.isin(np.arange(300), [13, 40, 90, 130, 299]),
        )
    )
    assert report.summary["observation"] == {"shape": [12, 12], "dtype": "uint8"}
    assert codes(report) == {"tiny_data": "info"}


def test_the_qlearning_reading_says_what_it_leaves_out(clean: Columns) -> None:
    keep = clean["truncation"] == 0
    keep[-1] = False
    columns = {key: value for key, value in clean.items() if key != "next_observation"}
    report = look(columns, transition=keep, metadata={"d4rl_rows": "qlearning"})
    assert codes(report) == {"row_dropped": "info"}
    assert report.summary["rows"] - report.summary["transitions"] == (~keep).sum()


def test_the_report_tells_counts_returns_and_scores(clean: Columns) -> None:
    metadata = {"name": "mass", "env": "Hopper-v4", "source": "here", "notes": ["a note"]}
    report = look(clean, metadata=metadata)
    content = report.to_json()
    assert sorted(content) == ["findings", "format", "name", "notes", "summary"]
    assert content["format"] == 1
    summary = content["summary"]
    assert summary["episodes"] == 60
    assert summary["ends"] == {"terminations": 40, "truncations": 20}
    assert summary["lengths"]["max"] == 60
    returns = build(**clean).episode_returns()
    assert summary["returns"]["mean"] == pytest.approx(returns.mean())
    score = 100 * (returns.mean() + 20.272305) / (3234.3 + 20.272305)
    assert summary["score"]["mean"] == pytest.approx(score)
    assert json.loads(json.dumps(content)) == content
    table = dict(report.lines())
    assert table["ends"] == "40 by the task, 20 cut"
    assert table["action"] == "[2] in [-1, 1]"
    assert table["environment"] == "Hopper-v4"


def test_errors_come_first(clean: Columns) -> None:
    clean["reward"][:] = 0
    clean["action"][3] = 2
    severities = [found.severity for found in look(clean).findings]
    assert severities == ["error", "warning"]
