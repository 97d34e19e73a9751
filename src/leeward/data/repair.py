"""Safe repairs of what the data doctor finds. Each is named; none is made without proof.

A repair is kept only if the doctor no longer finds the fault in the result, and finds no other
error or warning there that it did not find before. Faults whose repair needs a decision (which
bounds are true, what is a time limit, which of two alignments) are left and named.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from leeward.data.build import build
from leeward.data.checks import inspect
from leeward.data.dataset import Dataset
from leeward.data.findings import Finding
from leeward.data.registry import step_limit
from leeward.types import Box


class Repair(NamedTuple):
    """What was done about a finding."""

    code: str
    """The finding's."""
    message: str
    """What was changed, and in how many rows."""


class Repaired(NamedTuple):
    """A data set after its repairs."""

    dataset: Dataset
    repairs: tuple[Repair, ...]
    left: tuple[Finding, ...]
    """Errors and warnings that remain."""


@dataclasses.dataclass
class _Steps:
    """The recorded steps of a data set as columns, to be changed and put together again."""

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    termination: np.ndarray
    truncation: np.ndarray
    episode: np.ndarray
    next_observation: np.ndarray | None
    """None: the next row, as the flags say."""
    known: np.ndarray
    """[S] bool: where `next_observation` holds something."""

    def keep(self, chosen: np.ndarray) -> None:
        """Leaves out the other steps."""
        for field in dataclasses.fields(self):
            column = getattr(self, field.name)
            if column is not None:
                setattr(self, field.name, column[chosen])


Candidate = tuple[Dataset, str]
"""A repaired data set, and what was changed."""


def repair(
    dataset: Dataset, *, max_episode_steps: int | None = None, clip: bool = False
) -> Repaired:
    """Repairs what can be repaired safely; load the data with `strict=False`.

    Args:
        dataset: any data set.
        max_episode_steps: the task's time limit; default that of the environment, where known.
        clip: whether the bounds of the actions are the environment's, which clips what leaves them.
    """
    limit = max_episode_steps or step_limit(dataset.metadata.get("env"))
    current, notes = _without_reader_notes(dataset)
    repairs: list[Repair] = []
    while True:
        left = [one for one in inspect(current).findings if one.severity != "info"]
        left.sort(key=lambda one: one.code != "ends_off_by_one")  # others may follow from it
        accepted = None
        for found in left:
            if found.code not in {one.code for one in repairs}:
                accepted = _first_sound(current, found, {o.code for o in left}, limit, clip)
            if accepted is not None:
                current, message = accepted
                repairs.append(Repair(found.code, message))
                break
        if accepted is None:
            repaired = _noted(current, notes, repairs) if repairs else dataset
            return Repaired(repaired, tuple(repairs), tuple(left))


def _first_sound(
    dataset: Dataset, found: Finding, before: set[str], limit: int | None, clip: bool
) -> Candidate | None:
    """The first candidate in which the fault is gone and no other has come."""
    for changed, message in _candidates(dataset, found, limit, clip):
        after = {one.code for one in inspect(changed).findings if one.severity != "info"}
        if found.code not in after and after <= before:
            return changed, message
    return None


def _candidates(
    dataset: Dataset, found: Finding, limit: int | None, clip: bool
) -> Iterator[Candidate]:
    """Ways to repair one finding, the most likely first."""
    if found.code == "flags_overlap":
        yield from _one_flag(dataset, found)
    if dataset.observation.dtype != np.float32:
        return  # of images nothing else is looked at
    if found.code == "termination_is_time_limit":
        yield from _time_limits(dataset, found, limit)
    elif found.code == "action_outside_box" and clip:
        yield from _clip(dataset, found)
    elif found.code.startswith("non_finite_"):
        yield from _drop_non_finite(dataset, found)
    elif found.code in _OTHERS:
        yield from _OTHERS[found.code](dataset, found)


