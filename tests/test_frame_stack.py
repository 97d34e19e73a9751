"""Stacks built by index equal those of the live wrapper, over whole episodes, bit for bit."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from leeward.data.dataset import Dataset
from leeward.data.sampling import check_sampling, fit_scaling, gather, to_device
from leeward.errors import DataError

STACK = 4


class Noise(gymnasium.Env):
    """Every frame is new noise; episodes end after 1 to 7 steps, every third by a time limit."""

    def __init__(self) -> None:
        self.observation_space = Box(0, 255, (3, 2), np.uint8)
        self.action_space = Discrete(2)
        self.episode, self.left = -1, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.episode += 1
        self.left = 1 + self.episode % 7
        return self.frame(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self.left -= 1
        ended, limit = self.left == 0, self.episode % 3 == 2
        return self.frame(), 1.0, ended and not limit, ended and limit, {}

    def frame(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (3, 2), np.uint8)


@pytest.fixture(scope="module")
def recorded() -> tuple[Dataset, np.ndarray, np.ndarray]:
    """(frames as data, the wrapper's stacks before and after every step)."""
    env = gymnasium.wrappers.FrameStackObservation(Noise(), STACK)
    rows: list[tuple[Any, ...]] = []
    stacks: list[tuple[np.ndarray, np.ndarray]] = []
    for episode in range(21):
        observation, _ = env.reset(seed=episode)
        ended = False
        while not ended:
            following, reward, termination, truncation, _ = env.step(0)
            stacks.append((observation, following))
            rows.append((observation[-1], 0, reward, termination, truncation, following[-1]))
            observation, ended = following, termination or truncation
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    data = Dataset.from_arrays(
        *columns[:5],
        next_observation=columns[5],
        action_count=2,
        metadata={"frame_stack": STACK},
    )
    before, after = (np.array(side) for side in zip(*stacks, strict=True))
    return data, before, after


def test_every_stack_is_the_wrapper_s(recorded: tuple[Dataset, np.ndarray, np.ndarray]) -> None:
    data, before, after = recorded
    assert data.spec.observation_shape == (STACK, 3, 2)
    assert data.observation.shape == (len(before) + 21, 3, 2)  # each frame once
    batch = gather(to_device(data, fit_scaling(data, True)), jnp.arange(data.transitions), 0.9)
    assert batch.observation.dtype == jnp.uint8
    np.testing.assert_array_equal(batch.observation, before)
    np.testing.assert_array_equal(batch.next_observation, after)


def test_stacks_three_steps_on_never_cross_an_end(
    recorded: tuple[Dataset, np.ndarray, np.ndarray],
) -> None:
    data, _, after = recorded
    device = to_device(data, fit_scaling(data, True))
    batch = gather(device, jnp.arange(data.transitions), 0.9, n_step=3)
    walked = np.minimum(3, data.steps_left())
    np.testing.assert_array_equal(batch.reward, np.array([1.0, 1.9, 2.71])[walked - 1].astype("f4"))
    np.testing.assert_array_equal(
        batch.next_observation, after[np.arange(data.transitions) + walked - 1]
    )


def test_rows_before_the_first_step_belong_to_its_stack(
    recorded: tuple[Dataset, np.ndarray, np.ndarray],
) -> None:
    data, before, _ = recorded
    long = int(np.argmax(data.episode_lengths()))
    rows = data.episode_of_row[data.start] == long
    late = dataclasses.replace(data, start=data.start[rows][3:])
    batch = gather(to_device(late, fit_scaling(late, True)), jnp.arange(late.transitions), 0.9)
    np.testing.assert_array_equal(batch.observation, before[rows][3:])


def test_stored_next_frames_follow_the_newest_three() -> None:
    draw = np.random.default_rng(0)
    frame, other = draw.integers(0, 256, (2, 6, 3, 2), np.uint8)
    third = np.arange(6) % 3 == 0
    data = Dataset.from_arrays(
        frame,
        np.zeros(6, int),
        np.zeros(6),
        np.zeros(6, bool),
        np.arange(6) == 5,
        next_observation=np.where(third[:, None, None], other, np.roll(frame, -1, axis=0)),
        metadata={"frame_stack": 3},
    )
    assert data.next_observation is not None
    batch = gather(to_device(data, fit_scaling(data, False)), jnp.asarray([3]), 0.9)
    np.testing.assert_array_equal(batch.observation[0], frame[1:4])
    np.testing.assert_array_equal(batch.next_observation[0], [frame[2], frame[3], other[3]])


def test_the_number_of_stacked_frames_is_part_of_the_content(
    recorded: tuple[Dataset, np.ndarray, np.ndarray],
) -> None:
    data = recorded[0]
    assert data.content_hash() != data.with_metadata(frame_stack=2).content_hash()


def test_only_gray_images_can_be_stacked() -> None:
    data = Dataset.from_arrays(
        np.zeros((9, 2)),
        np.zeros(9, int),
        np.zeros(9),
        np.zeros(9, bool),
        metadata={"frame_stack": 4, "name": "vectors"},
    )
    with pytest.raises(DataError) as error:
        check_sampling(data, "uniform", 4, 1)
    assert str(error.value) == (
        "vectors says that 4 frames make one observation, but its rows are float32 of shape (2,): "
        "stacked frames must be gray images of bytes (uint8)"
    )
