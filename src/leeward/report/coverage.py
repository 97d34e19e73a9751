"""How far a trained policy leaves its data: its actions beside those taken in like states.

For a sample of the data's states, the ten most like them are looked up among the other states. A
continuous action's distance is that to the nearest of these ten states' actions, a discrete
action's is the share of the ten in which another action was taken. The same of the data's own
actions tells what is usual. Ours: a policy far outside is one whose values are guesses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from leeward.data.columns import finite_rows
from leeward.data.dataset import Dataset
from leeward.errors import DataError, SpecError
from leeward.report.figures import (
    SERIES,
    Gallery,
    Style,
    add_legend,
    add_title,
    panel,
    plot,
)
from leeward.report.tables import table
from leeward.types import Box

STATES = 2_000
"""States at which actions are compared."""
POOL = 20_000
"""States among which like ones are looked for, other than those."""
NEIGHBORS = 10
USUAL = 0.95
"""Share of the data's own actions that lie within what counts as usual."""
POINTS = 101


class Coverage(NamedTuple):
    """Distances of actions from those of the data. S states."""

    policy: np.ndarray
    """[S] of the policy's actions, in half ranges of the box (root mean square) or from 0 to 1."""
    data: np.ndarray
    """[S] of the data's own."""

    @property
    def outside(self) -> float:
        """Share of states at which the policy is farther away than 95 % of the data's actions."""
        return float((self.policy > np.quantile(self.data, USUAL) + 1e-9).mean())


def coverage(dataset: Dataset, act: Callable[[np.ndarray], np.ndarray]) -> Coverage:
    """Compares a policy's actions with the data's.

    Args:
        dataset: vector observations.
        act: [S, *obs] → actions [S, A], or [S] of discrete ones.

    Raises:
        DataError: observations that are images, or fewer than twenty states.
        SpecError: the policy's actions are of another shape than the data's.
    """
    name = dataset.metadata.get("name", "the data set")
    rows = np.flatnonzero(
        dataset.recorded & finite_rows(dataset.observation) & finite_rows(dataset.action)
    )
    if dataset.observation.dtype == np.uint8 or len(rows) < 2 * NEIGHBORS:
        why = "images" if len(rows) >= 2 * NEIGHBORS else f"{len(rows)} finite states only"
        raise DataError(f"{name} has {why}: coverage needs vectors, and twenty states at least")
    order = np.random.default_rng(0).permutation(rows)
    count = min(STATES, len(order) // 2)
    asked, pool = order[:count], order[count : count + POOL]
    action = np.asarray(act(dataset.observation[asked]))
    if action.shape != dataset.action[asked].shape:
        raise SpecError(
            f"the policy's actions have shape {action.shape[1:]}, those of {name} "
            f"{dataset.action.shape[1:]}"
        )
    near = dataset.action[pool][_most_like(dataset.observation, asked, pool)]  # [S, 10, …]
    space = dataset.action_space
    half = None
    if isinstance(space, Box):
        half = np.maximum(np.asarray(space.high) - np.asarray(space.low), 1e-9) / 2
    return Coverage(_distance(action, near, half), _distance(dataset.action[asked], near, half))


def _most_like(observation: np.ndarray, asked: np.ndarray, pool: np.ndarray) -> np.ndarray:
    """[S, 10] places in `pool` of the states most like each of `asked`, all standardized."""
    from scipy.spatial import KDTree  # takes a second to import

    among, of = (observation[rows].reshape(len(rows), -1).astype(float) for rows in (pool, asked))
    mean, deviation = among.mean(axis=0), among.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    tree = KDTree((among - mean) / deviation)
    return np.asarray(tree.query((of - mean) / deviation, k=NEIGHBORS)[1])


def _distance(action: np.ndarray, near: np.ndarray, half: np.ndarray | None) -> np.ndarray:
    if half is None:
        return (near != action[:, None]).mean(axis=1)
    apart = (near - action[:, None, :]) / half  # [S, 10, A]
    return np.sqrt(np.square(apart).mean(axis=2)).min(axis=1)


def plot_coverage(found: Coverage, gallery: Gallery) -> None:
    """Draws the shares of states beyond every distance, of the policy and of the data."""
    longest = max(float(found.policy.max()), float(found.data.max()), 1e-3)
    distance = np.linspace(0.0, longest, POINTS)
    beyond = {
        "the policy": (found.policy[:, None] > distance).mean(axis=0),
        "the data": (found.data[:, None] > distance).mean(axis=0),
    }
    styles = {"the policy": Style(SERIES[1], "solid"), "the data": Style(SERIES[0], (0, (4, 2)))}

    def draw() -> Figure:
        figure, axes = panel(legend=list(styles))
        for name, share in beyond.items():
            plot(axes, distance, share, styles[name])
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlim(0.0, longest)
        add_title(figure, f"Policy outside the data's actions: {found.outside:.0%} of states")
        axes.set_xlabel("distance from the nearest action of like states")
        axes.set_ylabel("share of states beyond")
        add_legend(figure, list(styles), list(styles.values()))
        return figure

    lines = zip(distance.tolist(), *(share.tolist() for share in beyond.values()), strict=True)
    csv = table(("distance", "policy beyond", "data beyond"), list(lines))
    gallery.add("coverage", "Coverage", "", csv, draw)
