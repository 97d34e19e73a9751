"""`Dataset`: the rows of all episodes end to end, nothing stored twice.

An episode that knows its last observation ends with one extra row that holds it (`recorded` is
False there: no action was taken). `start` lists the rows at which a transition begins; its next
observation is row + 1, except in data whose stored next observations do not chain row to row,
which are kept in `next_observation`. n-step returns, frame stacks and next actions are index
arithmetic on top of this and never cross an episode's end.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from leeward.errors import DataError
from leeward.types import Box, Discrete, Spec


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Logged data. Build one with `from_arrays` or a reader; R rows, T transitions, E episodes."""

    observation: np.ndarray
    """[R, *obs], float32 or uint8, as stored."""
    action: np.ndarray
    """[R, A] float32 in the environment's units, or [R] int32; anything where not `recorded`."""
    reward: np.ndarray
    """[R] float32."""
    termination: np.ndarray
    """[R] bool: the task ended at this step, so there is nothing to bootstrap from."""
    truncation: np.ndarray
    """[R] bool: the recording ended at this step; the value of the next state still counts."""
    start: np.ndarray
    """[T] int64, ascending: rows at which a transition begins."""
    episode_start: np.ndarray
    """[E] int64, ascending, first is 0: the first row of every episode."""
    recorded: np.ndarray
    """[R] bool: False for the extra row that only holds an episode's last observation."""
    action_space: Box | Discrete
    next_observation: np.ndarray | None = None
    """[T, *obs], aligned with `start`, or None: the next observation is the next row."""
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """JSON values: `name`, `source`, `env` (the environment's id, or absent), `notes`, …
    `frame_stack` says how many rows make one observation; `observation_names` and `action_names`
    name the columns of vectors, where they are known."""

    @property
    def spec(self) -> Spec:
        """Shapes and spaces, as algorithms need them: stacked frames come first."""
        shape = tuple(self.observation.shape[1:])
        if self.frame_stack > 1:
            shape = (self.frame_stack, *shape)
        return Spec(shape, str(self.observation.dtype), self.action_space)

    @property
    def frame_stack(self) -> int:
        """How many rows make one observation, the row itself last; 1 unless rows hold frames.

        Before an episode's first row its first frame is repeated.
        """
        return int(self.metadata.get("frame_stack", 1))

    @property
    def transitions(self) -> int:
        """T, the number of transitions to learn from."""
        return len(self.start)

    @property
    def episodes(self) -> int:
        """E, the number of episodes."""
        return len(self.episode_start)

    @property
    def episode_of_row(self) -> np.ndarray:
        """[R] int64: which episode each row belongs to."""
        return np.searchsorted(self.episode_start, np.arange(len(self.reward)), "right") - 1

    def episode_returns(self) -> np.ndarray:
        """[E] float64: the undiscounted return of every episode, over all recorded rows."""
        reward = np.where(self.recorded, self.reward, 0.0).astype(np.float64)
        return np.add.reduceat(reward, self.episode_start)

    @property
    def clipped_rewards(self) -> bool:
        """Whether the file says that its rewards are clipped, as RL Unplugged's are."""
        said = self.metadata.get("file_metadata", {}).get("rewards", "")
        return str(said).startswith("clipped")

    @property
    def return_mean(self) -> float | None:
        """The mean return of episodes; None where clipped rewards do not tell the task's."""
        return None if self.clipped_rewards else float(self.episode_returns().mean())

    def episode_lengths(self) -> np.ndarray:
        """[E] int64: recorded steps of every episode."""
        return np.add.reduceat(self.recorded.astype(np.int64), self.episode_start)

    def complete_episodes(self) -> np.ndarray:
        """[E] bool: episodes whose last recorded row carries an end flag, not cut by the file."""
        ended = self.recorded & (self.termination | self.truncation)
        return np.maximum.reduceat(ended, self.episode_start)

    def next_rows_chain(self) -> bool:
        """Whether next observations are rows, so that n-step returns can be computed."""
        return self.next_observation is None

    def steps_left(self) -> np.ndarray:
        """[T] int32: how many transitions in a row can be walked from each one, itself included.

        A walk stops after a termination, at an episode's end, and before a row that is no start.
        """
        start = self.start
        if len(start) == 0:
            return np.zeros(0, np.int32)
        episode = self.episode_of_row[start]
        goes_on = np.zeros(len(start), bool)  # can the walk continue from i to i + 1?
        goes_on[:-1] = (
            (start[1:] == start[:-1] + 1)
            & (episode[1:] == episode[:-1])
            & ~self.termination[start[:-1]]
            & ~self.truncation[start[:-1]]
        )
        stop = np.flatnonzero(~goes_on)  # the last transition of every walk
        index = np.arange(len(start))
        return (stop[np.searchsorted(stop, index)] - index + 1).astype(np.int32)

    def select_episodes(self, keep: np.ndarray) -> Dataset:
        """The same rows with only the transitions of episodes where `keep` [E] is True."""
        chosen = np.asarray(keep, bool)[self.episode_of_row[self.start]]
        return self.select_transitions(chosen)

    def with_metadata(self, **values: Any) -> Dataset:
        """The same data with further metadata."""
        return dataclasses.replace(self, metadata={**self.metadata, **values})

    def select_transitions(self, chosen: np.ndarray) -> Dataset:
        """The same rows with only the transitions where `chosen` [T] is True."""
        next_observation = self.next_observation
        return dataclasses.replace(
            self,
            start=self.start[chosen],
            next_observation=None if next_observation is None else next_observation[chosen],
        )

    def content_hash(self) -> str:
        """SHA-256 over everything that training sees, so that a run can tell changed data."""
        digest = hashlib.sha256()
        for array in (self.observation, self.action, self.reward, self.termination, self.start):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        if self.next_observation is not None:
            digest.update(np.ascontiguousarray(self.next_observation).view(np.uint8).data)
        if self.frame_stack > 1:
            digest.update(f"{self.frame_stack} frames".encode())
        return digest.hexdigest()

    @staticmethod
    def from_arrays(
        observation: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        termination: np.ndarray,
        truncation: np.ndarray | None = None,
        *,
        next_observation: np.ndarray | None = None,
        action_low: np.ndarray | float | None = None,
        action_high: np.ndarray | float | None = None,
        action_count: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """A data set from one array a column, one row a step.

        Args:
            observation: [R, *obs] float (stored as float32) or uint8.
            action: [R, A] float in the environment's units, or [R] integers.
            reward: [R].
            termination: [R] bool: the task ended (a time limit is no termination).
            truncation: [R] bool: the recording ended; default: nowhere but at the last row.
            next_observation: [R, *obs]; where it equals the next row it is not stored again.
                Without it, the last step of an episode that did not terminate has no successor and
                starts no transition.
            action_low: lower bound, a number or [A]; default the data's minimum.
            action_high: upper bound, a number or [A]; default the data's maximum.
            action_count: number of discrete actions; default the largest action + 1.
            metadata: JSON values such as `name` and `env`.

        Raises:
            DataError: lengths that differ, NaN or infinite values, actions outside the box, or no
                transition at all.
        """
        from leeward.data.build import build  # the construction has a file of its own

        return build(
            observation,
            action,
            reward,
            termination,
            truncation,
            next_observation=next_observation,
            action_low=action_low,
            action_high=action_high,
            action_count=action_count,
            metadata=metadata or {},
        )


def split_by_episode(dataset: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """(training, held-out) data: whole episodes, about `fraction` of them held out, at least one.

    Raises:
        DataError: fewer than two episodes, so that nothing can be held out.
    """
    with_transitions = np.unique(dataset.episode_of_row[dataset.start])
    if len(with_transitions) < 2:
        raise DataError(
            f"{dataset.metadata.get('name', 'the data set')} has one episode, so none can be held "
            "out for early stopping: add episodes, or set --validation-fraction 0"
        )
    count = min(max(1, round(fraction * len(with_transitions))), len(with_transitions) - 1)
    chosen = np.random.default_rng(seed).permutation(with_transitions)[:count]
    held_out = np.zeros(dataset.episodes, bool)
    held_out[chosen] = True
    return dataset.select_episodes(~held_out), dataset.select_episodes(held_out)


def best_episodes(dataset: Dataset, fraction: float) -> Dataset:
    """Only the transitions of the `fraction` of episodes with the highest return (at least one).

    Raises:
        DataError: rewards are clipped, so that returns do not say which episodes are best.
    """
    if dataset.clipped_rewards:
        raise DataError(
            f"{dataset.metadata.get('name', 'the data')}: rewards are clipped, so returns do not "
            "say which episodes are best: leave --best-fraction out"
        )
    count = max(1, round(fraction * dataset.episodes))
    order = np.argsort(-dataset.episode_returns(), kind="stable")
    keep = np.zeros(dataset.episodes, bool)
    keep[order[:count]] = True
    return dataset.select_episodes(keep)