def _one_flag(dataset: Dataset, found: Finding) -> Iterator[Candidate]:
    truncation = dataset.truncation.copy()
    truncation[_rows(dataset)[found.every_row]] = False
    yield (
        dataclasses.replace(dataset, truncation=truncation),
        f"{found.count} rows with both flags keep the task's end alone",
    )


def _shift_flags(dataset: Dataset, found: Finding) -> Iterator[Candidate]:
    """Either flag or both, one row earlier or later."""
    for names in (("truncation",), ("termination",), ("termination", "truncation")):
        for shift, word in ((-1, "earlier"), (1, "later")):
            steps = _steps(dataset)
            for name in names:
                moved = np.roll(getattr(steps, name), shift)
                moved[-1 if shift < 0 else 0] = False
                setattr(steps, name, moved)
            yield (
                _together(dataset, steps),
                f"{' and '.join(names)} flags moved one row {word}",
            )


def _time_limits(dataset: Dataset, found: Finding, limit: int | None) -> Iterator[Candidate]:
    """Only where the task's limit is known and the episodes are that long."""
    if limit is None or limit != int(dataset.episode_lengths().max()):
        return
    steps = _steps(dataset)
    steps.termination[found.every_row] = False
    steps.truncation[found.every_row] = True
    yield (
        _together(dataset, steps),
        f"{found.count} terminations after {limit} steps, the task's limit, became truncations",
    )


def _clip(dataset: Dataset, found: Finding) -> Iterator[Candidate]:
    space = dataset.action_space
    assert isinstance(space, Box)
    action = np.clip(
        dataset.action, np.array(space.low, np.float32), np.array(space.high, np.float32)
    )
    yield (
        dataclasses.replace(dataset, action=action),
        f"{found.count} actions were clipped to the environment's bounds, as it does",
    )


def _drop_non_finite(dataset: Dataset, found: Finding) -> Iterator[Candidate]:
    """Leaves out the steps, and cuts their episodes before them."""
    steps = _explicit(_steps(dataset))
    bad = found.every_row
    if found.code == "non_finite_next_observation":
        steps.known[bad] = False
        steps.truncation[bad] |= ~steps.termination[bad]
        yield (
            _together(dataset, steps),
            f"{found.count} next observations that are not finite were left out; their episodes "
            "are cut there",
        )
        return
    before = bad[bad > 0] - 1
    before = before[steps.episode[before] == steps.episode[before + 1]]
    steps.truncation[before] |= ~steps.termination[before]
    if found.code == "non_finite_observation":
        steps.known[before] = False
    chosen = np.ones(len(steps.reward), bool)
    chosen[bad] = False
    steps.keep(chosen)
    if len(steps.reward):
        yield (
            _together(dataset, steps),
            f"{found.count} steps whose {found.code.removeprefix('non_finite_')} is not finite "
            "were left out; their episodes are cut before them",
        )


def _mark_ends(dataset: Dataset, found: Finding) -> Iterator[Candidate]:
    steps = _steps(dataset)
    steps.truncation[found.every_row] = True
    yield (
        _together(dataset, steps),
        f"{found.count} rows after which the state jumps to a start were marked as truncations",
    )


def _cut_at_breaks(dataset: Dataset, found: Finding) -> Iterator[Candidate]:
    steps = _steps(dataset)
    steps.truncation[found.every_row] = True
    yield (
        _together(dataset, steps),
        f"episodes were cut at {found.count} rows whose stored next observation is not the next "
        "row; these are kept as last observations",
    )


def _forget_last_observations(dataset: Dataset, found: Finding) -> Iterator[Candidate]:
    steps = _steps(dataset)
    steps.known[found.every_row] = False
    lost = int((~steps.termination[found.every_row]).sum())
    yield (
        _together(dataset, steps),
        f"{found.count} stored last observations that belong to no step were left out, and with "
        f"them the {lost} transitions that led there without an end of the task",
    )


def _forget_next_observations(dataset: Dataset, found: Finding) -> Iterator[Candidate]:
    steps = _steps(dataset)
    steps.next_observation = None
    yield (
        _together(dataset, steps),
        "stored next observations, which were those of another row, were left out: the next row "
        "is used",
    )


