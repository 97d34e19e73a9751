"""Gradient steps, target updates and schedules, as small functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.types import UNMEASURED, Metrics, Step

Model = TypeVar("Model")
State = TypeVar("State")
Part = TypeVar("Part")


def descend(
    loss: Callable[[Model], tuple[Float[Array, ""], Metrics]],
    model: Model,
    optimizer: optax.GradientTransformation,
    optimizer_state: optax.OptState,
) -> tuple[Model, optax.OptState, Metrics]:
    """One gradient step on `loss(model) -> (scalar, metrics)`."""
    gradient, metrics = jax.grad(loss, has_aux=True)(model)
    return *apply_gradient(gradient, model, optimizer, optimizer_state), metrics


def apply_gradient(
    gradient: Model,
    model: Model,
    optimizer: optax.GradientTransformation,
    optimizer_state: optax.OptState,
) -> tuple[Model, optax.OptState]:
    """One step of the optimizer along a gradient that was computed before."""
    step, optimizer_state = optimizer.update(gradient, optimizer_state, model)  # type: ignore[arg-type]
    return optax.apply_updates(model, step), optimizer_state  # type: ignore[arg-type, return-value]


def gradient_in_parts(
    loss: Callable[[Model, Part], tuple[Float[Array, ""], Metrics]],
    model: Model,
    batch: Part,
    part_size: int,
) -> tuple[Model, Metrics]:
    """The gradient and metrics of `loss(model, batch)`, a mean over the batch, part by part.

    On CPU the hidden units of many actions of a whole batch exceed a core's cache, and moving them
    costs more than the matrix products; those of a part stay in it. Elsewhere, and where the part
    does not divide the batch, the whole batch goes at once: the same number up to rounding.

    Args:
        loss: its value and metrics are means over the leading axis of every leaf of `batch`.
        model: what is differentiated.
        batch: any pytree of arrays with the same leading axis.
        part_size: rows of a part.
    """
    size = jax.tree.leaves(batch)[0].shape[0]
    gradient = jax.grad(loss, has_aux=True)
    if jax.default_backend() != "cpu" or size % part_size or size == part_size:
        return gradient(model, batch)
    count = size // part_size
    parts = jax.tree.map(lambda leaf: leaf.reshape(count, part_size, *leaf.shape[1:]), batch)

    def add(total: tuple[Model, Metrics], part: Part) -> tuple[tuple[Model, Metrics], None]:
        return jax.tree.map(jnp.add, total, gradient(model, part)), None

    first = jax.tree.map(lambda leaf: leaf[0], parts)
    shapes = jax.eval_shape(gradient, model, first)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    total, _ = jax.lax.scan(add, zeros, parts)
    return jax.tree.map(lambda leaf: leaf / count, total)


def clip_norm(gradient: Model, highest: float | Float[Array, ""]) -> Model:
    """The gradient, shortened to a norm of `highest` where that is positive and exceeded."""
    norm = optax.tree.norm(gradient)
    scale = jnp.where(highest > 0.0, jnp.minimum(1.0, highest / norm), 1.0)
    return jax.tree.map(lambda leaf: scale * leaf, gradient)


def polyak(target: Model, online: Model, tau: float | Float[Array, ""]) -> Model:
    """(1 − tau) · target + tau · online, leaf by leaf."""
    return jax.tree.map(lambda t, o: (1.0 - tau) * t + tau * o, target, online)


def every(
    period: int, step: Step, update: Callable[[State], tuple[State, Metrics]], state: State
) -> tuple[State, Metrics]:
    """`update(state)` at steps 0, period, 2·period, …; else the state as it is, metrics UNMEASURED.

    A real branch in the compiled program, since `step` is never batched; metrics that were not
    measured are left out of the means that are logged.
    """
    if period == 1:
        return update(state)
    shapes = jax.eval_shape(lambda s: update(s)[1], state)

    def skip(state: State) -> tuple[State, Metrics]:
        return state, jax.tree.map(lambda m: jnp.full(m.shape, UNMEASURED, m.dtype), shapes)

    return jax.lax.cond(step % period == 0, update, skip, state)


def reference_decay(step: Step, rate: float | Float[Array, ""], horizon: int) -> Float[Array, ""]:
    """`rate`, a tenth of it after 80 % of `horizon`, a hundredth after 90 %.

    The Fisher-BRC reference's piecewise-constant rate (boundaries 800,000 and 900,000 of 1,000,000
    steps), scaled with the horizon. The step on a boundary still has the old rate, as there.
    """
    boundary = jnp.asarray([round(0.8 * horizon), round(0.9 * horizon)])
    return rate * jnp.asarray([1.0, 0.1, 0.01])[(step > boundary).sum()]


def cosine(step: Step, rate: float | Float[Array, ""], horizon: int) -> Float[Array, ""]:
    """Cosine decay of `rate` to 0 over `horizon` steps."""
    progress = jnp.minimum(step / horizon, 1.0)
    return rate * 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
