"""What every algorithm must do, as checks that need nothing but its `ALGORITHM`.

test_contract.py runs them on every algorithm; test_contract_catches.py runs them on one with
mistakes, to show that they can fail. Checks of settings are in contract_settings.py.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from exporting import CHOICES, FILES, VECTORS, observations, policy_of
from leeward import checkpoint
from leeward.algorithms import ALGORITHMS
from leeward.config import float_fields
from leeward.data.sampling import Scaling, gather, sample
from leeward.export import export, load_exported
from leeward.policy import PolicyStack, TrainedRun, load_policy, save_policy
from leeward.types import UNMEASURED, Batch, Box
from subjects import UPDATES, Subject, leaves, same

GOLDEN = Path(__file__).parent / "algorithms" / "golden"


def check_init_is_fixed_by_its_key(subject: Subject) -> None:
    first = subject.init(subject.config, jax.random.key(0))
    assert same(first, subject.init(subject.config, jax.random.key(0)))
    assert not same(first, subject.init(subject.config, jax.random.key(1)))


def check_updates_keep_shapes_and_metrics(subject: Subject) -> None:
    """The state's tree, shapes and dtypes stay; metrics are finite scalars named part/quantity."""
    for index, state in enumerate(subject.states):
        names = set()
        for step in range(2):
            new, metrics = subject.update(
                index, state, subject.batch("truncation"), jax.random.key(2), step
            )
            assert jax.tree.structure(new) == jax.tree.structure(state)
            for a, b in zip(jax.tree.leaves(new), jax.tree.leaves(state), strict=True):
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
            names.add(tuple(sorted(metrics)))
            for name, value in metrics.items():
                assert re.fullmatch(r"[a-z0-9_]+/[a-z0-9_]+", name), name
                assert value.shape == (), name
                assert value.dtype == jnp.float32, name
                if step == 0:  # later, NaN may mean "not measured"
                    assert np.isfinite(value), name
        assert len(names) == 1


def check_floats_do_not_retrace(subject: Subject) -> None:
    config = subject.config
    doubled = {name: 2.0 * getattr(config, name) for name in float_fields(type(config))}
    traced = []
    for index, phase in enumerate(subject.algorithm.phases):

        @jax.jit
        def update(config: Any, state: Any, batch: Batch, phase: Any = phase) -> Any:
            traced.append(phase.name)
            return phase.update(config, state, batch, jax.random.key(0), jnp.int32(0))[1]

        batch = subject.batch("truncation")
        for settings in (config, dataclasses.replace(config, **doubled)):
            update.lower(settings, subject.states[index], batch)
            jax.eval_shape(update, settings, subject.states[index], batch)
    assert traced == [phase.name for phase in subject.algorithm.phases]


# --- Randomness ---


def random_shapes(jaxpr: Any) -> Iterator[tuple[int, ...]]:
    """The shape of every array of random numbers that a program draws."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "random_bits":
            yield equation.outvars[0].aval.shape
        for value in jax.tree.leaves(equation.params, is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from random_shapes(inner)


def check_every_row_has_noise_of_its_own(subject: Subject) -> None:
    """Everything that an update draws has the batch's axis: 13 rows, a size nothing else has."""
    batch = gather(subject.data, jnp.arange(13), 0.9)
    for index, phase in enumerate(subject.algorithm.phases):
        program = jax.make_jaxpr(phase.update)(
            subject.config, subject.states[index], batch, jax.random.key(0), jnp.int32(0)
        )
        for shape in random_shapes(program.jaxpr):
            assert 13 in shape, f"{phase.name} draws {shape} for a batch of 13"


def check_runs_side_by_side_equal_single_runs(subject: Subject) -> None:
    """Seeds in one vmapped program, and two of them alone, update by update, by hand.

    Rounding differs and grows: 20 updates agree to 1e-5, all weights after 50 to 1e-4.
    """
    choose = jax.jit(
        lambda run_key, key, step: sample(
            subject.config, subject.config.sampling, subject.data, run_key, key, step
        )
    )
    for seed in (0, subject.rows - 1):
        state = subject.init(subject.config, jax.random.key(seed))
        for index, (final, measured, _) in enumerate(subject.seeds):
            phase_key = jax.random.fold_in(jax.random.key(seed), index)
            state = subject.enter(index, subject.config, state, jax.random.key(seed))
            for step in range(UPDATES):
                keys = jax.random.split(jax.random.fold_in(phase_key, step))
                batch = choose(phase_key, keys[0], jnp.int32(step))
                state, metrics = subject.update(index, state, batch, keys[1], step)
                for name in metrics if step < 20 else ():
                    np.testing.assert_allclose(
                        measured[name][seed, step], metrics[name], rtol=1e-5, atol=1e-5
                    )
            for a, b in zip(leaves(final), leaves(state), strict=True):
                np.testing.assert_allclose(a[seed], b, rtol=1e-4, atol=1e-4)


