"""Checks of single values and columns: NaN, ranges, constants, duplicates, scales."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leeward.data.columns import finite_rows, non_finite_rows, outside_box
from leeward.data.dataset import Dataset
from leeward.data.findings import Finding, Steps, finding
from leeward.types import Box

# All limits are ours: chosen so that D4RL-like data passes and the fault each names does not.
_SPREAD = 1e4  # largest by smallest standard deviation of observations worth a word
_USED = 0.05  # share of the action box below which it is said to be barely used
_ON_BOUND = 1e-3  # share of actions on a bound worth a word
_LARGEST_EXACT = 2**24  # float32 holds all integers up to this
_DISTINCT = 0.9  # share of distinct observations among rows from which repeats are copies


def check_values(dataset: Dataset, steps: Steps) -> Iterator[Finding]:
    """Everything that needs no order of rows."""
    yield from _finite(dataset, steps)
    yield from _action_box(steps)
    yield from _action_use(steps)
    yield from _rewards(steps)
    if steps.observation is not None:
        yield from _observations(steps.observation)
        yield from _leaked_actions(steps, steps.observation)
        yield from _copies(steps, steps.observation)


def _finite(dataset: Dataset, steps: Steps) -> Iterator[Finding]:
    """Of observations of any width, as training refuses them all."""
    step_of_row = np.cumsum(dataset.recorded) - 1
    odd = non_finite_rows(dataset.observation)
    recorded = dataset.recorded[odd]
    after = odd[~recorded]  # rows that only hold a last observation
    if dataset.next_observation is not None:
        after = dataset.start[non_finite_rows(dataset.next_observation)]
    found = {
        "observation": step_of_row[odd[recorded]],
        "action": non_finite_rows(steps.action),
        "reward": non_finite_rows(steps.reward),
        "next_observation": step_of_row[after],
    }
    for name, rows in found.items():
        if len(rows):
            yield finding(
                f"non_finite_{name}",
                "error",
                f"{name} is NaN or infinite in {len(rows)} rows",
                "remove or fill these rows",
                rows,
            )


def _action_box(steps: Steps) -> Iterator[Finding]:
    if not isinstance(steps.space, Box):
        return
    rows = np.flatnonzero(outside_box(steps.action, steps.space).any(axis=1))
    if len(rows):
        low, high = steps.action[rows].min(axis=0), steps.action[rows].max(axis=0)
        yield finding(
            "action_outside_box",
            "error",
            f"actions leave the box in {len(rows)} rows: these span {_listed(low)} to "
            f"{_listed(high)}, the box is {_listed(steps.space.low)} to "
            f"{_listed(steps.space.high)}",
            "give the true bounds with --action-low and --action-high, or clip the actions",
            rows,
        )


def _action_use(steps: Steps) -> Iterator[Finding]:
    if not isinstance(steps.space, Box):
        missing = np.setdiff1d(np.arange(steps.space.size), np.unique(steps.action))
        if len(missing):
            yield finding(
                "action_never_taken",
                "info",
                f"actions {_listed(missing)} of {steps.space.size} are never taken",
                "nothing can be learned about them from this data; give the true number of "
                "actions if they do not exist",
            )
        return
    low, high = np.array(steps.space.low, np.float32), np.array(steps.space.high, np.float32)
    finite = steps.action[finite_rows(steps.action)]
    if len(finite) == 0:
        return
    smallest, largest = finite.min(axis=0), finite.max(axis=0)
    constant = np.flatnonzero(smallest == largest)
    if len(constant):
        yield finding(
            "action_constant",
            "warning",
            f"action dimensions {_listed(constant)} never change",
            "leave them out: nothing can be learned about them",
        )
    used = (largest - smallest) / (high - low)
    little = np.flatnonzero((used < _USED) & (smallest != largest))
    if len(little):
        yield finding(
            "action_box_barely_used",
            "warning",
            f"action dimensions {_listed(little)} use less than {_USED:.0%} of their box",
            "check the units of the actions and the bounds",
        )
    bound = (steps.action <= low) | (steps.action >= high)
    share = bound.mean(axis=0)
    rows = np.flatnonzero(bound.any(axis=1))
    if (share > _ON_BOUND).any():
        yield finding(
            "action_on_bounds",
            "info",
            f"{len(rows) / len(bound):.1%} of actions lie on a bound (by dimension "
            f"{', '.join(f'{value:.1%}' for value in share)})",
            "densities squashed by tanh have a spike there: for those (fisher-brc, Gaussian bc) "
            "widen --margin, to 0.01 say; deterministic actors need nothing",
            rows,
        )


def _rewards(steps: Steps) -> Iterator[Finding]:
    smallest, largest = steps.reward.min(), steps.reward.max()
    if smallest != largest:
        return
    if smallest == 0:
        yield finding(
            "reward_zero",
            "warning",
            "every reward is 0",
            "use imitation (bc), or store the rewards",
        )
    else:
        # One a step until the task ends is a plain way to reward lasting long.
        yield finding(
            "reward_constant",
            "info" if steps.termination.any() else "warning",
            f"every reward is {smallest:g}, so a return only counts steps",
            "check that this is meant",
        )


def _observations(observation: np.ndarray) -> Iterator[Finding]:
    finite = observation[finite_rows(observation)]
    if len(finite) == 0:
        return
    std = finite.std(axis=0, dtype=np.float64)
    constant = np.flatnonzero(finite.min(axis=0) == finite.max(axis=0))
    if len(constant):
        yield finding(
            "observation_constant",
            "info",
            f"observation dimensions {_listed(constant)} never change",
            "they can be left out",
        )
    moving = std[std > 0]
    if len(moving) and moving.max() > _SPREAD * moving.min():
        yield finding(
            "observation_unscaled",
            "info",
            f"observation dimensions differ in spread by a factor of "
            f"{moving.max() / moving.min():.0e}",
            "keep --normalize-observations on",
        )
    if (finite == np.floor(finite)).all():
        if np.abs(finite).max() > _LARGEST_EXACT:
            yield finding(
                "observation_integer_inexact",
                "warning",
                f"observations are integers beyond {_LARGEST_EXACT}, which float32 rounds",
                "leave out identifiers and times, or measure them from the episode's start",
            )
        else:
            yield finding(
                "observation_integer",
                "info",
                "all observations are whole numbers",
                "if they number categories, store one column of 0 and 1 for each",
            )


def _leaked_actions(steps: Steps, observation: np.ndarray) -> Iterator[Finding]:
    """Observations that hold the action of the same row, which is not known when it is taken."""
    action = steps.action.reshape(len(steps.action), -1)
    sample = np.linspace(0, len(action) - 1, min(len(action), 1000)).astype(int)
    for dimension in range(action.shape[1]):
        if (action[:, dimension] == action[0, dimension]).all():
            continue
        same = observation[sample] == action[sample, dimension][:, None]
        for column in np.flatnonzero(same.all(axis=0)):
            if (observation[:, column] == action[:, dimension]).all():
                yield finding(
                    "action_leaked",
                    "warning",
                    f"observation dimension {column} is the action (dimension {dimension}) of the "
                    "same row",
                    "leave it out, or store the action before: it is not known when acting",
                )


def _copies(steps: Steps, observation: np.ndarray) -> Iterator[Finding]:
    action = steps.action.reshape(len(steps.action), -1).astype(np.float32)
    code = _hash(np.column_stack([observation, action, steps.reward]))
    unique, counts = np.unique(code, return_counts=True)
    # Whole numbers and few distinct states come back by themselves, and so may short episodes.
    distinct = len(np.unique(_hash(observation))) >= _DISTINCT * len(unique)
    distinct = distinct and not (observation == np.floor(observation)).all()
    copied_episodes = _copied_episodes(steps, code)
    if len(copied_episodes):
        rows = steps.first[copied_episodes]
        yield finding(
            "episode_copied",
            "warning" if distinct else "info",
            f"{len(copied_episodes)} episodes are exact copies of earlier ones",
            "remove them, or know that they weigh double",
            rows,
        )
        return
    if len(unique) == len(code) or not distinct:
        return
    repeated = np.isin(code, unique[counts > 1])
    _, first = np.unique(code, return_index=True)
    repeated[first] = False
    rows = np.flatnonzero(repeated)
    yield finding(
        "row_copied",
        "warning",
        f"{len(rows)} rows are exact copies of earlier ones",
        "remove them, or know that they weigh double",
        rows,
    )


def _copied_episodes(steps: Steps, code: np.ndarray) -> np.ndarray:
    """Episodes of at least ten steps that equal an earlier one step by step."""
    first = steps.first
    length = np.diff(np.append(first, len(code)))
    position = np.arange(len(code)) - np.repeat(first, length)
    mixed = (code ^ (position.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(
        0xC2B2AE3D27D4EB4F
    )
    whole = np.add.reduceat(mixed, first) ^ length.astype(np.uint64)
    _, original = np.unique(whole, return_index=True)
    copied = np.ones(len(first), bool)
    copied[original] = False
    return np.flatnonzero(copied & (length >= 10))


def _hash(rows: np.ndarray) -> np.ndarray:
    """[R] uint64: equal for equal rows, and for different ones with a chance of about 2⁻⁶⁰."""
    words = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    factors = np.random.default_rng(0).integers(1, 2**63, words.shape[1], np.uint64) * 2 + 1
    code = np.zeros(len(words), np.uint64)
    for column, factor in enumerate(factors):
        mixed = (words[:, column].astype(np.uint64) + np.uint64(column + 1)) * factor
        code += (mixed ^ (mixed >> np.uint64(29))) * factor
    return code


def _listed(values: object) -> str:
    """The first ten numbers of an array, in brackets."""
    array = np.ravel(np.asarray(values))
    more = ", …" if len(array) > 10 else ""
    return "[" + ", ".join(f"{value:g}" for value in array[:10]) + more + "]"
