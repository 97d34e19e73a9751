"""What tests of algorithms for discrete actions share: formulas written again in slow NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import independent as slow
from fixed import (
    DISCRETE,
    assert_close,
    assert_memory_close,
    fixed_batch,
    memory,
    numbers,
    randomize,
)
from leeward.types import Batch

ACTIONS = 4
KEY = 5


def make_state(module: Any, config: Any, seed: int = 1) -> Any:
    """A state with weights and optimizers drawn anew."""
    return randomize(module.init(config, DISCRETE, jax.random.key(0)), seed)


def run(
    module: Any, config: Any, state: Any, step: int = 3, batch: Batch | None = None
) -> tuple[Any, dict[str, float]]:
    """One compiled update on the fixed batch."""
    new, metrics = jax.jit(module.update)(
        config,
        state,
        fixed_batch(DISCRETE) if batch is None else batch,
        jax.random.key(KEY),
        jnp.asarray(step),
    )
    return new, {name: float(value) for name, value in metrics.items()}


def column(name: str) -> np.ndarray:
    """A column of the fixed batch."""
    return np.asarray(getattr(fixed_batch(DISCRETE), name))


def taken(value: np.ndarray) -> np.ndarray:
    """What the fixed batch's actions have of [B, A, …]."""
    return np.stack([value[row, action] for row, action in enumerate(column("action"))])


def td_target(next_value: np.ndarray) -> np.ndarray:
    """r + discount · (1 − d) · next value, [B]."""
    return column("reward") + column("discount") * (1.0 - column("termination")) * next_value


def two_heads(layers: Sequence[np.ndarray], observation: np.ndarray) -> tuple[Any, Any]:
    """(Q, logits): one hidden layer and two linear heads, six arrays."""
    features = np.maximum(observation @ layers[0] + layers[1], 0.0)
    return features @ layers[2] + layers[3], features @ layers[4] + layers[5]


def quantiles_of(layers: Sequence[np.ndarray], observation: np.ndarray) -> np.ndarray:
    """[B, A, K] of a network with one output for every action and quantile."""
    return slow.mlp(list(layers), observation).reshape(len(observation), ACTIONS, -1)


def log_softmax(logit: np.ndarray) -> np.ndarray:
    """log π of every action."""
    return logit - np.log(np.exp(logit).sum(axis=1, keepdims=True))


def huber(difference: float) -> float:
    """½u² where |u| ≤ 1, else |u| − ½."""
    return 0.5 * difference**2 if abs(difference) <= 1.0 else abs(difference) - 0.5


def quantile_huber(quantile: np.ndarray, target: np.ndarray) -> float:
    """Equation 10 of the QR-DQN paper with κ = 1, in loops, of one transition."""
    total = 0.0
    for i, theta in enumerate(quantile):
        level = (2 * (i + 1) - 1) / (2 * len(quantile))  # τ̂ᵢ, the midpoint of (τᵢ₋₁, τᵢ)
        of_targets = []
        for goal in target:
            error = goal - theta
            of_targets.append(abs(level - (1.0 if error < 0 else 0.0)) * huber(error))
        total += sum(of_targets) / len(of_targets)
    return total


def conservative_gap(q: np.ndarray) -> float:
    """mean of log Σ exp Q(s, ·) − Q(s, a)."""
    return float((np.log(np.exp(q).sum(axis=1)) - taken(q)).mean())


def assert_stepped(
    loss: Callable[[Sequence[np.ndarray]], float],
    before: Any,
    opt: Any,
    after: Any,
    new_opt: Any,
    rate: float,
    eps: float = 1e-8,
) -> None:
    """`after` is `before` with one step of Adam on `loss`, whose gradient is by differences."""
    parameters = numbers(before)
    moved, adam = slow.adam(parameters, slow.gradient(loss, parameters), memory(opt), rate, eps)
    assert_memory_close(new_opt, adam)
    assert_close(after, moved)


def check_target_copies(module: Any, config: Any) -> None:
    """With a copy every 3 updates: after updates 3, 6, … the target is the online network."""
    state = make_state(module, config)
    for step in range(7):
        before = state
        state, _ = run(module, config, state, step)
        copied = step in (2, 5)
        expected = state.network if copied else before.target_network
        for a, b in zip(numbers(state.target_network), numbers(expected), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"update {step + 1}")
        other = before.target_network if copied else state.network
        assert any(
            not np.array_equal(a, b)
            for a, b in zip(numbers(state.target_network), numbers(other), strict=True)
        )
