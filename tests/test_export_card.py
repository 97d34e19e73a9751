"""The card of an exported policy: what its columns are called, and the range it learned from."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from exporting import CHOICES, policy_of, td3_bc_policy
from leeward.algorithms import ALGORITHMS
from leeward.data.moments import low_and_high
from leeward.export.card import card_of

KNOWN: dict[str, Any] = {
    "name": "tank",
    "hash": "abc",
    "ranges": {
        "observation": [[0.0, -1.5, 2.0], [1.0, 0.1, 3.0]],
        "action": [[-1.0, 4.0], [1.0, 9.0]],
    },
    "observation_names": ["level", "inflow", "heat"],
    "action_names": ["valve", "pump"],
}


def card_with(**changes: Any) -> dict[str, Any]:
    return card_of(dataclasses.replace(td3_bc_policy(), data={**KNOWN, **changes}), "onnx")


def test_columns_and_ranges_stand_with_observation_and_action() -> None:
    card = card_with()
    assert card["observation"]["name"] == "observation"  # of the tensor
    assert card["observation"]["columns"] == ["level", "inflow", "heat"]
    assert card["observation"]["data_low"] == [0.0, -1.5, 2.0]
    assert card["observation"]["data_high"] == [1.0, 0.1, 3.0]
    assert card["action"]["columns"] == ["valve", "pump"]
    assert (card["action"]["data_low"], card["action"]["data_high"]) == ([-1.0, 4.0], [1.0, 9.0])
    assert (card["action"]["low"], card["action"]["high"]) == ([-2.0, 0.0], [2.0, 10.0])  # the box
    assert card["data"] == {"name": "tank", "hash": "abc"}


def test_names_of_another_number_of_columns_are_left_out() -> None:
    card = card_with(observation_names=["level"], ranges={})
    assert "columns" not in card["observation"]
    assert "data_low" not in card["observation"]
    assert card["action"]["columns"] == ["valve", "pump"]


def test_a_discrete_action_has_one_column() -> None:
    policy = policy_of(ALGORITHMS["dqn"], CHOICES)
    data = {**KNOWN, "action_names": ["gear"], "ranges": {"observation": [[0.0] * 3, [1.0] * 3]}}
    card = card_of(dataclasses.replace(policy, data=data), "numpy")
    assert card["action"]["columns"] == ["gear"]
    assert "data_low" not in card["action"]


def test_ranges_are_of_the_rows_asked_for_whatever_the_blocks(monkeypatch: Any) -> None:
    column = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    row = np.arange(0, 50, 3)
    for size in (2**24, 40):
        monkeypatch.setattr("leeward.data.moments.BLOCK_BYTES", size)
        low, high = low_and_high(column, row)
        np.testing.assert_array_equal(low, column[row].min(axis=0))
        np.testing.assert_array_equal(high, column[row].max(axis=0))