# --- What updates may and may not depend on ---


def reads_rewards(subject: Subject, index: int) -> bool:
    """Whether the phase's update depends on the rewards."""
    batch = subject.batch("truncation")
    other = batch._replace(reward=batch.reward + 1.0)
    state = subject.states[index]
    results = [subject.update(index, state, b, jax.random.key(2)) for b in (batch, other)]
    return not same(*results)


def check_terminal_rows_do_not_bootstrap_and_truncated_rows_do(subject: Subject) -> None:
    """A target is reward + discount · (1 − termination) · next value, so the discount tells."""
    for index, state in enumerate(subject.states):
        for ends in ("termination", "truncation"):
            batch = subject.batch(ends)
            other = batch._replace(discount=0.5 * batch.discount)
            results = [subject.update(index, state, b, jax.random.key(2)) for b in (batch, other)]
            bootstraps = not same(*results)
            expected = ends == "truncation" and reads_rewards(subject, index)
            assert bootstraps == expected, f"phase {index}, {ends}"


def check_a_column_of_rewards_is_rejected(subject: Subject) -> None:
    """Rewards [B, 1] would broadcast to [B, B]: the types reject them, wherever they are read."""
    batch = subject.batch("truncation")
    column = batch._replace(reward=batch.reward[:, None])
    for index, phase in enumerate(subject.algorithm.phases):
        if not reads_rewards(subject, index):
            continue
        with jax.numpy_rank_promotion("allow"), pytest.raises(TypeCheckError):
            jax.eval_shape(
                phase.update,
                subject.config,
                subject.states[index],
                column,
                jax.random.key(0),
                jnp.int32(0),
            )


def check_later_phases_leave_earlier_models_alone(subject: Subject) -> None:
    """Parts of the state named after a phase belong to it: "behavior", "behavior_opt" …"""
    phases = [phase.name for phase in subject.algorithm.phases]
    for index, state in enumerate(subject.states):
        new, _ = subject.update(index, state, subject.batch("truncation"), jax.random.key(2))
        for part in state._fields:
            owner = next((i for i, name in enumerate(phases) if part.startswith(name)), None)
            unchanged = same(getattr(state, part), getattr(new, part))
            if owner is not None and owner < index:
                assert unchanged, f"phase {phases[index]} changes {part}"
            if owner == index:
                assert not unchanged, f"phase {phases[index]} does not change {part}"


def check_actions_are_inside_and_fixed(subject: Subject) -> None:
    """In bounds for wild observations, the same for any key, compiled or not, alone or batched."""
    algorithm, space = subject.algorithm, subject.spec.action
    policy = algorithm.policy(subject.states[-1])
    draw = np.random.default_rng(0)
    observation = jnp.asarray(
        draw.normal(size=(6, 3)) * np.asarray([[1.0], [1], [1], [100], [100], [1e4]]), jnp.float32
    )
    act = jax.jit(algorithm.act)
    action = np.asarray(act(policy, observation, jax.random.key(0)))
    if isinstance(space, Box):
        assert action.shape == (6, space.size)
        assert action.dtype == np.float32
        assert (np.abs(action) <= 1.0).all()
    else:
        assert action.shape == (6,)
        assert np.issubdtype(action.dtype, np.integer)
        assert ((action >= 0) & (action < space.size)).all()
    np.testing.assert_array_equal(action, act(policy, observation, jax.random.key(5)))
    eager = algorithm.act(policy, observation, jax.random.key(0))
    np.testing.assert_allclose(action, eager, rtol=1e-5, atol=1e-6)
    alone = act(policy, observation[2:3], jax.random.key(0))
    np.testing.assert_allclose(action[2:3], alone, rtol=1e-5, atol=1e-6)


def check_a_saved_policy_acts_as_the_live_one(subject: Subject) -> None:
    """In the environment's units, here twice as large and moved."""
    algorithm, space = subject.algorithm, subject.spec.action
    size = space.size if isinstance(space, Box) else 1
    scaling = Scaling(jnp.full(3, 0.5), jnp.full(3, 2.0), jnp.full(size, -1.0), jnp.full(size, 2.0))
    policies = [algorithm.policy(subject.states[-1])] * 2
    spec = subject.spec
    if isinstance(space, Box):
        spec = spec._replace(action=Box((-3.0,) * size, (1.0,) * size))
    live = PolicyStack(
        algorithm=algorithm,
        config=subject.config,
        spec=spec,
        scaling=scaling,
        policies=jax.tree.map(lambda *leaves: jnp.stack(leaves), *policies),
        runs=(TrainedRun(0, {}, 1), TrainedRun(1, {}, 1)),
    )
    observation = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        save_policy(Path(folder) / "final", live)
        action = load_policy(Path(folder) / "final", seed=1)(observation)
    expected = scaling.to_environment(
        algorithm.act(policies[1], (jnp.asarray(observation) - 0.5) / 2.0, jax.random.key(0))
    )
    np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-6)


