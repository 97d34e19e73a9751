"""Layers, initializers, actors and critics against NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import independent as slow
from fixed import CONTINUOUS, DISCRETE, numbers
from leeward.errors import SpecError
from leeward.nn.actors import (
    make_deterministic_actor,
    make_mixture_actor,
    make_normal_actor,
)
from leeward.nn.critics import make_critic, make_ensemble, make_value
from leeward.nn.discrete import make_categorical_actor
from leeward.nn.layers import NARROW, LayerNorm, make_mlp, orthogonal, product
from leeward.types import Box, PRNGKey, Spec

OBSERVATION = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
ACTION = np.random.default_rng(1).uniform(-1, 1, size=(4, 2)).astype(np.float32)


def test_an_mlp_is_products_with_relu_between(key: PRNGKey) -> None:
    network = make_mlp((3, 5, 4, 2), key)
    expected = slow.mlp(numbers(network), OBSERVATION)
    np.testing.assert_allclose(network(jnp.asarray(OBSERVATION)), expected, rtol=1e-5)
    assert (slow.mlp(numbers(network)[:2], OBSERVATION) < 0).any()  # ReLU has something to do


def test_an_mlp_takes_any_leading_axes(key: PRNGKey) -> None:
    network = make_mlp((3, 5, 2), key)
    rows = network(jnp.asarray(OBSERVATION))
    np.testing.assert_allclose(network(jnp.asarray(OBSERVATION[0])), rows[0], rtol=1e-5)
    square = network(jnp.asarray(OBSERVATION.reshape(2, 2, 3)))
    np.testing.assert_allclose(square.reshape(4, 2), rows, rtol=1e-5)


@pytest.mark.parametrize("leading", [(), (5,), (2, 5)])
@pytest.mark.parametrize("width", [1, 3, NARROW + 1])
def test_gradients_of_a_product_are_those_of_the_plain_one(
    leading: tuple[int, ...], width: int, key: PRNGKey
) -> None:
    """First and second order: the second as in the gradient penalty, through the first."""
    features, weight, weigh = (
        jax.random.normal(k, shape)
        for k, shape in zip(
            jax.random.split(key, 3), [(*leading, 4), (4, width), (*leading, width)], strict=True
        )
    )

    def plain(features: jax.Array, weight: jax.Array) -> jax.Array:
        return features @ weight

    def first(function: Any) -> Any:
        return jax.grad(lambda f, w: (weigh * jnp.square(function(f, w))).sum(), argnums=(0, 1))

    def second(function: Any) -> Any:
        def size(f: jax.Array, w: jax.Array) -> jax.Array:
            return sum(jnp.square(part).sum() for part in first(function)(f, w))

        return jax.grad(size, argnums=(0, 1))

    for order in (first, second):
        for found, expected in zip(
            order(product)(features, weight), order(plain)(features, weight), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_a_product_can_be_batched_over_weights(key: PRNGKey) -> None:
    weight = jax.random.normal(key, (3, 4, 2))
    slope = jax.vmap(jax.grad(lambda w: jnp.square(product(jnp.ones((5, 4)), w)).sum()))(weight)
    for i in range(3):
        alone = jax.grad(lambda w: jnp.square(product(jnp.ones((5, 4)), w)).sum())(weight[i])
        np.testing.assert_allclose(slope[i], alone, rtol=1e-5)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="about XLA's products on CPU")
def test_no_compiled_weight_gradient_reads_its_left_side_by_columns() -> None:
    """Such products are the slow ones; XLA would make one of a turn and a product."""

    def program(function: Any) -> str:
        slope = jax.grad(lambda f, w: jnp.square(function(f, w)).sum(), argnums=1)
        return jax.jit(slope).lower(jnp.ones((64, 48)), jnp.ones((48, 64))).compile().as_text()

    assert "lhs_contracting_dims={0}" in program(lambda f, w: f @ w)
    assert "lhs_contracting_dims={0}" not in program(product)


def test_layer_norm_is_numpy_s() -> None:
    scale, shift = np.asarray([1.0, 2.0, 0.5]), np.asarray([0.0, 1.0, -1.0])
    norm = LayerNorm(jnp.asarray(scale), jnp.asarray(shift))
    mean, variance = OBSERVATION.mean(1, keepdims=True), OBSERVATION.var(1, keepdims=True)
    expected = (OBSERVATION - mean) / np.sqrt(variance + 1e-5) * scale + shift
    np.testing.assert_allclose(norm(jnp.asarray(OBSERVATION)), expected, rtol=1e-4, atol=1e-6)


def test_layer_norm_stands_before_each_relu(key: PRNGKey) -> None:
    network = make_mlp((3, 5, 2), key, layer_norm=True)
    first, second = network.layers
    hidden = OBSERVATION @ np.asarray(first.weight) + np.asarray(first.bias)
    hidden = hidden - hidden.mean(1, keepdims=True)
    hidden = hidden / np.sqrt((hidden**2).mean(1, keepdims=True) + 1e-5)
    expected = np.maximum(hidden, 0.0) @ np.asarray(second.weight) + np.asarray(second.bias)
    np.testing.assert_allclose(network(jnp.asarray(OBSERVATION)), expected, rtol=1e-4, atol=1e-6)


def test_default_weights_are_uniform_in_one_over_root_of_inputs(key: PRNGKey) -> None:
    layer = make_mlp((100, 400, 1), key).layers[0]
    for parameter in (layer.weight, layer.bias):
        value = np.asarray(parameter)
        assert np.abs(value).max() <= 0.1
        assert value.std() == pytest.approx(0.1 / np.sqrt(3), rel=0.1)
        assert abs(value.mean()) < 0.01


@pytest.mark.parametrize("sizes", [(3, 8), (8, 3)])
def test_orthogonal_weights_are_orthogonal(sizes: tuple[int, int], key: PRNGKey) -> None:
    weight, bias = (np.asarray(p) for p in orthogonal(2.0)(key, *sizes))
    product = weight @ weight.T if sizes[0] < sizes[1] else weight.T @ weight
    np.testing.assert_allclose(product, 4.0 * np.eye(3), atol=1e-5)
    assert not bias.any()


def test_the_last_layer_may_have_weights_of_its_own(key: PRNGKey) -> None:
    first, last = make_mlp(
        (3, 8, 2), key, initializer=orthogonal(2.0), last_initializer=orthogonal(0.01)
    ).layers
    np.testing.assert_allclose(np.linalg.norm(first.weight, axis=1), 2.0, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(last.weight, axis=0), 0.01, rtol=1e-5)


def test_layers_start_apart(key: PRNGKey) -> None:
    first, second, _ = make_mlp((4, 4, 4, 1), key).layers
    assert not np.array_equal(first.weight, second.weight)


def test_log_stds_are_clipped(key: PRNGKey) -> None:
    large = jnp.asarray(1e4 * OBSERVATION)
    for actor in (
        make_normal_actor(CONTINUOUS, (5,), key),
        make_mixture_actor(CONTINUOUS, (5,), 3, key),
    ):
        log_std = np.asarray(actor(large).log_std)
        assert log_std.min() == -20.0
        assert log_std.max() == 2.0


def test_shapes_of_actors(key: PRNGKey) -> None:
    observation = jnp.asarray(OBSERVATION)
    deterministic = make_deterministic_actor(CONTINUOUS, (5,), key)(observation)
    assert deterministic.shape == (4, 2)
    assert np.abs(deterministic).max() < 1.0
    assert make_normal_actor(CONTINUOUS, (5,), key)(observation).mean.shape == (4, 2)
    assert make_mixture_actor(CONTINUOUS, (5,), 7, key)(observation).logit.shape == (4, 2, 7)
    assert make_categorical_actor(DISCRETE, (5,), key)(observation).logit.shape == (4, 4)


def test_critics_read_observation_and_action(key: PRNGKey) -> None:
    critic = make_critic(CONTINUOUS, (5, 4), key)
    value = critic(jnp.asarray(OBSERVATION), jnp.asarray(ACTION))
    np.testing.assert_allclose(
        value, slow.critic(numbers(critic), OBSERVATION, ACTION), rtol=1e-5, atol=1e-6
    )
    assert make_value(CONTINUOUS, (5,), key)(jnp.asarray(OBSERVATION)).shape == (4,)


def test_an_ensemble_s_members_share_nothing(key: PRNGKey) -> None:
    ensemble = make_ensemble(3, CONTINUOUS, (5,), key)
    value = ensemble(jnp.asarray(OBSERVATION), jnp.asarray(ACTION))
    for member, row in zip(ensemble.member, value, strict=True):
        expected = slow.critic(numbers(member), OBSERVATION, ACTION)
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-6)
    assert len({float(row[0]) for row in value}) == 3


def test_every_leaf_of_every_network_is_an_array(key: PRNGKey) -> None:
    for network in (
        make_mixture_actor(CONTINUOUS, (5,), 3, key),
        make_ensemble(2, CONTINUOUS, (5,), key, layer_norm=True),
    ):
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(network))


def test_specs_that_a_network_cannot_serve_are_refused(key: PRNGKey) -> None:
    image = Spec((84, 84, 4), "uint8", Box((-1.0,), (1.0,)))
    with pytest.raises(SpecError) as error:
        make_deterministic_actor(image, (5,), key)
    assert str(error.value) == "this network needs vector observations, got shape (84, 84, 4)"
    with pytest.raises(SpecError) as error:
        make_normal_actor(DISCRETE, (5,), key)
    assert str(error.value) == "this network needs continuous actions, got Discrete(size=4)"
    with pytest.raises(SpecError, match="needs discrete actions"):
        make_categorical_actor(CONTINUOUS, (5,), key)
