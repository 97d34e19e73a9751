"""Smaller data sets of a large one: by transitions, by episodes, by return."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.row_file import KeptRows, kept_rows
from leeward.errors import ConfigError, DataError


@dataclass(frozen=True)
class Reduction:
    """Which part of a data set is kept; several are applied in this order."""

    least_return: float | None = None
    """Keep episodes with at least this return."""
    most_return: float | None = None
    """Keep episodes with at most this return."""
    fraction: float | None = None
    """Keep this share of the episodes, drawn by --seed."""
    episodes: int | None = None
    """Keep so many episodes, drawn by --seed."""
    last: int | None = None
    """Keep the last so many transitions."""
    transitions: int | None = None
    """Keep the first so many transitions; an episode may be cut."""
    seed: int = 0
    """Fixes the draw of --episodes and --fraction."""

    @property
    def any(self) -> bool:
        """Whether anything is left out."""
        return dataclasses.replace(self, seed=0) != Reduction()


def reduce_dataset(dataset: Dataset, reduction: Reduction) -> Dataset:
    """The part of `dataset` that `reduction` keeps, in the same order.

    Raises:
        ConfigError: an impossible number.
        DataError: nothing is left, or more is wanted than there is.
    """
    _check(reduction)
    name = str(dataset.metadata.get("name", "the data set"))
    has_transition = np.zeros(dataset.episodes, bool)
    has_transition[np.unique(dataset.episode_of_row[dataset.start])] = True
    keep = has_transition.copy()
    returns = dataset.episode_returns()
    by_return = reduction.least_return is not None or reduction.most_return is not None
    if by_return and dataset.clipped_rewards:
        raise DataError(
            f"{name}: rewards are clipped, so episodes' returns are not known: leave "
            "--least-return and --most-return out"
        )
    if reduction.least_return is not None:
        keep &= returns >= reduction.least_return
    if reduction.most_return is not None:
        keep &= returns <= reduction.most_return
    if not keep.any():
        found = returns[has_transition]
        raise DataError(
            f"{name} has no episode with such a return: returns are {found.min():g} to "
            f"{found.max():g}"
        )
    count = int(keep.sum())
    if reduction.fraction is not None:
        keep = _draw(keep, max(1, round(reduction.fraction * count)), reduction.seed)
    if reduction.episodes is not None:
        _enough(name, reduction.episodes, int(keep.sum()), "episodes")
        keep = _draw(keep, reduction.episodes, reduction.seed)
    reduced = dataset if keep.all() else dataset.select_episodes(keep)
    for wanted, part in ((reduction.last, "last"), (reduction.transitions, "first")):
        if wanted is None:
            continue
        _enough(name, wanted, reduced.transitions, "transitions")
        chosen = np.zeros(reduced.transitions, bool)
        chosen[-wanted:] = part == "last"
        if part == "first":
            chosen[:wanted] = True
        reduced = compact(reduced.select_transitions(chosen))
    return reduced


def compact(dataset: Dataset) -> Dataset:
    """The same transitions without the rows that none of them needs.

    An episode that goes on after its last transition is cut there.
    """
    if dataset.next_observation is None:
        kept = kept_rows(dataset)
        start = np.flatnonzero(kept.recorded & (kept.follows | kept.termination))
    else:
        row = dataset.start
        episode = dataset.episode_of_row[row]
        begin = np.append(0, np.flatnonzero(np.diff(episode)) + 1)
        start, whole = np.arange(len(row)), np.ones(len(row), bool)
        kept = KeptRows(row, begin, whole, whole, dataset.termination[row], dataset.truncation[row])
    return dataclasses.replace(
        dataset,
        observation=dataset.observation[kept.row],
        action=dataset.action[kept.row],
        reward=dataset.reward[kept.row],
        termination=kept.termination,
        truncation=kept.truncation,
        start=start,
        episode_start=kept.episode_start,
        recorded=kept.recorded,
    )


def _draw(keep: np.ndarray, count: int, seed: int) -> np.ndarray:
    """[E] bool: `count` of the True ones."""
    drawn = np.random.default_rng(seed).permutation(np.flatnonzero(keep))[:count]
    result = np.zeros(len(keep), bool)
    result[drawn] = True
    return result


def _enough(name: str, wanted: int, there: int, what: str) -> None:
    if wanted > there:
        raise DataError(f"{name} has {there:,} {what}, fewer than the {wanted:,} to keep")


def _check(reduction: Reduction) -> None:
    for flag in ("episodes", "last", "transitions"):
        value = getattr(reduction, flag)
        if value is not None and value < 1:
            raise ConfigError(f"--{flag} must be at least 1, got {value}")
    if reduction.fraction is not None and not 0.0 < reduction.fraction <= 1.0:
        raise ConfigError(f"--fraction must be in (0, 1], got {reduction.fraction:g}")
    if reduction.last is not None and reduction.transitions is not None:
        raise ConfigError("--last and --transitions cannot be given together")
