"""Numbers over seeds and tasks that a few runs can bear, with bootstrap intervals.

The scores of one method are a sequence of arrays, one a task, each [..., N] over its N runs; tasks
may have different numbers of runs. Leading axes are resamples, so that one function gives both a
number and its bootstrap. Resampling is stratified: the runs of every task are drawn among
themselves. Where all tasks have as many runs, all numbers equal those of the library rliable.

Source: arXiv 2108.13264 (Deep Reinforcement Learning at the Edge of the Statistical Precipice).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from leeward.judgement import FEWEST_SEEDS, seed_interval

Scores = Sequence[np.ndarray]
"""Of one method: one array a task, [..., N] over its runs."""

RESAMPLES = 10_000
"""For single numbers (rliable: 50,000; ours moves their intervals by under 1 % of their width)."""
CURVE_RESAMPLES = 1_000
"""For curves, whose bands are looked at (rliable: 2,000)."""
PERMUTATIONS = 9_999
LEVEL = (2.5, 97.5)
"""Percentiles at the ends of a 95 % interval."""


class Estimate(NamedTuple):
    """A number, or the numbers along a curve, and the ends of its 95 % interval."""

    value: np.ndarray
    """[] or [K]."""
    low: np.ndarray | None
    """As `value`; None where a task has fewer than three runs, which bear no interval."""
    high: np.ndarray | None
    """As `low`."""


def mean(scores: Scores) -> np.ndarray:
    """[...] the mean over tasks of every task's mean."""
    return np.asarray(task_means(scores).mean(axis=-1))


def median(scores: Scores) -> np.ndarray:
    """[...] the median over tasks of every task's mean."""
    return np.asarray(np.median(task_means(scores), axis=-1))


def iqm(scores: Scores) -> np.ndarray:
    """[...] interquartile mean: the mean of all runs of all tasks without the outer quarters."""
    pooled = np.sort(pool(scores), axis=-1)
    count = pooled.shape[-1]
    cut = count // 4
    return np.asarray(pooled[..., cut : count - cut].mean(axis=-1))


def optimality_gap(scores: Scores, target: float = 100.0) -> np.ndarray:
    """[...] how far runs fall short of `target` in the mean; more than it counts as just enough."""
    return np.asarray(target - np.minimum(pool(scores), target).mean(axis=-1))


def probability_of_improvement(scores: Scores, others: Scores) -> np.ndarray:
    """[...] how probably a run of one method beats a run of another on a task drawn evenly.

    mean over tasks of P(X > Y) + ½ P(X = Y), all pairs of runs counted (the Mann–Whitney U).

    Args:
        scores: of the one method.
        others: of the other, the same tasks in the same order.
    """
    each = []
    for own, other in zip(scores, others, strict=True):
        one, two = own[..., :, None], other[..., None, :]  # [..., N, M]
        wins = (one > two).mean(axis=(-2, -1))
        each.append(wins + 0.5 * (one == two).mean(axis=(-2, -1)))
    return np.asarray(np.mean(each, axis=0))


def performance_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """[..., K] the share of all runs of all tasks above each of K thresholds."""
    return (pool(scores)[..., None] > thresholds).mean(axis=-2)


def task_means(scores: Scores) -> np.ndarray:
    """[..., tasks] the mean of every task's runs."""
    return np.stack([task.mean(axis=-1) for task in scores], axis=-1)


def pool(scores: Scores) -> np.ndarray:
    """[..., runs] the runs of all tasks in a row."""
    return np.concatenate(scores, axis=-1)


def estimate(
    statistic: Callable[..., np.ndarray],
    *methods: Scores,
    resamples: int = RESAMPLES,
) -> Estimate:
    """A statistic and its 95 % interval, by a stratified percentile bootstrap.

    Args:
        statistic: takes the scores of every method, with leading axes.
        methods: the scores of each; they are resampled independently.
        resamples: how often. The same arguments give the same interval.
    """
    value = np.asarray(statistic(*methods), np.float64)
    if not bears_interval(*methods):
        return Estimate(value, None, None)
    generator = np.random.default_rng(0)
    drawn = [resample(scores, resamples, generator) for scores in methods]
    low, high = np.percentile(statistic(*drawn), LEVEL, axis=0)
    return Estimate(value, np.asarray(low), np.asarray(high))


