"""Checks of where episodes end, and of what lies on the other side of an end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leeward.data.columns import finite_rows, is_chained
from leeward.data.dataset import Dataset
from leeward.data.findings import Finding, Steps, finding
from leeward.data.registry import step_limit

# All limits are ours: chosen on D4RL-like data, whose own steps stay below and resets above them.
_JUMP = 2.5  # in typical largest changes of one step, what counts as a jump of the state
_CALM = 1.5  # the same, what counts as no jump
_PILE = 10.0  # how many times more ends at the longest length than at lengths just below it
_SMALL, _TINY = 1000, 256  # transitions


def check_episodes(dataset: Dataset, steps: Steps) -> Iterator[Finding]:
    """Everything about ends, and the size of the data."""
    yield from _size(dataset, steps)
    shifted = _shifted_next_observations(dataset)
    if shifted is not None:
        yield shifted
    elif not steps.in_order:
        yield finding(
            "shuffled_transitions",
            "info",
            "the rows are shuffled transitions, each with its own next observation",
            "n-step returns and returns-to-go are not available",
        )
    if not steps.in_order:
        return
    yield from _flags(steps)
    yield from _time_limits(steps, step_limit(dataset.metadata.get("env")))
    yield from _missing_last_observations(dataset, steps)
    if dataset.next_observation is not None and shifted is None:
        yield from _broken_chain(dataset, dataset.next_observation)
    if steps.observation is not None and steps.apart_observation is not None:
        yield from _next_of_the_next_episode(steps, steps.observation, steps.apart_observation)
    if steps.observation is not None:
        yield from _jumps(steps, steps.observation)


def _size(dataset: Dataset, steps: Steps) -> Iterator[Finding]:
    if dataset.transitions == 0:
        yield finding(
            "no_transition",
            "error",
            "no row has a next observation, so there is no transition",
            "store next observations, or longer episodes",
        )
    elif dataset.transitions < _SMALL:
        yield finding(
            "tiny_data",
            "warning" if dataset.transitions < _TINY else "info",
            f"there are {dataset.transitions} transitions in {dataset.episodes} episodes",
            "expect overfitting: collect more, or keep to imitation with early stopping",
        )
    copied = len(steps.reward) - dataset.transitions
    if copied and dataset.metadata.get("d4rl_rows") == "qlearning":
        yield finding(
            "row_dropped",
            "info",
            f"the qlearning reading leaves out {copied} rows (timeouts and the last row)",
            "--d4rl-rows all keeps those whose next observation is known",
        )


def _flags(steps: Steps) -> Iterator[Finding]:
    both = np.flatnonzero(steps.termination & steps.truncation)
    if len(both):
        yield finding(
            "flags_overlap",
            "warning",
            f"{len(both)} rows are marked both as the task's end and as a time limit",
            "keep one flag: nothing is bootstrapped from these rows, as if the task had ended",
            both,
        )
    if not (steps.termination[:-1] | steps.truncation[:-1]).any():
        yield finding(
            "no_episode_ends",
            "warning",
            "no episode ends before the last row",
            "mark ends (terminals, timeouts), or cut with --max-episode-steps; if it is truly one "
            "recording, nothing can be held out for validation",
        )
    else:
        last = len(steps.reward) - 1
        if not (steps.termination[last] or steps.truncation[last]):
            yield finding(
                "last_episode_open",
                "info",
                "the last episode is cut by the end of the data",
                "its return is too low; nothing else depends on it",
                np.array([last]),
            )
    length = np.diff(np.append(steps.first, len(steps.reward)))
    again = np.flatnonzero(
        (length[1:] == 1) & steps.termination[steps.first[1:]] & steps.termination[steps.last[:-1]]
    )
    if len(again) and length.max() > 1:
        yield finding(
            "terminations_in_a_row",
            "info",
            f"{len(again)} terminations directly follow another, each an episode of one step",
            "if the task goes on after its goal, returns of episodes are split there",
            steps.first[again + 1],
        )


def _time_limits(steps: Steps, limit: int | None) -> Iterator[Finding]:
    """Terminations heaped at the longest length are time limits in disguise.

    So are those at the task's own `limit`, if they are most of all.
    """
    length = np.diff(np.append(steps.first, len(steps.reward)))
    ended = length[steps.termination[steps.last]]
    longest = int(length.max())
    if longest < 10 or len(ended) == 0:
        return
    at_longest = int((ended == longest).sum())
    near = max(1, longest // 20)
    density = ((ended < longest) & (ended >= longest - near)).sum() / near
    heaped = at_longest >= 3 and at_longest > _PILE * density
    if heaped or (longest == limit and 2 * at_longest >= len(ended)):
        where = steps.last[steps.termination[steps.last] & (length == longest)]
        yield finding(
            "termination_is_time_limit",
            "warning",
            f"{at_longest} episodes are marked as ended by the task after exactly {longest} steps, "
            "the longest length there is",
            "if that is a time limit, mark these rows as timeouts (truncation), so that their "
            "value is bootstrapped",
            where,
        )


def _missing_last_observations(dataset: Dataset, steps: Steps) -> Iterator[Finding]:
    has_transition = np.zeros(len(dataset.reward), bool)
    has_transition[dataset.start] = True
    cut = steps.last[steps.truncation[steps.last] & ~steps.termination[steps.last]]
    lost = cut[~has_transition[dataset.recorded][cut]]
    if len(lost) and dataset.metadata.get("d4rl_rows") != "qlearning":
        yield finding(
            "last_observation_missing",
            "info",
            f"{len(lost)} episodes were cut without the observation after their last step, which "
            "therefore starts no transition",
            "store next observations to use these steps too",
            lost,
        )


def _shifted_next_observations(dataset: Dataset) -> Finding | None:
    """Stored next observations that are those of another row throughout."""
    stored, observation = dataset.next_observation, dataset.observation
    if stored is None or len(stored) != len(observation):
        return None
    for shift, where in ((0, "the same row's observation"), (2, "the observation two rows on")):
        count = len(observation) - shift
        if count > 0 and _share_equal(stored[:count], observation[shift:]) > 0.9:
            return finding(
                "next_observation_off_by_one",
                "warning",
                f"stored next observations are {where}",
                "shift them, or leave them out: the next row is then used",
            )
    return None


def _broken_chain(dataset: Dataset, stored: np.ndarray) -> Iterator[Finding]:
    """Stored next observations that differ from the next row inside an episode."""
    episode, start = dataset.episode_of_row, dataset.start
    whole = dataset.observation.copy()
    whole[start] = stored
    inside = np.zeros(len(episode), bool)
    inside[start] = True
    inside[:-1] &= episode[1:] == episode[:-1]
    inside[-1] = False
    rows = np.flatnonzero(inside & ~is_chained(dataset.observation, whole))
    yield finding(
        "next_observation_breaks",
        "warning",
        f"{len(rows)} stored next observations differ from the next row of the same episode",
        "mark these rows as ends if episodes end there; stored ones are used, and n-step returns "
        "are not available",
        rows,
    )


def _share_equal(stored: np.ndarray, other: np.ndarray) -> float:
    equal = (stored == other).reshape(len(stored), -1).all(axis=1)
    return float(equal.mean())


def _next_of_the_next_episode(
    steps: Steps, observation: np.ndarray, apart_observation: np.ndarray
) -> Iterator[Finding]:
    """Last observations that are in truth the first of the next episode, or blank."""
    is_end = np.zeros(len(steps.reward), bool)
    is_end[steps.last[:-1]] = True
    chosen = is_end[steps.apart]
    ends, stored = steps.apart[chosen], apart_observation[chosen]
    if len(ends) < 2:
        return
    starts = observation[ends + 1]
    equal = (stored == starts).all(axis=1)
    distinct = len(np.unique(starts, axis=0)) > 0.9 * len(starts)
    if (distinct and equal.any()) or equal.mean() > 0.5:
        rows = ends[equal]
        harmless = steps.termination[rows].all()
        yield finding(
            "next_observation_of_next_episode",
            "info" if harmless else "warning",
            f"{len(rows)} stored next observations are the first of the next episode",
            "harmless where the task ended, as nothing is bootstrapped there"
            if harmless
            else "store the last observation before the reset, or leave these rows out",
            rows,
        )
    # The same state again is nothing odd where a task ends, such as at a goal.
    cut = ~equal & ~steps.termination[ends]
    if cut.sum() < 2:
        return
    blank = cut & (stored == stored[cut][0]).all(axis=1)
    if 2 * blank.sum() > cut.sum():
        yield finding(
            "last_observation_blank",
            "warning",
            f"{int(blank.sum())} episodes were cut at the same stored observation",
            "store the true last observation: the value of where the task went on is taken there",
            ends[blank],
        )


def _jumps(steps: Steps, observation: np.ndarray) -> Iterator[Finding]:
    """Ends that lie beside the state's jumps, and jumps to a start that no end explains."""
    # The other rows are findings of their own.
    finite = finite_rows(observation)
    follows = steps.follows & finite[1:] & finite[:-1]
    inside = np.flatnonzero(follows)
    first = steps.first[finite[steps.first]]
    if len(inside) < 100 or len(first) == 0:
        return
    picked = inside[np.linspace(0, len(inside) - 1, min(len(inside), 50_000)).astype(int)]
    change = np.abs(observation[picked + 1] - observation[picked])
    # Resets that no end marks are among these changes: a share of about one in an episode's length.
    share = 1 - 3 * len(steps.first) / len(observation)
    typical = np.quantile(change, min(max(share, 0.9), 0.99), axis=0)
    moving = typical > 0
    if not moving.any():
        return
    scaled = observation[:, moving] / typical[moving]
    with np.errstate(invalid="ignore"):
        jump = np.abs(np.diff(scaled, axis=0)).max(axis=1)  # [S − 1]
    jump = np.where(finite[1:] & finite[:-1], jump, 0.0)
    for name, flag in (("termination", steps.termination), ("truncation", steps.truncation)):
        shifted = _shifted_ends(name, flag, jump)
        if shifted is not None:
            yield shifted
            return
    starts = scaled[first]
    low, high = starts.min(axis=0) - 1, starts.max(axis=0) + 1  # within one typical change
    candidates = np.flatnonzero(follows & (jump > _JUMP))
    after = scaled[candidates + 1]
    rows = candidates[((after >= low) & (after <= high)).all(axis=1)]
    if len(rows):
        yield finding(
            "end_not_marked",
            "warning",
            f"after {len(rows)} rows the state jumps to a start although no end is marked",
            "mark these rows as timeouts, or cut with --max-episode-steps",
            rows,
        )


def _shifted_ends(name: str, flag: np.ndarray, jump: np.ndarray) -> Finding | None:
    """A finding where the state jumps one row before or after the flags and not at them."""
    ends = np.flatnonzero(flag)
    ends = ends[(ends >= 1) & (ends < len(jump) - 1)]
    if len(ends) < 5:
        return None
    here = np.median(jump[ends])
    for shift, word in ((-1, "late"), (1, "early")):
        if here < _CALM and np.median(jump[ends + shift]) > _JUMP:
            return finding(
                "ends_off_by_one",
                "warning",
                f"{len(ends)} {name} flags lie one row too {word}: the state jumps beside them",
                "shift the flags, so that they stand on an episode's last step",
                ends,
            )
    return None
