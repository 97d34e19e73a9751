"""Mixed replay: what is remembered of every run, which rows a batch holds, whose update it is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward import engine
from leeward import replay_mixed as replay
from leeward.algorithms import ALGORITHMS, cql, td3_bc
from leeward.data.dataset import Dataset
from leeward.data.returns import return_to_go
from leeward.data.sampling import DeviceData, fit_scaling, gather, to_device
from leeward.types import UNMEASURED, Box, Phase, Spec

draw = jax.jit(replay.draw, static_argnums=(0, 5))
update = jax.jit(td3_bc.update)
SPEC = Spec((2,), "float32", Box((-1.0,), (1.0,)))
DISCOUNT, ROOM = 0.5, 20


def data_of(reward: list[float]) -> DeviceData:
    """One terminated episode with these rewards; observations and actions count from 100."""
    rows = len(reward)
    dataset = Dataset.from_arrays(
        observation=100.0 + np.arange(2 * rows, dtype=np.float32).reshape(rows, 2),
        action=np.linspace(-1.0, 1.0, rows, dtype=np.float32)[:, None],
        reward=np.array(reward, np.float32),
        termination=np.arange(rows) == rows - 1,
        action_low=-1.0,
        action_high=1.0,
    )
    return to_device(dataset, fit_scaling(dataset, normalize_observations=False))


class Writer:
    """Two runs that see numbers which say whose they are: run · 1000 + step · 10."""

    def __init__(self, transitions: int, n_step: int = 1) -> None:
        self.online = replay.make_online(SPEC, 2, transitions)
        self.n_step = n_step
        self.seen, self.row, self.age = [0, 0], [0, 0], [0, 0]

    def step(self, ends: str = "  ", alive: tuple[bool, bool] = (True, True)) -> None:
        """One step of both; "t" terminates a run's episode, "c" cuts it."""
        number = np.array([1000.0 * run + 10.0 * self.seen[run] for run in (0, 1)], np.float32)
        observation = np.stack([number, number], axis=1)
        self.online = replay.remember(
            self.online,
            replay.Seen(
                observation=observation,  # type: ignore[arg-type]
                action=(number[:, None] / 10_000.0).astype(np.float32),  # type: ignore[arg-type]
                reward=number + 1.0,  # type: ignore[arg-type]
                next_observation=observation + 5.0,  # type: ignore[arg-type]
                termination=np.array([end == "t" for end in ends]),  # type: ignore[arg-type]
                number=np.array(self.seen, np.int32),  # type: ignore[arg-type]
                row=np.array(self.row, np.int32),  # type: ignore[arg-type]
                age=np.array(self.age, np.int32),  # type: ignore[arg-type]
                alive=np.array(alive),  # type: ignore[arg-type]
            ),
            self.n_step,
        )
        for run in (0, 1):
            if alive[run]:
                self.seen[run] += 1
                self.age[run] = 0 if ends[run] in "tc" else self.age[run] + 1
                self.row[run] += 2 if ends[run] in "tc" else 1

    def own(self, key: Any) -> replay.Own:
        """Both runs, with all that they saw."""
        keys = jnp.stack([jax.random.fold_in(key, run) for run in (0, 1)])
        return replay.Own(jnp.arange(2), jnp.asarray(self.seen, jnp.int32), keys)


def own_of(seen: int, key: Any, run: int = 0) -> replay.Own:
    """One run with so many transitions."""
    return replay.Own(jnp.int32(run), jnp.int32(seen), key)


