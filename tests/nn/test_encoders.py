"""The convolutions are those of the library, patch by patch; bad images are refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward.errors import SpecError
from leeward.nn.discrete import make_q_network
from leeward.nn.encoders import Convolution, NatureEncoder, make_encoder
from leeward.types import Discrete, PRNGKey, Spec


def image_spec(*shape: int, dtype: str = "uint8") -> Spec:
    return Spec(shape, dtype, Discrete(3))


def slow_convolution(image: np.ndarray, layer: Convolution) -> np.ndarray:
    """The definition, window by window; the weight's rows are blocks, then pixels in them."""
    size, stride, blocks = layer.size, layer.stride, layer.size // layer.stride
    batch, rows, columns, channels = image.shape
    weight = np.asarray(layer.weight).reshape(blocks, blocks, channels, stride, stride, -1)
    kernel = weight.transpose(0, 3, 1, 4, 2, 5).reshape(size, size, channels, -1)
    output = np.zeros(
        (batch, (rows - size) // stride + 1, (columns - size) // stride + 1, kernel.shape[-1])
    )
    for r in range(output.shape[1]):
        for c in range(output.shape[2]):
            window = image[:, r * stride : r * stride + size, c * stride : c * stride + size]
            output[:, r, c] = np.einsum("bijc,ijco->bo", window, kernel)
    return output + np.asarray(layer.bias)


@pytest.mark.parametrize(("size", "stride", "rows"), [(8, 4, 20), (4, 2, 9), (3, 1, 7), (8, 4, 21)])
def test_a_convolution_equals_its_definition(size: int, stride: int, rows: int) -> None:
    draw = np.random.default_rng(0)
    weight = jnp.asarray(draw.normal(size=(size * size * 2, 3)), jnp.float32)
    layer = Convolution(weight, jnp.asarray([1.0, 2.0, 3.0]), size, stride)
    image = draw.normal(size=(2, rows, rows + 1, 2)).astype(np.float32)
    found = layer(jnp.asarray(image.transpose(3, 1, 2, 0))).transpose(3, 1, 2, 0)
    np.testing.assert_allclose(found, slow_convolution(image, layer), rtol=1e-4, atol=1e-4)


def test_gradients_reach_image_and_weights() -> None:
    draw = np.random.default_rng(0)
    image = jnp.asarray(draw.normal(size=(1, 6, 6, 2)), jnp.float32)
    weight = jnp.asarray(draw.normal(size=(16, 2)), jnp.float32)

    def total(weight: jax.Array, image: jax.Array) -> jax.Array:
        return jnp.square(Convolution(weight, jnp.zeros(2), 4, 2)(image)).sum()

    slopes = jax.grad(total, argnums=(0, 1))(weight, image)
    for slope, at in zip(slopes, (weight, image), strict=True):
        direction = jnp.asarray(draw.normal(size=at.shape), jnp.float32)
        moved = [at + sign * 1e-2 * direction for sign in (1.0, -1.0)]
        ends = [total(m, image) if at is weight else total(weight, m) for m in moved]
        assert float((slope * direction).sum()) == pytest.approx(
            float(ends[0] - ends[1]) / 2e-2, rel=1e-2
        )


def test_the_layers_are_nature_s(key: PRNGKey) -> None:
    encoder, size = make_encoder(image_spec(4, 84, 84), key)
    assert isinstance(encoder, NatureEncoder)
    assert size == 64 * 7 * 7
    shapes = [layer.weight.shape for layer in encoder.layers]
    assert shapes == [(8 * 8 * 4, 32), (4 * 4 * 32, 64), (3 * 3 * 64, 64)]
    assert [(layer.size, layer.stride) for layer in encoder.layers] == [(8, 4), (4, 2), (3, 1)]


def test_frames_colors_and_single_images_are_told_apart(key: PRNGKey) -> None:
    image = np.random.default_rng(0).integers(0, 256, (2, 40, 36, 3), np.uint8)
    last, _ = make_encoder(image_spec(40, 36, 3), key)
    first, _ = make_encoder(image_spec(3, 40, 36), key)
    expected = np.asarray(last(jnp.asarray(image)))
    assert expected.shape == (2, 64)
    np.testing.assert_array_equal(first(jnp.asarray(image.transpose(0, 3, 1, 2))), expected)
    gray, size = make_encoder(image_spec(36, 36), key)
    assert gray(jnp.zeros((5, 2, 36, 36), jnp.uint8)).shape == (5, 2, size)


@pytest.mark.parametrize(("scale_images", "value"), [(True, 51 / 255), (False, 51.0)])
def test_bytes_are_scaled_to_one_or_left(key: PRNGKey, scale_images: bool, value: float) -> None:
    encoder, _ = make_encoder(image_spec(1, 36, 36), key, scale_images=scale_images)
    assert isinstance(encoder, NatureEncoder)
    features = jnp.full((1, 36, 36, 1), value, jnp.float32)  # [channels, rows, columns, B]
    for layer in encoder.layers:
        features = jax.nn.relu(layer(features))
    found = encoder(jnp.full((1, 1, 36, 36), 51, jnp.uint8))
    np.testing.assert_allclose(found, features.reshape(1, -1), rtol=1e-5)


def test_networks_take_any_leading_axes(key: PRNGKey) -> None:
    network = make_q_network(image_spec(2, 36, 36), (8,), key)
    image = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 2, 2, 36, 36), np.uint8))
    q = network(image)
    assert q.shape == (3, 2, 3)
    np.testing.assert_allclose(q[1, 0], network(image[1, 0]), rtol=1e-5)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            image_spec(4, 84, 84, dtype="float32"),
            "observations of shape (4, 84, 84) and type float32 are neither vectors nor images of "
            "bytes: store images as uint8 (0 to 255), and flatten all else",
        ),
        (
            image_spec(10, 10, 4),
            "images of 10 × 10 pixels are too small for the convolutions, which need 36 × 36: "
            "flatten them into vectors of float32",
        ),
    ],
)
def test_other_observations_are_refused(spec: Spec, text: str, key: PRNGKey) -> None:
    with pytest.raises(SpecError) as error:
        make_encoder(spec, key)
    assert str(error.value) == text
