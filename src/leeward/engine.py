"""The compiled part of training: many updates of many runs as one program.

A chunk is any number of updates of all N runs (seeds × settings). Its length is an argument of the
program, not a part of it, so nothing is compiled again; keys depend on (seed, phase, step) alone,
so the length cannot change a result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from leeward.config import float_fields
from leeward.data.passes import part_size
from leeward.data.sampling import DeviceData, gather, sample
from leeward.types import (
    UNMEASURED,
    CloseUp,
    EarlyStopping,
    Measurement,
    Metrics,
    Phase,
    PRNGKey,
    Spec,
)

INIT_TAG = 1_000_000
"""Folded into a run's key for its initialization; phases fold in their index, which is smaller."""
ENTER_TAG = 2_000_000
"""Plus the phase index: the key that a phase's `enter` gets."""
COMPILER = {"xla_cpu_copy_insertion_use_region_analysis": True}
"""Of programs that make many updates: on CPU, XLA then finds out where the loop's state can be
written in place, as it does elsewhere anyway (BC and IQL train about a tenth faster)."""


OneUpdate = Callable[[Any, Any, Any, Array], tuple[Any, Metrics]]
"""(config, state, what else is the run's own, step) → (state, metrics), of one run."""


class Means(NamedTuple):
    """Running sums of every metric since the last line was written; N runs."""

    total: dict[str, Float[Array, " N"]]
    number: dict[str, Float[Array, " N"]]


class Best(NamedTuple):
    """Early stopping of N runs: the best state so far, its loss and the measurements since."""

    state: Any
    loss: Float[Array, " N"]
    since: Int[Array, " N"]


def stack_configs(config: Any, settings: Sequence[Mapping[str, float]]) -> Any:
    """One config whose float fields are arrays [N]: `config` with each run's settings put in."""
    columns = {
        name: jnp.asarray([s.get(name, getattr(config, name)) for s in settings], jnp.float32)
        for name in float_fields(type(config))
    }
    return dataclasses.replace(config, **columns)


def run_keys(seeds: list[int]) -> Shaped[Array, " N"]:
    """The key of every run, from its seed alone."""
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def over_runs(function: Any, *stacked: Any) -> Any:
    """`function` of every run: one after another on CPU, side by side elsewhere.

    XLA's batched matrix products are slower on CPU than the same products in turn; in turn the
    result is also bit for bit that of a single run.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda arguments: function(*arguments), stacked)
    return jax.vmap(function)(*stacked)


@partial(jax.jit, static_argnames=("init", "spec"))
def init_states(
    init: Callable[[Any, Spec, PRNGKey], Any], spec: Spec, config: Any, key: Shaped[Array, " N"]
) -> Any:
    """The state of every run before its first update, stacked. Under jit: donation needs it."""

    def one_run(config: Any, key: PRNGKey) -> Any:
        return init(config, spec, jax.random.fold_in(key, INIT_TAG))

    return over_runs(one_run, config, key)


@partial(jax.jit, static_argnames=("phase", "index"))
def enter_phase(
    phase: Phase, index: int, config: Any, state: Any, data: DeviceData, key: Shaped[Array, " N"]
) -> Any:
    """The state of every run with the phase's `enter` applied."""

    def enter(config: Any, state: Any, key: PRNGKey) -> Any:
        assert phase.enter is not None
        return phase.enter(config, state, data, jax.random.fold_in(key, ENTER_TAG + index))

    return over_runs(enter, config, state, key)


@partial(jax.jit, static_argnames=("phase", "index"), inline=True)
def one_update(
    phase: Phase, index: int, config: Any, state: Any, data: DeviceData, key: PRNGKey, step: Array
) -> tuple[Any, dict[str, Array]]:
    """Update number `step` (from 0) of one run in the phase with this index.

    Under jit and inlined, so that it is traced once for both programs that hold it.
    """
    phase_key = jax.random.fold_in(key, index)
    sample_key, update_key = jax.random.split(jax.random.fold_in(phase_key, step))
    batch = sample(config, config.sampling, data, phase_key, sample_key, step)
    return phase.update(config, state, batch, update_key, step)


@partial(jax.jit, static_argnames=("phase", "index"))
def zero_means(
    phase: Phase, index: int, config: Any, state: Any, data: DeviceData, key: Shaped[Array, " N"]
) -> Means:
    """Empty sums for every metric of the phase."""

    def one(config: Any, state: Any, key: PRNGKey, step: Array) -> tuple[Any, Metrics]:
        return one_update(phase, index, config, state, data, key, step)

    return empty_means(one, config, state, key, key.shape[0])


