"""Policies for `continuous_dataset` whose actions can be written down."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from leeward.algorithms import bc, td3_bc
from leeward.data.dataset import Dataset
from leeward.data.sampling import fit_scaling
from leeward.nn.actors import DeterministicActor, NormalActor
from leeward.nn.layers import MLP, Linear
from leeward.policy import Policy, TrainedRun


def push(data: Dataset, gain: float, seed: int = 0) -> Policy:
    """The action tanh(−gain · point), whatever the third number of the observation is."""
    weight = np.zeros((3, 2), np.float32)
    weight[:2] = -gain * np.eye(2)
    return Policy(
        algorithm=td3_bc.ALGORITHM,
        config=td3_bc.Config(hidden=()),
        spec=data.spec,
        scaling=fit_scaling(data, normalize_observations=False),
        policy=DeterministicActor(MLP((Linear(jnp.asarray(weight), jnp.zeros(2)),), ())),
        run=TrainedRun(seed, {}, 100),
    )


def sway(data: Dataset, gain: float, log_std: float) -> Policy:
    """The action tanh(−gain · point + noise), the noise normal with that log-std."""
    weight = np.zeros((3, 4), np.float32)
    weight[:2, :2] = -gain * np.eye(2)
    bias = jnp.asarray([0.0, 0.0, log_std, log_std])
    return Policy(
        algorithm=bc.ALGORITHM,
        config=bc.Config(hidden=(), density="gaussian"),
        spec=data.spec,
        scaling=fit_scaling(data, normalize_observations=False),
        policy=NormalActor(MLP((Linear(jnp.asarray(weight), bias),), ())),
        run=TrainedRun(0, {}, 100),
    )