def seeds_estimate(values: np.ndarray) -> Estimate:
    """The mean of one task's runs [N], with the interval that `leeward reproduce` gives it."""
    low, high = seed_interval(values.tolist()) or (None, None)
    ends = [None if end is None else np.asarray(end) for end in (low, high)]
    return Estimate(np.asarray(values.mean()), *ends)


def iqm_curve(curves: Scores, resamples: int = CURVE_RESAMPLES) -> Estimate:
    """The interquartile mean along curves, such as scores after more and more updates.

    Args:
        curves: one array a task, [N, K]: its runs at K points.
        resamples: of whole runs, the same ones at every point.
    """
    points = curves[0].shape[1]
    value = np.stack([iqm([task[:, k] for task in curves]) for k in range(points)])
    if not bears_interval([task[:, 0] for task in curves]):
        return Estimate(value, None, None)
    generator = np.random.default_rng(0)
    rows = [generator.integers(len(task), size=(resamples, len(task))) for task in curves]
    ends = []
    for k in range(points):
        drawn = [task[row, k] for task, row in zip(curves, rows, strict=True)]
        ends.append(np.percentile(iqm(drawn), LEVEL))
    low, high = np.stack(ends, axis=1)
    return Estimate(value, low, high)


def mean_curve(curve: np.ndarray, resamples: int = CURVE_RESAMPLES) -> Estimate:
    """The mean of one task's runs along a curve.

    Args:
        curve: [N, K].
        resamples: of whole runs.
    """
    count = len(curve)
    value = curve.mean(axis=0)
    if count < FEWEST_SEEDS:
        return Estimate(value, None, None)
    rows = np.random.default_rng(0).integers(count, size=(resamples, count))
    share = np.zeros((resamples, count))  # how much of a resample every run is
    np.add.at(share, (np.arange(resamples)[:, None], rows), 1.0 / count)
    low, high = np.percentile(share @ curve, LEVEL, axis=0)
    return Estimate(value, low, high)


def permutation_test(scores: Scores, others: Scores) -> float:
    """How often two methods that are the same would differ this much (two-sided p).

    The labels of the runs are shuffled within every task; what is compared is how far the
    probability of improvement lies from ½. Unlike an interval, it knows that three runs against
    three can never show much: their p is at least 0.1.

    Args:
        scores: of the one method, [N] a task.
        others: of the other.
    """
    generator = np.random.default_rng(0)
    shuffled, rest = [], []
    for own, other in zip(scores, others, strict=True):
        both = np.tile(np.concatenate([own, other]), (PERMUTATIONS, 1))
        both = generator.permuted(both, axis=1)
        shuffled.append(both[:, : len(own)])
        rest.append(both[:, len(own) :])
    found = abs(float(probability_of_improvement(scores, others)) - 0.5)
    by_chance = np.abs(probability_of_improvement(shuffled, rest) - 0.5)
    as_far = int((by_chance >= found - 1e-12).sum())
    return (as_far + 1) / (PERMUTATIONS + 1)


def bears_interval(*methods: Scores) -> bool:
    """Whether every task of every method has the three runs that an interval needs."""
    return min(task.shape[-1] for scores in methods for task in scores) >= FEWEST_SEEDS


def resample(scores: Scores, count: int, generator: np.random.Generator) -> list[np.ndarray]:
    """`count` stratified resamples: one [count, N] a task."""
    drawn: list[Any] = []
    for task in scores:
        rows = generator.integers(len(task), size=(count, len(task)))
        drawn.append(task[rows])
    return drawn