def empty_means(one: OneUpdate, config: Any, state: Any, own: Any, runs: int) -> Means:
    """Empty sums for every metric of an update; arguments as `repeat_updates` has them."""
    first, step = jax.tree.map(lambda leaf: leaf[0], (config, state, own)), jnp.int32(0)
    names = jax.eval_shape(lambda config, state, own: one(config, state, own, step)[1], *first)
    total, number = ({name: jnp.zeros(runs) for name in names} for _ in range(2))
    return Means(total, number)


@partial(
    jax.jit,
    static_argnames=("phase", "index"),
    donate_argnames=("state", "means"),
    compiler_options=COMPILER,
)
def run_chunk(
    phase: Phase,
    index: int,
    config: Any,
    state: Any,
    data: DeviceData,
    key: Shaped[Array, " N"],
    means: Means,
    step: Int[Array, ""],
    length: Int[Array, ""],
) -> tuple[Any, Means, dict[str, Float[Array, " N"]], Bool[Array, " N"]]:
    """`length` updates of every run from update number `step` on.

    Returns:
        The states, the running sums, the means of every metric so far (UNMEASURED where it never
        was), and whether all weights of each run are finite.
    """

    def one(config: Any, state: Any, key: PRNGKey, step: Array) -> tuple[Any, Metrics]:
        return one_update(phase, index, config, state, data, key, step)

    state, means = repeat_updates(one, config, state, key, means, step, length)
    return state, means, averages(means), finite(state)


def repeat_updates(
    one: OneUpdate,
    config: Any,
    state: Any,
    own: Any,
    means: Means,
    step: Int[Array, ""],
    length: Int[Array, ""],
) -> tuple[Any, Means]:
    """`length` updates of every run from update number `step` on, their metrics added to `means`.

    Args:
        one: makes one update of one run.
        config: its float fields are arrays [N].
        state: stacked over runs.
        own: what else each run has of its own, such as its key; stacked.
        means: the sums so far.
        step: the first update's number.
        length: how many.
    """

    def next_of(step: Any, carry: tuple[Any, Sums], config: Any, own: Any) -> tuple[Any, Sums]:
        state, sums = carry
        state, metrics = one(config, state, own, jnp.asarray(step))
        return state, add_metrics(sums, metrics)

    def loop(body: Callable[..., tuple[Any, Sums]], state: Any, means: Means) -> tuple[Any, Means]:
        state, sums = jax.lax.fori_loop(step, step + length, body, (state, pack(means)))
        return state, unpack(sums, means)

    def one_run(config: Any, state: Any, own: Any, means: Means) -> tuple[Any, Means]:
        return loop(lambda step, carry: next_of(step, carry, config, own), state, means)

    if jax.default_backend() == "cpu":
        return _in_turn(one_run, config, state, own, means)
    # Elsewhere the loop outside: `step` stays unbatched, so conditionals stay branches.
    of_all = jax.vmap(next_of, in_axes=(None, 0, 0, 0))
    return loop(lambda step, carry: of_all(step, carry, config, own), state, means)


def _in_turn(
    one_run: Callable[[Any, Any, Any, Means], tuple[Any, Means]],
    config: Any,
    state: Any,
    own: Any,
    means: Means,
) -> tuple[Any, Means]:
    """`one_run` of every run, one after another, each new state in its old one's memory.

    As `over_runs` on CPU, whose lax.map would hold all old states and all new ones at once.
    """

    def body(run: Any, carry: tuple[Any, Means]) -> tuple[Any, Means]:
        given = jax.tree.map(
            lambda leaf: jax.lax.dynamic_index_in_dim(leaf, run, keepdims=False),
            (config, carry[0], own, carry[1]),
        )
        return jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_index_in_dim(old, new, run, 0),
            carry,
            one_run(*given),
        )

    return jax.lax.fori_loop(0, jax.tree.leaves(state)[0].shape[0], body, (state, means))


class Sums(NamedTuple):
    """`Means` with its metrics in one array, so that adding to it is one step, not one a metric."""

    total: Float[Array, "*runs M"]
    number: Float[Array, "*runs M"]


def pack(means: Means) -> Sums:
    """The metrics side by side, in the order of their names."""
    return Sums(*(jnp.stack([part[name] for name in sorted(part)], axis=-1) for part in means))


