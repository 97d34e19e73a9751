"""Mixed replay: batches of the data and of what each run has seen online, all on the device.

What N runs see lies in one `DeviceData`, run after run: R rows and C transitions each. As in data,
a row is followed by its next observation, and an episode ends with a row that only holds its last
one; so a run has two rows for every transition, which are enough.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from leeward import engine
from leeward.data.sampling import DeviceData, gather
from leeward.types import Batch, Metrics, Phase, PRNGKey, Spec, Step

Way = Literal["mixed", "appended"]


class Mixture(NamedTuple):
    """How batches are put together; hashable, so a static argument of compiled programs."""

    way: Way
    """A fixed share from the data (mixed), or even draws from all transitions (appended)."""
    offline_rows: int
    """Rows of a mixed batch that come from the data."""


class Own(NamedTuple):
    """What each run has of its own in an update."""

    run: Int[Array, "*runs"]
    """Its index, which says where its transitions lie."""
    available: Int[Array, "*runs"]
    """How many of them may be drawn."""
    key: Shaped[Array, "*runs"]


class Seen(NamedTuple):
    """One step of every run, in network units."""

    observation: Float[Array, "N obs"]
    action: Float[Array, "N A"]
    reward: Float[Array, " N"]
    next_observation: Float[Array, "N obs"]
    termination: Bool[Array, " N"]
    number: Int[Array, " N"]
    """Transitions that the run saw before it."""
    row: Int[Array, " N"]
    """The run's row that gets it."""
    age: Int[Array, " N"]
    """Steps of its episode before it."""
    alive: Bool[Array, " N"]
    """Whether there was a step at all."""


def make_online(spec: Spec, runs: int, transitions: int) -> DeviceData:
    """Nothing seen yet, with room for so many transitions of every run."""
    rows = runs * 2 * transitions
    return DeviceData(
        observation=jnp.zeros((rows, *spec.observation_shape)),
        action=jnp.zeros((rows, spec.action.size)),
        reward=jnp.zeros(rows),
        termination=jnp.zeros(rows, bool),
        start=jnp.zeros(runs * transitions, jnp.int32),
        steps_left=jnp.ones(runs * transitions, jnp.int32),
        next_observation=None,
        next_action_known=jnp.zeros(rows, bool),
    )


@partial(jax.jit, static_argnames=("n_step",), donate_argnames=("online",))
def remember(online: DeviceData, seen: Seen, n_step: int) -> DeviceData:
    """`online` with one step of every run written.

    Transitions before it in the episode learn that one more step can be walked from them.
    """
    runs = seen.row.shape[0]
    rows, room = online.reward.shape[0], online.start.shape[0]
    index = jnp.arange(runs)
    row = jnp.where(seen.alive, index * (rows // runs) + seen.row, rows)  # none: out of range
    number = index * (room // runs) + seen.number
    steps_left = online.steps_left
    for back in range(max(n_step, 2)):  # more than 1 says that the episode goes on
        reached = seen.alive & (seen.age >= back)
        place = jnp.where(reached, number - back, room)
        steps_left = steps_left.at[place].set(back + 1, mode="drop")
    assert online.next_action_known is not None
    before = jnp.where(seen.alive & (seen.age > 0), row - 1, rows)
    return online._replace(
        observation=online.observation.at[row]
        .set(seen.observation, mode="drop")
        .at[row + 1]
        .set(seen.next_observation, mode="drop"),
        action=online.action.at[row].set(seen.action, mode="drop"),
        reward=online.reward.at[row].set(seen.reward, mode="drop"),
        termination=online.termination.at[row].set(seen.termination, mode="drop"),
        start=online.start.at[jnp.where(seen.alive, number, room)].set(row, mode="drop"),
        steps_left=steps_left,
        next_action_known=online.next_action_known.at[before].set(True, mode="drop"),
    )


def draw(
    mixture: Mixture, config: Any, offline: DeviceData, online: DeviceData, own: Own, room: int
) -> Batch:
    """One run's batch, by the config's batch size, discount and n-step (where it has them).

    `index` counts the run's own transitions on from those of the data, as `joined` has them.

    Args:
        mixture: how it is put together.
        config: of the run.
        offline: the data.
        online: what all runs saw.
        own: of the run; its key is for this batch alone.
        room: C, the transitions for which each run has room.
    """
    count = offline.start.shape[0]
    discount, n_step = getattr(config, "discount", 1.0), getattr(config, "n_step", 1)

    def from_data(index: Int[Array, " b"]) -> Batch:
        return gather(offline, index, discount, n_step)

    def from_own(number: Int[Array, " b"]) -> Batch:
        batch = gather(online, own.run * room + number, discount, n_step)
        return batch._replace(index=count + number)

    if mixture.way == "appended":
        index = jax.random.randint(own.key, (config.batch_size,), 0, count + own.available)
        data = from_data(jnp.minimum(index, count - 1))
        return _choose(index < count, data, from_own(jnp.maximum(index - count, 0)))
    data_key, own_key = jax.random.split(own.key)
    seen_rows = config.batch_size - mixture.offline_rows
    seen = from_own(jax.random.randint(own_key, (seen_rows,), 0, own.available))
    if mixture.offline_rows == 0:
        return seen
    data = from_data(jax.random.randint(data_key, (mixture.offline_rows,), 0, count))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), data, seen)


def _choose(chosen: Bool[Array, " B"], first: Batch, second: Batch) -> Batch:
    """`first` in the rows where `chosen`, else `second`."""
    return jax.tree.map(
        lambda a, b: jnp.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, b), first, second
    )