def check_an_exported_policy_acts_as_the_live_one(subject: Subject) -> None:
    """As ONNX and NumPy, and as StableHLO where it is the first with its kind of actor."""
    spec = VECTORS if subject.kind == "continuous" else CHOICES
    policy, seen = policy_of(subject.algorithm, spec), observations(spec, 7)
    live = policy(seen)
    assert len(np.unique(live, axis=0)) > 1  # the observation matters
    name = subject.algorithm.name
    first = first_with_each_actor().get(type(policy.policy), name)
    for form in ("numpy", "onnx", "stablehlo") if first == name else ("numpy", "onnx"):
        with tempfile.TemporaryDirectory() as folder:
            act = load_exported(export(policy, Path(folder) / FILES[form]).path)
            for found in (act(seen), np.stack([act(one) for one in seen])):
                assert (found.shape, found.dtype) == (live.shape, live.dtype)
                np.testing.assert_allclose(found, live, rtol=1e-5, atol=1e-5, err_msg=form)


@functools.cache
def first_with_each_actor() -> dict[type, str]:
    """What a policy is → the first algorithm with such a one."""
    first: dict[type, str] = {}
    for name, algorithm in ALGORITHMS.items():
        for kind in algorithm.actions:
            spec = VECTORS if kind == "continuous" else CHOICES
            first.setdefault(type(policy_of(algorithm, spec).policy), name)
    return first


def check_a_checkpoint_keeps_the_state_to_the_bit(subject: Subject) -> None:
    """Twenty updates equal ten, a checkpoint on the disk and back, and ten more."""

    def update(index: int, state: Any, steps: range) -> Any:
        for step in steps:
            batch = subject.batch("truncation" if step % 2 else "termination")
            state, _ = subject.update(index, state, batch, jax.random.key(step), step)
        return state

    for index, start in enumerate(subject.states):
        half = update(index, start, range(10))
        with tempfile.TemporaryDirectory() as folder:
            saved = checkpoint.save(Path(folder), "10", {"state": half}, {}, lambda _: None)
            restored = checkpoint.restore(saved, {"state": half})["state"]
        assert jax.tree.structure(restored) == jax.tree.structure(half)
        assert same(restored, half)
        resumed = update(index, restored, range(10, 20))
        assert same(resumed, update(index, half, range(10, 20)))


# --- Metrics stored beside the tests ---


def mean_metrics(subject: Subject) -> list[dict[str, Any]]:
    """Means over every ten updates of the first two seeds."""
    rows = []
    for phase, (_, metrics, _) in zip(subject.algorithm.phases, subject.seeds, strict=True):
        for end in range(10, UPDATES + 1, 10):
            for seed in range(2):
                values = {
                    name: measured_mean(np.asarray(value)[seed, end - 10 : end])
                    for name, value in metrics.items()
                }
                rows.append({"phase": phase.name, "step": end, "seed": seed, **values})
    return rows


def measured_mean(values: np.ndarray) -> float | None:
    """The mean of what was measured; None where nothing was."""
    measured = values[values != UNMEASURED]
    return float(measured.mean()) if measured.size else None


def check_metrics_are_those_stored(subject: Subject) -> None:
    """A change that should change no result leaves them; tests/write_golden.py writes them anew."""
    path = GOLDEN / f"{subject}.json"
    name = subject.algorithm.name
    assert path.exists(), f"nothing stored yet: run python tests/write_golden.py {name}"
    stored, found = json.loads(path.read_text("utf-8")), mean_metrics(subject)
    assert [sorted(row) for row in found] == [sorted(row) for row in stored]
    for row, expected in zip(found, stored, strict=True):
        for quantity, value in expected.items():
            if value is None or isinstance(value, str):
                assert row[quantity] == value
                continue
            # Machines round differently, and 50 updates let that grow.
            where = f"{quantity}, {row['phase']} {row['step']}, seed {row['seed']}"
            np.testing.assert_allclose(row[quantity], value, rtol=1e-3, atol=1e-5, err_msg=where)
