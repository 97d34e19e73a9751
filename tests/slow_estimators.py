"""Importance sampling and doubly robust estimators as slow loops, written from their papers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Episode(NamedTuple):
    """One episode of H steps."""

    reward: np.ndarray  # [H]
    ratio: np.ndarray  # [H] of the two policies' probabilities of the action taken
    q: np.ndarray  # [H] the critics' value of the action taken
    v: np.ndarray  # [H + 1] of every state; the last is 0 where the task ended


def weight(episode: Episode, step: int) -> float:
    """The product of ratios up to and with `step`; it stays where the episode has ended."""
    product = 1.0
    for t in range(min(step + 1, len(episode.ratio))):
        product *= episode.ratio[t]
    return product


def horizon(episodes: list[Episode]) -> int:
    return max(len(e.reward) for e in episodes)


def per_decision(episodes: list[Episode], discount: float, normalized: bool) -> float:
    total = 0.0
    for t in range(horizon(episodes)):
        weights = [weight(e, t) for e in episodes]
        divisor = sum(weights) if normalized else len(episodes)
        for e, w in zip(episodes, weights, strict=True):
            if t < len(e.reward):
                total += discount**t * w * e.reward[t] / divisor
    return total


def trajectory(episodes: list[Episode], discount: float) -> float:
    weights = [weight(e, len(e.reward) - 1) for e in episodes]
    returns = [sum(discount**t * r for t, r in enumerate(e.reward)) for e in episodes]
    return sum(w * g for w, g in zip(weights, returns, strict=True)) / sum(weights)


def doubly_robust(episodes: list[Episode], discount: float, normalized: bool) -> float:
    """Thomas & Brunskill, equations 6 and 10: Σ γ^t (w_t (r_t − Q_t) + w_(t−1) V_t)."""
    count = len(episodes)
    total = 0.0
    for t in range(horizon(episodes) + 1):
        now = [weight(e, t) for e in episodes]
        before = [1.0 if t == 0 else weight(e, t - 1) for e in episodes]
        divisors = (sum(now), sum(before)) if normalized else (count, count)
        for e, w, earlier in zip(episodes, now, before, strict=True):
            if t < len(e.reward):
                total += discount**t * w * (e.reward[t] - e.q[t]) / divisors[0]
            if t <= len(e.reward):
                total += discount**t * earlier * e.v[t] / divisors[1]
    return total


def effective(weights: list[float]) -> float:
    return sum(weights) ** 2 / sum(w**2 for w in weights)
