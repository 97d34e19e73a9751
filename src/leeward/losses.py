"""The formulas that several algorithms share, each with its source. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from leeward.types import Batch, Metrics, PRNGKey


@runtime_checkable  # so that the tests' type checker can tell an instance
class Density(Protocol):
    """What the log-likelihood losses need of a distribution over actions."""

    def log_prob(
        self, action: Array, margin: float | Float[Array, ""] = ...
    ) -> Float[Array, "*batch"]: ...

    def sample_and_log_prob(self, key: PRNGKey) -> tuple[Array, Float[Array, "*batch"]]: ...


def td_target(batch: Batch, next_value: Float[Array, " B"]) -> Float[Array, " B"]:
    """reward + discount · (1 − termination) · next value, without gradient.

    Truncated transitions bootstrap: only a true termination has no future.
    """
    target = batch.reward + batch.discount * (1.0 - batch.termination) * next_value
    return jax.lax.stop_gradient(target)


def gradient_penalty(
    members: Sequence[Callable[[Float[Array, "B A"]], Float[Array, " B"]]],
    action: Float[Array, "B A"],
) -> tuple[Float[Array, ""], Float[Array, " E"]]:
    """mean over the batch of Σ over members of ‖∂value/∂action‖² (Fisher-BRC, eq. 9).

    Args:
        members: the E value functions, apart: as rows of one result every gradient would pass
            through all members, with zeros that are multiplied all the same.
        action: where the gradients are taken.

    Returns:
        The penalty, and every member's mean squared gradient norm [E].
    """
    gradient = jnp.stack(
        [jax.grad(lambda a, value=value: value(a).sum())(action) for value in members]
    )  # [E, B, A]
    squared_norm = jnp.square(gradient).sum(axis=-1)  # [E, B]
    return squared_norm.sum(axis=0).mean(), squared_norm.mean(axis=1)


def entropy_regularized_likelihood(
    distribution: Density,
    action: Float[Array, "B A"],
    log_alpha: Float[Array, ""],
    key: PRNGKey,
    margin: float | Float[Array, ""],
) -> tuple[Float[Array, ""], Metrics]:
    """−mean(α·H + log π(a|s)), H from one fresh sample (Fisher-BRC reference, behavioral cloning).

    The sample carries its pathwise gradient: with it detached the expected gradient of the entropy
    term would be zero and the regularization would silently vanish.
    """
    log_prob = distribution.log_prob(action, margin).mean()
    entropy = -distribution.sample_and_log_prob(key)[1].mean()
    alpha = jax.lax.stop_gradient(jnp.exp(log_alpha))
    total = -(alpha * entropy + log_prob)
    return total, {
        "behavior/loss": total,
        "behavior/log_prob": log_prob,
        "behavior/entropy": entropy,
    }


def temperature_loss(
    log_alpha: Float[Array, ""], log_prob: Float[Array, "*batch"], target_entropy: float
) -> Float[Array, ""]:
    """mean of α(−log π − H̄): its descent raises α while the entropy is below H̄ (SAC, eq. 18)."""
    gap = jax.lax.stop_gradient(-log_prob - target_entropy)
    return (jnp.exp(log_alpha) * gap).mean()


def expectile_loss(
    difference: Float[Array, "*batch"], expectile: float | Float[Array, ""]
) -> Float[Array, "*batch"]:
    """|expectile − 1(difference < 0)| · difference² (IQL, arXiv 2110.06169, section 4.1)."""
    weight = jnp.where(difference < 0.0, 1.0 - expectile, expectile)
    return weight * jnp.square(difference)


def advantage_weight(
    advantage: Float[Array, "*batch"],
    inverse_temperature: float | Float[Array, ""],
    highest: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """min(exp(advantage · inverse_temperature), highest), without gradient.

    Weighs the data's actions in the actor's loss (AWAC, arXiv 2006.09359; CRR; IQL). With
    the gradient left in, the actor would also learn to worsen its own actions.
    """
    weight = jnp.exp(advantage * inverse_temperature)
    return jax.lax.stop_gradient(jnp.minimum(weight, highest))


def huber(difference: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """½·difference² up to 1, |difference| − ½ beyond: the smooth L1 loss."""
    size = jnp.abs(difference)
    return jnp.where(size < 1.0, 0.5 * jnp.square(difference), size - 0.5)


def quantile_target(batch: Batch, next_quantile: Float[Array, "B K"]) -> Float[Array, "B K"]:
    """`td_target` of every quantile of the next state's return, without gradient."""
    factor = batch.discount * (1.0 - batch.termination)  # [B]
    target = batch.reward[:, None] + factor[:, None] * next_quantile
    return jax.lax.stop_gradient(target)


@jax.custom_vjp
def quantile_huber(
    quantile: Float[Array, "B K"], target: Float[Array, "B J"]
) -> Float[Array, " B"]:
    """Σᵢ meanⱼ |τ̂ᵢ − 1(u < 0)|·huber(u), u = targetⱼ − quantileᵢ, τ̂ᵢ = (i + ½)/K.

    The target is a constant: no gradient reaches it. Source: QR-DQN, arXiv 1710.10044, eq. 10 with
    κ = 1.
    """
    return _quantile_huber(quantile, target)[0]


def _quantile_huber(
    quantile: Float[Array, "B K"], target: Float[Array, "B J"]
) -> tuple[Float[Array, " B"], Float[Array, "B K"]]:
    """The loss and its slope along every quantile, from one pass over all pairs.

    Differentiated by JAX, seven arrays of all pairs would be kept. Sums run over the middle axis,
    which CPUs add side by side.
    """
    count = quantile.shape[1]
    level = (jnp.arange(count) + 0.5) / count  # [K]
    difference = target[:, :, None] - quantile[:, None, :]  # [B, J, K]
    clipped = jnp.clip(difference, -1.0, 1.0)  # huber's slope; huber is clipped·(u − clipped/2)
    slope = jnp.where(difference < 0.0, 1.0 - level, level) * clipped
    loss = (slope * (difference - 0.5 * clipped)).mean(axis=1).sum(axis=1)
    return loss, -slope.mean(axis=1)


def _quantile_huber_backward(
    slope: Float[Array, "B K"], cotangent: Float[Array, " B"]
) -> tuple[Float[Array, "B K"], None]:
    return cotangent[:, None] * slope, None


quantile_huber.defvjp(_quantile_huber, _quantile_huber_backward)


def of_action(value: Float[Array, "B A *rest"], action: Int[Array, " B"]) -> Array:
    """The values of the actions taken, [B, *rest]."""
    # A one-hot product: on CPU cheaper to differentiate than a gather.
    chosen = jax.nn.one_hot(action, value.shape[1], dtype=value.dtype)
    return jnp.einsum("ba,ba...->b...", chosen, value)


def conservative_gap(q: Float[Array, "B A"], action: Int[Array, " B"]) -> Float[Array, " B"]:
    """logsumexp Q(s, ·) − Q(s, a): what CQL lowers (arXiv 2006.04779, eq. 4)."""
    return jax.nn.logsumexp(q, axis=1) - of_action(q, action)
