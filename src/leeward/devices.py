"""Several devices: which ones a job uses, how its arrays lie on them, and what they run.

Split by runs, every device runs the one-device program on its own runs, so each run's numbers are
those of one device. Split by batch, every run lies on all devices and each has its part of every
batch; XLA adds up their gradients, which is another order of the same sums.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Shaped

from leeward import engine
from leeward.data.dataset import Dataset
from leeward.data.sampling import DeviceData, Scaling, to_device
from leeward.errors import ConfigError
from leeward.job import Job
from leeward.split_rows import AXIS, SPLIT, as_if_whole
from leeward.types import Batch, Metrics, Phase, PRNGKey, Step, UpdateFn

WHOLE = PartitionSpec()
PARTS = PartitionSpec(AXIS)
SHARED = ("data", "held_out", "step", "length", "patience")
"""Arguments of the engine's functions that are the same for all runs; all others lead with N."""


class Programs(NamedTuple):
    """The engine's functions, as several devices run them."""

    init_states: Callable[..., Any] = engine.init_states
    enter_phase: Callable[..., Any] = engine.enter_phase
    zero_means: Callable[..., Any] = engine.zero_means
    run_chunk: Callable[..., Any] = engine.run_chunk
    held_out_loss: Callable[..., Any] = engine.held_out_loss
    measure: Callable[..., Any] = engine.measure
    keep_best: Callable[..., Any] = engine.keep_best


