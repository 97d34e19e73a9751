"""Trains the same runs on one and on several devices: several_devices.py FOLDER.

A process of its own, since the number of virtual CPU devices is fixed when JAX starts:
tests/test_devices.py starts it with four. Most runs are of an algorithm so small that it compiles
at once: linear regression with everything that the engine offers to a phase.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import leeward
import small_environments  # noqa: F401 (registers LeewardTest/Line-v0)
from leeward.algorithms import ALGORITHMS
from leeward.config import config as configuration
from leeward.data.passes import mean_over, over_transitions
from leeward.data.sampling import DeviceData
from leeward.devices import Placement
from leeward.types import (
    Algorithm,
    Batch,
    EarlyStopping,
    Measurement,
    Metrics,
    Phase,
    PRNGKey,
    Sampling,
    Spec,
    Step,
)


@configuration
class Config:
    steps: int = 30
    """Updates of the second phase."""
    first_steps: int = 6
    """Updates of the first one."""
    batch_size: int = 8
    """Transitions an update."""
    lr: float = 0.3
    """Step along the gradient."""
    normalize_observations: bool = True
    """Standardize observations."""
    sampling: Sampling = "uniform"
    """How transitions are drawn."""


class State(NamedTuple):
    weight: Float[Array, "obs A"]
    center: Float[Array, " obs"]  # of the data; filled in when the second phase begins


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    size = spec.observation_shape[0]
    return State(jax.random.normal(key, (size, 1)), jnp.zeros(size))


def enter(config: Config, state: State, data: DeviceData, key: PRNGKey) -> State:
    seen = over_transitions(lambda number: data.observation[data.start[number]], data)
    return state._replace(center=seen.mean(axis=0))


def loss(config: Config, state: State, batch: Batch) -> Float[Array, " B"]:
    change = act(state, batch.next_observation, jax.random.key(0)) - batch.action
    error = act(state, batch.observation, jax.random.key(0)) - batch.action
    return (jnp.square(error) + 0.1 * jnp.square(change)).sum(axis=1)


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    noise = 0.1 * jax.random.normal(key, batch.observation.shape)
    noisy = batch._replace(observation=batch.observation + noise)

    def total(weight: Array) -> Array:
        return loss(config, state._replace(weight=weight), noisy).mean()

    found, gradient = jax.value_and_grad(total)(state.weight)
    return state._replace(weight=state.weight - config.lr * gradient), {"fit/loss": found}


def measured(
    config: Config, state: State, data: DeviceData, held_out: DeviceData | None
) -> Metrics:
    def one(batch: Batch) -> dict[str, Array]:
        return {"loss": loss(config, state, batch)}

    return {
        f"{name}/loss": mean_over(one, part)["loss"]
        for name, part in (("training", data), ("held_out", held_out))
        if part is not None
    }


def act(policy: State, observation: Float[Array, "*B obs"], key: PRNGKey) -> Array:
    centered = observation - jnp.broadcast_to(policy.center, observation.shape)
    return jnp.tanh(centered @ policy.weight)


ALGORITHMS["regression"] = Algorithm(
    name="regression",
    config_type=Config,
    init=init,
    phases=(
        Phase("first", lambda config: config.first_steps, update),
        Phase(
            "train",
            lambda config: config.steps,
            update,
            enter,
            EarlyStopping(loss, lambda config: 0.2, lambda config: 4, lambda config: 50),
            Measurement(measured),
        ),
    ),
    policy=lambda state: state,
    act=act,
)
REGRESSION: dict[str, Any] = {
    "algorithm": "regression",
    "seeds": range(6),
    "env": "LeewardTest/Line-v0",
    "eval_every": 15,
    "eval_episodes": 2,
}
TD3: dict[str, Any] = {"algorithm": "td3_bc", "hidden": (8,), "seeds": (0, 1), "steps": 20}


def dataset(*, shuffled: bool) -> leeward.Dataset:
    """Episodes of 2 to 6 steps on the line; shuffled: next observations stored apart."""
    generator = np.random.default_rng(0)
    length = 2 + np.arange(30) % 5
    rows = int(length.sum())
    last = np.zeros(rows, bool)
    last[np.cumsum(length) - 1] = True
    observation = generator.normal(size=(rows, 2))
    return leeward.Dataset.from_arrays(
        observation,
        np.clip(generator.normal(size=(rows, 1)), -2.0, 2.0),
        generator.normal(size=rows),
        last & (np.arange(rows) % 2 == 0),
        last & (np.arange(rows) % 2 == 1),
        next_observation=observation + 0.1 if shuffled else None,
        action_low=-2.0,
        action_high=2.0,
        metadata={"name": "line"},
    )


HELD: list[dict[str, list[int]]] = []
"""Rows that every device holds of every column, whenever data are laid out on several."""
share = Placement.share


def recorded_share(self: Placement, data: DeviceData) -> DeviceData:
    """`Placement.share`, whose results are remembered in `HELD`."""
    shared = share(self, data)
    if self.mesh is not None:
        HELD.append(
            {
                name: [len(shard.data) for shard in column.addressable_shards]
                for name, column in shared._asdict().items()
                if column is not None
            }
        )
    return shared


def stop_at_14(row: Mapping[str, Any]) -> None:
    """Ends training as a crash would."""
    if row["step"] == 14:
        raise InterruptedError


def main(folder: Path) -> None:
    """Every run that the tests compare, in a folder of its own."""
    assert len(jax.devices()) == 4, jax.devices()
    Placement.share = recorded_share
    rows, shuffled = dataset(shuffled=False), dataset(shuffled=True)

    def train(
        name: str, setting: dict[str, Any], data: leeward.Dataset = rows, **more: Any
    ) -> None:
        values: dict[str, Any] = {
            "batch_size": 8, "quiet": True, "logger": (), "log_every": 7, "checkpoint_every": 100,
            "eval_every": 0, "ignore_errors": True,
        }  # fmt: skip
        values |= setting | more
        HELD.clear()
        leeward.train(values.pop("algorithm"), data, run_dir=folder / name, **values)
        (folder / f"{name}.json").write_text(json.dumps(HELD))

    def resumed(name: str, first: int, then: int) -> None:
        """Trains two runs until a line after a checkpoint, and goes on elsewhere."""
        with contextlib.suppress(InterruptedError):
            brief = {"seeds": range(2), "checkpoint_every": 10, "on_metrics": stop_at_14}
            train(name, REGRESSION, devices=first, **brief)
        leeward.resume(folder / name, data=rows, devices=then, quiet=True)

    train("one", REGRESSION)
    train("three", REGRESSION, devices=3)
    train("five-on-four", REGRESSION, seeds=range(5), devices=4)
    resumed("two-then-one", 2, 1)
    resumed("one-then-two", 1, 2)
    brief = REGRESSION | {"seeds": range(4), "eval_every": 0}
    train("shuffled", brief, shuffled)
    train("shuffled-in-parts", brief, shuffled, devices=4, shard_data=True)
    train("shuffled-batch-in-parts", brief, shuffled, devices=4, split="batch", shard_data=True)
    train("td3", TD3)
    train("td3-two", TD3, devices=2)
    train("td3-batch", TD3, devices=4, split="batch")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
