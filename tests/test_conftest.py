"""The conditions that every other test relies on."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from leeward.data.dataset import Dataset
from leeward.losses import temperature_loss
from leeward.types import Batch, Box, Discrete, PRNGKey


def test_implicit_broadcasting_is_an_error() -> None:
    with pytest.raises(ValueError, match="rank_promotion"):
        jnp.ones((2, 3)) + jnp.ones(3)


def test_array_annotations_are_checked() -> None:
    with pytest.raises(TypeCheckError):
        temperature_loss(jnp.zeros(3), jnp.zeros(2), -1.0)


def test_batch_shapes_are_checked(key: PRNGKey) -> None:
    from leeward.losses import td_target

    zeros = jnp.zeros((2,))
    batch = Batch(
        observation=jnp.zeros((2, 3)),
        action=jnp.zeros((2, 1)),
        reward=zeros,
        next_observation=jnp.zeros((2, 3)),
        next_action=jnp.zeros((2, 1)),
        termination=zeros,
        discount=zeros,
        index=jnp.zeros((2,), int),
        next_action_known=zeros,
    )
    assert td_target(batch, jnp.ones(2)).shape == (2,)
    with pytest.raises(TypeCheckError):
        td_target(batch, jnp.ones((2, 1)))


def test_no_test_reaches_another_machine() -> None:
    with (
        socket.socket() as connection,
        pytest.raises(RuntimeError, match="tests use no network"),
    ):
        connection.connect(("192.0.2.1", 80))


def test_caches_lie_in_the_test_s_own_folder(cache: Path, tmp_path: Path) -> None:
    assert os.environ["LEEWARD_CACHE"] == str(cache)
    assert cache.parent == tmp_path


def test_continuous_dataset_has_both_kinds_of_end(continuous_dataset: Dataset) -> None:
    assert continuous_dataset.action_space == Box((-1.0, -1.0), (1.0, 1.0))
    assert continuous_dataset.episodes == 40
    assert continuous_dataset.termination.sum() == continuous_dataset.truncation.sum() == 20
    assert np.abs(continuous_dataset.action).max() == 1.0  # some actions lie on the bound


def test_discrete_dataset_has_both_kinds_of_end(discrete_dataset: Dataset) -> None:
    assert discrete_dataset.action_space == Discrete(3)
    assert discrete_dataset.episodes == 40
    assert 0 < discrete_dataset.truncation.sum() < discrete_dataset.termination.sum() < 40
