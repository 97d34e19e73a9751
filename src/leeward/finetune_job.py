"""`Start`: what a fine-tuning begins with. `Progress`: how far its runs have come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leeward.data.sampling import Scaling
from leeward.data.transforms import RewardMap
from leeward.replay_mixed import Mixture


class Start(NamedTuple):
    """What a fine-tuning begins with, and how it goes on."""

    state: Any
    """Of all runs, as offline training left it; shapes are enough to restore a checkpoint."""
    step: int
    """Updates that offline training made; numbers of updates go on from there."""
    scaling: Scaling
    rewards: RewardMap
    """What is done to the environment's rewards, as it was to the data's."""
    mixture: Mixture
    updates_per_step: int
    alpha_end: float | None
    """Where α goes (TD3+BC); None: it stays."""
    horizon: int
    """Steps over which it goes there."""
    note: str | None = None
    """What is to be said at the beginning."""


@dataclass
class Progress:
    """Where every run stands in its environment: the part of a checkpoint that is not arrays."""

    learned: int = 0
    """Updates made online."""
    seen: list[int] = field(default_factory=list)
    """[N] transitions seen."""
    available: list[int] = field(default_factory=list)
    """[N] those that updates may draw."""
    row: list[int] = field(default_factory=list)
    """[N] the row of the replay that comes next."""
    episode: list[int] = field(default_factory=list)
    """[N] episodes begun."""
    returns: list[list[float]] = field(default_factory=list)
    """[N] returns of the episodes that ended since the last line of metrics."""
    lengths: list[list[int]] = field(default_factory=list)
    """[N] their steps."""
    room: int = 0
    """Transitions for which the replay had room."""

    @staticmethod
    def of(runs: int, room: int) -> Progress:
        """Nothing done yet."""
        seen, available, row, episode = ([0] * runs for _ in range(4))
        returns, lengths = ([[] for _ in range(runs)] for _ in range(2))
        return Progress(0, seen, available, row, episode, returns, lengths, room)