def update_on(
    phase: Phase,
    index: int,
    mixture: Mixture,
    offline: DeviceData,
    online: DeviceData,
    room: int,
) -> engine.OneUpdate:
    """One run's update: the phase's own, on a mixed batch that depends on key and step alone."""

    def one(config: Any, state: Any, own: Own, step: Array) -> tuple[Any, Metrics]:
        phase_key = jax.random.fold_in(own.key, index)
        batch_key, update_key = jax.random.split(jax.random.fold_in(phase_key, step))
        batch = draw(mixture, config, offline, online, own._replace(key=batch_key), room)
        return phase.update(config, state, batch, update_key, step)

    return one


@partial(
    jax.jit,
    static_argnames=("phase", "index", "mixture"),
    donate_argnames=("state", "means"),
    compiler_options=engine.COMPILER,
)
def update_mixed(
    phase: Phase,
    index: int,
    mixture: Mixture,
    config: Any,
    state: Any,
    offline: DeviceData,
    online: DeviceData,
    own: Own,
    means: engine.Means,
    step: Int[Array, ""],
    length: Int[Array, ""],
) -> tuple[Any, engine.Means, Bool[Array, " N"]]:
    """`length` updates of every run from number `step` on; as `engine.run_chunk`.

    Returns:
        The states, the sums of metrics, and whether all weights of each run are finite.
    """
    one = update_on(phase, index, mixture, offline, online, _room(online, own))
    state, means = engine.repeat_updates(one, config, state, own, means, step, length)
    return state, means, engine.finite(state)


@partial(jax.jit, static_argnames=("phase", "index", "mixture"))
def no_means(
    phase: Phase,
    index: int,
    mixture: Mixture,
    config: Any,
    state: Any,
    offline: DeviceData,
    online: DeviceData,
    own: Own,
) -> engine.Means:
    """Empty sums for every metric of the phase."""
    one = update_on(phase, index, mixture, offline, online, _room(online, own))
    return engine.empty_means(one, config, state, own, own.run.shape[0])


def _room(online: DeviceData, own: Own) -> int:
    """C."""
    return online.start.shape[0] // own.run.shape[0]


# --- What a phase computes of whole episodes ---