def _drop_copied_episodes(dataset: Dataset, found: Finding) -> Iterator[Candidate]:
    steps = _steps(dataset)
    copied = steps.episode[found.every_row]
    steps.keep(~np.isin(steps.episode, copied))
    yield (
        _together(dataset, steps),
        f"{len(copied)} episodes that are exact copies of earlier ones were left out",
    )


_OTHERS: dict[str, Callable[[Dataset, Finding], Iterator[Candidate]]] = {
    "ends_off_by_one": _shift_flags,
    "end_not_marked": _mark_ends,
    "next_observation_breaks": _cut_at_breaks,
    "next_observation_of_next_episode": _forget_last_observations,
    "last_observation_blank": _forget_last_observations,
    "next_observation_off_by_one": _forget_next_observations,
    "episode_copied": _drop_copied_episodes,
}


def _rows(dataset: Dataset) -> np.ndarray:
    """[S]: the row of every recorded step, by which findings count."""
    return np.flatnonzero(dataset.recorded)


def _steps(dataset: Dataset) -> _Steps:
    """The steps, with next observations where the data know more than the next row."""
    row = _rows(dataset)
    following = np.minimum(row + 1, len(dataset.reward) - 1)
    episode = dataset.episode_of_row
    known = (episode[following] == episode[row]) & (following > row)
    next_observation = None
    if dataset.next_observation is not None:
        step_of_row = np.cumsum(dataset.recorded) - 1
        started = step_of_row[dataset.start]
        next_observation = dataset.observation[following].copy()
        next_observation[started] = dataset.next_observation
        known = np.zeros(len(row), bool)
        known[started] = True
    elif not dataset.recorded.all():
        next_observation = dataset.observation[following]
    return _Steps(
        dataset.observation[row],
        dataset.action[row],
        dataset.reward[row],
        dataset.termination[row].copy(),
        dataset.truncation[row].copy(),
        episode[row],
        next_observation,
        known,
    )


def _explicit(steps: _Steps) -> _Steps:
    """With next observations of their own, so that steps can be left out."""
    if steps.next_observation is None:
        following = np.minimum(np.arange(len(steps.reward)) + 1, len(steps.reward) - 1)
        steps.next_observation = steps.observation[following]
    return steps


def _together(dataset: Dataset, steps: _Steps) -> Dataset:
    """The data set of changed steps."""
    space = dataset.action_space
    box = isinstance(space, Box)
    metadata = {key: value for key, value in dataset.metadata.items() if key != "notes"}
    return build(
        steps.observation,
        steps.action,
        steps.reward,
        steps.termination,
        steps.truncation,
        next_observation=steps.next_observation,
        next_known=steps.known if steps.next_observation is not None else None,
        action_low=list(space.low) if isinstance(space, Box) else None,
        action_high=list(space.high) if isinstance(space, Box) else None,
        action_count=None if box else space.size,
        metadata=metadata,
        strict=False,
    )


def _without_reader_notes(dataset: Dataset) -> tuple[Dataset, list[str]]:
    """(the data set with the notes that its rows themselves cause, the other notes).

    The former change with repairs.
    """
    notes = list(dataset.metadata.get("notes", ()))
    caused: list[str] = []
    if notes and dataset.observation.dtype == np.float32:
        caused = _together(dataset, _steps(dataset)).metadata.get("notes", [])
    return dataset.with_metadata(notes=caused), [note for note in notes if note not in caused]


def _noted(dataset: Dataset, notes: list[str], repairs: list[Repair]) -> Dataset:
    """The data set with its repairs in the metadata, where files keep them too."""
    listed = [f"{one.code}: {one.message}" for one in repairs]
    in_file = {**dataset.metadata.get("file_metadata", {}), "repairs": "; ".join(listed)}
    notes = [*notes, *dataset.metadata.get("notes", ()), *(f"repaired {line}" for line in listed)]
    return dataset.with_metadata(file_metadata=in_file, notes=notes)
