"""Algorithms for discrete actions on images of bytes: one update equals a slow computation.

The convolutions, the trunk and the heads are written again here; of every array of the network the
steepest entry's gradient is compared with a difference of the slow loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from discrete import huber, log_softmax, quantile_huber
from leeward.algorithms import (
    discrete_bcq,
    discrete_cql,
    discrete_crr,
    discrete_iql,
    dqn,
    get_algorithm,
    qrdqn,
)
from leeward.settings import make_config
from leeward.types import Batch, Discrete, Spec

SPEC = Spec((2, 36, 36), "uint8", Discrete(3))
ROWS = np.arange(4)
Slow = tuple[dict[str, float], Any, Any, Callable[[Any], float]]
"""Metrics, the network that learns, its optimizer's memory afterwards, and its loss."""


def batch() -> Batch:
    draw = np.random.default_rng(0)
    image = draw.integers(0, 256, (2, 4, 2, 36, 36), np.uint8)
    column = {name: jnp.zeros(4) for name in Batch._fields}
    column |= {
        "observation": jnp.asarray(image[0]),
        "next_observation": jnp.asarray(image[1]),
        "action": jnp.asarray([0, 2, 1, 2], jnp.int32),
        "next_action": jnp.zeros(4, jnp.int32),
        "index": jnp.arange(4),
        "reward": jnp.asarray([1.0, -1.0, 0.5, 2.0]),
        "termination": jnp.asarray([0.0, 1.0, 0.0, 0.0]),
        "discount": jnp.full(4, 0.9),
    }
    return Batch(**column)


BATCH = batch()
IMAGE, NEXT = np.asarray(BATCH.observation), np.asarray(BATCH.next_observation)


def convolution(image: np.ndarray, layer: Any) -> np.ndarray:
    """[B, rows, columns, C] → the same with fewer rows; weights lie block by block."""
    size, stride, blocks = layer.size, layer.stride, layer.size // layer.stride
    channels = image.shape[3]
    weight = layer.weight.reshape(blocks, blocks, channels, stride, stride, -1)
    kernel = weight.transpose(0, 3, 1, 4, 2, 5).reshape(size, size, channels, -1)
    windows = sliding_window_view(image, (size, size), axis=(1, 2))[:, ::stride, ::stride]
    return np.einsum("brcnij,ijno->brco", windows, kernel) + layer.bias


def features(trunk: Any, image: np.ndarray) -> np.ndarray:
    """The trunk on images [B, C, rows, columns] of bytes."""
    found = image.transpose(0, 2, 3, 1) / 255.0
    for layer in trunk.encoder.layers:
        found = np.maximum(convolution(found, layer), 0.0)
    found = found.transpose(0, 3, 1, 2).reshape(len(image), -1)
    for layer in trunk.layers:
        found = np.maximum(found @ layer.weight + layer.bias, 0.0)
    return found


def head(layers: Any, found: np.ndarray) -> np.ndarray:
    """Linear layers with ReLU between them."""
    for i, layer in enumerate(layers):
        found = found if i == 0 else np.maximum(found, 0.0)
        found = found @ layer.weight + layer.bias
    return found


def one_head(network: Any, image: np.ndarray) -> np.ndarray:
    return head([network.head], features(network.trunk, image))


def quantiles(network: Any, image: np.ndarray) -> np.ndarray:
    return one_head(network, image).reshape(len(image), 3, -1)


