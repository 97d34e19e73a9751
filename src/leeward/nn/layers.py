"""Layers whose every leaf is an array, and the initializers that papers name.

Layers accept any leading axes. Activations are module-level functions, never fields, so plain
`jax.jit`, `vmap`, `grad`, optax and checkpointing work on every network.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leeward.types import PRNGKey

Initializer = Callable[[PRNGKey, int, int], tuple[Float[Array, "in out"], Float[Array, " out"]]]
"""(key, size in, size out) → (weight, bias)."""


def fan_in_uniform(key: PRNGKey, size_in: int, size_out: int) -> tuple[Array, Array]:
    """Weight and bias uniform in ±1/√in: PyTorch's default, hence TD3+BC's, IQL's and CORL's."""
    weight_key, bias_key = jax.random.split(key)
    bound = size_in**-0.5
    weight = jax.random.uniform(weight_key, (size_in, size_out), minval=-bound, maxval=bound)
    return weight, jax.random.uniform(bias_key, (size_out,), minval=-bound, maxval=bound)


def orthogonal(gain: float) -> Initializer:
    """Orthogonal weight times `gain`, zero bias (Saxe et al., arXiv 1312.6120)."""

    def initialize(key: PRNGKey, size_in: int, size_out: int) -> tuple[Array, Array]:
        weight = jax.nn.initializers.orthogonal(gain)(key, (size_in, size_out), jnp.float32)
        return weight, jnp.zeros(size_out)

    return initialize


NARROW = 32
"""Columns up to which the gradient of a weight is computed transposed (measured on CPU)."""
TALL = 256
"""Rows from which turning them costs what the quicker product saves (measured on CPU)."""


@jax.custom_vjp
def product(
    features: Float[Array, "*batch in"], weight: Float[Array, "in out"]
) -> Float[Array, "*batch out"]:
    """features @ weight, with gradients that are quick on CPU.

    There XLA hands a product whose left side is read by columns, as the gradient of a weight is, to
    slower code than all others: a last layer with one output cost 61 µs instead of 2. So the side
    is turned first, behind a barrier that keeps the turn from being merged into the product.
    """
    return features @ weight


@jax.custom_vjp
def turned_product(
    change: Float[Array, "*batch out"], weight: Float[Array, "in out"]
) -> Float[Array, "*batch in"]:
    """change @ weight.T, the way back through `product`; its gradients are quick as well."""
    return change @ weight.T


def _weight_gradient(features: Array, change: Array) -> Float[Array, "in out"]:
    """featuresᵀ @ change, all leading axes summed."""
    rows = features.reshape(-1, features.shape[-1])
    changes = change.reshape(-1, change.shape[-1])
    if jax.default_backend() != "cpu":
        return rows.T @ changes
    if changes.shape[1] <= NARROW:
        return jax.lax.optimization_barrier(changes.T @ rows).T
    if rows.shape[0] > TALL:
        return rows.T @ changes
    return jax.lax.optimization_barrier(rows.T) @ changes


def _product_backward(kept: tuple[Array, Array], change: Array) -> tuple[Array, Array]:
    features, weight = kept
    return turned_product(change, weight), _weight_gradient(features, change)


def _turned_backward(kept: tuple[Array, Array], back: Array) -> tuple[Array, Array]:
    change, weight = kept
    return product(back, weight), _weight_gradient(back, change)


product.defvjp(lambda features, weight: (features @ weight, (features, weight)), _product_backward)
turned_product.defvjp(
    lambda change, weight: (change @ weight.T, (change, weight)), _turned_backward
)


class Linear(eqx.Module):
    """features @ weight + bias."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]

    def __call__(self, features: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """[..., in] → [..., out]."""
        output = product(features, self.weight)
        return output + jnp.broadcast_to(self.bias, output.shape)


class LayerNorm(eqx.Module):
    """Normalization over the last axis with a learned scale and shift (arXiv 1607.06450)."""

    scale: Float[Array, " features"]
    shift: Float[Array, " features"]

    def __call__(
        self, features: Float[Array, "*batch features"]
    ) -> Float[Array, "*batch features"]:
        """[..., features] → the same shape."""
        mean = features.mean(axis=-1, keepdims=True)
        centered = features - jnp.broadcast_to(mean, features.shape)
        variance = jnp.square(centered).mean(axis=-1, keepdims=True)
        normal = centered * jnp.broadcast_to(jax.lax.rsqrt(variance + 1e-5), features.shape)
        return normal * jnp.broadcast_to(self.scale, features.shape) + jnp.broadcast_to(
            self.shift, features.shape
        )


class MLP(eqx.Module):
    """Linear layers with ReLU between them; LayerNorm before or after each ReLU, or none."""

    layers: tuple[Linear, ...]
    norm: tuple[LayerNorm, ...]
    norm_after: bool = eqx.field(static=True, default=False)

    def __call__(self, features: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """[..., in] → [..., out]; no activation after the last layer."""
        for i, layer in enumerate(self.layers[:-1]):
            features = layer(features)
            if self.norm and not self.norm_after:
                features = self.norm[i](features)
            features = jax.nn.relu(features)
            if self.norm and self.norm_after:
                features = self.norm[i](features)
        return self.layers[-1](features)


def make_linear(
    size_in: int, size_out: int, key: PRNGKey, initializer: Initializer = fan_in_uniform
) -> Linear:
    """One linear layer."""
    return Linear(*initializer(key, size_in, size_out))


def make_mlp(
    sizes: tuple[int, ...],
    key: PRNGKey,
    *,
    initializer: Initializer = fan_in_uniform,
    last_initializer: Initializer | None = None,
    layer_norm: bool = False,
    norm_after: bool = False,
) -> MLP:
    """An MLP with `sizes` = (in, hidden …, out); the last layer may have its own initializer."""
    keys = jax.random.split(key, len(sizes) - 1)
    last = len(sizes) - 2
    layers = tuple(
        make_linear(
            sizes[i],
            sizes[i + 1],
            keys[i],
            last_initializer if i == last and last_initializer else initializer,
        )
        for i in range(len(sizes) - 1)
    )
    norm = tuple(LayerNorm(jnp.ones(s), jnp.zeros(s)) for s in sizes[1:-1]) if layer_norm else ()
    return MLP(layers, norm, norm_after)
