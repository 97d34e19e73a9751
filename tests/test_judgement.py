"""Intervals over seeds and verdicts, on hand-made numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from leeward.judgement import decide, seed_interval, values_by_rule
from leeward.published import scores

ROW = scores.find("td3-bc/hopper-medium-expert-v2")


def verdict_of(values: list[float], reasons: tuple[str, ...] = (), **facts: Any) -> tuple[str, str]:
    row = ROW._replace(**({"mean": 50.0, "std": 2.0, "seeds": 4} | facts))
    verdict = decide(row, values, reasons)
    return verdict.kind, verdict.text


# The published interval is 50 ± 1.96 · 2 / √4, [48.04, 51.96]; equal values have no spread.
@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        ([51.0, 51.0, 51.0], "reproduced", "reproduced: ours 51.0, published [48.0, 52.0]"),
        ([52.0] * 3, "above", "above the published number: ours 52.0, published [48.0, 52.0]"),
        ([48.0] * 3, "below", "below the published number: ours 48.0, published [48.0, 52.0]"),
        ([40.0, 60.0, 50.0], "reproduced", "reproduced: ours [40.0, 60.0], published [48.0, 52.0]"),
    ],
)
def test_numbers_agree_where_their_intervals_overlap(
    values: list[float], kind: str, text: str
) -> None:
    assert verdict_of(values) == (kind, text)


def test_a_published_number_without_spread_must_lie_in_our_interval() -> None:
    assert verdict_of([49.0, 50.5, 51.0], std=None)[0] == "reproduced"
    assert verdict_of([50.1, 50.5, 51.0], std=None)[0] == "above"
    assert verdict_of([49.0, 49.5, 49.9], std=None)[0] == "below"


@pytest.mark.parametrize(
    ("values", "reasons", "text"),
    [
        (
            [50.0] * 3,
            ("fewer updates", "other data"),
            "not comparable because fewer updates; other data",
        ),
        (
            [50.0],
            (),
            "not comparable because an interval over seeds needs 3 seeds, and there is 1",
        ),
        (
            [50.0, 51.0],
            ("other data",),
            "not comparable because other data; an interval over seeds needs 3 seeds, and there "
            "are 2",
        ),
        (
            [50.0, np.nan, 51.0, np.nan],
            (),
            "not comparable because there is no finite number for 2 of 4 seeds",
        ),
        (
            [],
            ("the run was never evaluated",),
            "not comparable because the run was never evaluated",
        ),
    ],
)
def test_what_cannot_be_compared_says_why(
    values: list[float], reasons: tuple[str, ...], text: str
) -> None:
    assert verdict_of(values, reasons) == ("not comparable", text)


def test_the_interval_is_the_bootstrap_s_and_always_the_same() -> None:
    values = np.random.default_rng(0).normal(50.0, 3.0, size=40)
    interval = seed_interval(list(values))
    assert interval is not None
    half = 1.96 * values.std() / np.sqrt(40)
    assert interval == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1)
    assert seed_interval(list(values)) == interval
    assert seed_interval([1.0, 2.0]) is None
    assert seed_interval([1.0, 2.0, np.nan]) is None


def test_the_rule_says_which_evaluations_count() -> None:
    lines = [
        {"run": run, "step": step, "score_mean": 10.0 * run + step}
        for step in range(1, 13)
        for run in (0, 1)
    ]
    assert values_by_rule(lines, [0, 1], "score_mean", "last") == [12.0, 22.0]
    assert values_by_rule(lines, [0, 1], "score_mean", "last-10") == [7.5, 17.5]  # 3 … 12
    assert values_by_rule(lines[:6], [0], "score_mean", "last-10") == [2.0]  # of three, all
    falling = [{"run": 0, "step": i, "score_mean": -float(i)} for i in range(5)]
    assert values_by_rule(falling, [0], "score_mean", "best") == [0.0]
