"""What algorithms are made of, written again in float64 NumPy from the papers' formulas.

Nothing here calls JAX or the package: gradients are central differences of forward formulas, so
that an error in the package cannot hide in its own check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Layers = list[np.ndarray]
"""Weight [in, out] and bias [out] of every layer in turn."""


def mlp(layers: Layers, features: np.ndarray) -> np.ndarray:
    """ReLU network, [B, in] → [B, out]."""
    for i in range(0, len(layers), 2):
        features = features @ layers[i] + layers[i + 1]
        if i < len(layers) - 2:
            features = np.maximum(features, 0.0)
    return features


def critic(layers: Layers, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Q(s, a) [B]."""
    return mlp(layers, np.concatenate([observation, action], axis=1))[:, 0]


def normed_critic(parameters: Sequence[np.ndarray], features: np.ndarray) -> np.ndarray:
    """V or Q [B] of a ReLU network with LayerNorm before each ReLU.

    Weights and biases come first, then scales and shifts.
    """
    layers = (len(parameters) + 2) // 4  # one norm for every layer but the last
    for i in range(layers - 1):
        features = features @ parameters[2 * i] + parameters[2 * i + 1]
        centered = features - features.mean(axis=1, keepdims=True)
        features = centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
        scale, shift = parameters[2 * layers + 2 * i : 2 * layers + 2 * i + 2]
        features = np.maximum(features * scale + shift, 0.0)
    return (features @ parameters[2 * layers - 2] + parameters[2 * layers - 1])[:, 0]


def critic_action_gradient(
    layers: Layers, observation: np.ndarray, action: np.ndarray
) -> np.ndarray:
    """∂Q/∂a [B, A], by the chain rule through the active units."""
    features = np.concatenate([observation, action], axis=1)
    active = []
    for i in range(0, len(layers) - 2, 2):
        features = features @ layers[i] + layers[i + 1]
        active.append(features > 0.0)
        features = np.maximum(features, 0.0)
    gradient = np.broadcast_to(layers[-2][:, 0], (len(action), len(layers[-2])))
    for i in range(len(active) - 1, -1, -1):
        gradient = (gradient * active[i]) @ layers[2 * i].T
    return gradient[:, observation.shape[1] :]


def normal_log_density(value: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """log N(value; mean, std²), elementwise."""
    return -0.5 * ((value - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)


def tanh_normal_log_density(before: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """log density of tanh(`before`), summed over dimensions: change of variables, [B]."""
    return (normal_log_density(before, mean, std) - np.log(1.0 - np.tanh(before) ** 2)).sum(axis=1)


def tanh_mixture_log_density(
    before: np.ndarray, logit: np.ndarray, mean: np.ndarray, std: np.ndarray
) -> np.ndarray:
    """log density of tanh(`before` [B, A]) under a mixture [B, A, K] per dimension, [B]."""
    weight = np.exp(logit) / np.exp(logit).sum(axis=2, keepdims=True)
    density = (weight * np.exp(normal_log_density(before[:, :, None], mean, std))).sum(axis=2)
    return (np.log(density) - np.log(1.0 - np.tanh(before) ** 2)).sum(axis=1)


def normal_head(layers: Layers, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std [B, A] of an actor whose outputs are means, then log-stds in [−20, 2]."""
    mean, log_std = np.split(mlp(layers, observation), 2, axis=1)
    return mean, np.exp(np.clip(log_std, -20.0, 2.0))


def mixture_head(
    layers: Layers, observation: np.ndarray, components: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logit, mean and std [B, A, K] of an actor whose outputs are all logits, means, log-stds."""
    output = mlp(layers, observation).reshape(len(observation), 3, -1, components)
    return output[:, 0], output[:, 1], np.exp(np.clip(output[:, 2], -20.0, 2.0))


def pick(parameter: np.ndarray, component: np.ndarray) -> np.ndarray:
    """`parameter` [B, A, K] of the chosen component [B, A]."""
    return np.take_along_axis(parameter, component[:, :, None], axis=2)[:, :, 0]


def gradient(
    loss: Callable[[Sequence[np.ndarray]], float], parameters: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """∂loss/∂parameters by central differences."""
    width = 1e-5
    result = []
    for i, parameter in enumerate(parameters):
        slope = np.zeros_like(parameter)
        for position in np.ndindex(parameter.shape):
            ends = []
            for sign in (1.0, -1.0):
                moved = parameter.copy()
                moved[position] += sign * width
                ends.append(loss([*parameters[:i], moved, *parameters[i + 1 :]]))
            slope[position] = (ends[0] - ends[1]) / (2.0 * width)
        result.append(slope)
    return result


class Adam(NamedTuple):
    """Adam's memory (arXiv 1412.6980, algorithm 1)."""

    count: int
    first: list[np.ndarray]
    second: list[np.ndarray]


def adam(
    parameters: Sequence[np.ndarray],
    slope: Sequence[np.ndarray],
    memory: Adam,
    rate: float,
    eps: float,
) -> tuple[list[np.ndarray], Adam]:
    """One step with β₁ = 0.9 and β₂ = 0.999, eps outside the root."""
    count = memory.count + 1
    first = [0.9 * m + 0.1 * g for m, g in zip(memory.first, slope, strict=True)]
    second = [0.999 * v + 0.001 * g**2 for v, g in zip(memory.second, slope, strict=True)]
    moved = [
        p - rate * (m / (1.0 - 0.9**count)) / (np.sqrt(v / (1.0 - 0.999**count)) + eps)
        for p, m, v in zip(parameters, first, second, strict=True)
    ]
    return moved, Adam(count, first, second)


def average(target: Layers, online: Layers, tau: float) -> Layers:
    """(1 − tau) · target + tau · online."""
    return [(1.0 - tau) * t + tau * o for t, o in zip(target, online, strict=True)]
