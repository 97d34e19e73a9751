"""Aggregates and intervals: by hand, against rliable's numbers, and by what intervals promise."""

from __future__ import annotations

import numpy as np
import pytest

from leeward import statistics
from leeward.published.scores import find
from leeward.statistics import (
    estimate,
    iqm,
    iqm_curve,
    mean,
    mean_curve,
    median,
    optimality_gap,
    performance_profile,
    permutation_test,
    probability_of_improvement,
)

# The arrays of rliable's own test of its metrics, [runs, tasks], and what it asserts of them.
X = [[1.0, 2.0], [2.0, 2.0], [1.0, 1.0], [2.0, 1.0]]
Y = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]


def by_task(matrix: object) -> list[np.ndarray]:
    """[runs, tasks] as one array a task."""
    return list(np.asarray(matrix, np.float64).T)


def test_numbers_equal_those_that_rliable_s_own_test_asserts() -> None:
    assert median(by_task(X)) == mean(by_task(X)) == iqm(by_task(X)) == 1.5
    assert median(by_task(Y)) == mean(by_task(Y)) == iqm(by_task(Y)) == 2.0
    chance = probability_of_improvement(by_task(X), by_task(Y))
    np.testing.assert_allclose(chance, 1 / 3)


def made_up() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Two methods on 6 tasks: 10 runs of one, 7 of the other."""
    generator = np.random.default_rng(7)
    level = generator.uniform(10, 110, size=6)
    one = level + generator.normal(0, 12, size=(10, 6)) + 6
    other = level + generator.normal(0, 18, size=(7, 6))
    return by_task(one), by_task(other)


# What rliable 1.2.0 says of them (arch 7.2, pandas 2.3.3, numpy 2.4.6, scipy 1.17.1), with 50,000
# resamples after np.random.seed(0); 10,000 of the probability of improvement.
RLIABLE = {
    "iqm": 78.21549114417941,
    "iqm_other": 70.34290971495687,
    "mean": 75.14629654621878,
    "median": 80.4866702126676,
    "gap": 27.250274935529163,
    "improvement": 0.6,
    "profile": [0.9833333333333333, 0.7333333333333333, 0.5],
}
RLIABLE_INTERVALS = {
    "iqm": (74.8539724488694, 81.4933763649616),
    "median": (75.49450139025078, 85.23746609967058),
    "mean": (72.61671783014833, 77.6703613353217),
    "gap": (25.215235417296157, 29.39952198383409),
    "improvement": (0.48095238095238096, 0.719047619047619),
}


def test_numbers_equal_rliable_s() -> None:
    one, other = made_up()
    np.testing.assert_allclose(iqm(one), RLIABLE["iqm"], rtol=1e-12)
    np.testing.assert_allclose(iqm(other), RLIABLE["iqm_other"], rtol=1e-12)
    np.testing.assert_allclose(mean(one), RLIABLE["mean"], rtol=1e-12)
    np.testing.assert_allclose(median(one), RLIABLE["median"], rtol=1e-12)
    np.testing.assert_allclose(optimality_gap(one), RLIABLE["gap"], rtol=1e-12)
    chance = probability_of_improvement(one, other)
    np.testing.assert_allclose(chance, RLIABLE["improvement"], rtol=1e-12)
    profile = performance_profile(one, np.array([20.0, 50.0, 80.0]))
    np.testing.assert_allclose(profile, RLIABLE["profile"], rtol=1e-12)


def test_intervals_equal_rliable_s_up_to_the_noise_of_resampling() -> None:
    one, other = made_up()
    for name, found in {
        "iqm": estimate(iqm, one),
        "median": estimate(median, one),
        "mean": estimate(mean, one),
        "gap": estimate(optimality_gap, one),
        "improvement": estimate(probability_of_improvement, one, other),
    }.items():
        low, high = RLIABLE_INTERVALS[name]
        assert found.low is not None
        assert found.high is not None
        tolerance = 0.03 * (high - low)
        assert abs(found.low - low) < tolerance, name
        assert abs(found.high - high) < tolerance, name


# What rliable 1.2.0 says of curves that `made_up` and further draws give, and of the bands of the
# profile, with 50,000 resamples (20,000 of the curves).
RLIABLE_PROFILE_BAND = ([0.95, 0.6833333333333333, 0.45], [1.0, 0.7833333333333333, 0.55])
RLIABLE_CURVE = [13.90443044996992, 37.077624401614194, 59.99562391451072, 75.73608889520348]
RLIABLE_CURVE_BAND = (
    [11.636017979781318, 34.1457708497696, 56.80611771462106, 72.96444174345271],
    [16.371241076929238, 40.0407861757763, 63.59456896556486, 78.84571639077399],
)


def test_bands_equal_rliable_s_up_to_the_noise_of_resampling() -> None:
    one, _ = made_up()
    thresholds = np.array([20.0, 50.0, 80.0])
    profile = estimate(lambda scores: performance_profile(scores, thresholds), one)
    level = np.random.default_rng(7).uniform(10, 110, size=6)
    noise = np.random.default_rng(11).normal(0, 10, size=(8, 6, 4))
    along = level[None, :, None] * np.array([0.2, 0.5, 0.8, 1.0]) + noise  # [runs, tasks, points]
    curve = iqm_curve(list(along.transpose(1, 0, 2)), resamples=10_000)
    np.testing.assert_allclose(curve.value, RLIABLE_CURVE, rtol=1e-12)
    for found, band in ((profile, RLIABLE_PROFILE_BAND), (curve, RLIABLE_CURVE_BAND)):
        low, high = map(np.asarray, band)
        assert found.low is not None
        assert found.high is not None
        # A share moves by whole runs, of which there are 60.
        tolerance = 0.03 * (high - low) + (1 / 60 if found is profile else 0.0)
        assert (np.abs(found.low - low) <= tolerance + 1e-9).all()
        assert (np.abs(found.high - high) <= tolerance + 1e-9).all()


# Means of the last evaluation on D4RL's nine locomotion tasks as CORL publishes them: the average
# that its table prints, and rliable 1.2.0's mean, median, IQM and optimality gap of the table.
PUBLISHED = {
    "bc": (50.4, 50.402222222222214, 52.3, 47.964, 49.597777777777786),
    "bc-10": (69.29, 69.28888888888889, 67.34, 67.538, 32.91777777777777),
    "td3-bc": (76.45, 76.44888888888889, 82.71, 76.78, 24.795555555555552),
    "awac": (67.72, 67.72111111111111, 66.53, 65.074, 32.278888888888886),
    "cql": (78.28, 78.28444444444443, 80.75, 80.732, 22.77777777777777),
    "iql": (81.63, 81.63, 82.15, 84.552, 20.49666666666667),
    "rebrac": (89.74, 89.74111111111111, 94.98, 94.228, 13.303333333333342),
}


def published(method: str) -> list[np.ndarray]:
    """One number a task."""
    return [
        np.array([find(f"{method}/{robot}-{quality}-v2@corl").mean])
        for robot in ("halfcheetah", "hopper", "walker2d")
        for quality in ("medium", "medium-replay", "medium-expert")
    ]


@pytest.mark.parametrize("method", PUBLISHED)
def test_numbers_of_a_published_table_equal_rliable_s_and_its_own_averages(method: str) -> None:
    average, *theirs = PUBLISHED[method]
    scores = published(method)
    assert float(mean(scores)) == pytest.approx(average, abs=0.0051)  # printed with two digits
    found = [float(f(scores)) for f in (mean, median, iqm, optimality_gap)]
    np.testing.assert_allclose(found, theirs, rtol=1e-12)


def test_the_chance_of_improvement_of_a_published_table_equals_rliable_s() -> None:
    chance = probability_of_improvement(published("rebrac"), published("iql"))
    np.testing.assert_allclose(chance, 0.8888888888888888, rtol=1e-12)


def trimmed_mean(values: np.ndarray) -> float:
    """The mean of the middle half, by a loop."""
    kept = sorted(values.tolist())
    cut = len(kept) // 4
    return sum(kept[cut : len(kept) - cut]) / (len(kept) - 2 * cut)


def test_the_bands_of_profiles_and_curves_are_those_of_a_plain_bootstrap() -> None:
    """Whole runs are drawn within every task, by a loop of its own with other draws."""
    one, _ = made_up()
    generator = np.random.default_rng(99)
    thresholds = np.array([20.0, 50.0, 80.0])
    curves = [task[:, None] * np.array([0.3, 0.7, 1.0]) for task in one]
    shares, means = [], []
    for _ in range(3_000):
        rows = [generator.choice(len(task), size=len(task)) for task in one]
        drawn = np.concatenate([task[row] for task, row in zip(one, rows, strict=True)])
        shares.append([sum(drawn > threshold) / len(drawn) for threshold in thresholds])
        along = np.concatenate([curve[row] for curve, row in zip(curves, rows, strict=True)])
        means.append([trimmed_mean(along[:, k]) for k in range(3)])
    profile = estimate(
        lambda scores: performance_profile(scores, thresholds), one, resamples=10_000
    )
    curve = iqm_curve(curves, resamples=10_000)
    for found, resampled in ((profile, shares), (curve, means)):
        low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
        assert found.low is not None
        assert found.high is not None
        assert (high > low).all()
        # A share moves by whole runs, of which there are 60.
        tolerance = 0.05 * (high - low) + (1 / 60 if found is profile else 0.0)
        assert (np.abs(found.low - low) <= tolerance + 1e-9).all()
        assert (np.abs(found.high - high) <= tolerance + 1e-9).all()


def test_tasks_may_have_different_numbers_of_runs() -> None:
    scores = [np.array([0.0, 10.0]), np.array([20.0, 30.0, 40.0, 50.0])]
    assert mean(scores) == (5.0 + 35.0) / 2
    assert median(scores) == (5.0 + 35.0) / 2
    assert iqm(scores) == (10 + 20 + 30 + 40) / 4  # 6 runs: one is cut at either end
    assert optimality_gap(scores, target=30.0) == 30.0 - (0 + 10 + 20 + 30 + 30 + 30) / 6


def test_equal_runs_count_half_of_an_improvement() -> None:
    same = [np.array([1.0, 1.0, 2.0])]
    assert probability_of_improvement(same, same) == 0.5
    assert probability_of_improvement([np.array([1.0])], [np.array([1.0])]) == 0.5
    assert probability_of_improvement([np.array([2.0])], [np.array([1.0])]) == 1.0


def test_tasks_are_resampled_apart() -> None:
    """Two tasks far apart: without strata the mean would swing by their distance."""
    scores = [np.array([0.0, 1.0, 2.0]), np.array([1_000.0, 1_001.0, 1_002.0])]
    found = estimate(mean, scores)
    assert found.low is not None
    assert found.high is not None
    assert 500.0 <= float(found.low) <= float(found.value) == 501.0 <= float(found.high) <= 502.0


def test_the_same_scores_give_the_same_interval() -> None:
    one, _ = made_up()
    assert estimate(iqm, one, resamples=200) == estimate(iqm, one, resamples=200)


def test_an_interval_contains_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(3)
    within = 0
    for _ in range(300):
        scores = list(generator.normal(50.0, 10.0, size=(4, 10)))
        found = estimate(mean, scores, resamples=400)
        assert found.low is not None
        assert found.high is not None
        within += bool(found.low <= 50.0 <= found.high)
    assert 0.88 <= within / 300 <= 0.98  # percentile intervals of 10 runs are a little narrow


@pytest.mark.parametrize("runs", [1, 2])
def test_fewer_than_three_runs_of_any_task_bear_no_interval(runs: int) -> None:
    few = [np.arange(5.0), np.arange(float(runs))]
    assert estimate(mean, few)[1:] == (None, None)
    assert estimate(probability_of_improvement, [np.arange(5.0)], [few[1]])[1:] == (None, None)
    assert mean_curve(np.ones((runs, 4)))[1:] == (None, None)
    assert iqm_curve([np.ones((runs, 4)), np.ones((5, 4))])[1:] == (None, None)


def test_a_curve_s_points_are_the_numbers_of_its_columns() -> None:
    generator = np.random.default_rng(0)
    curves = [generator.normal(size=(5, 3)), generator.normal(size=(4, 3))]
    found = iqm_curve(curves)
    expected = [iqm([task[:, k] for task in curves]) for k in range(3)]
    np.testing.assert_allclose(found.value, expected)
    assert found.low is not None
    assert found.high is not None
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()
    single = mean_curve(curves[0])
    np.testing.assert_allclose(single.value, curves[0].mean(axis=0))
    scalar = estimate(mean, [curves[0][:, 1]])
    assert single.low is not None
    assert scalar.low is not None
    np.testing.assert_allclose(single.low[1], scalar.low, atol=0.15)


def test_profiles_fall_from_one_to_zero() -> None:
    one, _ = made_up()
    profile = performance_profile(one, np.linspace(-1_000, 1_000, 50))
    assert profile[0] == 1.0
    assert profile[-1] == 0.0
    assert (np.diff(profile) <= 0).all()


def test_three_runs_against_three_can_never_be_significant() -> None:
    best = permutation_test([np.array([7.0, 8.0, 9.0])], [np.array([1.0, 2.0, 3.0])])
    np.testing.assert_allclose(best, 0.1, atol=0.01)  # 2 of the 20 ways to divide six runs
    five = permutation_test([np.arange(5.0) + 10], [np.arange(5.0)])
    np.testing.assert_allclose(five, 2 / 252, atol=0.003)


def test_methods_that_are_the_same_are_rarely_told_apart() -> None:
    generator = np.random.default_rng(5)
    told = 0
    for _ in range(60):
        one, other = list(generator.normal(size=(3, 5))), list(generator.normal(size=(3, 5)))
        told += permutation_test(one, other) < 0.05
    assert told <= 8


def test_the_number_of_resamples_is_enough() -> None:
    """Another 50,000 resamples move the ends by under 2 % of the width."""
    one, _ = made_up()
    found, more = estimate(iqm, one), estimate(iqm, one, resamples=50_000)
    assert found.low is not None
    assert found.high is not None
    assert more.low is not None
    assert more.high is not None
    width = float(more.high - more.low)
    assert abs(float(found.low - more.low)) < 0.02 * width
    assert abs(float(found.high - more.high)) < 0.02 * width
    assert statistics.RESAMPLES == 10_000
