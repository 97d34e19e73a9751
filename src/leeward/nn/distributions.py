"""Action distributions on [−1, 1]^A (and over integers): mode, sample, log_prob.

All densities are of the scaled action. The density in the environment's units is lower by
Σ log(scale), a constant; `leeward.policy` applies it where densities leave the program.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from leeward.types import PRNGKey

LOG_TWO_PI = 1.8378770664093453
MARGIN = 1e-6
"""Actions are moved this far inside [−1, 1] before a tanh density (Fisher-BRC reference code)."""


def normal_log_prob(
    value: Float[Array, "*shape"], mean: Float[Array, "*shape"], log_std: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """log N(value; mean, exp(log_std)²), elementwise."""
    return -0.5 * jnp.square((value - mean) * jnp.exp(-log_std)) - log_std - 0.5 * LOG_TWO_PI


def tanh_log_slope(value: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """log(1 − tanh²(value)), exact where 1 − tanh² underflows (arXiv 1801.01290, appendix C)."""
    return 2.0 * (jnp.log(2.0) - value - jax.nn.softplus(-2.0 * value))


def inside(
    action: Float[Array, "*shape"], margin: float | Float[Array, ""]
) -> Float[Array, "*shape"]:
    """The action clipped to the box less `margin`; no gradient flows where it clips."""
    return jnp.clip(action, -1.0 + margin, 1.0 - margin)


class TanhNormal(eqx.Module):
    """tanh of a diagonal Gaussian."""

    mean: Float[Array, "*batch A"]
    log_std: Float[Array, "*batch A"]

    def mode(self) -> Float[Array, "*batch A"]:
        """tanh(mean): the deterministic action."""
        return jnp.tanh(self.mean)

    def sample(self, key: PRNGKey) -> Float[Array, "*batch A"]:
        """A reparameterized sample."""
        return self.sample_and_log_prob(key)[0]

    def sample_and_log_prob(
        self, key: PRNGKey
    ) -> tuple[Float[Array, "*batch A"], Float[Array, "*batch"]]:
        """A reparameterized sample and its log-density, exact even where tanh saturates."""
        noise = jax.random.normal(key, self.mean.shape)
        value = self.mean + jnp.exp(self.log_std) * noise
        log_prob = normal_log_prob(value, self.mean, self.log_std) - tanh_log_slope(value)
        return jnp.tanh(value), log_prob.sum(axis=-1)

    def log_prob(
        self, action: Float[Array, "*batch A"], margin: float | Float[Array, ""] = MARGIN
    ) -> Float[Array, "*batch"]:
        """log π(action), the action clipped to ±(1 − margin)."""
        value = jnp.arctanh(inside(action, margin))
        return (normal_log_prob(value, self.mean, self.log_std) - tanh_log_slope(value)).sum(-1)


class TanhMixture(eqx.Module):
    """For every action dimension a mixture of K tanh-squashed normals; dimensions independent.

    Source: the behavior model of Fisher-BRC (arXiv 2103.08050, reference code).
    """

    logit: Float[Array, "*batch A K"]
    mean: Float[Array, "*batch A K"]
    log_std: Float[Array, "*batch A K"]

    def mode(self) -> Float[Array, "*batch A"]:
        """Per dimension, tanh of the mean of the likeliest component (ours: deterministic)."""
        return jnp.tanh(self._pick(self.mean, jnp.argmax(self.logit, axis=-1)))

    def sample(self, key: PRNGKey) -> Float[Array, "*batch A"]:
        """A sample; its gradient passes through the chosen component's mean and std."""
        return jnp.tanh(self._sample_before_tanh(key))

    def sample_and_log_prob(
        self, key: PRNGKey
    ) -> tuple[Float[Array, "*batch A"], Float[Array, "*batch"]]:
        """A sample with pathwise gradient through its component, and its log-density."""
        value = self._sample_before_tanh(key)
        return jnp.tanh(value), self._log_prob_before_tanh(value)

    def log_prob(
        self, action: Float[Array, "*batch A"], margin: float | Float[Array, ""] = MARGIN
    ) -> Float[Array, "*batch"]:
        """log μ(action), the action clipped to ±(1 − margin)."""
        return self._log_prob_before_tanh(jnp.arctanh(inside(action, margin)))

    def _sample_before_tanh(self, key: PRNGKey) -> Float[Array, "*batch A"]:
        component_key, noise_key = jax.random.split(key)
        component = jax.random.categorical(component_key, self.logit)
        noise = jax.random.normal(noise_key, component.shape)
        mean, log_std = self._pick(self.mean, component), self._pick(self.log_std, component)
        return mean + jnp.exp(log_std) * noise

    def _log_prob_before_tanh(self, value: Float[Array, "*batch A"]) -> Float[Array, "*batch"]:
        spread = jnp.broadcast_to(value[..., None], self.mean.shape)  # [..., A, K]
        component = normal_log_prob(spread, self.mean, self.log_std)
        weight = jax.nn.log_softmax(self.logit, axis=-1)
        log_prob = jax.nn.logsumexp(weight + component, axis=-1)
        return (log_prob - tanh_log_slope(value)).sum(axis=-1)

    @staticmethod
    def _pick(
        parameter: Float[Array, "*batch A K"], component: Int[Array, "*batch A"]
    ) -> Float[Array, "*batch A"]:
        # A one-hot product: on CPU far cheaper to differentiate than a gather.
        chosen = jax.nn.one_hot(component, parameter.shape[-1], dtype=parameter.dtype)
        return (parameter * chosen).sum(axis=-1)


