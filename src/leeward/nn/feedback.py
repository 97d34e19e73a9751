"""FMR's weight of the divergence: how much a policy is held to its behavior, state by state."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Weighting = Literal["low-value", "centered", "reversed"]
Schedule = Literal["constant", "warmup", "decay"]
WARMUP_START = 1e-5
"""λ at the start of its warm-up (FMR)."""
LEAST_SPREAD = 1e-3
"""Below this share of its size a signal's std is what a fit leaves over (ours)."""


def varies(signal: Float[Array, " B"]) -> Bool[Array, ""]:
    """Whether a signal tells states apart: std ≥ 1e-3 · (1e-3 + |mean|)."""
    return signal.std() >= LEAST_SPREAD * (LEAST_SPREAD + jnp.abs(signal.mean()))


def standardize(signal: Float[Array, " B"]) -> Float[Array, " B"]:
    """(signal − mean) / std; 0 everywhere where it does not vary, so that all weights are equal."""
    mean = signal.mean()
    scaled = (signal - mean) / (signal.std() + 1e-5 * (1.0 + jnp.abs(mean)))
    return jnp.where(varies(signal), scaled, 0.0)


def feedback_weight(
    signal: Float[Array, " B"], weighting: Weighting, highest: float | Float[Array, ""]
) -> Float[Array, " B"]:
    """FMR's weight w of the divergence at each state, without gradient.

    "low-value" is softplus(−signal): positive, strong where the signal is low. "centered" is the
    signal less the batch's mean, as FMR's formula is printed; "reversed" the opposite, as its text
    has it. Those two are negative on one side, where they reward leaving the behavior.

    Args:
        signal: a standardized value.
        weighting: which of the three.
        highest: the signal is clipped to ± this first.
    """
    signal = jax.lax.stop_gradient(jnp.clip(signal, -highest, highest))
    if weighting == "low-value":
        return jax.nn.softplus(-signal)
    centered = signal - signal.mean()
    return centered if weighting == "centered" else -centered


def warmed_up(
    weight: float | Float[Array, ""], step: Int[Array, ""], steps: int
) -> Float[Array, ""]:
    """λ raised evenly from 1e-5 over `steps` updates; 0 stays 0, so that it is still cloning.

    Where `steps` is 0 there is no warm-up.
    """
    highest = jnp.asarray(weight, jnp.float32)
    if steps == 0:
        return highest
    first = jnp.minimum(WARMUP_START, highest)
    return first + (highest - first) * jnp.minimum(step / steps, 1.0)


def decayed(
    weight: float | Float[Array, ""], factor: float | Float[Array, ""], epoch: Int[Array, ""]
) -> Float[Array, ""]:
    """λ times `factor` after every epoch."""
    return jnp.asarray(weight, jnp.float32) * jnp.power(jnp.asarray(factor, jnp.float32), epoch)
