"""A conditional variational autoencoder of actions given observations."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leeward.nn.actors import continuous_size, observation_size
from leeward.nn.layers import MLP, make_mlp
from leeward.types import PRNGKey, Spec

LOG_STD_RANGE = (-4.0, 15.0)
"""Clip of the posterior's log-std (authors' BCQ code)."""
LATENT_CLIP = 0.5
"""Latents that are decoded to new actions are clipped to ± this (authors' BCQ code)."""


class VAE(eqx.Module):
    """An encoder to a diagonal Gaussian over latents, and a decoder to actions; Z latents."""

    encoder: MLP
    decoder: MLP

    def encode(
        self, observation: Float[Array, "*batch obs"], action: Float[Array, "*batch A"]
    ) -> tuple[Float[Array, "*batch Z"], Float[Array, "*batch Z"]]:
        """Mean and log-std of the posterior over latents."""
        output = self.encoder(jnp.concatenate([observation, action], axis=-1))
        mean, log_std = jnp.split(output, 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE)

    def decode(
        self, observation: Float[Array, "*batch obs"], latent: Float[Array, "*batch Z"]
    ) -> Float[Array, "*batch A"]:
        """The action in [−1, 1] that a latent stands for."""
        return decode(self.decoder, observation, latent)


def decode(
    decoder: MLP, observation: Float[Array, "*batch obs"], latent: Float[Array, "*batch Z"]
) -> Float[Array, "*batch A"]:
    """tanh of the decoder on observation and latent."""
    return jnp.tanh(decoder(jnp.concatenate([observation, latent], axis=-1)))


def draw_latent(key: PRNGKey, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Latents of the prior, clipped to ±0.5, which keeps decoded actions near the data's."""
    return jnp.clip(jax.random.normal(key, shape), -LATENT_CLIP, LATENT_CLIP)


def make_vae(spec: Spec, hidden: tuple[int, ...], latent_size: int, key: PRNGKey) -> VAE:
    """A VAE with the given hidden sizes of encoder and decoder, weights as in PyTorch."""
    encoder_key, decoder_key = jax.random.split(key)
    observation, action = observation_size(spec), continuous_size(spec)
    return VAE(
        encoder=make_mlp((observation + action, *hidden, 2 * latent_size), encoder_key),
        decoder=make_mlp((observation + latent_size, *hidden, action), decoder_key),
    )