class JointMixture(eqx.Module):
    """A mixture of K tanh-squashed diagonal Gaussians of whole actions: dimensions go together."""

    logit: Float[Array, "*batch K"]
    mean: Float[Array, "*batch K A"]
    log_std: Float[Array, "*batch K A"]

    def mode(self) -> Float[Array, "*batch A"]:
        """tanh of the mean of the likeliest component (ours: deterministic)."""
        return jnp.tanh(self.pick(self.mean, jnp.argmax(self.logit, axis=-1)))

    def sample(self, key: PRNGKey) -> Float[Array, "*batch A"]:
        """A sample; its gradient passes through the chosen component's mean and std."""
        component_key, noise_key = jax.random.split(key)
        component = jax.random.categorical(component_key, self.logit)
        mean, log_std = self.pick(self.mean, component), self.pick(self.log_std, component)
        return jnp.tanh(mean + jnp.exp(log_std) * jax.random.normal(noise_key, mean.shape))

    def log_prob(
        self, action: Float[Array, "*batch A"], margin: float | Float[Array, ""] = MARGIN
    ) -> Float[Array, "*batch"]:
        """log π(action), the action clipped to ±(1 − margin)."""
        value = jnp.arctanh(inside(action, margin))
        spread = jnp.broadcast_to(value[..., None, :], self.mean.shape)  # [..., K, A]
        component = normal_log_prob(spread, self.mean, self.log_std).sum(axis=-1)
        weight = jax.nn.log_softmax(self.logit, axis=-1)
        return jax.nn.logsumexp(weight + component, axis=-1) - tanh_log_slope(value).sum(axis=-1)

    @staticmethod
    def pick(
        parameter: Float[Array, "*batch K A"], component: Int[Array, "*batch"]
    ) -> Float[Array, "*batch A"]:
        """The parameter of the chosen component."""
        # A one-hot product: on CPU far cheaper to differentiate than a gather.
        chosen = jax.nn.one_hot(component, parameter.shape[-2], dtype=parameter.dtype)
        return (parameter * jnp.broadcast_to(chosen[..., None], parameter.shape)).sum(axis=-2)


class Categorical(eqx.Module):
    """A distribution over the integers 0 … C − 1."""

    logit: Float[Array, "*batch C"]

    def mode(self) -> Int[Array, "*batch"]:
        """The likeliest integer."""
        return jnp.argmax(self.logit, axis=-1)

    def sample(self, key: PRNGKey) -> Int[Array, "*batch"]:
        """A sample; no gradient."""
        return jax.random.categorical(key, self.logit)

    def log_prob(self, action: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
        """log π(action)."""
        log_prob = jax.nn.log_softmax(self.logit, axis=-1)
        return jnp.take_along_axis(log_prob, action[..., None], axis=-1)[..., 0]

    def entropy(self) -> Float[Array, "*batch"]:
        """−Σ π log π."""
        log_prob = jax.nn.log_softmax(self.logit, axis=-1)
        return -(jnp.exp(log_prob) * log_prob).sum(axis=-1)
