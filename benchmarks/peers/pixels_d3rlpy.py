"""IL, BCQ or CQL on stacked frames by d3rlpy. Prints updates a second.

Its own networks (one trunk and encoder for BCQ, run once for values and once for the model) and
batch sampling; 200 quantiles and next actions of the online network for CQL.

    python benchmarks/peers/pixels_d3rlpy.py cql 200
"""

from __future__ import annotations

import logging
import sys
import time

import d3rlpy
import numpy as np
from d3rlpy.dataset import FrameStackTransitionPicker, MDPDataset
from d3rlpy.models.q_functions import QRQFunctionFactory
from d3rlpy.preprocessing import PixelObservationScaler

ROWS, SIDE, STACK, ACTIONS, BATCH = 5_000, 84, 4, 6, 32
WARM_UP = 20


def main() -> None:
    """Warms up, then times."""
    name, updates = sys.argv[1], int(sys.argv[2])
    logging.disable()
    d3rlpy.seed(0)
    generator = np.random.default_rng(0)
    dataset = MDPDataset(
        observations=generator.integers(0, 256, (ROWS, 1, SIDE, SIDE), np.uint8),
        actions=generator.integers(0, ACTIONS, (ROWS, 1)),
        rewards=generator.normal(size=(ROWS, 1)).astype(np.float32),
        terminals=np.zeros(ROWS, np.float32),
        timeouts=(np.arange(ROWS) % 1_000 == 999).astype(np.float32),
        transition_picker=FrameStackTransitionPicker(STACK),
        action_space=d3rlpy.constants.ActionSpace.DISCRETE,
        action_size=ACTIONS,
    )
    shared = {"batch_size": BATCH, "observation_scaler": PixelObservationScaler()}
    config = {
        "il": lambda: d3rlpy.algos.DiscreteBCConfig(**shared, learning_rate=1e-4),
        "bcq": lambda: d3rlpy.algos.DiscreteBCQConfig(**shared),
        "cql": lambda: d3rlpy.algos.DiscreteCQLConfig(
            **shared,
            learning_rate=1e-4,
            alpha=10.0,
            q_func_factory=QRQFunctionFactory(n_quantiles=200),
        ),
    }[name]()
    algorithm = config.create(device="cpu:0")
    algorithm.build_with_dataset(dataset)
    for _ in range(WARM_UP):
        algorithm.update(dataset.sample_transition_batch(BATCH))
    begin = time.perf_counter()
    for _ in range(updates):
        algorithm.update(dataset.sample_transition_batch(BATCH))
    print(f"{updates / (time.perf_counter() - begin):.1f}")


if __name__ == "__main__":
    main()