def test_terminations_end_what_is_expected_and_cuts_do_not() -> None:
    writer = Writer(6)
    for ends in ("  ", "t ", "  ", " c", "c ", "tt"):
        writer.step(ends)
    batch = gather(writer.online, jnp.arange(12), DISCOUNT)
    number = np.array([1000.0 * run + 10.0 * step for run in (0, 1) for step in range(6)])
    np.testing.assert_array_equal(batch.observation[:, 0], number)
    np.testing.assert_array_equal(batch.reward, number + 1.0)
    # What follows an end is the episode's last observation, never the next episode's first.
    ended = np.array([0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1], bool)
    following = np.where(ended, number + 5.0, number + 10.0)
    np.testing.assert_array_equal(batch.next_observation[:, 0], following)
    np.testing.assert_array_equal(batch.termination, [0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1])
    np.testing.assert_array_equal(batch.next_action_known, ~ended)


def test_n_step_walks_stop_at_ends_and_at_the_newest_step() -> None:
    writer = Writer(5, n_step=3)
    for ends in ("  ", "  ", "  ", "ct", "  "):
        writer.step(ends)
    assert writer.online.steps_left.tolist() == [3, 3, 2, 1, 1] * 2
    batch = gather(writer.online, jnp.arange(5), DISCOUNT, n_step=3)
    assert batch.reward[0] == 1.0 + 0.5 * 11.0 + 0.25 * 21.0
    assert batch.reward[2] == 21.0 + 0.5 * 31.0
    np.testing.assert_array_equal(batch.discount, [0.125, 0.125, 0.25, 0.5, 0.5])
    other = gather(writer.online, jnp.arange(5, 10), DISCOUNT, n_step=3)
    np.testing.assert_array_equal(other.termination, [0, 1, 1, 1, 0])


def test_a_run_without_a_step_changes_nothing_of_its_own() -> None:
    writer = Writer(4)
    writer.step()
    writer.step(alive=(True, False))
    np.testing.assert_array_equal(writer.online.reward[:3], [1.0, 11.0, 0.0])
    np.testing.assert_array_equal(writer.online.reward[8:11], [1001.0, 0.0, 0.0])
    assert writer.online.steps_left.tolist() == [2, 1, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(("fraction", "rows"), [(0.25, 2), (0.0, 0)])
def test_mixed_batches_hold_exactly_the_share_of_the_data(fraction: float, rows: int) -> None:
    offline, writer = data_of([1.0] * 9), Writer(ROOM)
    for _ in range(12):
        writer.step()
    mixture = replay.Mixture("mixed", round(fraction * 8))
    assert mixture.offline_rows == rows
    config = td3_bc.Config(batch_size=8, discount=DISCOUNT)
    for seed in range(4):
        for run in (0, 1):
            own = own_of(5, jax.random.key(seed), run)
            batch = draw(mixture, config, offline, writer.online, own, ROOM)
            from_data = np.asarray(batch.index) < 9
            assert from_data.tolist() == [True] * rows + [False] * (8 - rows)
            seen = np.asarray(batch.observation)[~from_data, 0]
            # Rows of a run's replay are its own, and among those that may be drawn.
            number = np.asarray(batch.index)[~from_data] - 9
            np.testing.assert_array_equal(seen, 1000.0 * run + 10.0 * number)
            assert number.max(initial=0) < 5


def test_appended_replay_draws_evenly_from_all_transitions() -> None:
    offline, writer = data_of([1.0] * 6), Writer(ROOM)
    for _ in range(3):
        writer.step()
    config = td3_bc.Config(batch_size=1000, discount=DISCOUNT)
    mixture = replay.Mixture("appended", 500)
    drawn = [
        draw(mixture, config, offline, writer.online, own_of(3, key, 1), ROOM)
        for key in jax.random.split(jax.random.key(0), 9)
    ]
    count = np.bincount(np.concatenate([batch.index for batch in drawn]), minlength=9)
    assert len(count) == 9
    np.testing.assert_allclose(count, 1000, atol=5 * np.sqrt(1000 * 8 / 9))
    batch = drawn[0]
    from_data = np.asarray(batch.index) < 6
    np.testing.assert_array_equal(
        np.asarray(batch.observation)[:, 0],
        np.where(from_data, 100.0 + 2.0 * batch.index, 1000.0 + 10.0 * (batch.index - 6)),
    )


def test_an_update_is_the_phase_s_own_on_the_same_batch(key: Any) -> None:
    offline, writer = data_of([1.0, -1.0, 2.0, 0.5]), Writer(ROOM)
    for ends in ("  ", "t ", "  ", " c"):
        writer.step(ends)
    config = td3_bc.Config(batch_size=8, hidden=())
    phase, mixture, tag = td3_bc.ALGORITHM.phases[0], replay.Mixture("mixed", 4), 7
    configs = engine.stack_configs(config, [{}, {"actor_lr": 1e-3}])
    keys = engine.run_keys([0, 1])
    state = engine.init_states(td3_bc.init, SPEC, configs, keys)
    before = jax.tree.map(jnp.copy, state)  # the states are donated
    own = writer.own(key)
    data = offline, writer.online, own
    means = replay.no_means(phase, tag, mixture, configs, state, *data)
    state, means, finite = replay.update_mixed(
        phase, tag, mixture, configs, state, *data, means, jnp.int32(6), jnp.int32(2)
    )
    assert finite.tolist() == [True, True]
    assert means.number["critic/loss"].tolist() == [2.0, 2.0]
    assert means.number["actor/loss"].tolist() == [1.0, 1.0]  # every second step, counted on
    for run in (0, 1):
        alone, by_hand, mine = jax.tree.map(lambda leaf, run=run: leaf[run], (configs, before, own))
        for step in (6, 7):
            step_key = jax.random.fold_in(jax.random.fold_in(mine.key, tag), step)
            batch_key, update_key = jax.random.split(step_key)
            drawn = mine._replace(key=batch_key)
            batch = draw(mixture, alone, offline, writer.online, drawn, ROOM)
            by_hand, _ = update(alone, by_hand, batch, update_key, jnp.int32(step))
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(by_hand), strict=True):
            np.testing.assert_allclose(a[run], b, rtol=1e-5, atol=1e-6)


