"""Planted faults are repaired back to the clean data, or left and named."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from leeward.data.build import build
from leeward.data.dataset import Dataset
from leeward.data.repair import Repaired, repair
from masses import LIMIT, Columns, masses


@pytest.fixture
def clean() -> Columns:
    return masses()


def dataset_of(columns: Columns, **arguments: Any) -> Dataset:
    bounds = {"action_low": -1.0, "action_high": 1.0, "strict": False, **arguments}
    return build(**columns, **bounds)


def assert_same(one: Dataset, other: Dataset) -> None:
    for field in dataclasses.fields(Dataset):
        if field.name != "metadata":
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def only(repaired: Repaired, code: str) -> str:
    """What was done, where one repair was made and nothing is left."""
    assert repaired.left == ()
    (done,) = repaired.repairs
    assert done.code == code
    assert repaired.dataset.metadata["notes"] == [f"repaired {code}: {done.message}"]
    assert repaired.dataset.metadata["file_metadata"]["repairs"] == f"{code}: {done.message}"
    return done.message


def without_next(columns: Columns) -> Columns:
    return {key: value for key, value in columns.items() if key != "next_observation"}


def test_clean_data_is_left_as_it_is(clean: Columns) -> None:
    dataset = dataset_of(clean)
    repaired = repair(dataset)
    assert repaired.dataset is dataset
    assert repaired[1:] == ((), ())


def test_one_of_two_flags(clean: Columns) -> None:
    limits = np.flatnonzero(clean["termination"])[:3]
    clean["truncation"][limits] = 1
    repaired = repair(dataset_of(clean))
    assert only(repaired, "flags_overlap") == "3 rows with both flags keep the task's end alone"
    assert_same(repaired.dataset, dataset_of(masses()))


@pytest.mark.parametrize(("shift", "word"), [(1, "earlier"), (-1, "later")])
@pytest.mark.parametrize("stored", [True, False])
def test_flags_one_row_off(clean: Columns, shift: int, word: str, stored: bool) -> None:
    truth = masses() if stored else without_next(masses())
    clean = clean if stored else without_next(clean)
    for flag in ("termination", "truncation"):
        clean[flag] = np.roll(clean[flag], shift)
    repaired = repair(dataset_of(clean))
    message = only(repaired, "ends_off_by_one")
    assert message == f"termination and truncation flags moved one row {word}"
    true = dataset_of(truth)
    for column in ("start", "episode_start"):  # what stood on the last row was lost
        repaired_rows, true_rows = (getattr(one, column) for one in (repaired.dataset, true))
        last = true.episode_start[-1] + 30
        np.testing.assert_array_equal(
            repaired_rows[repaired_rows < last], true_rows[true_rows < last]
        )


def test_ends_that_were_not_marked(clean: Columns) -> None:
    clean = without_next(clean)
    lost = np.flatnonzero(clean["truncation"])[[3, 8, 12]]
    clean["truncation"][lost] = 0
    repaired = repair(dataset_of(clean))
    message = only(repaired, "end_not_marked")
    assert message == "3 rows after which the state jumps to a start were marked as truncations"
    assert_same(repaired.dataset, dataset_of(without_next(masses())))


def test_time_limits_stored_as_terminations_where_the_limit_is_known(clean: Columns) -> None:
    clean["termination"] = np.maximum(clean["termination"], clean["truncation"])
    clean["truncation"][:] = 0
    unknown = repair(dataset_of(clean))
    assert unknown.repairs == ()
    assert [found.code for found in unknown.left] == ["termination_is_time_limit"]
    repaired = repair(dataset_of(clean), max_episode_steps=LIMIT)
    assert only(repaired, "termination_is_time_limit") == (
        "20 terminations after 60 steps, the task's limit, became truncations"
    )
    assert_same(repaired.dataset, dataset_of(masses()))


def test_last_observations_of_the_next_episode(clean: Columns) -> None:
    clean["next_observation"] = np.roll(clean["observation"], -1, axis=0)
    repaired = repair(dataset_of(clean))
    message = only(repaired, "next_observation_of_next_episode")
    assert message == (
        "59 stored last observations that belong to no step were left out, and with them the 20 "
        "transitions that led there without an end of the task"
    )
    assert repaired.dataset.transitions == len(clean["reward"]) - 20
    truncated = np.flatnonzero(repaired.dataset.truncation)
    assert not np.isin(truncated[:-1], repaired.dataset.start).any()


def test_last_observations_that_are_blank(clean: Columns) -> None:
    cut = clean["truncation"] > 0
    clean["next_observation"][cut] = 0
    repaired = repair(dataset_of(clean))
    only(repaired, "last_observation_blank")
    assert repaired.dataset.transitions == len(cut) - cut.sum()
    assert not np.isin(np.flatnonzero(repaired.dataset.truncation), repaired.dataset.start).any()


def test_next_observations_of_another_row(clean: Columns) -> None:
    clean["next_observation"] = clean["observation"].copy()
    repaired = repair(dataset_of(clean))
    only(repaired, "next_observation_off_by_one")
    assert_same(repaired.dataset, dataset_of(without_next(masses())))


def test_episodes_are_cut_where_stored_next_observations_break_off(clean: Columns) -> None:
    clean["next_observation"][[4, 40]] += 0.01
    dataset = dataset_of(clean)
    assert not dataset.next_rows_chain()
    repaired = repair(dataset)
    only(repaired, "next_observation_breaks")
    assert repaired.dataset.next_rows_chain()
    assert repaired.dataset.transitions == dataset.transitions
    assert repaired.dataset.episodes == dataset.episodes + 2


@pytest.mark.parametrize("column", ["observation", "action", "reward", "next_observation"])
def test_steps_that_are_not_finite(clean: Columns, column: str) -> None:
    row = int(np.flatnonzero(clean["truncation"])[1]) - (column != "next_observation") * 10
    clean[column][row] = np.nan
    if column == "observation":
        clean["next_observation"][row - 1] = np.nan
    dataset = dataset_of(clean)
    repaired = repair(dataset)
    only(repaired, f"non_finite_{column}")
    lost = {"observation": 2}.get(column, 1)
    assert repaired.dataset.transitions == dataset.transitions - lost
    for name in ("observation", "action", "reward"):
        assert np.isfinite(getattr(repaired.dataset, name)).all()
    if column != "next_observation":
        assert repaired.dataset.episodes == dataset.episodes + 1


def test_copied_episodes_are_left_out(clean: Columns) -> None:
    last = int(np.flatnonzero(clean["termination"] + clean["truncation"])[19]) + 1
    twice = {key: np.concatenate([value, value[:last]]) for key, value in clean.items()}
    repaired = repair(dataset_of(twice))
    assert only(repaired, "episode_copied") == (
        "20 episodes that are exact copies of earlier ones were left out"
    )
    assert_same(repaired.dataset, dataset_of(masses()))


def test_actions_are_clipped_only_where_the_environment_does(clean: Columns) -> None:
    clean["action"][7] = [1.5, 0.0]
    left = repair(dataset_of(clean))
    assert [found.code for found in left.left] == ["action_outside_box"]
    repaired = repair(dataset_of(clean), clip=True)
    assert only(repaired, "action_outside_box") == (
        "1 actions were clipped to the environment's bounds, as it does"
    )
    assert repaired.dataset.action[7].tolist() == [1.0, 0.0]


def test_several_faults_are_repaired_one_after_another(clean: Columns) -> None:
    clean["action"][7] = np.nan
    clean["next_observation"][400] += 0.01
    both = np.flatnonzero(clean["termination"])[:2]
    clean["truncation"][both] = 1
    repaired = repair(dataset_of(clean))
    assert {one.code for one in repaired.repairs} == {
        "non_finite_action",
        "flags_overlap",
        "next_observation_breaks",
    }
    assert repaired.left == ()


@pytest.mark.parametrize("column", ["action", "reward"])
def test_alignments_are_left_to_the_owner_of_the_data(clean: Columns, column: str) -> None:
    clean[column] = np.roll(clean[column], 1, axis=0)
    dataset = dataset_of(clean)
    repaired = repair(dataset)
    assert repaired.dataset is dataset
    assert [found.code for found in repaired.left] == [f"{column}_off_by_one"]


def test_what_cannot_be_repaired_does_not_hinder_what_can(clean: Columns) -> None:
    clean["reward"][:] = 0
    clean["next_observation"][4] += 0.01
    repaired = repair(dataset_of(clean))
    assert [one.code for one in repaired.repairs] == ["next_observation_breaks"]
    assert [found.code for found in repaired.left] == ["reward_zero"]


def test_a_repair_that_brings_another_fault_is_not_made(clean: Columns) -> None:
    """Leaving out many steps would leave too few to learn from; leaving out few does not."""
    small = {key: np.copy(value[:280]) for key, value in clean.items()}
    small["action"][[40, 70]] = np.nan
    repaired = repair(dataset_of(small))
    assert [one.code for one in repaired.repairs] == ["non_finite_action"]
    assert repaired.left == ()
    small["action"][60:100] = np.nan
    dataset = dataset_of(small)
    repaired = repair(dataset)
    assert repaired.repairs == ()
    assert repaired.dataset is dataset
    assert [found.code for found in repaired.left] == ["non_finite_action"]


def test_images_keep_all_but_their_flags() -> None:
    rows = np.arange(400)
    images = np.random.default_rng(0).integers(0, 256, (400, 6, 6), np.uint8)
    dataset = build(
        images,
        rows % 3,
        np.sin(rows),
        np.isin(rows, [30, 90, 177, 399]),
        np.isin(rows, [90, 250]),
        strict=False,
    )
    repaired = repair(dataset)
    assert [one.code for one in repaired.repairs] == ["flags_overlap"]
    assert np.flatnonzero(repaired.dataset.truncation).tolist() == [250]
    assert repaired.dataset.observation is dataset.observation
