"""The estimators' sums over episodes, with bootstrap intervals. float64 NumPy.

Source of the names and formulas: Precup, Sutton & Singh, "Eligibility Traces for Off-Policy Policy
Evaluation", 2000 (per-decision and weighted importance sampling); Jiang & Li, 2016, arXiv
1511.03722 (doubly robust); Thomas & Brunskill, 2016, arXiv 1604.00923 (weighted doubly robust);
Kakade & Langford, 2002 (one step of improvement). Episodes that have ended go on without reward and
with the weight that they had.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from leeward.ope.walks import Walks

BLOCK = 4_000_000
"""Numbers of a block of steps, of all walks (ours: bounds memory at 32 MB an array)."""


class Sampled(NamedTuple):
    """An estimate of the data and of every resample of its episodes."""

    value: float
    resampled: np.ndarray
    """[B], without those that have no value."""
    effective: float | None = None
    """Effective sample size in episodes; None where nothing is weighted."""

    def interval(self) -> tuple[float, float] | None:
        """95 % bootstrap interval (percentile), None where most resamples have no value."""
        if len(self.resampled) == 0:
            return None
        low, high = np.quantile(self.resampled, (0.025, 0.975))
        return float(low), float(high)


def averaged(per_walk: np.ndarray, counts: np.ndarray) -> Sampled:
    """The mean over walks of `per_walk` [n], or [E, n] of which every resample draws a member."""
    member = np.atleast_2d(per_walk)
    drawn = np.random.default_rng(1).integers(len(member), size=len(counts))
    means = times(counts, member.T) / member.shape[1]  # [1 + B, E]
    resampled = means[np.arange(len(counts)), drawn][1:]
    return _sampled(float(member.mean()), resampled, member.shape[1])


def weighted(
    walks: Walks,
    log_weight: np.ndarray,
    term: np.ndarray,
    base: np.ndarray,
    counts: np.ndarray,
    *,
    normalized: bool,
    discount: float,
) -> Sampled:
    """mean(base) + Σ_t Σ_i w_ti · term_ti / D_t, with D_t = n, or Σ_i w_ti where `normalized`.

    Args:
        walks: n walks of L steps.
        log_weight: [L] log of every step's cumulative ratio.
        term: [L] what each weighs, discounted.
        base: [n] what has no weight.
        counts: [1 + B, n] how often each walk is drawn.
        normalized: whether weights are divided by their sum, or by the number of walks.
        discount: weighs the steps' effective sample sizes.
    """
    walk_count = len(walks.first)
    total = times(counts, base) / walk_count
    width = max(1, BLOCK // walk_count)
    effective, importance = 0.0, 0.0
    for begin in range(0, int(walks.length.max()), width):
        step = np.arange(begin, min(begin + width, int(walks.length.max())))
        place = walks.offset[:, None] + np.minimum(step[None, :], walks.length[:, None] - 1)
        log = log_weight[place]  # [n, K]; ended walks keep their weight
        shift = log.max(axis=0) if normalized else np.zeros(len(step))
        shift = np.where(np.isfinite(shift), shift, 0.0)
        with np.errstate(over="ignore"):
            weight = np.exp(log - shift[None, :])
        within = step[None, :] < walks.length[:, None]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            upper = times(counts, np.where(within, weight * term[place], 0.0))  # [1 + B, K]
            lower = times(counts, weight) if normalized else float(walk_count)
            total += (upper / lower).sum(axis=1)
            relative = np.exp(log - np.where(normalized, shift, log.max(axis=0))[None, :])
            sizes = relative.sum(axis=0) ** 2 / np.square(relative).sum(axis=0)  # [K]
        discounts = discount**step
        effective += float((discounts * np.nan_to_num(sizes)).sum())
        importance += float(discounts.sum())
    return _sampled(float(total[0]), total[1:], walk_count, effective / importance)


def trajectory_weighted(
    walks: Walks, log_weight: np.ndarray, returns: np.ndarray, counts: np.ndarray
) -> Sampled:
    """Σ_i w_i G_i / Σ_i w_i over whole walks: weighted importance sampling."""
    log = log_weight[walks.last]
    highest = log.max()
    weight = np.exp(log - (highest if np.isfinite(highest) else 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        total = times(counts, weight * returns) / times(counts, weight)
        size = weight.sum() ** 2 / np.square(weight).sum()
    return _sampled(float(total[0]), total[1:], len(walks.first), float(np.nan_to_num(size)))


def times(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """counts [1 + B, n] @ values [n, …] in float64, some rows of counts at a time."""
    rows = max(1, BLOCK // counts.shape[1])
    pieces = range(0, len(counts), rows)
    return np.concatenate([counts[i : i + rows].astype(np.float64) @ values for i in pieces])


def _sampled(
    value: float, resampled: np.ndarray, walks: int, effective: float | None = None
) -> Sampled:
    known = resampled[np.isfinite(resampled)]
    # One walk has no spread; a resample without any weight has no value.
    enough = walks > 1 and 2 * len(known) > len(resampled)
    return Sampled(value, known if enough else known[:0], effective)
