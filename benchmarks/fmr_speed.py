"""What FMR's term costs: updates a second of BC, and of FMR's policy with and without its cache.

Same network, batches and synthetic data for all; compiled first, then the fastest of several
rounds. The machine must be idle.

    python benchmarks/fmr_speed.py
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from leeward import engine
from leeward.algorithms import bc, fmr
from leeward.data.dataset import Dataset
from leeward.data.sampling import DeviceData, fit_scaling, to_device
from leeward.nn.behavior import outputs
from leeward.nn.feedback import standardize
from leeward.types import Algorithm, Batch, Metrics, Phase, PRNGKey, Step

TRANSITIONS, OBSERVATION, ACTION = 200_000, 17, 6  # HalfCheetah's shapes


def synthetic() -> Dataset:
    """Episodes of 1,000 steps of random numbers."""
    draw = np.random.default_rng(0)
    return Dataset.from_arrays(
        draw.normal(size=(TRANSITIONS, OBSERVATION)),
        draw.uniform(-0.9, 0.9, size=(TRANSITIONS, ACTION)),
        draw.normal(size=TRANSITIONS),
        np.arange(TRANSITIONS) % 1000 == 999,
        action_low=-1.0,
        action_high=1.0,
    )


def update_without_cache(
    config: fmr.Config, state: fmr.State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[fmr.State, Metrics]:
    """The policy's update, with behavior model and value computed anew for every batch."""
    output = outputs(state.behavior.model, batch.observation, batch.index)
    signal = standardize(fmr.raw_signal(config, state, batch.observation, output))
    fresh = state._replace(reference=output, signal=signal)
    numbered = batch._replace(index=jnp.arange(batch.reward.shape[0]))
    new, metrics = fmr.update_policy(config, fresh, numbered, key, step)
    return new._replace(reference=state.reference, signal=state.signal), metrics


def rate(
    algorithm: Algorithm,
    phase: Phase,
    config: Any,
    dataset: Dataset,
    data: DeviceData,
    updates: int,
) -> float:
    """Updates a second of one run."""
    config = engine.stack_configs(config, [{}])
    key = engine.run_keys([0])
    state = engine.init_states(algorithm.init, dataset.spec, config, key)
    if phase.enter is not None:
        state = engine.enter_phase(phase, 0, config, state, data, key)
    best = np.inf
    for _ in range(4):  # the first compiles
        means = engine.zero_means(phase, 0, config, state, data, key)
        begin = time.perf_counter()
        state, *rest = engine.run_chunk(
            phase, 0, config, state, data, key, means, jnp.int32(0), jnp.int32(updates)
        )
        jax.block_until_ready(rest)
        best = min(best, time.perf_counter() - begin)
    return updates / best


def main() -> None:
    """Prints one line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--updates", type=int, default=3_000)
    options = parser.parse_args()
    dataset = synthetic()
    data = to_device(dataset, fit_scaling(dataset, normalize_observations=True))
    cached = fmr.ALGORITHM.phases[-1]
    rows = {
        "bc": (bc.ALGORITHM, bc.ALGORITHM.phases[0], bc.Config(density="gaussian")),
        "fmr": (fmr.ALGORITHM, cached, fmr.Config()),
        "fmr without cache": (
            fmr.ALGORITHM,
            cached._replace(update=update_without_cache),
            fmr.Config(),
        ),
        "fmr, kl from samples": (fmr.ALGORITHM, cached, fmr.Config(behavior="mixture")),
    }
    for name, (algorithm, phase, config) in rows.items():
        found = rate(algorithm, phase, config, dataset, data, options.updates)
        print(f"{name}: {found:.0f} updates/s")


if __name__ == "__main__":
    main()
