"""What it costs to choose a policy by trying: a bandit over trained policies.

Offline training gives many policies (seeds, settings), of which one is used. Each try of a policy
is one episode in the environment. A bandit (UCB) chooses which policy to try next; after every
episode the policy with the best mean so far is the one that would be used, and its true mean is
what the method is worth at that cost.

Source: arXiv 2504.11453 (A Clean Slate for Offline Reinforcement Learning), whose scores are
normalized to 0–100. Differs from its code in that a policy that was never tried is never chosen;
there it counts as one of score 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

POLICIES = 8
"""Policies of one trial, drawn anew for each (all where there are fewer): the source's example."""
EPISODES = 100
"""Tries of one trial; in the source's plots the curves are flat by then."""
TRIALS = 1_000
"""The source's number."""
TRIES = (1, 5, 20, 100)
"""Episodes spent on choosing, for which tables tell the worth of the chosen policy (ours)."""
EXPLORATION = 2.0
"""α of the bonus √(α log t / n): the source's number, with scores from 0 to 100."""


class Selection(NamedTuple):
    """The true mean of the policy that would be used after 1, 2, … K tries."""

    mean: np.ndarray
    """[K] over trials."""
    low: np.ndarray
    """[K] 2.5th percentile of the trials: what a user with bad luck gets."""
    high: np.ndarray
    """[K] 97.5th percentile."""


def online_selection(episodes: Sequence[np.ndarray]) -> Selection:
    """Plays the bandit many times with recorded episodes.

    Args:
        episodes: the scores of every policy's episodes, one array a policy; tries draw from them.
    """
    generator = np.random.default_rng(0)
    count = min(POLICIES, len(episodes))
    truth = np.array([scores.mean() for scores in episodes])
    order = generator.permuted(np.tile(np.arange(len(episodes)), (TRIALS, 1)), axis=1)
    policy = order[:, :count]  # [trials, policies]: which ones each trial may use
    length = np.array([len(scores) for scores in episodes])
    table = np.zeros((len(episodes), length.max()))
    for row, scores in zip(table, episodes, strict=True):
        row[: len(scores)] = scores
    tries, total = np.zeros((TRIALS, count)), np.zeros((TRIALS, count))
    trial = np.arange(TRIALS)
    used = np.zeros((EPISODES, TRIALS))
    for number in range(EPISODES):
        bonus = np.sqrt(EXPLORATION * np.log(number + 1) / (tries + 1e-9))
        chosen = _best(total / np.maximum(tries, 1) + bonus, generator)
        drawn = (generator.random(TRIALS) * length[policy[trial, chosen]]).astype(np.int64)
        tries[trial, chosen] += 1
        total[trial, chosen] += table[policy[trial, chosen], drawn]
        seen = np.where(tries > 0, total / np.maximum(tries, 1), -np.inf)
        used[number] = truth[policy[trial, seen.argmax(axis=1)]]
    low, high = np.percentile(used, (2.5, 97.5), axis=1)
    return Selection(used.mean(axis=1), low, high)


def mean_worth(found: Sequence[Selection]) -> np.ndarray:
    """[K] the mean over tasks of one quantity, such as normalized scores."""
    return np.mean([one.mean for one in found], axis=0)


def _best(value: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """[trials] a largest column of every row, drawn among equals."""
    among = value == value.max(axis=1, keepdims=True)
    return np.where(among, generator.random(value.shape), -1.0).argmax(axis=1)
