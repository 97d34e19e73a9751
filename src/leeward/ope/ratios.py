"""How much likelier the policy's actions are than the behavior's: importance ratios of L steps."""

from __future__ import annotations

import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.sampling import Scaling
from leeward.ope.observations import by_pieces, observed
from leeward.ope.walks import Walks
from leeward.policy import Policy
from leeward.types import Box

Behavior = Policy | np.ndarray
"""A policy that has a density, or the log-density [R] of every row's action, in the environment's
units (log-probability if actions are discrete)."""


def behavior_log_density(
    behavior: Behavior,
    dataset: Dataset,
    scaling: Scaling,
    row: np.ndarray,
    action: np.ndarray | None = None,
) -> np.ndarray:
    """[M] float64: log density of actions at rows, in network units.

    Args:
        behavior: who acted.
        dataset: the data.
        scaling: the data's units.
        row: [M] rows.
        action: [M, …] actions in the environment's units; default the data's.
    """
    if isinstance(behavior, np.ndarray):
        density = behavior[row]
    else:
        policy, taken = behavior, dataset.action[row] if action is None else action
        density = by_pieces(
            lambda i: policy.log_prob(observed(dataset, row[i]), taken[i]), np.arange(len(row))
        )
    return in_network_density(density, dataset, scaling)


def in_network_density(density: np.ndarray, dataset: Dataset, scaling: Scaling) -> np.ndarray:
    """[M] float64: log densities [M] of actions in the environment's units, in network units."""
    density = density.astype(np.float64)
    if isinstance(dataset.action_space, Box):
        density = density + np.log(np.asarray(scaling.action_scale, np.float64)).sum()
    return density


def default_bandwidth(action: np.ndarray) -> np.ndarray:
    """[A]: Scott's rule, the spread of the data's actions [M, A] times M^(−1/(A + 4))."""
    count, size = action.shape
    spread = np.maximum(action.std(axis=0, dtype=np.float64), 1e-3)  # a constant dimension
    return spread * count ** (-1.0 / (size + 4))


def kernel_log_density(action: np.ndarray, center: np.ndarray, bandwidth: np.ndarray) -> np.ndarray:
    """[M]: log density of actions [M, A] under normals about `center`, cut to [−1, 1].

    A deterministic policy has no density; one this wide stands for it (Kallus & Zhou, "Policy
    Evaluation and Optimization with Continuous Treatments", 2018, arXiv 1802.06037).
    """
    from scipy.special import ndtr  # takes a moment to import

    action, center = action.astype(np.float64), center.astype(np.float64)
    distance = (action - center) / bandwidth
    inside = ndtr((1.0 - center) / bandwidth) - ndtr((-1.0 - center) / bandwidth)
    log = -0.5 * distance**2 - 0.5 * np.log(2.0 * np.pi) - np.log(bandwidth) - np.log(inside)
    return log.sum(axis=1)


def cumulative(log_ratio: np.ndarray, walks: Walks) -> np.ndarray:
    """[L]: the sum of log ratios from each walk's first step to every step; −∞ stays −∞."""
    never = np.isneginf(log_ratio)
    finite = np.where(never, 0.0, log_ratio)
    total, zeros = np.cumsum(finite), np.cumsum(never)
    before = np.repeat(total[walks.offset] - finite[walks.offset], walks.length)
    zeros_before = np.repeat(zeros[walks.offset] - never[walks.offset], walks.length)
    return np.where(zeros > zeros_before, -np.inf, total - before)
