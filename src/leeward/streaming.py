"""Training on rows that stay on the host: they are gathered a block of updates ahead.

Which transitions an update sees is decided as ever, by seed, phase and step (`data.sampling`), so
results are those of data in memory to the bit, however often a run is stopped and resumed. Plain
threads and memory maps serve better here than a loader of records such as grain: it would bring an
order of its own, and state to save, where any step's rows can be asked for directly.
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from leeward import engine
from leeward.data.dataset import Dataset, split_by_episode
from leeward.data.passes import part_size
from leeward.data.reduce import compact
from leeward.data.sampling import DeviceData, Scaling, choose, to_device
from leeward.data.staging import (
    HostRows,
    Staged,
    network_units,
    small_columns,
    staged_batch,
)
from leeward.devices import Programs, place
from leeward.errors import ConfigError
from leeward.job import Job
from leeward.types import EarlyStopping, Measurement, Metrics, Phase, PRNGKey, Sampling

BLOCK_BYTES = 2**26
"""Bytes of a block of rows; three exist at a time. Ours: a second of pixels on a CPU."""
BLOCK_UPDATES = 512
"""Updates of a block at most; ours: more saves nothing."""


class Block(NamedTuple):
    """The rows of consecutive updates, on the device."""

    first: int
    """The first update."""
    staged: Staged  # [N, L, B, …]


class Stream:
    """The rows of a job's data, block after block."""

    def __init__(self, job: Job, scaling: Scaling, key: Shaped[Array, " N"]) -> None:
        """Puts the small columns on the device.

        Args:
            job: what is to be trained.
            scaling: the maps to network units.
            key: every run's key.
        """
        self.columns = small_columns(job.dataset, scaling)
        self._dataset, self._config, self._scaling, self._key = (
            job.dataset,
            job.config,
            scaling,
            key,
        )
        self._thread = ThreadPoolExecutor(1, "rows")
        self._block: Block | None = None
        self._following: Future[Block] | None = None

    def programs(self, programs: Programs) -> Programs:
        """The programs of one device with those that this class makes in place of theirs."""
        return programs._replace(
            run_chunk=self.run_chunk, held_out_loss=self.held_out_loss, measure=self.measure
        )

    def split(self, fraction: float) -> tuple[DeviceData, DeviceData | None]:
        """(training, held-out) small columns."""
        if not fraction:
            return self.columns, None
        training, held_out = self._parts(fraction)
        return _of_part(self.columns, training), _of_part(self.columns, held_out)

    def begin(self, index: int, fraction: float, step: int, end: int) -> None:
        """Starts to gather for updates `step` to `end` of a phase that holds out `fraction`."""
        config, training = self._config, self._dataset
        if fraction:
            training, self._held_out = self._parts(fraction)
            self._held_out_rows = self._host_rows(self._held_out, 1)
        self._rows = self._host_rows(training, getattr(config, "n_step", 1))
        update_bytes = len(self._key) * config.batch_size * self._rows.transition_bytes
        self._length = max(1, min(BLOCK_UPDATES, BLOCK_BYTES // update_bytes, end - step))
        self._index, self._count, self._end = index, training.transitions, end
        self._block, self._following = None, self._request(step) if step < end else None

    def ready(self, step: int) -> int:
        """How many updates from `step` on have their rows on the device; waits for them."""
        if self._block is None or step >= self._block.first + self._length:
            assert self._following is not None
            self._block = self._following.result()
            after = self._block.first + self._length
            self._following = self._request(after) if after < self._end else None
        return self._block.first + self._length - step

    def run_chunk(
        self,
        phase: Phase,
        index: int,
        config: Any,
        state: Any,
        data: DeviceData,
        key: Shaped[Array, " N"],
        means: engine.Means,
        step: Int[Array, ""],
        length: Int[Array, ""],
    ) -> tuple[Any, engine.Means, dict[str, Float[Array, " N"]], Bool[Array, " N"]]:
        """What `engine.run_chunk` does, for at most as many updates as are ready."""
        assert self._block is not None
        first, staged = jnp.int32(self._block.first), self._block.staged
        given = config, state, data, staged, key, means, first, step, length
        return _run_chunk(phase, index, *given)

    def held_out_loss(
        self, stopping: EarlyStopping, config: Any, state: Any, data: DeviceData
    ) -> Float[Array, " N"]:
        """What `engine.held_out_loss` does, part by part."""
        count, size = data.start.shape[0], part_size(data)
        batches = -(-count // size)
        batch_bytes = size * self._held_out_rows.transition_bytes
        together = max(1, min(batches, BLOCK_BYTES // batch_bytes))
        total = jnp.zeros(len(self._key))
        for begin in range(0, batches, together):
            position = np.arange(begin * size, (begin + together) * size).reshape(together, size)
            index = np.minimum(position, count - 1).astype(np.int32)
            staged = _on_device(self._scaling, self._held_out_rows, index)
            number = jnp.int32(begin)
            total = _add_losses(stopping, config, state, total, data, staged, number)
        return _mean(total, count)

    def measure(
        self,
        measurement: Measurement,
        config: Any,
        state: Any,
        data: DeviceData,
        held_out: DeviceData | None,
    ) -> dict[str, Float[Array, " N"]]:
        """What `engine.measure` does, on as many held-out transitions as make up a block."""
        if held_out is not None:
            held_out = self._first_held_out()
        return engine.measure(measurement, config, state, data, held_out)

    def _first_held_out(self) -> DeviceData:
        """The first held-out transitions with their rows on the device."""
        most = max(1, BLOCK_BYTES // self._held_out_rows.transition_bytes)
        held_out, stored = self._held_out, self._dataset.next_observation
        chosen = held_out.select_transitions(np.arange(held_out.transitions) < most)
        if stored is not None:
            number = np.searchsorted(self._dataset.start, chosen.start)
            chosen = dataclasses.replace(chosen, next_observation=stored[number])
        return to_device(compact(chosen), self._scaling)

    def _parts(self, fraction: float) -> tuple[Dataset, Dataset]:
        """(training, held-out) transitions; next observations are left out, not copied."""
        rows = dataclasses.replace(self._dataset, next_observation=None)
        return split_by_episode(rows, fraction, seed=0)

    def _host_rows(self, part: Dataset, n_step: int) -> HostRows:
        return HostRows(self._dataset, part, self.columns.frames_before, n_step)

    def _request(self, step: int) -> Future[Block]:
        """The block from `step` on, to be gathered in the background."""
        # Drawn before the next chunk is sent off, or a busy device would draw after it.
        config = self._config
        draw = config.sampling, self._count, config.batch_size, self._index, self._length
        index = _draw(*draw, self._key, jnp.int32(step))
        return self._thread.submit(_gathered, self._scaling, self._rows, step, index)


def check_streams(job: Job) -> None:
    """Raises ConfigError where a job needs all rows at once."""
    name = job.algorithm.name.replace("_", "-")
    if job.algorithm.all_rows is not None:
        raise ConfigError(
            f"{name} {job.algorithm.all_rows}, so its data cannot stay on disk: use "
            "--data-location memory, or another algorithm"
        )
    if job.options.select == "ope":
        raise ConfigError(
            "--select ope estimates from all rows at once, so the data cannot stay on disk: use "
            "--data-location memory, or --select evaluation"
        )
    # A number that is named is refused first: this process, which plans, may have fewer.
    if (job.options.devices or 1) > 1 or place(job).mesh is not None:
        raise ConfigError(
            "--data-location disk feeds one device: add --devices 1, or use --data-location memory"
        )


def _of_part(columns: DeviceData, part: Dataset) -> DeviceData:
    return columns._replace(
        start=jnp.asarray(part.start, jnp.int32), steps_left=jnp.asarray(part.steps_left())
    )


def _gathered(scaling: Scaling, rows: HostRows, step: int, index: Int[Array, "N L B"]) -> Block:
    return Block(step, _on_device(scaling, rows, np.asarray(index)))


def _on_device(scaling: Scaling, rows: HostRows, index: np.ndarray) -> Staged:
    return network_units(scaling, jax.device_put(rows.fetch(index)))


@partial(jax.jit, static_argnames=("sampling", "count", "batch_size", "index", "length"))
def _draw(
    sampling: Sampling,
    count: int,
    batch_size: int,
    index: int,
    length: int,
    key: Shaped[Array, " N"],
    first: Int[Array, ""],
) -> Int[Array, "N L B"]:
    """The transitions of `length` updates of every run, as `engine.one_update` chooses them."""

    def one_run(key: PRNGKey) -> Int[Array, "L B"]:
        phase_key = jax.random.fold_in(key, index)

        def one_step(step: Array) -> Int[Array, " B"]:
            sample_key, _ = jax.random.split(jax.random.fold_in(phase_key, step))
            return choose(sampling, count, batch_size, phase_key, sample_key, step)

        return jax.lax.map(one_step, first + jnp.arange(length))

    return jax.lax.map(one_run, key)


@partial(
    jax.jit,
    static_argnames=("phase", "index"),
    donate_argnames=("state", "means"),
    compiler_options=engine.COMPILER,
)
def _run_chunk(
    phase: Phase,
    index: int,
    config: Any,
    state: Any,
    data: DeviceData,
    staged: Staged,
    key: Shaped[Array, " N"],
    means: engine.Means,
    first: Int[Array, ""],
    step: Int[Array, ""],
    length: Int[Array, ""],
) -> tuple[Any, engine.Means, dict[str, Float[Array, " N"]], Bool[Array, " N"]]:
    """`length` updates of every run from update number `step` on; `staged` begins at `first`."""

    def one(
        config: Any, state: Any, own: tuple[PRNGKey, Staged], step: Array
    ) -> tuple[Any, Metrics]:
        key, staged = own
        _, update_key = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, index), step))
        discount, n_step = getattr(config, "discount", 1.0), getattr(config, "n_step", 1)
        batch = staged_batch(data, _at(staged, step - first), discount, n_step)
        return phase.update(config, state, batch, update_key, step)

    state, means = engine.repeat_updates(one, config, state, (key, staged), means, step, length)
    return state, means, engine.averages(means), engine.finite(state)


def _at(staged: Staged, position: Array) -> Staged:
    """The rows of one batch out of [L, B, …]."""
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, position, keepdims=False), staged
    )


@partial(jax.jit, static_argnames=("stopping",))
def _add_losses(
    stopping: EarlyStopping,
    config: Any,
    state: Any,
    total: Float[Array, " N"],
    data: DeviceData,
    staged: Staged,
    first: Int[Array, ""],
) -> Float[Array, " N"]:
    """The sums with the losses of staged batches [L, B, …] added; the first has number `first`."""
    count, size = data.start.shape[0], staged.index.shape[1]

    def one_run(config: Any, state: Any, total: Float[Array, ""]) -> Float[Array, ""]:
        def body(number: Array, total: Array) -> Array:
            position = (first + number) * size + jnp.arange(size)
            discount = getattr(config, "discount", 1.0)
            batch = staged_batch(data, _at(staged, number), discount, 1)
            loss = stopping.loss(config, state, batch)
            return total + jnp.where(position < count, loss, 0.0).sum()

        return jax.lax.fori_loop(0, staged.index.shape[0], body, total)

    return engine.over_runs(one_run, config, state, total)


@partial(jax.jit, static_argnames=("count",))
def _mean(total: Float[Array, " N"], count: int) -> Float[Array, " N"]:
    """Compiled, so that it divides as the program of data in memory does."""
    return total / count
