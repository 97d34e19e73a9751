"""Reward transforms: numbers worked by hand, and kept with the run that used them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leeward
from leeward.data.dataset import Dataset
from leeward.data.transforms import reward_transform
from leeward.errors import ConfigError, DataError


def two_episodes(second: float = 3.0) -> Dataset:
    """Two episodes of two steps; rewards 1, 1 and 2, `second`: returns 2 and 2 + `second`."""
    return Dataset.from_arrays(
        np.zeros((4, 1)),
        np.zeros((4, 1)),
        np.array([1.0, 1.0, 2.0, second]),
        np.zeros(4, bool),
        np.array([False, True, False, True]),
        metadata={"name": "two", "notes": ["one"]},
    )


def test_the_range_of_returns_becomes_a_thousand() -> None:
    changed = reward_transform(two_episodes(), "return-range")  # returns 2 and 5
    np.testing.assert_allclose(changed.reward, np.array([1, 1, 2, 3]) * 1000 / 3, rtol=1e-6)
    returns = changed.episode_returns()
    assert returns.max() - returns.min() == pytest.approx(1000.0)
    assert changed.reward.dtype == np.float32


def test_signs_are_all_that_is_left_of_rewards() -> None:
    data = two_episodes(second=-7.0)
    changed = reward_transform(data, "sign", scale=2.0)
    np.testing.assert_array_equal(changed.reward, [2, 2, 2, -2])
    assert changed.metadata["raw_return_mean"] == data.episode_returns().mean()
    assert changed.metadata["notes"][-1] == "rewards transformed: their sign alone, times 2 in all"


def test_large_rewards_of_frames_are_noted() -> None:
    data = two_episodes(second=-7.0)
    assert reward_transform(data) is data
    frames = data.with_metadata(frame_stack=4)
    note = (
        "rewards of up to 7 are learned from as they are: --reward-transform sign clips them to "
        "−1, 0 or 1, as is usual for Atari"
    )
    assert reward_transform(frames).metadata["notes"] == [*data.metadata["notes"], note]
    assert note not in reward_transform(frames, "sign").metadata["notes"]
    clipped = dataclasses.replace(frames, reward=np.sign(frames.reward))
    assert reward_transform(clipped) is clipped


def test_scale_and_shift_come_after_the_range() -> None:
    shifted = reward_transform(two_episodes(), shift=-1.0)
    np.testing.assert_array_equal(shifted.reward, [0, 0, 1, 2])
    cql = reward_transform(two_episodes(), scale=4.0, shift=-2.0)  # (r − 0.5) · 4
    np.testing.assert_array_equal(cql.reward, [2, 2, 6, 10])
    both = reward_transform(two_episodes(), "return-range", scale=0.003, shift=0.5)
    np.testing.assert_allclose(both.reward, [1.5, 1.5, 2.5, 3.5], rtol=1e-6)


def test_what_was_done_is_noted_and_the_logged_returns_are_kept() -> None:
    changed = reward_transform(two_episodes(), "return-range", scale=2.0, shift=-1.0)
    assert changed.metadata["notes"] == [
        *two_episodes().metadata["notes"],
        "rewards transformed: a range of returns of 3 becomes 1000, times 666.667 in all, then -1",
    ]
    assert changed.metadata["raw_return_mean"] == 3.5


def test_nothing_to_do_changes_nothing() -> None:
    data = two_episodes()
    assert reward_transform(data) is data


def test_equal_returns_have_no_range() -> None:
    with pytest.raises(DataError) as caught:
        reward_transform(two_episodes(second=0.0), "return-range")
    assert str(caught.value) == (
        "all episodes of two have the return 2, so rewards cannot be scaled by the range of "
        "returns: leave --reward-transform out"
    )


SMALL: dict[str, Any] = {
    "steps": 4,
    "batch_size": 4,
    "hidden": (8,),
    "log_every": 1,
    "quiet": True,
    "logger": (),
}


def test_a_run_keeps_its_transform_and_goes_on_with_it(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    changes = {"reward_transform": "return-range", "reward_scale": 0.5, "reward_shift": -1}
    run = leeward.train("td3_bc", continuous_dataset, run_dir=tmp_path / "run", **SMALL, **changes)
    saved = run.config
    assert {name: saved["options"][name] for name in changes} == changes
    assert saved["data"]["return_mean"] == pytest.approx(
        continuous_dataset.episode_returns().mean()
    )
    (note,) = (n for n in saved["data"]["notes"] if n.startswith("rewards transformed: "))
    assert note.endswith("then -1")
    policy = leeward.load_policy(run.directory)
    assert policy.data["reward_transform"] == {
        "transform": "return-range",
        "scale": 0.5,
        "shift": -1.0,
    }
    leeward.resume(run.directory, data=continuous_dataset, steps=6, quiet=True)
    assert run.metrics()[-1]["step"] == 6
    # The same as training on data that was transformed before.
    by_hand = reward_transform(continuous_dataset, "return-range", 0.5, -1.0)
    other = leeward.train("td3_bc", by_hand, run_dir=tmp_path / "other", **SMALL)
    assert [row["critic/loss"] for row in other.metrics()] == [
        row["critic/loss"] for row in run.metrics()[:4]
    ]
    assert other.config["data"]["hash"] == saved["data"]["hash"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"reward_scale": 0.0}, "--reward-scale must be a finite number above 0, got 0.0"),
        ({"reward_scale": float("inf")}, "--reward-scale must be a finite number above 0, got inf"),
        ({"reward_shift": float("nan")}, "--reward-shift must be a finite number, got nan"),
        (
            {"reward_transform": "log"},
            "setting 'reward_transform' must be one of none, return-range, sign, got 'log'",
        ),
    ],
)
def test_impossible_transforms_are_refused(
    options: dict[str, Any], text: str, tmp_path: Path, continuous_dataset: Dataset
) -> None:
    with pytest.raises(ConfigError) as caught:
        leeward.train("td3_bc", continuous_dataset, run_dir=tmp_path / "run", **SMALL, **options)
    assert str(caught.value) == text
    assert not (tmp_path / "run").exists()
