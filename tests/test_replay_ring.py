"""The ring of latest rows: what is drawn equals what a slow record of all steps says."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from leeward.replay_ring import Ring

STACK, N_STEP, DISCOUNT = 3, 3, 0.5


class Step(NamedTuple):
    """One step of the slow record, found by the number in its frame."""

    stack: tuple[int, ...]
    reward: float
    following: tuple[int, ...]
    termination: bool
    ended: bool


def play(ring: Ring, steps: int, copies: int) -> list[list[Step]]:
    """Episodes of 1 to 6 steps in every copy; frames hold ascending numbers."""
    draw = np.random.default_rng(0)
    number = 0
    record: list[list[Step]] = [[] for _ in range(copies)]
    stacks: list[tuple[int, ...]] = []
    left = draw.integers(1, 7, copies)
    for copy in range(copies):
        number += 1
        ring.begin(copy, np.full(2, number))
        stacks.append((number,) * STACK)
    for _ in range(steps):
        for copy in range(copies):
            number += 1
            left[copy] -= 1
            ended = left[copy] == 0
            termination = bool(ended and number % 2)
            reward = float(draw.normal())
            following = (*stacks[copy][1:], number)
            ring.step(copy, number % 4, reward, termination, np.full(2, number))
            record[copy].append(Step(stacks[copy], reward, following, termination, bool(ended)))
            stacks[copy] = following
            if ended:
                number += 1
                ring.begin(copy, np.full(2, number))
                stacks[copy], left[copy] = (number,) * STACK, draw.integers(1, 7)
    return record


def slow_walk(record: list[Step], at: int) -> tuple[float, tuple[int, ...], float, float]:
    """(reward, next stack, termination, discount) of up to N_STEP steps."""
    total, step = 0.0, record[at]
    for ahead in range(N_STEP):
        if at + ahead == len(record):
            break
        step = record[at + ahead]
        total += DISCOUNT**ahead * step.reward
        walked = ahead + 1
        if step.ended:
            break
    return total, step.following, float(step.termination), DISCOUNT**walked


@pytest.mark.parametrize("rows", [1000, 25])
def test_batches_equal_the_slow_record(rows: int) -> None:
    ring = Ring(2, rows, (2,), "int64", STACK)
    record = play(ring, 60, 2)
    known = {step.stack: (copy, at) for copy in record for at, step in enumerate(copy)}
    batch = ring.sample(np.random.default_rng(1), 400, N_STEP, DISCOUNT)
    observation, following = (
        np.asarray(side)[..., 0] for side in (batch.observation, batch.next_observation)
    )
    seen = set()
    for i in range(400):
        copy, at = known[tuple(observation[i])]
        seen.add(tuple(observation[i]))
        reward, expected, termination, discount = slow_walk(copy, at)
        assert batch.reward[i] == pytest.approx(reward, abs=1e-6)
        assert tuple(following[i]) == expected
        assert (batch.termination[i], batch.discount[i]) == (termination, discount)
    if rows == 1000:
        assert len(seen) > 110  # nearly all of 120
    else:  # the oldest are gone, and so are those whose stack lost a frame
        newest = {step.stack for copy in record for step in copy[-25:]}
        assert seen <= newest


def test_the_newest_row_is_what_a_policy_sees() -> None:
    ring = Ring(2, 25, (2,), "int64", STACK)
    record = play(ring, 7, 2)
    for copy, stack in enumerate(ring.newest()[..., 0]):
        last = record[copy][-1]
        expected = stack if last.ended else last.following
        np.testing.assert_array_equal(stack, expected)
        if last.ended:
            assert len(set(stack.tolist())) == 1


def test_whole_observations_need_no_stack() -> None:
    ring = Ring(1, 10, (2,), "float32", 1)
    ring.begin(0, np.array([1.0, 2.0]))
    ring.step(0, 1, 3.0, False, np.array([4.0, 5.0]))
    np.testing.assert_array_equal(ring.newest(), [[4.0, 5.0]])
    batch = ring.sample(np.random.default_rng(0), 2, 1, 0.9)
    np.testing.assert_array_equal(batch.observation, [[1.0, 2.0]] * 2)
    np.testing.assert_array_equal(batch.next_observation, [[4.0, 5.0]] * 2)


def test_a_restored_ring_draws_the_same() -> None:
    ring, other = (Ring(2, 25, (2,), "int64", STACK) for _ in range(2))
    play(ring, 60, 2)
    other.restore(ring.arrays())
    first, second = (r.sample(np.random.default_rng(3), 8, N_STEP, DISCOUNT) for r in (ring, other))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
