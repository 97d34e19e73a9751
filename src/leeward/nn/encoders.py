"""Encoders: from one observation, a vector or an image, to features.

Images go through the three convolutions of Mnih et al. 2015 ("Human-level control …", Nature 518).
A convolution is a matrix product over patches: inside a compiled loop XLA's own convolution is
about ten times slower on CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from leeward.errors import SpecError
from leeward.nn.layers import fan_in_uniform
from leeward.types import PRNGKey, Spec

Layout = Literal["HW", "CHW", "HWC"]
"""The axes of an image: rows, columns, and stacked frames or colors."""
CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""(channels out, size, stride) of every layer."""
SMALLEST = 36
"""Rows and columns that the layers need, or nothing is left."""


class Identity(eqx.Module):
    """Vectors as they are."""

    def __call__(self, observation: Float[Array, "*batch obs"]) -> Float[Array, "*batch obs"]:
        """The observation itself."""
        return observation


class Convolution(eqx.Module):
    """A square convolution without padding; its stride divides its size.

    The image is cut into blocks of stride × stride pixels, so that a patch is a few whole blocks.
    The batch is the last axis: whatever is moved lies together in memory.
    """

    weight: Float[Array, "patch out"]
    """Rows: block row, block column, channel, row and column in the block."""
    bias: Float[Array, " out"]
    size: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    def __call__(self, image: Float[Array, "in rows columns B"]) -> Float[Array, "out r c B"]:
        """[channels, rows, columns, B] → the same with (rows − size) // stride + 1 rows."""
        patch = patches(image, self.size, self.stride)
        output = self.weight.T @ patch.reshape(patch.shape[0], -1)
        output = output + jnp.broadcast_to(self.bias[:, None], output.shape)
        return output.reshape(-1, *patch.shape[1:])


class NatureEncoder(eqx.Module):
    """Three convolutions with ReLU, flattened."""

    layers: tuple[Convolution, ...]
    layout: Layout = eqx.field(static=True)
    scale: bool = eqx.field(static=True, default=True)
    """Whether bytes become [0, 1] first, or stay 0 to 255."""

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, "*batch features"]:
        """[..., *image] → [..., features]."""
        axes = len(self.layout)
        leading = observation.shape[:-axes]
        image = observation.reshape(-1, *observation.shape[-axes:])
        if self.layout == "HW":
            image = image[:, None]
        elif self.layout == "HWC":
            image = image.transpose(0, 3, 1, 2)
        features = image.transpose(1, 2, 3, 0).astype(jnp.float32)
        if self.scale:
            features = features / 255.0
        for layer in self.layers:
            features = jax.nn.relu(layer(features))
        size = features.size // image.shape[0]
        return features.reshape(size, -1).T.reshape(*leading, size)


Encoder = Identity | NatureEncoder


class Encoded(eqx.Module):
    """A network on the features of an image."""

    encoder: Encoder
    network: Any
    """A module that takes features, then whatever else it is given."""

    def __call__(self, observation: Shaped[Array, "..."], *rest: Array) -> Any:
        """What the network says of the features of [..., *image]."""
        return self.network(self.encoder(observation), *rest)


def patches(
    image: Float[Array, "in rows columns B"], size: int, stride: int
) -> Float[Array, "patch r c B"]:
    """All patches that a convolution sees, the numbers of each along the first axis."""
    channels, rows, columns, batch = image.shape
    blocks = size // stride
    row_count, column_count = (rows - size) // stride + 1, (columns - size) // stride + 1
    down, across = row_count + blocks - 1, column_count + blocks - 1
    image = image[:, : down * stride, : across * stride]
    image = image.reshape(channels, down, stride, across, stride, batch)
    image = image.transpose(0, 2, 4, 1, 3, 5).reshape(-1, down, across, batch)
    # Else the copies below would be computed from the layer before, pixel by pixel, on CPU.
    image = jax.lax.optimization_barrier(image)
    shifted = [
        image[:, i : i + row_count, j : j + column_count]
        for i in range(blocks)
        for j in range(blocks)
    ]
    return jnp.concatenate(shifted, axis=0)


def make_encoder(spec: Spec, key: PRNGKey, *, scale_images: bool = True) -> tuple[Encoder, int]:
    """The encoder of a kind of observation, and how many features it gives.

    Args:
        spec: shapes and dtype of observations.
        key: for the weights.
        scale_images: whether the bytes of images become [0, 1], or stay 0 to 255.

    Raises:
        SpecError: observations that are neither vectors nor images of bytes, or images too small.
    """
    shape = spec.observation_shape
    if len(shape) == 1:
        return Identity(), shape[0]
    layout = image_layout(spec)
    rows, columns = (shape[0], shape[1]) if layout != "CHW" else (shape[1], shape[2])
    channels = 1 if layout == "HW" else shape[0] if layout == "CHW" else shape[2]
    layers = []
    for (out, size, stride), layer_key in zip(
        CONVOLUTIONS, jax.random.split(key, len(CONVOLUTIONS)), strict=True
    ):
        weight, bias = fan_in_uniform(layer_key, size * size * channels, out)
        layers.append(Convolution(weight, bias, size, stride))
        rows, columns, channels = (rows - size) // stride + 1, (columns - size) // stride + 1, out
    return NatureEncoder(tuple(layers), layout, scale_images), rows * columns * channels


def on_features(make: Callable[[Spec, PRNGKey], Any], spec: Spec, key: PRNGKey) -> Any:
    """`make(spec, key)`; of images behind an encoder, whose features `make` then takes for vectors.

    Raises:
        SpecError: as `make_encoder`.
    """
    if len(spec.observation_shape) == 1:
        return make(spec, key)
    encoder_key, key = jax.random.split(key)
    encoder, size = make_encoder(spec, encoder_key)
    features = spec._replace(observation_shape=(size,), observation_dtype="float32")
    return Encoded(encoder, make(features, key))


def image_layout(spec: Spec) -> Layout:
    """Which axis of an image holds stacked frames or colors: the shortest of three, if outermost.

    Raises:
        SpecError: no image of bytes, or one that is too small.
    """
    shape = spec.observation_shape
    if spec.observation_dtype != "uint8" or len(shape) not in (2, 3):
        raise SpecError(
            f"observations of shape {shape} and type {spec.observation_dtype} are neither vectors "
            "nor images of bytes: store images as uint8 (0 to 255), and flatten all else"
        )
    layout: Layout = "HW" if len(shape) == 2 else "CHW" if shape[0] <= shape[2] else "HWC"
    first = 0 if layout == "HWC" else len(shape) - 2
    height, width = shape[first], shape[first + 1]
    if min(height, width) < SMALLEST:
        raise SpecError(
            f"images of {height} × {width} pixels are too small for the convolutions, which "
            f"need {SMALLEST} × {SMALLEST}: flatten them into vectors of float32"
        )
    return layout