def two_heads(network: Any, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Q, logits); the trunk is computed once."""
    found = features(network.trunk, image)
    return head(network.q_head.layers, found), head(network.policy_head.layers, found)


def taken(value: np.ndarray) -> np.ndarray:
    return value[ROWS, np.asarray(BATCH.action)]


def td_target(next_value: np.ndarray) -> np.ndarray:
    """r + γ(1 − d) next value, with an axis of quantiles behind or without one."""
    factor = np.asarray(BATCH.discount * (1.0 - BATCH.termination))
    axes = (slice(None), *[None] * (next_value.ndim - 1))
    return np.asarray(BATCH.reward)[axes] + factor[axes] * next_value


def huber_mean(difference: np.ndarray) -> float:
    return float(np.mean([huber(one) for one in difference]))


def gap(q: np.ndarray) -> float:
    return float((np.log(np.exp(q).sum(axis=1)) - taken(q)).mean())


def of_parts(
    names: tuple[str, ...],
    parts: Callable[[Any], tuple[float, ...]],
    weight: float,
    old: Any,
    new: Any,
) -> Slow:
    """A loss of a regression, a cloning and a weighted penalty, with the three by their names."""

    def loss(network: Any) -> float:
        regression, cloning, penalty = parts(network)
        return regression + cloning + weight * penalty

    return dict(zip(names, parts(old.network), strict=True)), old.network, new.network_opt, loss


def slow_bcq(config: Any, old: Any, new: Any) -> Slow:
    q, logit = two_heads(old.network, NEXT)
    share = np.exp(logit - logit.max(axis=1, keepdims=True))
    best = np.where(share >= config.threshold, q, -np.inf).argmax(axis=1)
    target = td_target(two_heads(old.target_network, NEXT)[0][ROWS, best])

    def parts(network: Any) -> tuple[float, float, float]:
        q, logit = two_heads(network, IMAGE)
        cloning = -float(taken(log_softmax(logit)).mean())
        return huber_mean(target - taken(q)), cloning, float((logit**2).mean())

    names = ("critic/loss", "behavior/loss", "behavior/squared_logit")
    return of_parts(names, parts, config.logit_penalty, old, new)


def slow_crr(config: Any, old: Any, new: Any) -> Slow:
    def mean(q: np.ndarray, logit: np.ndarray) -> np.ndarray:
        return (np.exp(log_softmax(logit)) * q).sum(axis=1)

    target = td_target(mean(*two_heads(old.target_network, NEXT)))
    q, logit = two_heads(old.network, IMAGE)
    weight = np.minimum(np.exp((taken(q) - mean(q, logit)) / config.beta), config.weight_clip)

    def parts(network: Any) -> tuple[float, float, float]:
        q, logit = two_heads(network, IMAGE)
        regression = 0.5 * float(((taken(q) - target) ** 2).mean())
        return regression, -float((weight * taken(log_softmax(logit))).mean()), gap(q)

    names = ("critic/loss", "actor/loss", "critic/gap")
    return of_parts(names, parts, config.cql_weight, old, new)


def slow_quantiles(config: Any, old: Any, new: Any) -> Slow:
    """QR-DQN, and CQL on it."""
    found = quantiles(old.target_network, NEXT)
    chooser = quantiles(old.network, NEXT) if config.double else found
    target = td_target(found[ROWS, chooser.mean(axis=2).argmax(axis=1)])
    penalty = getattr(config, "cql_weight", 0.0)

    def regression(network: Any) -> float:
        pairs = zip(taken(quantiles(network, IMAGE)), target, strict=True)
        return float(np.mean([quantile_huber(*pair) for pair in pairs]))

    def loss(network: Any) -> float:
        return regression(network) + penalty * gap(quantiles(network, IMAGE).mean(axis=2))

    return {"critic/loss": regression(old.network)}, old.network, new.network_opt, loss


def slow_dqn(config: Any, old: Any, new: Any) -> Slow:
    best = one_head(old.network, NEXT).argmax(axis=1)
    target = td_target(one_head(old.target_network, NEXT)[ROWS, best])

    def loss(network: Any) -> float:
        return huber_mean(target - taken(one_head(network, IMAGE)))

    return {"critic/loss": loss(old.network)}, old.network, new.network_opt, loss


def slow_iql(config: Any, old: Any, new: Any) -> Slow:
    value = one_head(old.value, IMAGE)[:, 0]
    target = td_target(one_head(old.value, NEXT)[:, 0])
    target_q = np.min([taken(one_head(one, IMAGE)) for one in old.target_critic], axis=0)
    difference = target_q - value
    weight = np.where(difference < 0, 1 - config.expectile, config.expectile)

    def loss(critics: Any) -> float:
        errors = [(taken(one_head(one, IMAGE)) - target) ** 2 for one in critics]
        return float(np.mean(errors, axis=1).sum())

    metrics = {
        "critic/loss": loss(old.critic),
        "value/loss": float((weight * difference**2).mean()),
        "actor/advantage": float(difference.mean()),
    }
    return metrics, old.critic, new.critic_opt, loss


TWO_HEADS = {"hidden": (), "head_hidden": (512,)}
CASES = {
    "bcq": (discrete_bcq, discrete_bcq.Config(**TWO_HEADS, threshold=0.95), slow_bcq),
    "crr": (discrete_crr, discrete_crr.Config(**TWO_HEADS, cql_weight=0.5), slow_crr),
    "cql": (discrete_cql, discrete_cql.Config(hidden=(8,), quantiles=2), slow_quantiles),
    "qrdqn": (qrdqn, qrdqn.Config(hidden=(8,), quantiles=2, double=True), slow_quantiles),
    "dqn": (dqn, dqn.Config(hidden=(8,)), slow_dqn),
    "iql": (discrete_iql, discrete_iql.Config(hidden=(8,)), slow_iql),
}


@pytest.mark.parametrize("name", CASES)
def test_an_update_on_images_equals_the_slow_computation(name: str) -> None:
    module, config, slow = CASES[name]
    state = jax.jit(module.init, static_argnums=1)(config, SPEC, jax.random.key(1))
    other = jax.jit(module.init, static_argnums=1)(config, SPEC, jax.random.key(2))
    target = "target_critic" if name == "iql" else "target_network"
    state = state._replace(**{target: getattr(other, target)})  # else it is a copy
    new, metrics = jax.jit(module.update)(config, state, BATCH, jax.random.key(0), jnp.int32(3))
    old = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), state)
    expected, network, memory, loss = slow(config, old, new)
    for quantity, value in expected.items():
        assert float(metrics[quantity]) == pytest.approx(value, rel=1e-3, abs=1e-6), quantity
    arrays, shape = jax.tree.flatten(network)
    gradients = [10.0 * np.asarray(leaf) for leaf in jax.tree.leaves(memory[0].mu)]  # 1 − β₁ = 0.1
    for number, gradient in enumerate(gradients):
        place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        assert gradient[place] != 0.0, f"array {number} does not learn"
        ends = []
        for step in (1e-6, -1e-6):  # small, as ReLU has kinks
            moved = [leaf.copy() for leaf in arrays]
            moved[number][place] += step
            ends.append(loss(jax.tree.unflatten(shape, moved)))
        slope = (ends[0] - ends[1]) / 2e-6
        assert gradient[place] == pytest.approx(slope, rel=1e-2, abs=1e-5), f"array {number}"


@pytest.mark.parametrize("name", ["bc", "bcq", "cql", "crr", "qrdqn"])
def test_the_networks_of_tianshou_s_preset_take_bytes_as_they_are(name: str) -> None:
    algorithm = get_algorithm(name if name == "qrdqn" else f"discrete_{name}")
    scaled = []
    for preset in (None, "tianshou"):
        config, _ = make_config(algorithm, preset, {"hidden": (8,), "steps": 1})
        policy: Any = algorithm.policy(algorithm.init(config, SPEC, jax.random.key(0)))
        scaled.append(getattr(policy, "network", policy).trunk.encoder.scale)
    assert scaled == [True, False]
