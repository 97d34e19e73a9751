"""Plots of a data set: what the doctor's findings cannot say in words.

Returns, lengths, how far the actions reach, rewards in the course of an episode, and where the
states lie.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from leeward.data.columns import finite_rows
from leeward.data.dataset import Dataset
from leeward.data.registry import normalized_score
from leeward.report.coverage import coverage, plot_coverage
from leeward.report.figures import (
    GRID,
    INK,
    PAPER,
    SERIES,
    Gallery,
    Style,
    add_legend,
    add_title,
    in_thousands,
    panel,
    plot,
    shortened,
)
from leeward.report.tables import Table, table
from leeward.types import Box

BINS = 40
SHOWN_DIMENSIONS = 24
"""Action dimensions that are drawn: more do not fit."""
SHOWN_STATES = 20_000
"""States of the map, drawn evenly from all."""
COVERAGE = LinearSegmentedColormap.from_list("coverage", [PAPER, SERIES[0], INK])


def plot_dataset(
    dataset: Dataset,
    folder: str | Path,
    act: Callable[[np.ndarray], np.ndarray] | None = None,
) -> list[str]:
    """Draws a data set into `folder` and returns the figures' names, without endings.

    Each is written as SVG, PNG and CSV. Observations that are images have no map.

    Args:
        dataset: what is drawn.
        folder: made where it does not exist.
        act: a trained policy, to draw how far its actions lie from the data's.

    Raises:
        CheckpointError: the folder cannot be written.
        DataError: the policy's coverage cannot be told of these data.
        SpecError: the policy is of another kind than the data.
    """
    covered = None if act is None else coverage(dataset, act)  # before anything is written
    gallery = Gallery(Path(folder))
    returns = dataset.episode_returns()
    _histogram(gallery, "returns", "Returns of episodes", "return", returns)
    score = normalized_score(dataset.metadata, returns)
    if score is not None and not dataset.clipped_rewards:
        _histogram(gallery, "scores", "Normalized scores of episodes", "score", score)
    lengths = dataset.episode_lengths().astype(np.float64)
    _histogram(gallery, "lengths", "Lengths of episodes", "steps", lengths)
    _actions(gallery, dataset)
    _rewards(gallery, dataset)
    _states(gallery, dataset)
    if covered is not None:
        plot_coverage(covered, gallery)
    return gallery.names


def _add(gallery: Gallery, name: str, title: str, csv: Table, draw: Callable[[], Figure]) -> None:
    gallery.add(name, title, "", csv, draw)


def _histogram(gallery: Gallery, name: str, title: str, unit: str, values: np.ndarray) -> None:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return
    counts, edges = np.histogram(finite, bins=min(BINS, max(1, len(np.unique(finite)))))

    def draw() -> Figure:
        figure, axes = panel()
        axes.stairs(counts, edges, fill=True, color=SERIES[0])
        axes.axvline(float(finite.mean()), color=INK, linewidth=1.2, linestyle=(0, (4, 2)))
        add_title(figure, f"{title} (dashed: mean {finite.mean():.4g})")
        axes.set_xlabel(unit)
        axes.set_ylabel("episodes")
        axes.grid(visible=False, axis="x")
        return figure

    rows = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    _add(gallery, name, title, table(("from", "to", "episodes"), list(rows)), draw)


def _actions(gallery: Gallery, dataset: Dataset) -> None:
    """The share of actions in every part of the box, or of every discrete action."""
    action = dataset.action[dataset.recorded]
    space = dataset.action_space
    if not isinstance(space, Box):
        counts = np.bincount(action, minlength=space.size)
        rows = list(enumerate((counts / counts.sum()).tolist()))
        _add(
            gallery,
            "actions",
            "How often each action was taken",
            table(("action", "share"), rows),
            lambda: _bars(counts / counts.sum()),
        )
        return
    low, high = np.asarray(space.low), np.asarray(space.high)
    span = np.where(high > low, high - low, 1.0)
    scaled = np.clip((action - low) / span, 0.0, 1.0)
    shown = scaled[:, :SHOWN_DIMENSIONS]
    share = np.zeros((shown.shape[1], BINS))
    for dimension, values in enumerate(shown.T):
        finite = values[np.isfinite(values)]
        counts = np.histogram(finite, bins=BINS, range=(0.0, 1.0))[0]
        share[dimension] = counts / max(1, len(finite))
    rows = [
        (dimension, float(low[dimension] + span[dimension] * place / BINS), float(part))
        for dimension, parts in enumerate(share)
        for place, part in enumerate(parts)
    ]
    csv = table(("dimension", "from", "share"), rows)
    _add(gallery, "actions", "Action coverage", csv, lambda: _strips(share, space))


def _bars(share: np.ndarray) -> Figure:
    figure, axes = panel()
    axes.bar(range(len(share)), share, color=SERIES[0])
    add_title(figure, "How often each action was taken")
    axes.set_xlabel("action")
    axes.set_ylabel("share")
    axes.grid(visible=False, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _strips(share: np.ndarray, space: Box) -> Figure:
    """One strip a dimension, from its lower to its upper bound."""
    count = len(share)
    figure, axes = panel(height=max(2.3, 1.5 + 0.17 * count), left=0.6, right=0.75)
    places = np.linspace(0.0, 1.0, BINS + 1)
    drawn = np.where(share > 0.0, share, np.nan)
    mesh = axes.pcolormesh(
        places,
        np.arange(count + 1) - 0.5,
        drawn,
        cmap=COVERAGE,
        norm=LogNorm(1e-4, 1.0, clip=True),
        edgecolors="none",
        linewidth=0,
        rasterized=True,
    )
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_yticks(range(0, count, max(1, count // 8)))
    more = f" (first {count} of {space.size})" if count < space.size else ""
    add_title(figure, f"Action coverage{more}: white has none")
    same = len(set(space.low)) == 1 and len(set(space.high)) == 1
    ends = [f"{space.low[0]:g}", f"{space.high[0]:g}"] if same else ["lowest", "highest"]
    axes.set_xticks([0.0, 1.0], ends)
    axes.get_xticklabels()[1].set_horizontalalignment("right")
    axes.set_ylabel("dimension")
    axes.grid(visible=False)
    bar = figure.colorbar(mesh, ax=axes, fraction=0.05, pad=0.03)
    bar.set_label("share")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure


def _rewards(gallery: Gallery, dataset: Dataset) -> None:
    """Rewards by the step of the episode: median, mean and the middle four fifths."""
    rows = np.flatnonzero(dataset.recorded & np.isfinite(dataset.reward))
    if not len(rows):
        return
    step = rows - dataset.episode_start[dataset.episode_of_row[rows]]
    reward = dataset.reward[rows].astype(np.float64)
    width = max(1, -(-int(step.max() + 1) // 100))
    group = step // width
    order = np.argsort(group, kind="stable")
    parts = np.split(reward[order], np.flatnonzero(np.diff(group[order])) + 1)
    start = np.unique(group) * width
    mean = np.array([part.mean() for part in parts])
    low, median, high = np.array([np.percentile(part, (10, 50, 90)) for part in parts]).T
    styles = {"median": Style(SERIES[0], "solid"), "mean": Style(INK, (0, (4, 2)))}

    def draw() -> Figure:
        figure, axes = panel(legend=list(styles))
        axes.fill_between(start, low, high, color=SERIES[0], alpha=0.2, linewidth=0)
        plot(axes, start, median, styles["median"])
        plot(axes, start, mean, styles["mean"])
        add_legend(figure, list(styles), list(styles.values()))
        add_title(figure, "Reward in the course of an episode (band: 10–90 %)")
        axes.set_xlabel("step of the episode")
        axes.set_ylabel("reward")
        in_thousands(axes)
        return figure

    columns = ("step", "mean", "10 %", "50 %", "90 %", "rows")
    numbers = np.stack([mean, low, median, high], axis=1).tolist()
    lines = [
        (first, *own, len(part))
        for first, own, part in zip(start.tolist(), numbers, parts, strict=True)
    ]
    _add(gallery, "rewards", "Reward in the course of an episode", table(columns, lines), draw)


def _states(gallery: Gallery, dataset: Dataset) -> None:
    """Where states lie in the plane of their largest variation."""
    if dataset.observation.dtype == np.uint8 or dataset.observation[0].size > 512:
        return
    rows = np.flatnonzero(dataset.recorded)
    chosen = rows[np.linspace(0, len(rows) - 1, min(SHOWN_STATES, len(rows))).astype(np.int64)]
    observation = dataset.observation[chosen].reshape(len(chosen), -1).astype(np.float64)
    observation = observation[finite_rows(observation)]
    if len(observation) < 3 or observation.shape[1] < 2:
        return
    place, explained = principal_plane(observation)

    def draw() -> Figure:
        figure, axes = panel(height=3.4, right=0.7)
        drawn = axes.hexbin(
            place[:, 0], place[:, 1], gridsize=36, bins="log", mincnt=1, cmap=COVERAGE,
            linewidths=0.0, vmin=0.5,
        )  # fmt: skip
        name = shortened(str(dataset.metadata.get("name", "the data")), 40)
        add_title(figure, f"States of {name}")
        axes.set_xlabel(f"first component ({explained[0]:.0%} of the variance)")
        axes.set_ylabel(f"second ({explained[1]:.0%})")
        axes.grid(color=GRID)
        bar = figure.colorbar(drawn, ax=axes, fraction=0.05, pad=0.03)
        bar.set_label("states")
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        return figure

    csv = table(("first", "second"), [tuple(map(float, row)) for row in place.round(4)])
    _add(gallery, "states", "States", csv, draw)


def principal_plane(observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([S, 2] places, [2] shares of the variance): PCA of standardized observations [S, D]."""
    deviation = observation.std(axis=0)
    scaled = (observation - observation.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    value, vector = np.linalg.eigh(np.cov(scaled, rowvar=False))  # ascending
    largest = vector[:, [-1, -2]]
    largest = largest * np.sign(largest[np.abs(largest).argmax(axis=0), [0, 1]])  # one sign
    return scaled @ largest, value[[-1, -2]] / max(float(value.sum()), 1e-12)
