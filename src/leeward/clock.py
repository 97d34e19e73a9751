"""`Clock`: updates a second, without the time between chunks."""

from __future__ import annotations

import time


class Clock:
    """Times chunks of updates; evaluations, checkpoints and compilation do not count."""

    def __init__(self) -> None:
        self.rate = 0.0
        """Updates a second of the last chunk."""
        self._mark = time.perf_counter()
        self._seconds, self._updates = 0.0, 0

    def start(self) -> None:
        """Time counts from now on."""
        self._mark = time.perf_counter()

    def chunk(self, length: int) -> None:
        """`length` updates have just ended."""
        now = time.perf_counter()
        elapsed, self._mark = max(now - self._mark, 1e-9), now
        self.rate = length / elapsed
        self._seconds, self._updates = self._seconds + elapsed, self._updates + length

    def window_rate(self) -> float:
        """Updates a second since the last call."""
        rate = self._updates / max(self._seconds, 1e-9)
        self._seconds, self._updates = 0.0, 0
        return rate

    def chunk_limit(self, seconds: float, length: int) -> int:
        """How many updates the next chunk may have, after one of `length`, to take `seconds`."""
        if not self.rate:
            return length
        return max(1, min(int(self.rate * seconds), 8 * length))