def test_returns_of_online_episodes_stand_behind_those_of_the_data() -> None:
    offline, writer = data_of([1.0, 2.0, 4.0]), Writer(5)
    for ends in ("  ", "t ", "  ", "cc"):
        writer.step(ends)
    config = cql.CalQLConfig(batch_size=64, discount=DISCOUNT, sampled_actions=1)
    phase: Phase = cql.CAL_QL.phases[0]
    configs = engine.stack_configs(config, [{}, {}])
    unused: Any = dict.fromkeys(cql.State._fields, jnp.zeros(2))
    state = cql.State(**unused)
    own = writer.own(jax.random.key(0))
    state = replay.enter_again(phase, 7, configs, state, offline, writer.online, own)
    assert state.return_to_go.shape == (2, 3 + 5)
    np.testing.assert_array_equal(state.return_to_go[:, :3], [[3.0, 4.0, 4.0]] * 2)
    np.testing.assert_array_equal(state.return_to_go[0, 3:7], [1 + 0.5 * 11, 11, 21 + 0.5 * 31, 31])
    second = 1031.0
    for reward in (1021.0, 1011.0, 1001.0):
        second = reward + DISCOUNT * second
    assert state.return_to_go[1, 3] == second
    # Cal-QL's own function, on a data set of the same episodes, says the same.
    joined = replay.joined(offline, writer.online, jnp.int32(0), 5)
    np.testing.assert_array_equal(return_to_go(joined, DISCOUNT)[:7], state.return_to_go[0, :7])
    batch = draw(
        replay.Mixture("mixed", 32),
        jax.tree.map(lambda leaf: leaf[0], configs),
        offline,
        writer.online,
        own_of(4, jax.random.key(3)),
        5,
    )
    found = np.asarray(state.return_to_go[0])[np.asarray(batch.index)]
    last = np.asarray(batch.termination) > 0  # the return of a last transition is its reward
    assert {4.0, 11.0} == set(found[last].tolist())
    np.testing.assert_array_equal(found[last], np.asarray(batch.reward)[last])