def joined(offline: DeviceData, online: DeviceData, run: Int[Array, ""], room: int) -> DeviceData:
    """The data with one run's own transitions behind theirs; they chain row to row."""
    rows = offline.reward.shape[0]

    def own(column: Shaped[Array, " T"]) -> Shaped[Array, " C"]:
        return jax.lax.dynamic_slice(column, (run * room,), (room,))

    def both(first: Array, second: Array) -> Array:
        return jnp.concatenate([first, second])

    return DeviceData(
        observation=both(offline.observation, online.observation),
        action=both(offline.action, online.action),
        reward=both(offline.reward, online.reward),
        termination=both(offline.termination, online.termination),
        start=both(offline.start, own(online.start) + rows),
        steps_left=both(offline.steps_left, own(online.steps_left)),
        next_observation=None,
    )


@partial(jax.jit, static_argnames=("phase", "index"))
def enter_again(
    phase: Phase,
    index: int,
    config: Any,
    state: Any,
    offline: DeviceData,
    online: DeviceData,
    own: Own,
) -> Any:
    """The state of every run with the phase's `enter` applied to the data and its own episodes."""
    room = _room(online, own)

    def enter(config: Any, state: Any, own: Own) -> Any:
        assert phase.enter is not None
        key = jax.random.fold_in(own.key, engine.ENTER_TAG + index)
        return phase.enter(config, state, joined(offline, online, own.run, room), key)

    return engine.over_runs(enter, config, state, own)


# --- Acting ---


@partial(jax.jit, static_argnames=("explore",))
def explore_all(
    explore: Any,
    policies: Any,
    observation: Float[Array, "N obs"],
    key: Shaped[Array, " N"],
    step: Step,
) -> Float[Array, "N A"]:
    """What every run's policy tries at this step, in network units."""

    def one(policy: Any, observation: Float[Array, " obs"], key: PRNGKey) -> Float[Array, " A"]:
        return explore(policy, observation[None], jax.random.fold_in(key, step))[0]

    return engine.over_runs(one, policies, observation, key)


# --- Checkpoints ---

OF_ROWS = ("observation", "action", "reward", "termination", "next_action_known")
OF_TRANSITIONS = ("start", "steps_left")


def kept_shapes(spec: Spec, runs: int, rows: int, transitions: int) -> dict[str, Any]:
    """The shapes and types of what `kept` returns."""
    like = jax.eval_shape(lambda: make_online(spec, 1, 1))
    count = dict.fromkeys(OF_ROWS, rows) | dict.fromkeys(OF_TRANSITIONS, transitions)
    return {
        name: jax.ShapeDtypeStruct(
            (runs, count[name], *getattr(like, name).shape[1:]), getattr(like, name).dtype
        )
        for name in count
    }


def kept(online: DeviceData, runs: int, rows: int, transitions: int) -> dict[str, np.ndarray]:
    """The first rows and transitions of every run, [N, …] on the host, for a checkpoint."""
    count = dict.fromkeys(OF_ROWS, rows) | dict.fromkeys(OF_TRANSITIONS, transitions)
    result = {}
    for name in count:
        column = np.asarray(getattr(online, name))
        result[name] = column.reshape(runs, -1, *column.shape[1:])[:, : count[name]].copy()
    result["start"] -= _first_rows(online, runs)
    return result


def restored(arrays: dict[str, Any], spec: Spec, runs: int, transitions: int) -> DeviceData:
    """What `kept` returned, at the head of an `online` with room for so many transitions."""
    online = make_online(spec, runs, transitions)
    columns = {}
    for name, saved in arrays.items():
        empty = getattr(online, name)
        column = np.array(empty).reshape(runs, -1, *empty.shape[1:])
        column[:, : saved.shape[1]] = np.asarray(saved)
        if name == "start":
            column += _first_rows(online, runs)
        columns[name] = jnp.asarray(column.reshape(empty.shape))
    return online._replace(**columns)


def _first_rows(online: DeviceData, runs: int) -> np.ndarray:
    """[N, 1]: where the rows of each run begin."""
    return np.arange(runs, dtype=np.int32)[:, None] * (online.reward.shape[0] // runs)
