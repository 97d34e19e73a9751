"""What is said of estimates: reasons for distrust, ranks, agreement, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from leeward.ope import distrust
from leeward.ope.report import ESTIMATORS, Estimate, PolicyEstimates, Report

SHAKY = ("it rests on 1.2 effective episodes of 100",)


def policy(name: str, values: dict[str, float | None], doubted: tuple[str, ...] = ()) -> object:
    estimates = {
        n: Estimate(
            values.get(n, 1.0), (0.0, 2.0), 50.0 if n == "wis" else None, SHAKY * (n in doubted)
        )
        for n in ESTIMATORS
    }
    return PolicyEstimates(name, estimates)


def report(*policies: object) -> Report:
    return Report("data", 100, 0.99, Estimate(1.0, (0.5, 1.5)), policies, ("a note",))  # type: ignore[arg-type]


ALL = tuple(ESTIMATORS)
WEIGHTED = ("pdis", "wis", "sn-pdis", "dr", "wdr")


def test_estimators_that_agree_say_so() -> None:
    a = policy("a", dict.fromkeys(ALL, 3.0))
    b = policy("b", dict.fromkeys(ALL, 2.0))
    found = report(b, a)
    assert found.verdict() == (
        "They agree: fqe, one-step, pdis, wis, sn-pdis, dr, wdr put a first."
    )
    assert found.order() == [1, 0]
    assert set(found.agreement().values()) == {1.0}
    assert found.policies[0].sentence == "b: nothing speaks against any estimate."


def test_estimators_that_disagree_say_so() -> None:
    a = policy("a", {"fqe": 3.0, "one-step": 1.0}, WEIGHTED)
    b = policy("b", {"fqe": 2.0, "one-step": 2.0}, WEIGHTED)
    c = policy("c", {"fqe": 1.0, "one-step": 0.5}, WEIGHTED)
    found = report(a, b, c)
    assert found.deciding == ("fqe", "one-step")
    assert found.verdict() == "They disagree: fqe puts a first; one-step puts b first."
    assert found.order() == [0, 1, 2]  # mean ranks 1.5, 1.5, 3: the first estimator decides
    # Of the three pairs two are in the same order.
    assert found.agreement()["fqe", "one-step"] == pytest.approx(1.0 / 3.0)
    assert found.policies[0].sentence == (
        "a: trust fqe, one-step only. pdis, wis, sn-pdis, dr, wdr: it rests on 1.2 effective "
        "episodes of 100."
    )


def test_without_any_trusted_estimator_the_ranking_is_a_guess() -> None:
    a = policy("a", {"fqe": 3.0}, ALL)
    b = policy("b", {"fqe": 5.0}, ("fqe", *WEIGHTED, "one-step"))
    found = report(a, b)
    assert found.deciding == ("fqe",)
    assert found.verdict() == (
        "No estimator is trusted for every policy. As a guess: fqe puts b first."
    )
    assert found.order() == [1, 0]
    assert found.policies[0].sentence == (
        "a: no estimate should be trusted. fqe, one-step, pdis, wis, sn-pdis, dr, wdr: it rests on "
        "1.2 effective episodes of 100."
    )


def test_one_policy_is_described_not_ranked() -> None:
    assert report(policy("a", {})).verdict() == "a: nothing speaks against any estimate."
    assert report(policy("a", {})).agreement() == {}


def test_values_that_are_missing_rank_last_and_decide_nothing() -> None:
    a = policy("a", {"pdis": None})
    b = policy("b", {"pdis": -5.0})
    found = report(a, b)
    np.testing.assert_array_equal(found.ranks("pdis"), [2, 1])
    np.testing.assert_array_equal(found.ranks("fqe"), [1, 1])
    assert "pdis" not in found.deciding
    assert ("fqe", "pdis") not in found.agreement()


def test_json_and_csv_hold_every_number() -> None:
    found = report(policy("a", {"fqe": 2.5}, ("wis",)), policy("b", {"pdis": None}))
    read = json.loads(json.dumps(found.to_json()))
    assert [p["rank"] for p in read["policies"]] == [1, 2]
    assert read["policies"][0]["estimates"]["fqe"] == {
        "value": 2.5,
        "low": 0.0,
        "high": 2.0,
        "effective_sample_size": None,
        "reliable": True,
        "reasons": [],
    }
    assert read["policies"][0]["estimates"]["wis"]["reliable"] is False
    assert read["notes"] == ["a note"]
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert len(rows) == 2 * len(ESTIMATORS)
    first, wis = rows[0], rows[3]
    assert (first["policy"], first["estimator"], first["value"]) == ("a", "fqe", "2.5")
    assert (wis["reliable"], wis["reasons"]) == ("0", SHAKY[0])
    assert rows[len(ESTIMATORS) + 2]["value"] == ""


# --- Reasons ---


def test_few_episodes_are_named() -> None:
    assert distrust.few_episodes(1) == "there is 1 episode only"
    assert distrust.few_episodes(9) == "there are 9 episodes only"
    assert distrust.few_episodes(10) is None


def test_uneven_weights_are_named() -> None:
    assert distrust.few_effective(1.24, 2_186) == "it rests on 1.2 effective episodes of 2,186"
    assert distrust.few_effective(10.0, 2_186) is None
    assert distrust.few_effective(4.0, 4) is None  # all there are


def test_absent_actions_are_named() -> None:
    of_data = np.arange(1_000.0)
    at_policy = np.where(np.arange(100) < 30, -5.0, 500.0)
    assert distrust.absent_actions(at_policy, of_data) == (
        "30% of the policy's actions are all but absent from the data there"
    )
    assert distrust.absent_actions(of_data, of_data) is None


def test_recordings_that_stop_early_are_named() -> None:
    length, ended = np.array([10, 10, 1_000]), np.array([False, True, False])
    share = 0.99**10 / 3
    assert distrust.cut_short(length, ended, 0.99) == (
        f"recordings stop while {share:.0%} of the discounted weight is still to come"
    )
    assert distrust.cut_short(np.array([1_000]), np.array([False]), 0.99) is None


def test_critics_that_disagree_and_fits_that_move_are_named() -> None:
    assert distrust.apart(np.array([100.0, 101.0]), 100.0, 100.0) == []
    assert distrust.apart(np.array([100.0, 120.0]), 110.0, 100.0) == [
        "its critics disagree (between 100 and 120)"
    ]
    assert distrust.apart(np.array([100.0, 100.0]), 80.0, 100.0) == [
        "it had not settled (80 after half of the updates, 100 at the end): use more --steps"
    ]


def test_values_out_of_reach_are_named() -> None:
    reward = np.array([1.0, 3.0])
    assert distrust.impossible(250.0, reward, 0.99) is None
    assert distrust.impossible(310.0, reward, 0.99) == (
        "no policy can have it: with the rewards seen values lie between 0 and 300"
    )
    assert distrust.impossible(-50.0, -reward, 0.9) is not None
