"""Exported files equal the live policy: on images, with every density, any batch.

That every algorithm's do, on vectors, is part of the contract (contract.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exporting import (
    IMAGES,
    VECTORS,
    exported,
    function_policy,
    observations,
    policy_of,
    varied_policy_of,
)
from leeward.algorithms import ALGORITHMS
from leeward.data.sampling import Scaling
from leeward.errors import ConfigError, SpecError
from leeward.export import operators
from leeward.nn.encoders import make_encoder
from leeward.types import Box, Spec

BATCH = 7


def sees_images(name: str) -> bool:
    """Whether an algorithm learns from images of bytes."""
    try:
        policy_of(ALGORITHMS[name], IMAGES)
    except SpecError:
        return False
    return True


SUBJECTS: list[tuple[str, Spec, dict[str, Any]]] = [
    *((n, IMAGES, {}) for n, a in ALGORITHMS.items() if "discrete" in a.actions and sees_images(n)),
    ("bc", VECTORS, {"density": "gaussian"}),
    ("bc", VECTORS, {"density": "mixture"}),
    ("fmr", VECTORS, {"density": "mixture"}),
    ("fmr", VECTORS, {"density": "joint-mixture"}),
    ("fmr", VECTORS, {"density": "deterministic"}),
]


def named(subject: Any) -> str:
    if isinstance(subject, Spec):
        return "pixels" if subject == IMAGES else "vectors"
    return subject if isinstance(subject, str) else "-".join(subject.values()) or "default"


def assert_same(live: np.ndarray, call: Callable[[np.ndarray], np.ndarray], seen: Any) -> None:
    """Equal to 1e-5, all observations at once and each alone."""
    for found in (call(seen), np.concatenate([call(seen[i : i + 1]) for i in range(len(seen))])):
        assert (found.shape, found.dtype) == (live.shape, live.dtype)
        np.testing.assert_allclose(found, live, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "spec", "settings"), SUBJECTS, ids=named)
def test_onnx_and_numpy_equal_the_live_policy(
    name: str, spec: Spec, settings: dict[str, Any]
) -> None:
    algorithm, seen = ALGORITHMS[name], observations(spec, BATCH)
    if spec == IMAGES:
        policy = varied_policy_of(algorithm, spec, seen)
    else:
        policy = policy_of(algorithm, spec, **settings)
    live = policy(seen)
    assert len(np.unique(live, axis=0)) > 1  # the observation matters
    assert_same(live, exported(policy, "onnx"), seen)
    assert_same(live, exported(policy, "numpy"), seen)


@pytest.mark.parametrize("shape", [(36, 36), (2, 36, 40), (40, 36, 3)], ids=["HW", "CHW", "HWC"])
def test_features_of_images_equal_the_encoder_s(shape: tuple[int, ...]) -> None:
    spec = Spec(shape, "uint8", Box((-1e6,) * 8, (1e6,) * 8))
    encoder, _ = make_encoder(spec, jax.random.key(0))
    policy = dataclasses.replace(
        function_policy(lambda encoder, image: 100.0 * encoder(image)[:, :8], np.zeros(1), 8),
        policy=encoder,
        spec=spec,
        scaling=Scaling(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(8), jnp.ones(8)),
    )
    seen = np.random.default_rng(0).integers(0, 256, (3, *shape)).astype(np.uint8)
    live = policy(seen)
    assert (live.std(axis=0) > 0.01).any()
    assert_same(live, exported(policy, "onnx"), seen)
    assert_same(live, exported(policy, "numpy"), seen)


def test_stablehlo_equals_the_live_policy_on_images() -> None:
    seen = observations(IMAGES, BATCH)
    policy = varied_policy_of(ALGORITHMS["discrete_bcq"], IMAGES, seen)
    assert_same(policy(seen), exported(policy, "stablehlo"), seen)


def test_algorithms_that_learn_from_images_are_covered() -> None:
    seen = {name for name, spec, _ in SUBJECTS if spec == IMAGES}
    assert {"discrete_bc", "discrete_bcq", "discrete_cql", "discrete_iql", "dqn"} <= seen


def test_a_large_batch_and_one_that_is_no_number() -> None:
    policy = policy_of(ALGORITHMS["td3_bc"], VECTORS)
    seen = observations(VECTORS, 3_000)
    seen[5] = np.nan
    for form in ("onnx", "numpy", "stablehlo"):
        found = exported(policy, form)(seen)
        assert np.isnan(found[5]).all(), form  # never an action that looks like one
        rest = np.delete(np.arange(3_000), 5)
        np.testing.assert_allclose(found[rest], policy(seen[rest]), rtol=1e-5, atol=1e-5)


# --- Operations ---

WEIGHT = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def rows(result: jax.Array) -> jax.Array:
    """[B, …] as [B, size]."""
    return result.reshape(result.shape[0], -1)


def grow(value: jax.Array, like: jax.Array) -> jax.Array:
    return jnp.broadcast_to(value, like.shape)


OPERATIONS: dict[str, Callable[..., jax.Array]] = {
    "matrix product": lambda w, x: x @ w,
    "product over the other axes": lambda w, x: jnp.einsum("io,bi->ob", w, x).T,
    "product over two axes": lambda w, x: jnp.einsum(
        "bij,ij->b", jnp.einsum("bi,bj->bij", x, x @ w), w
    )[:, None],
    "outer product": lambda w, x: rows(jnp.einsum("io,bj->bioj", w, x)),
    "batched product": lambda w, x: rows(jnp.einsum("bi,bj->bij", x, x @ w)),
    "product of batches": lambda w, x: rows(
        jnp.einsum("bij,bkj->bik", x[:, None] * grow(w.T, x[:, None] + 0 * w.T[None]), x[:, None])
    ),
    "relu": lambda w, x: jax.nn.relu(x @ w),
    "sigmoid": lambda w, x: jax.nn.sigmoid(x @ w),
    "silu": lambda w, x: jax.nn.silu(x @ w),
    "softplus by hand": lambda w, x: jnp.log1p(jnp.exp(x @ w)),
    "softmax": lambda w, x: jax.nn.softmax(x @ w, axis=-1),
    "log-softmax": lambda w, x: jax.nn.log_softmax(x @ w, axis=-1),
    "norm": lambda w, x: x * grow(jax.lax.rsqrt(jnp.square(x).sum(-1, keepdims=True) + 0.1), x),
    "mean and root": lambda w, x: jnp.sqrt(jnp.abs(x).mean(axis=1))[:, None],
    "powers": lambda w, x: x**3 - x**2 + x**-1,
    "clip": lambda w, x: jnp.clip(x, -0.3, 0.4),
    "clamp": lambda w, x: jax.lax.clamp(-0.3, x, 0.4),
    "signs": lambda w, x: jnp.sign(x) * jnp.abs(x) - (-x),
    "split": lambda w, x: jnp.split(x @ w, 2, axis=-1)[1],
    "slice": lambda w, x: (x @ w)[:, 1:3],
    "one column": lambda w, x: (x @ w)[..., 1][:, None],
    "strided slice": lambda w, x: (x @ w)[:, ::2],
    "concatenate": lambda w, x: jnp.concatenate([x, x @ w], axis=1),
    "concatenate with what is known": lambda w, x: jnp.concatenate(
        [x, jnp.broadcast_to(w[0], (x.shape[0], 4))], axis=1
    ),
    "concatenate batches": lambda w, x: rows(
        jnp.concatenate([x, 2.0 * x], axis=0).reshape(2, -1, 3).transpose(1, 0, 2)
    ),
    "what is known, for twice the batch": lambda w, x: rows(
        (jnp.broadcast_to(w[0], (2 * x.shape[0], 4)) + 0.0).reshape(-1, 8)
    ),
    "transpose and reshape": lambda w, x: rows((x @ w).reshape(-1, 2, 2).transpose(0, 2, 1)),
    "argmax": lambda w, x: jax.nn.one_hot(jnp.argmax(x @ w, axis=-1), 4),
    "argmin": lambda w, x: jnp.argmin(x @ w, axis=-1).astype(jnp.float32)[:, None],
    "best and worst": lambda w, x: jnp.stack([(x @ w).max(axis=1), (x @ w).min(axis=1)], axis=1),
    "comparisons": lambda w, x: jnp.where(
        (x > 0.1) & (x < 1.0) | ~(x >= -1.0) | (x <= -2.0), x, jnp.where(x != 0.5, -x, 7.0)
    ),
    "a known row": lambda w, x: jnp.broadcast_to(jnp.tanh(w[:1]), (x.shape[0], 4)),
    "the observation": lambda w, x: x,
    "a place that was found": lambda w, x: jnp.take_along_axis(
        x @ w, jnp.argmax(x @ w, axis=1)[:, None], axis=1
    ),
    "a slice that was found": lambda w, x: jnp.take_along_axis(
        (x @ w).reshape(-1, 2, 2), jnp.argmax(x[:, :2], axis=1)[:, None, None], axis=1
    )[:, 0],
    "a row of what is known": lambda w, x: w[jnp.argmax(x, axis=1)],
    "a key that is not used": lambda w, x: x if jax.random.key(0) is not None else -x,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_equals_jax(name: str) -> None:
    function, seen = OPERATIONS[name], observations(VECTORS, BATCH)
    expected = np.asarray(jax.jit(function)(WEIGHT, seen))
    policy = function_policy(function, WEIGHT, expected.shape[1])
    for form in ("onnx", "numpy"):
        found = exported(policy, form)(seen)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=form)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda w, x: jnp.sort(jnp.cumsum(x, axis=1)), "'cumsum', 'sort'"),
        (lambda w, x: x + jax.random.normal(jax.random.key(0), (3,))[None], "'random_bits'"),
        (lambda w, x: jax.lax.fori_loop(0, 3, lambda i, a: a + 1.0, x), "'scan'"),
        (lambda w, x: (x.astype(int) // 2).astype(float), "'rem'"),
        (lambda w, x: jnp.exp(x.astype(jnp.bfloat16)).astype(float), "'exp of bfloat16'"),
        (lambda w, x: x[:, :1] + jnp.arange(x.shape[0])[:, None] + x, "'iota over the batch'"),
        (lambda w, x: jnp.concatenate([x[1:], x[:1]], axis=0), "'slice of the batch'"),
    ],
    ids=["two", "random", "loop", "integers", "small floats", "batch", "slice"],
)
def test_other_operations_are_named(function: Callable[..., jax.Array], named: str) -> None:
    policy = function_policy(function, WEIGHT, 3)
    with jax.numpy_rank_promotion("allow"), pytest.raises(ConfigError) as caught:
        operators.graph_of(policy)
    start = (
        "the policy of function computes with operations that have no counterpart in ONNX here ("
    )
    assert str(caught.value).startswith(start)
    assert named in str(caught.value)
    assert str(caught.value).endswith("): use --format stablehlo, which takes all of them")


def test_what_is_known_is_computed_before_and_no_bias_is_copied_for_the_batch() -> None:
    policy = function_policy(
        lambda w, x: x @ jnp.exp(w + 1.0) + jnp.broadcast_to(w[0], (x.shape[0], 4)), WEIGHT, 4
    )
    used = [node.operator for node in operators.graph_of(policy).nodes]
    assert used == ["Sub", "Div", "MatMul", "Add", "Mul", "Add", "Max", "Min"]
