"""Traced programs: equal to JAX for every operation they know, refused for every other one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward import acting
from leeward.algorithms import ALGORITHMS
from leeward.numpy_program import Program, trace
from leeward.types import Discrete, Spec
from test_policy import SPEC, stack_of

DRAW = np.random.default_rng(0)
WEIGHT = DRAW.normal(size=(3, 4)).astype(np.float32)
INPUT = DRAW.normal(size=(2, 3)).astype(np.float32)


def traced(function: Callable[..., Any], *known: np.ndarray, changing: np.ndarray) -> Any:
    """The program, or None."""
    like = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (*known, changing)]
    return trace(function, like[:-1], like[-1])


OPERATIONS: dict[str, Callable[..., Any]] = {
    "matrix product": lambda w, x: x @ w,
    "product over the other axes": lambda w, x: jnp.einsum("io,bi->ob", w, x),
    "product over two axes": lambda w, x: jnp.einsum("io,bi->o", w, x),
    "outer product": lambda w, x: jnp.einsum("io,bj->iobj", w, x),
    "batched product": lambda w, x: jax.vmap(lambda a: a @ w)(x),
    "relu": lambda w, x: jax.nn.relu(x @ w),
    "tanh": lambda w, x: jnp.tanh(x @ w),
    "sigmoid": lambda w, x: jax.nn.sigmoid(x @ w),
    "silu": lambda w, x: jax.nn.silu(x @ w),
    "elu": lambda w, x: jnp.where(x @ w > 0.0, x @ w, jnp.exp(jnp.minimum(x @ w, 0.0)) - 1.0),
    "softplus by hand": lambda w, x: jnp.log1p(jnp.exp(x @ w)),
    "softmax": lambda w, x: jax.nn.softmax(x @ w, axis=-1),
    "norm": lambda w, x: x * jax.lax.rsqrt(jnp.square(x).sum(axis=-1, keepdims=True) + 1e-5),
    "mean and root": lambda w, x: jnp.sqrt(jnp.abs(x).mean(axis=0)),
    "powers": lambda w, x: x**3 - x**2,
    "clip": lambda w, x: jnp.clip(x, -0.3, 0.4),
    "split": lambda w, x: jnp.split(x @ w, 2, axis=-1)[1],
    "slice": lambda w, x: (x @ w)[:, 1:3],
    "strided slice": lambda w, x: jax.lax.slice(x @ w, (0, 0), (2, 4), (1, 2)),
    "concatenate": lambda w, x: jnp.concatenate([x, x @ w], axis=1),
    "transpose and reshape": lambda w, x: (x @ w).T.reshape(2, 2, 2),
    "argmax": lambda w, x: jnp.argmax(x @ w, axis=-1),
    "one-hot": lambda w, x: jax.nn.one_hot(jnp.argmax(x @ w, axis=-1), 4),
    "maximum over an axis": lambda w, x: (x @ w).max(axis=0),
    "constant": lambda w, x: jnp.full(3, w[0, 0]),
    "captured array": lambda w, x: x + jnp.asarray(INPUT),
    "unused key": lambda w, x: x + 0.0 * w[0, 0] if jax.random.key(0) is not None else x,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_equals_jax(name: str) -> None:
    function = OPERATIONS[name]
    program = traced(function, WEIGHT, changing=INPUT)
    assert isinstance(program, Program)
    call = program.bind([WEIGHT])
    for changing in (INPUT, -2.0 * INPUT):
        expected = np.asarray(jax.jit(function)(WEIGHT, changing))
        result = call(changing)
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    other = program.bind([3.0 * WEIGHT])
    expected = np.asarray(jax.jit(function)(3.0 * WEIGHT, INPUT))
    np.testing.assert_allclose(other(INPUT), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: jnp.sort(x),
        lambda w, x: x + jax.random.normal(jax.random.key(0), x.shape),
        lambda w, x: x + jax.random.uniform(jax.random.key(0)),
        lambda w, x: jax.lax.fori_loop(0, 3, lambda i, a: a + 1.0, x),
        lambda w, x: x.astype(int) // 2,
        lambda w, x: (x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32),
        lambda w, x: jax.lax.dot_general(
            x, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.bfloat16
        ),
    ],
    ids=["sort", "normal", "uniform", "loop", "integers", "small floats", "mixed types"],
)
def test_other_operations_are_left_to_jax(function: Callable[..., Any]) -> None:
    assert traced(function, WEIGHT, changing=INPUT) is None


def test_what_is_known_is_computed_once() -> None:
    program = traced(lambda w, x: x @ jnp.tanh(w + 1.0) + 1.0, WEIGHT, changing=INPUT)
    assert [call.function for call in program.once] == [np.add, np.tanh]
    assert [call.function for call in program.each] == [np.matmul, np.add]


LEARNED = [(name, kind) for name, a in sorted(ALGORITHMS.items()) for kind in a.actions]


@pytest.mark.parametrize(("name", "kind"), LEARNED)
def test_every_algorithm_acts_the_same(name: str, kind: str) -> None:
    spec = SPEC if kind == "continuous" else Spec((3,), "float32", Discrete(4))
    algorithm = ALGORITHMS[name]
    stack = stack_of(algorithm, algorithm.config_type(hidden=(8, 8)), spec)
    observation = np.random.default_rng(0).normal(1.0, 2.0, size=(2, 5, 3)).astype(np.float32)
    act = stack.actor(5)
    result = act(observation)
    np.testing.assert_allclose(result, stack.act(observation), rtol=1e-5, atol=1e-5)
    assert result.dtype == stack.act(observation).dtype
    assert result.flags.writeable


def test_nan_passes_through() -> None:
    algorithm = ALGORITHMS["td3_bc"]
    stack = stack_of(algorithm, algorithm.config_type(hidden=(8,)))
    observation = np.full((2, 1, 3), np.nan, np.float32)
    assert np.isnan(stack.actor(1)(observation)).all()
    assert np.isnan(stack.act(observation)).all()


def test_large_networks_and_other_operations_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = ALGORITHMS["td3_bc"]
    stack = stack_of(algorithm, algorithm.config_type(hidden=(8,)))
    observation = np.ones((2, 5, 3), np.float32)
    calls: list[tuple[int, ...]] = []
    compiled = acting.act_side_by_side

    def noted(*arguments: Any) -> jax.Array:
        calls.append(arguments[-1].shape)
        return compiled(*arguments)

    monkeypatch.setattr(acting, "act_side_by_side", noted)
    stack.actor(5)(observation)
    assert (2, 5, 3) not in calls[1:]  # traced at most once
    calls.clear()
    monkeypatch.setattr(acting, "SMALL", 10)
    result = stack.actor(5)(observation)
    assert calls == [(2, 5, 3)]
    np.testing.assert_array_equal(result, stack.act(observation))
