"""A density of the actions in the data, fitted where none is given: behavior cloning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from leeward import engine
from leeward.algorithms import bc, discrete_bc
from leeward.data.dataset import Dataset, split_by_episode
from leeward.data.sampling import DeviceData, Scaling
from leeward.policy import Policy, TrainedRun
from leeward.types import Discrete

HELD_OUT = 0.1
"""Share of episodes on which the density is measured (ours)."""
MEASUREMENTS = 20
"""How often it is measured; the best of them is kept."""


def fit_behavior(
    dataset: Dataset,
    data: DeviceData,
    scaling: Scaling,
    *,
    steps: int,
    hidden: tuple[int, ...],
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Policy:
    """The density of the data's actions: a mixture of tanh-normals, or a categorical.

    A tenth of the episodes is held out, and the weights that fit them best are kept: a density that
    has learned its data by heart would make every other policy look unlikely.

    Args:
        dataset: the data.
        data: the same on the device.
        scaling: their units.
        steps: updates.
        hidden: hidden sizes.
        seed: of weights and batches.
        on_progress: called with the updates made so far.
    """
    if isinstance(dataset.action_space, Discrete):
        algorithm = discrete_bc.ALGORITHM
        config: Any = discrete_bc.Config(steps=steps, batch_size=256, hidden=hidden)
    else:
        algorithm = bc.ALGORITHM
        config = bc.Config(steps=steps, density="mixture", hidden=hidden, lr=1e-3, lr_decay=True)
    phase = algorithm.phases[0]
    assert phase.early_stopping is not None
    training, held_out = _split(dataset, data)
    stacked, key = engine.stack_configs(config, [{}]), engine.run_keys([seed])
    state = engine.init_states(algorithm.init, dataset.spec, stacked, key)
    best = engine.first_best(state, 1)
    means = engine.zero_means(phase, 0, stacked, state, training, key)
    every = max(1, steps // MEASUREMENTS)
    for step in range(0, steps, every):
        length = min(every, steps - step)
        state, means, _, _ = engine.run_chunk(
            phase, 0, stacked, state, training, key, means, jnp.int32(step), jnp.int32(length)
        )
        loss = engine.held_out_loss(phase.early_stopping, stacked, state, held_out)
        best = engine.keep_best(best, state, loss, jnp.int32(steps))
        if on_progress is not None:
            on_progress(step + length)
    return Policy(
        algorithm=algorithm,
        config=config,
        spec=dataset.spec,
        scaling=scaling,
        policy=jax.tree.map(lambda leaf: leaf[0], algorithm.policy(best.state)),
        run=TrainedRun(seed, {}, steps),
    )


def _split(dataset: Dataset, data: DeviceData) -> tuple[DeviceData, DeviceData]:
    """(training, held-out) transitions; all of them twice where there is one episode only."""
    if len(np.unique(dataset.episode_of_row[dataset.start])) < 2:
        return data, data
    training, held_out = split_by_episode(dataset, HELD_OUT, seed=0)
    return _only(data, training), _only(data, held_out)


def _only(data: DeviceData, part: Dataset) -> DeviceData:
    """The transitions of `part`, without next observations, at which cloning does not look."""
    return data._replace(
        start=jnp.asarray(part.start, jnp.int32),
        steps_left=jnp.asarray(part.steps_left()),
        next_observation=None,
    )
