"""Any algorithm with small data, small settings and compiled programs, for tests of all of them."""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from leeward.config import float_fields, from_json, to_json
from leeward.data.dataset import Dataset
from leeward.data.sampling import DeviceData, fit_scaling, gather, to_device
from leeward.engine import one_update
from leeward.types import Algorithm, Batch

UPDATES = 50
"""Length of every phase of the runs that are compared."""
FACTORS = (0.5, 10.0, 1e-3)
"""What a float setting is multiplied with to see it matter."""


def wave(rows: int, columns: int, phase: float) -> np.ndarray:
    """Numbers in ±1.2 [rows, columns] that look random and are the same everywhere."""
    angle = np.arange(rows * columns).reshape(rows, columns)
    return np.sin(phase + 2.7 * angle) + 0.2 * np.cos(0.31 * angle)


@functools.cache
def small_dataset(kind: str) -> Dataset:
    """24 episodes of 2 to 7 steps, every other truncated; some actions on the bounds."""
    length = 2 + np.arange(24) * 5 % 6
    rows = int(length.sum())
    last = np.zeros(rows, bool)
    last[np.cumsum(length) - 1] = True
    number = np.repeat(np.arange(24), length)
    observation = wave(rows, 3, 1.0)
    if kind == "continuous":
        action = np.clip(1.1 * wave(rows, 2, 2.0), -1.0, 1.0)
        bounds: dict[str, Any] = {"action_low": -1.0, "action_high": 1.0}
    else:
        action = np.arange(rows) ** 2 % 7 % 3
        bounds = {"action_count": 3}
    return Dataset.from_arrays(
        observation,
        action,
        wave(rows, 1, 3.0)[:, 0],
        last & (number % 2 == 0),
        last & (number % 2 == 1),
        next_observation=np.where(last[:, None], 3.0, np.roll(observation, -1, axis=0)),
        **bounds,
        metadata={"name": f"small-{kind}"},
    )


@functools.cache
def small_data(kind: str) -> DeviceData:
    """The same on the device."""
    dataset = small_dataset(kind)
    return to_device(dataset, fit_scaling(dataset, normalize_observations=False))


def small_config(algorithm: Algorithm, **changes: Any) -> Any:
    """The defaults and the changes, with tiny networks, batches and step numbers."""
    values = to_json(algorithm.config_type()) | changes
    for name, value in values.items():
        if "hidden" in name:
            values[name] = [6] * len(value) if isinstance(value, list | tuple) else 6
        elif name.endswith("steps") and value > UPDATES:
            values[name] = UPDATES
    return from_json(algorithm.config_type, values | {"batch_size": 8})


class Subject:
    """One algorithm on one kind of action space, with its compiled programs."""

    def __init__(self, algorithm: Algorithm, kind: str) -> None:
        self.algorithm, self.kind = algorithm, kind
        self.config = small_config(algorithm)
        self.spec, self.data = small_dataset(kind).spec, small_data(kind)
        phases = range(len(algorithm.phases))
        self.init = jax.jit(lambda config, key: algorithm.init(config, self.spec, key))
        # Runs that share a program: one as it is, the others each with a float setting changed.
        self.rows = 1 + len(FACTORS) * len(float_fields(algorithm.config_type))
        self._enter = [jax.jit(functools.partial(self.enter, index)) for index in phases]
        self._update = [jax.jit(phase.update) for phase in algorithm.phases]
        self._many = jax.jit(jax.vmap(self.train))

    def __str__(self) -> str:
        return f"{self.algorithm.name}-{self.kind}"

    def enter(self, index: int, config: Any, state: Any, key: Any) -> Any:
        """The state with the phase entered."""
        enter = self.algorithm.phases[index].enter
        return state if enter is None else enter(config, state, self.data, key)

    def train(self, config: Any, state: Any, key: Any) -> list[Any]:
        """All phases: after each its state, metrics of every update and held-out losses."""
        found = []
        for index, phase in enumerate(self.algorithm.phases):
            state = self.enter(index, config, state, key)
            state, metrics = jax.lax.scan(
                lambda state, step, index=index, phase=phase: one_update(
                    phase, index, config, state, self.data, key, step
                ),
                state,
                jnp.arange(UPDATES),
            )
            stopping = phase.early_stopping
            held_out = gather(self.data, jnp.arange(8), 0.9)
            loss = None if stopping is None else stopping.loss(config, state, held_out)
            found.append((state, metrics, loss))
        return found

    def program(self, config: Any, key: Any) -> list[Any]:
        """A whole run."""
        return self.train(config, self.algorithm.init(config, self.spec, key), key)

    @functools.cached_property
    def seeds(self) -> list[Any]:
        """Runs of as many seeds as the shared program has rows."""
        return self.many([self.config] * self.rows, list(range(self.rows)))

    def many(self, configs: list[Any], seeds: list[int]) -> list[Any]:
        """Whole runs side by side, in one program."""
        keys = [jax.random.key(seed) for seed in seeds]
        states = [self.init(config, key) for config, key in zip(configs, keys, strict=True)]
        return self._many(
            jax.tree.map(lambda *values: jnp.asarray(values, jnp.float32), *configs),
            jax.tree.map(lambda *values: jnp.stack(values), *states),
            jnp.stack(keys),
        )

    @functools.cached_property
    def states(self) -> list[Any]:
        """The state before the first update of every phase, earlier phases entered only."""
        state, found = self.init(self.config, jax.random.key(0)), []
        for enter in self._enter:
            state = enter(self.config, state, jax.random.key(1))
            found.append(state)
        return found

    def update(
        self, index: int, state: Any, batch: Batch, key: Any, step: int = 0
    ) -> tuple[Any, dict[str, Any]]:
        """One update of a phase, with reused keys an error."""
        with jax.debug_key_reuse(True):
            return self._update[index](self.config, state, batch, key, jnp.int32(step))

    def batch(self, ends: Literal["termination", "truncation"]) -> Batch:
        """Eight transitions that all end an episode in that way."""
        dataset = small_dataset(self.kind)
        index = np.flatnonzero(getattr(dataset, ends)[dataset.start])[:8]
        return gather(self.data, jnp.asarray(index), 0.9)


def leaves(tree: Any) -> list[np.ndarray]:
    """Every array of a tree."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(first: Any, second: Any) -> bool:
    """Whether two trees are equal bit for bit (NaN equals NaN)."""
    return all(
        np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating))
        for a, b in zip(leaves(first), leaves(second), strict=True)
    )
