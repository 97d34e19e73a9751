"""What the online learner saw: rows are written in place, and learned from where they lie."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from leeward.algorithms import sac
from leeward.replay import Transition, first_rows, learn, make_replay, remember
from leeward.types import Box, Spec

SPEC = Spec((3,), "float32", Box((-1.0,), (1.0,)))
CONFIG = sac.Config(hidden=(8,), batch_size=4)


def transition(number: float) -> Transition:
    """Told from others by its number."""
    row = np.full(3, number, np.float32)
    action = np.full(1, 0.1, np.float32)
    return Transition(row, action, np.float32(number), row + 1, number == 2, number == 1)


def test_rows_are_written_where_they_belong() -> None:
    replay = make_replay(SPEC, 4)
    for number in range(3):
        replay = remember(replay, transition(number), number)
    rows = first_rows(replay, 3)
    assert rows.data.next_observation is not None
    np.testing.assert_array_equal(rows.data.observation, np.arange(3)[:, None] * np.ones(3))
    np.testing.assert_array_equal(rows.data.next_observation, rows.data.observation + 1)
    np.testing.assert_array_equal(rows.data.reward, [0, 1, 2])
    np.testing.assert_array_equal(rows.data.termination, [False, False, True])
    np.testing.assert_array_equal(rows.truncation, [False, True, False])


def test_a_step_needs_no_memory_that_grows_with_the_replay() -> None:
    key = jax.random.key(0)
    scratch: list[tuple[int, int]] = []
    for rows in (100, 100_000):
        replay = make_replay(SPEC, rows)
        state = sac.init(CONFIG, SPEC, key)
        lowered = (
            remember.lower(replay, transition(0.0), 5),
            learn.lower(CONFIG, state, replay, key, 5),
        )
        memory: list[Any] = [one.compile().memory_analysis() for one in lowered]
        assert memory[0].alias_size_in_bytes >= sum(x.nbytes for x in jax.tree.leaves(replay))
        scratch.append((memory[0].temp_size_in_bytes, memory[1].temp_size_in_bytes))
    assert scratch[0] == scratch[1]
