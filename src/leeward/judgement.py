"""How a run's number compares with a published one: intervals over seeds and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from leeward.data import registry
from leeward.published.scores import Row, Rule

FEWEST_SEEDS = 3
"""Seeds that an interval needs (ours: of two values every resampled mean is one of three)."""
RESAMPLES = 9_999
CLOSE = "close, not the same simulator"
"""What a verdict says of numbers from an environment that stands for D4RL's, simulated anew."""


class Verdict(NamedTuple):
    """What comes of comparing two numbers."""

    kind: Literal["reproduced", "below", "above", "not comparable"]
    text: str
    """One line, which begins with `kind`."""
    reasons: tuple[str, ...] = ()
    """Why they cannot be compared; none for the other kinds."""


def seed_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % bootstrap interval (percentile) of the mean over seeds; None for fewer than three."""
    if len(values) < FEWEST_SEEDS or not np.isfinite(values).all():
        return None
    from scipy.stats import bootstrap  # takes a second to import

    found = bootstrap(
        (np.asarray(values, np.float64),),
        np.mean,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)


def decide(row: Row, values: Sequence[float], reasons: Sequence[str]) -> Verdict:
    """Whether the mean over seeds agrees with the published one.

    They agree where the intervals of both means share a number; `Row.interval` says which the
    published one is.

    Args:
        row: the published number.
        values: ours, one a seed.
        reasons: why the two cannot be compared, if there are any.
    """
    all_reasons = (*reasons, *_of_seeds(values))
    ours = seed_interval(values)
    if all_reasons or ours is None:
        text = f"not comparable because {'; '.join(all_reasons)}"
        return Verdict("not comparable", text, all_reasons)
    published = row.interval
    remark = "" if simulator_note(row) is None else f" ({CLOSE})"
    shown = f"ours {span(ours)}, published {span(published)}{remark}"
    if ours[1] < published[0]:
        return Verdict("below", f"below the published number: {shown}")
    if ours[0] > published[1]:
        return Verdict("above", f"above the published number: {shown}")
    return Verdict("reproduced", f"reproduced: {shown}")


def simulator_note(row: Row) -> str | None:
    """How the environment of a row's data differs from D4RL's, where it is close to it only."""
    entry = registry.find(row.dataset)
    return None if entry is None else entry.env_note


def _of_seeds(values: Sequence[float]) -> list[str]:
    reasons = []
    diverged = int(np.sum(~np.isfinite(values)))
    if diverged:
        reasons.append(f"there is no finite number for {diverged} of {len(values)} seeds")
    if 0 < len(values) < FEWEST_SEEDS:
        reasons.append(
            f"an interval over seeds needs {FEWEST_SEEDS} seeds, and there "
            + ("is 1" if len(values) == 1 else f"are {len(values)}")
        )
    return reasons


def values_by_rule(
    evaluations: Sequence[Mapping[str, Any]], runs: Sequence[int], quantity: str, rule: Rule
) -> list[float]:
    """[N] the number of every run: its last evaluation, the mean of its last ten, or its best.

    Args:
        evaluations: the lines of evaluations.jsonl.
        runs: the indexes of the runs.
        quantity: "score_mean" or "return_mean".
        rule: which evaluations count. Of fewer than ten, all.
    """
    numbers = []
    for run in runs:
        own = [line[quantity] for line in evaluations if line["run"] == run]
        known = np.array([np.nan if value is None else value for value in own], np.float64)
        if rule == "last":
            numbers.append(float(known[-1]))
        elif rule == "last-10":
            numbers.append(float(known[-10:].mean()))
        else:
            numbers.append(float(known.max()))
    return numbers


def span(interval: tuple[float, float]) -> str:
    """Both ends, or the one number where they are the same."""
    low, high = interval
    return f"{low:.1f}" if low == high else f"[{low:.1f}, {high:.1f}]"
