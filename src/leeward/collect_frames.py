"""Episodes of stacked frames as rows of single frames, written as they come.

A million transitions need no more memory than a few hundred: rows are compressed in chunks
(`ColumnStream`), and every frame is kept once, in the row layout (data/row_file.py). A collection
that was killed goes on from one of its last whole episodes, to the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from leeward.behaviors import Behavior
from leeward.data.row_file import row_columns
from leeward.data.stream import ColumnStream
from leeward.environments import EnvironmentSource
from leeward.rollout import Simulator

BLOCK = 512
"""Rows that are handed on together; ours: 4 MB of Atari frames."""
CHECKPOINT = 2_000
"""Transitions after which the next whole episode is made to survive a kill; ours: some seconds."""


class Part(NamedTuple):
    """Rows that one behavior makes."""

    behavior: Behavior
    transitions: int
    tag: int
    """Tells apart the purposes for which episodes are started."""


def write_frames(
    path: Path,
    env: EnvironmentSource,
    parts: Sequence[Part],
    seed: int,
    metadata: Callable[[np.ndarray], Mapping[str, Any]],
    on_step: Callable[[int], None],
    fingerprint: str = "",
) -> np.ndarray:
    """Lets behaviors act and writes the file; the return of every episode [E].

    Args:
        path: the file.
        env: an environment whose observations [K, rows, columns] stack K frames.
        parts: who acts, one after another; each ends with a cut episode, if need be.
        seed: with a part's tag and its number it fixes every episode's start.
        metadata: the episodes' returns → what is kept in the file.
        on_step: called with the number of transitions so far, every 1,000 of them.
        fingerprint: names all that fixes the rows. A killed collection with the same one goes on;
            without one, or with another, it begins anew.
    """
    simulator = Simulator(env)
    try:
        stack, *shape = simulator.spec.observation_shape
        columns = row_columns(tuple(shape), "uint8", simulator.spec.action)
        with ColumnStream(path, columns, fingerprint=fingerprint) as stream:
            recorder = _Recorder(stream, on_step)
            begin = stream.state.get("part", 0)
            for number, part in enumerate(parts[begin:], begin):
                _play(simulator, number, part, seed, recorder)
            recorder.flush()
            returns = np.array(recorder.returns)
            stream.finish({**metadata(returns), "frame_stack": stack})
        return returns
    finally:
        simulator.close()


def _play(simulator: Simulator, number: int, part: Part, seed: int, recorder: _Recorder) -> None:
    """Episodes until the part's transitions are made, from where a checkpoint of it left off."""
    made, episode = recorder.stands(number)
    while made < part.transitions:
        recorder.checkpoint({"part": number, "made": made, "episode": episode})
        observation = simulator.reset(part.tag, seed, episode)
        episode += 1
        recorder.begin()
        ended = False
        while not ended:
            action = part.behavior(observation, recorder.transitions)
            answer = simulator.step(action)
            made += 1
            cut = made == part.transitions and not answer.termination
            truncation = answer.truncation or cut
            recorder.step(
                observation[-1], int(action), answer.reward, answer.termination, truncation
            )
            ended = answer.termination or truncation
            observation = answer.observation
        recorder.end(observation[-1])


class _Recorder:
    """Collects rows and hands them to the stream in blocks."""

    def __init__(self, stream: ColumnStream, on_step: Callable[[int], None]) -> None:
        self._stream, self._on_step = stream, on_step
        self._rows: list[tuple[Any, ...]] = []
        self._written = stream.rows("observations")
        self._saved: int = stream.state.get("transitions", 0)
        self.transitions = self._saved
        self.returns: list[float] = list(stream.state.get("returns", ()))

    def stands(self, part: int) -> tuple[int, int]:
        """(transitions made, episodes begun) of a part at the checkpoint."""
        state = self._stream.state
        return (state["made"], state["episode"]) if state.get("part") == part else (0, 0)

    def checkpoint(self, place: Mapping[str, int]) -> None:
        """Makes what is there survive a kill, if there is enough of it since the last time."""
        if self.transitions - self._saved < CHECKPOINT:
            return
        self.flush()
        self._saved = self.transitions
        self._stream.checkpoint({**place, "transitions": self.transitions, "returns": self.returns})

    def begin(self) -> None:
        """An episode begins with the next row."""
        start = np.array([self._written + len(self._rows)])
        self._stream.append({"episode_start": start})
        self.returns.append(0.0)

    def step(
        self, frame: np.ndarray, action: int, reward: Any, termination: bool, truncation: bool
    ) -> None:
        """One transition."""
        self._add(frame, action, reward, termination, truncation, True)
        self.returns[-1] += float(reward)
        self.transitions += 1
        if self.transitions % 1_000 == 0:
            self._on_step(self.transitions)

    def end(self, frame: np.ndarray) -> None:
        """The frame after an episode's last step."""
        self._add(frame, 0, 0.0, False, False, False)

    def flush(self) -> None:
        """Hands on what is left."""
        if self._rows:
            names = ("observations", "actions", "rewards", "terminals", "timeouts", "recorded")
            columns = (np.array(column) for column in zip(*self._rows, strict=True))
            self._stream.append(dict(zip(names, columns, strict=True)))
            self._written += len(self._rows)
            self._rows = []

    def _add(self, *row: Any) -> None:
        self._rows.append(row)
        if len(self._rows) == BLOCK:
            self.flush()