def test_a_checkpoint_keeps_what_was_seen_and_room_can_grow() -> None:
    writer = Writer(4)
    for ends in ("  ", "t ", "cc"):
        writer.step(ends)
    rows, transitions = max(writer.row), max(writer.seen)
    kept = replay.kept(writer.online, 2, rows, transitions)
    shapes = replay.kept_shapes(SPEC, 2, rows, transitions)
    assert {n: (a.shape, a.dtype) for n, a in kept.items()} == {
        n: (s.shape, s.dtype) for n, s in shapes.items()
    }
    same = replay.restored(kept, SPEC, 2, 4)
    for before, after in zip(jax.tree.leaves(writer.online), jax.tree.leaves(same), strict=True):
        if before.shape == (8,) and before.dtype == jnp.int32:  # of transitions: unused ones last
            before, after = before.reshape(2, 4)[:, :3], after.reshape(2, 4)[:, :3]
        np.testing.assert_array_equal(before, after)
    larger = replay.restored(kept, SPEC, 2, 9)
    for run in (0, 1):
        old = gather(writer.online, 4 * run + jnp.arange(3), DISCOUNT)
        new = gather(larger, 9 * run + jnp.arange(3), DISCOUNT)
        for name in ("observation", "action", "reward", "next_observation", "termination"):
            np.testing.assert_array_equal(getattr(old, name), getattr(new, name), err_msg=name)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_updates_are_repeated_in_turn_or_side_by_side(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)

    def one(config: Any, state: Any, own: Any, step: Any) -> Any:
        # Side by side, the step must stay one number, or branches would not stay branches.
        assert jnp.shape(step) == ()
        state = jax.lax.cond(step % 2 == 0, lambda s: s + config.actor_lr * own, lambda s: s, state)
        return state, {
            "some/metric": jnp.where(step > 2, state, UNMEASURED),
            "no/metric": jnp.full((), UNMEASURED),
            "some/loss": jnp.where(step > 3, jnp.nan, state),
        }

    config = engine.stack_configs(td3_bc.Config(), [{"actor_lr": 1.0}, {"actor_lr": 2.0}])
    state, own = jnp.array([0.0, 100.0]), jnp.array([1.0, 10.0])
    means = engine.empty_means(one, config, state, own, 2)
    state, means = engine.repeat_updates(
        one, config, state, own, means, jnp.int32(1), jnp.int32(4)
    )  # steps 1 to 4
    np.testing.assert_array_equal(state, [2.0, 140.0])
    average = engine.averages(means)
    np.testing.assert_array_equal(average["some/metric"], [1.5, 130.0])
    np.testing.assert_array_equal(average["no/metric"], [UNMEASURED, UNMEASURED])
    np.testing.assert_array_equal(average["some/loss"], [np.nan, np.nan])  # once is enough
    np.testing.assert_array_equal(engine.finite((state, jnp.array([1.0, jnp.inf]))), [True, False])


@pytest.mark.parametrize("name", ["td3_bc", "iql", "cal_ql"])
def test_actions_differ_at_every_step_and_in_every_run(name: str, key: Any) -> None:
    algorithm = ALGORITHMS[name]
    assert algorithm.online is not None
    config = algorithm.config_type(hidden=())
    states = engine.init_states(
        algorithm.init, SPEC, engine.stack_configs(config, [{}, {}]), engine.run_keys([0, 1])
    )
    policies, observation = algorithm.policy(states), np.ones((2, 2), np.float32)
    keys = jax.random.split(key)
    tried = np.stack(
        [
            replay.explore_all(algorithm.online.explore, policies, observation, keys, jnp.int32(n))
            for n in range(20)
        ]
    )  # [20, N, A]
    assert np.abs(tried).max() <= 1.0
    inside = tried[np.abs(tried) < 1.0]
    assert len(inside) >= 10
    assert len(np.unique(inside)) == len(inside)
