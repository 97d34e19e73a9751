"""What a value learner saw lately, from several copies of an environment: rows in host memory.

Every copy has a ring of rows. A row holds one frame (or one whole observation); the row after a
step holds what followed it, at an episode's end too, so that no next observation is stored twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leeward.types import Batch


class Ring:
    """The last `rows` rows of each of N copies; stacks of K frames are built by index."""

    def __init__(
        self, copies: int, rows: int, shape: tuple[int, ...], dtype: str, stack: int
    ) -> None:
        """Empty rows.

        Args:
            copies: N.
            rows: rows kept of every copy, at least K + 1.
            shape: of one row.
            dtype: of one row.
            stack: K, rows that make one observation.
        """
        self.stack, self.length = stack, rows
        self.frame = np.zeros((copies, rows, *shape), dtype)
        self.action = np.zeros((copies, rows), np.int32)
        self.reward = np.zeros((copies, rows), np.float32)
        self.termination = np.zeros((copies, rows), bool)
        self.recorded = np.zeros((copies, rows), bool)
        self.before = np.zeros((copies, rows), np.uint8)
        """Earlier rows of the same episode, counted up to K − 1."""
        self.count = np.zeros(copies, np.int32)
        """Rows written so far, those overwritten too."""

    def begin(self, copy: int, frame: np.ndarray) -> None:
        """The first row of an episode."""
        self._write(copy, frame, 0)

    def step(
        self, copy: int, action: int, reward: float, termination: bool, following: np.ndarray
    ) -> None:
        """An action from the newest row, and the row that followed."""
        newest = (self.count[copy] - 1) % self.length
        self.action[copy, newest] = action
        self.reward[copy, newest] = reward
        self.termination[copy, newest] = termination
        self.recorded[copy, newest] = True
        self._write(copy, following, min(int(self.before[copy, newest]) + 1, self.stack - 1))

    def newest(self) -> np.ndarray:
        """[N, *obs]: the observation of every copy's newest row."""
        return self._observe(np.arange(len(self.count)), self.count - 1)

    def sample(
        self, generator: np.random.Generator, size: int, n_step: int, discount: float
    ) -> Batch:
        """A batch of recorded steps, drawn evenly; rewards of up to `n_step` steps are summed.

        A walk ends with the episode, and before the newest row, whose step is yet to come.
        """
        copy, row = self._draw(generator, size)
        reward = self.reward[copy, row % self.length].copy()
        walked = np.ones(size, np.int64)
        goes_on = np.ones(size, bool)
        for ahead in range(1, n_step):
            goes_on &= self.recorded[copy, (row + ahead) % self.length]
            goes_on &= row + ahead < self.count[copy]
            further = self.reward[copy, (row + ahead) % self.length]
            reward += np.where(goes_on, discount**ahead * further, 0.0).astype(np.float32)
            walked += goes_on
        return Batch(
            observation=self._observe(copy, row),  # type: ignore[arg-type]
            action=self.action[copy, row % self.length],  # type: ignore[arg-type]
            reward=reward,  # type: ignore[arg-type]
            next_observation=self._observe(copy, row + walked),  # type: ignore[arg-type]
            next_action=np.zeros(size, np.int32),  # type: ignore[arg-type]
            termination=self.termination[copy, (row + walked - 1) % self.length].astype(np.float32),  # type: ignore[arg-type]
            discount=(discount**walked).astype(np.float32),  # type: ignore[arg-type]
            index=np.zeros(size, np.int32),  # type: ignore[arg-type]
            next_action_known=np.zeros(size, np.float32),  # type: ignore[arg-type]
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def restore(self, arrays: dict[str, Any]) -> None:
        """Everything as `arrays` gave it."""
        for name, value in arrays.items():
            getattr(self, name)[...] = np.asarray(value)

    def _write(self, copy: int, frame: np.ndarray, before: int) -> None:
        place = self.count[copy] % self.length
        self.frame[copy, place] = frame
        self.before[copy, place] = before
        self.recorded[copy, place] = False
        self.count[copy] += 1

    def _draw(self, generator: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        """(copy, row) of recorded steps whose whole stack is still there."""
        full = self.count > self.length
        low = np.where(full, self.count - self.length + self.stack - 1, 0)
        copies, rows = np.zeros(0, np.int64), np.zeros(0, np.int64)
        while len(rows) < size:
            copy = generator.integers(len(self.count), size=2 * size)
            row = generator.integers(low[copy], np.maximum(self.count[copy] - 1, low[copy] + 1))
            good = self.recorded[copy, row % self.length]
            copies, rows = np.append(copies, copy[good]), np.append(rows, row[good])
        return copies[:size], rows[:size]

    def _observe(self, copy: np.ndarray, row: np.ndarray) -> np.ndarray:
        if self.stack == 1:
            return self.frame[copy, row % self.length]
        before = self.before[copy, row % self.length].astype(np.int64)
        age = np.minimum(np.arange(self.stack - 1, -1, -1)[None, :], before[:, None])
        return self.frame[copy[:, None], (row[:, None] - age) % self.length]