class Placement(NamedTuple):
    """How a job's arrays lie on devices."""

    runs: int
    """N."""
    mesh: Mesh | None = None
    """The devices side by side; None: one device, and nothing is moved."""
    split: Literal["runs", "batch"] = "runs"
    shard_data: bool = False
    """Whether observations lie in parts, one a device, rather than whole on every device."""

    @property
    def programs(self) -> Programs:
        """What runs on the arrays as they lie."""
        if self.mesh is None:
            return Programs()
        if self.split == "batch":
            return _batch_programs(self.mesh)
        return _run_programs(self.mesh, self.shard_data)

    @property
    def rows(self) -> int:
        """Length of stacked arrays: N, and where devices do not divide it a few runs twice."""
        if self.mesh is None or self.split == "batch":
            return self.runs
        return -(-self.runs // self.mesh.size) * self.mesh.size

    def spread(self, stacked: Any) -> Any:
        """Arrays [N, …], or as long as `rows`, to where programs want them."""
        if self.mesh is None:
            return stacked
        if self.split == "batch":
            return jax.device_put(stacked, NamedSharding(self.mesh, WHOLE))
        again = jnp.arange(self.rows) % self.runs
        stacked = jax.tree.map(
            lambda leaf: leaf if leaf.shape[0] == self.rows else leaf[again], stacked
        )
        return jax.device_put(stacked, NamedSharding(self.mesh, PARTS))

    def gather(self, stacked: Any) -> Any:
        """Arrays as `spread` left them, [N, …] again and, but for one device, in NumPy."""
        if self.mesh is None:
            return stacked
        # Copies: the programs overwrite their arrays.
        return jax.tree.map(lambda leaf: np.array(leaf)[: self.runs], stacked)

    def numbers(self, values: Shaped[Array, "rows *rest"]) -> Shaped[np.ndarray, "N *rest"]:
        """What a program found of every run."""
        return np.asarray(values)[: self.runs]

    def data(self, dataset: Dataset, scaling: Scaling) -> DeviceData:
        """The data set, on all devices or in parts."""
        if self.mesh is None:
            return to_device(dataset, scaling)
        if self.shard_data:
            return self.share(to_device(dataset, scaling, self._put_parts))
        return self.share(to_device(dataset, scaling))

    def share(self, data: DeviceData) -> DeviceData:
        """Data of which some columns were made on one device, all columns where they belong."""
        if self.mesh is None:
            return data
        columns = {name: value for name, value in data._asdict().items() if value is not None}
        for name, column in columns.items():
            in_parts = self.shard_data and name in SPLIT
            if in_parts and len(column) % self.mesh.size:
                missing = -len(column) % self.mesh.size
                column = jnp.concatenate([column, jnp.repeat(column[-1:], missing, axis=0)])
            place = NamedSharding(self.mesh, PARTS if in_parts else WHOLE)
            columns[name] = jax.device_put(column, place)
        return data._replace(**columns)

    def _put_parts(self, rows: np.ndarray) -> Array:
        """Rows in equal parts, each copied to its device alone; the last row fills up."""
        assert self.mesh is not None
        size = -(-len(rows) // self.mesh.size) * self.mesh.size

        def part(index: Any) -> np.ndarray:
            wanted = np.arange(*index[0].indices(size))
            if wanted[-1] < len(rows):
                return rows[index]
            return rows[np.minimum(wanted, len(rows) - 1)]

        place = NamedSharding(self.mesh, PARTS)
        return jax.make_array_from_callback((size, *rows.shape[1:]), place, part)

    def __str__(self) -> str:
        if self.mesh is None:
            return "one device"
        first = self.mesh.devices.flat[0]
        what = "batches" if self.split == "batch" else f"{self.runs} runs"
        parts = ", observations in parts" if self.shard_data else ""
        return f"{what} split over {self.mesh.size} devices ({first.device_kind}){parts}"


def place(job: Job) -> Placement:
    """Chooses devices for a job.

    Without --devices, runs are split over all accelerators that this process sees and batches over
    all devices; runs on CPU stay on one.

    Raises:
        ConfigError: more devices than there are, or a split that cannot be made.
    """
    options, runs, found = job.options, job.runs, jax.local_devices()
    number = options.devices
    if number is None:
        several = options.split == "batch" or (runs > 1 and found[0].platform != "cpu")
        number = len(found) if several and not options.eager else 1
    if number > len(found):
        kind = found[0].platform
        raise ConfigError(
            f"--devices {number}, but this process sees {len(found)} ({kind}): "
            f"ask for {len(found)} or fewer"
        )
    check_split(job, number)
    if options.split == "runs":
        # As few devices as the fullest one's share asks for: the others would repeat runs.
        number = -(-runs // -(-runs // number))
    if number == 1:
        return Placement(runs)
    mesh = Mesh(np.array(found[:number]), (AXIS,))
    return Placement(runs, mesh, options.split, options.shard_data)


def check_split(job: Job, number: int) -> None:
    """Raises ConfigError where a job cannot be split over so many devices, wherever they are."""
    options = job.options
    if number == 1:
        return
    if options.eager:
        raise ConfigError("--eager runs on one device: leave out --devices")
    if options.split == "batch" and job.config.batch_size % number:
        raise ConfigError(
            f"--split batch: a batch of {job.config.batch_size} has no {number} equal parts: "
            f"choose a --batch-size that {number} divides, or another number of --devices"
        )
    if options.split == "runs" and job.runs == 1:
        raise ConfigError(
            f"--devices {number} splits runs, and there is only one: add --seeds, or use "
            "--split batch"
        )


# --- Split by runs ---

FUNCTIONS: tuple[tuple[Callable[..., Any], int, tuple[str, ...]], ...] = (
    (engine.init_states, 2, ()),
    (engine.enter_phase, 2, ()),
    (engine.zero_means, 2, ()),
    (engine.run_chunk, 2, ("state", "means")),
    (engine.held_out_loss, 1, ()),
    (engine.measure, 1, ()),
    (engine.keep_best, 0, ("best",)),
)
"""As `Programs` has them: the function, its static arguments, which come first, and what it may
overwrite."""


def _run_programs(mesh: Mesh, shard_data: bool) -> Programs:
    def program(function: Callable[..., Any], static: int, donated: tuple[str, ...]) -> Any:
        def call(*given: Any) -> Any:
            compiled = _on_own_runs(function, given[:static], donated, mesh, shard_data)
            return compiled(*given[static:])

        return call

    return Programs(*(program(*row) for row in FUNCTIONS))


@functools.lru_cache(maxsize=64)
def _on_own_runs(
    function: Callable[..., Any],
    static: tuple[Any, ...],
    donated: tuple[str, ...],
    mesh: Mesh,
    shard_data: bool,
) -> Callable[..., Any]:
    """`function`, compiled so that every device calls it with its own runs alone."""
    names = list(inspect.signature(function).parameters)[len(static) :]
    columns: Any = (PARTS if shard_data and name in SPLIT else WHOLE for name in DeviceData._fields)
    data = DeviceData(*columns)
    split: dict[str, Any] = dict.fromkeys(names, PARTS) | {
        name: data if name in ("data", "held_out") else WHOLE for name in SHARED if name in names
    }

    def of_own_runs(*given: Any) -> Any:
        arguments = list(given)
        for i, name in enumerate(names):
            if shard_data and name in ("data", "held_out") and arguments[i] is not None:
                arguments[i] = as_if_whole(arguments[i])
        return inspect.unwrap(function)(*static, *arguments)  # under one jit, which has the options

    def compiled(*given: Any) -> Any:
        # A phase may hold nothing out: then there is no data to split.
        specs = tuple(
            WHOLE if value is None else split[name]
            for name, value in zip(names, given, strict=True)
        )
        # Programs of all runs hold nothing that is equal on all devices, so there is nothing to
        # check.
        return jax.shard_map(
            of_own_runs, mesh=mesh, in_specs=specs, out_specs=PARTS, check_vma=False
        )(*given)

    overwritten = [names.index(name) for name in donated]
    return jax.jit(compiled, donate_argnums=overwritten, compiler_options=engine.COMPILER)


# --- Split by batch ---


class PartOfBatch(NamedTuple):
    """A phase's update with the rows of its batch split over devices, and nothing else."""

    update: UpdateFn
    mesh: Mesh

    def __call__(
        self, config: Any, state: Any, batch: Batch, key: PRNGKey, step: Step
    ) -> tuple[Any, Metrics]:
        """One update, as types.UpdateFn."""
        batch = jax.lax.with_sharding_constraint(batch, NamedSharding(self.mesh, PARTS))
        result = self.update(config, state, batch, key, step)
        return jax.lax.with_sharding_constraint(result, NamedSharding(self.mesh, WHOLE))


def _batch_programs(mesh: Mesh) -> Programs:
    whole = NamedSharding(mesh, WHOLE)

    def program(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            first, *rest = given
            if isinstance(first, Phase):
                first = first._replace(update=PartOfBatch(first.update, mesh))
            return jax.device_put(function(first, *rest), whole)

        return call

    return Programs(*(program(function) for function, _, _ in FUNCTIONS))