def unpack(sums: Sums, like: Means) -> Means:
    """The metrics by the names that `like` has."""
    names = sorted(like.total)
    return Means(*({name: part[..., i] for i, name in enumerate(names)} for part in sums))


def add_metrics(sums: Sums, metrics: Metrics) -> Sums:
    """The sums with one update's metrics added, but for those that were not measured.

    NaN is a measurement: it stays in the sum, so that a loss which is no number any more shows.
    """
    value = jnp.stack([metrics[name] for name in sorted(metrics)], axis=-1)
    known = value != UNMEASURED
    return Sums(sums.total + jnp.where(known, value, 0.0), sums.number + known)


def averages(means: Means) -> dict[str, Float[Array, " N"]]:
    """The mean of every metric; UNMEASURED where it never was."""
    return {
        name: jnp.where(means.number[name] > 0.0, total / means.number[name], UNMEASURED)
        for name, total in means.total.items()
    }


def finite(state: Any) -> Bool[Array, " N"]:
    """Whether every number of each run's state is finite."""
    flags = [
        jnp.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))
        for leaf in jax.tree.leaves(state)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    return jnp.stack(flags).all(axis=0)


@partial(jax.jit, static_argnames=("stopping",))
def held_out_loss(
    stopping: EarlyStopping, config: Any, state: Any, data: DeviceData
) -> Float[Array, " N"]:
    """The mean loss of each run over all held-out transitions."""
    count, size = data.start.shape[0], part_size(data)
    batches = -(-count // size)

    def one_run(config: Any, state: Any) -> Float[Array, ""]:
        def body(batch: Array, total: Array) -> Array:
            position = batch * size + jnp.arange(size)
            discount = getattr(config, "discount", 1.0)
            loss = stopping.loss(
                config, state, gather(data, jnp.minimum(position, count - 1), discount)
            )
            return total + jnp.where(position < count, loss, 0.0).sum()

        return jax.lax.fori_loop(0, batches, body, jnp.float32(0.0)) / count

    return over_runs(one_run, config, state)


@partial(jax.jit, static_argnames=("measurement",))
def measure(
    measurement: Measurement,
    config: Any,
    state: Any,
    data: DeviceData,
    held_out: DeviceData | None,
) -> dict[str, Float[Array, " N"]]:
    """What a phase measures at its end, of every run."""

    def one_run(config: Any, state: Any) -> Metrics:
        return measurement.numbers(config, state, data, held_out)

    return over_runs(one_run, config, state)


@partial(jax.jit, static_argnames=("closeup",))
def look_closely(
    closeup: CloseUp, config: Any, state: Any, data: DeviceData, transition: Int[Array, " P"]
) -> Mapping[str, Shaped[Array, "N ..."]]:
    """What a phase shows of single transitions at its end, of every run."""

    def one_run(config: Any, state: Any) -> Mapping[str, Array]:
        return closeup.look(config, state, data, transition)

    return over_runs(one_run, config, state)


def close_up(closeup: CloseUp, config: Any, state: Any, data: DeviceData) -> dict[str, np.ndarray]:
    """The transitions that a phase shows at its end, and what it shows of them, of every run."""
    chosen = closeup.choose(data)
    shown = look_closely(closeup, config, state, data, jnp.asarray(chosen["transition"]))
    return {**chosen, **{name: np.asarray(array) for name, array in shown.items()}}


@partial(jax.jit, donate_argnames=("best",))
def keep_best(best: Best, state: Any, loss: Float[Array, " N"], patience: Int[Array, ""]) -> Best:
    """Best with the runs whose loss fell replaced; runs out of patience are left as they are."""
    better = (loss < best.loss) & (best.since < patience)

    def choose(old: Array, new: Array) -> Array:
        return jnp.where(better.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return Best(
        state=jax.tree.map(choose, best.state, state),
        loss=jnp.where(better, loss, best.loss),
        since=jnp.where(better, 0, best.since + 1),
    )


def first_best(state: Any, runs: int) -> Best:
    """Nothing measured yet; the states are copies, since chunks donate theirs."""
    copies = jax.tree.map(jnp.copy, state)
    return Best(copies, jnp.full(runs, jnp.inf), jnp.zeros(runs, jnp.int32))


def select_runs(chosen: np.ndarray, new: Any, old: Any) -> Any:
    """`new` for the runs where `chosen` [N] is True, else `old`."""
    mask = jnp.asarray(chosen)
    return jax.tree.map(
        lambda n, o: jnp.where(mask.reshape(-1, *[1] * (n.ndim - 1)), n, o), new, old
    )
