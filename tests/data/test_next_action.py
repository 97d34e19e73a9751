"""Which transitions know the action that was taken next: never one of another episode."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.sampling import fit_scaling, gather, to_device
from leeward.types import Batch

# Two episodes of 3 steps: the first is cut by a time limit, the second ends the task.
OBSERVATION = np.arange(6.0)[:, None]
NEXT_OBSERVATION = np.array([1.0, 2.0, 2.5, 4.0, 5.0, 5.5])[:, None]
ACTION = np.linspace(-1.0, 1.0, 6)[:, None]
REWARD = np.zeros(6)
TERMINATION = np.arange(6) == 5
TRUNCATION = np.arange(6) == 2


def batch_of(dataset: Dataset, n_step: int = 1) -> Batch:
    """Every transition of the data set."""
    data = to_device(dataset, fit_scaling(dataset, normalize_observations=False))
    return gather(data, jnp.arange(dataset.transitions), 0.9, n_step)


def dataset_with(next_observation: np.ndarray | None) -> Dataset:
    return Dataset.from_arrays(
        OBSERVATION,
        ACTION,
        REWARD,
        TERMINATION,
        TRUNCATION,
        next_observation=next_observation,
        action_low=-1.0,
        action_high=1.0,
    )


def test_the_last_step_of_an_episode_knows_no_next_action() -> None:
    batch = batch_of(dataset_with(NEXT_OBSERVATION))
    np.testing.assert_array_equal(batch.next_action_known, [1, 1, 0, 1, 1, 0])
    known = np.asarray(batch.next_action_known) == 1
    np.testing.assert_allclose(
        np.asarray(batch.next_action)[known], ACTION[[1, 2, 4, 5]], rtol=1e-6
    )


def test_the_next_row_s_action_is_another_episode_s_where_the_task_ended() -> None:
    """Without stored next observations no extra row parts the episodes."""
    termination = TERMINATION | TRUNCATION
    dataset = Dataset.from_arrays(
        OBSERVATION, ACTION, REWARD, termination, action_low=-1.0, action_high=1.0
    )
    batch = batch_of(dataset)
    index = np.flatnonzero(np.asarray(dataset.start) == 2)
    assert len(index) == 1  # the terminal step does start a transition
    assert batch.next_action[index[0], 0] == np.float32(ACTION[3, 0])  # of the other episode
    np.testing.assert_array_equal(np.asarray(batch.next_action_known)[index], 0.0)


def test_a_walk_of_several_steps_asks_for_the_action_after_its_last_step() -> None:
    batch = batch_of(dataset_with(NEXT_OBSERVATION), n_step=2)
    np.testing.assert_array_equal(batch.next_action_known, [1, 0, 0, 1, 0, 0])
    np.testing.assert_allclose(np.asarray(batch.next_action)[[0, 3]], ACTION[[2, 5]], rtol=1e-6)


def test_shuffled_transitions_know_no_next_action() -> None:
    shuffled = NEXT_OBSERVATION[::-1] + 10.0
    batch = batch_of(dataset_with(shuffled))
    np.testing.assert_array_equal(batch.next_action_known, np.zeros(6))
