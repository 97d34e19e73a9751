"""How far one distribution of actions is from another: KL and Jensen-Shannon, exact or sampled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leeward.nn.distributions import Categorical, JointMixture, TanhMixture, TanhNormal
from leeward.nn.gaussian import Normal
from leeward.nn.kernel import KernelMixture
from leeward.nn.many import spread
from leeward.types import PRNGKey

Mixture = TanhMixture | JointMixture
Policy = TanhNormal | Mixture | Categorical | Array
"""What is trained; an array is a deterministic action [B, A]."""
Behavior = TanhNormal | Mixture | KernelMixture | Categorical | Array
"""What it is compared with."""
DivergenceKind = Literal["kl", "js"]
LOG_TWO = 0.6931471805599453


def divergence(
    kind: DivergenceKind,
    policy: Policy,
    behavior: Behavior,
    key: PRNGKey,
    samples: int,
    margin: float | Float[Array, ""],
) -> Float[Array, " B"]:
    """D(policy ‖ behavior) at every state; no gradient reaches the behavior.

    KL is exact between Gaussians (tanh is a bijection, so it is that before squashing) and between
    categoricals; Jensen-Shannon, which is at most log 2, between categoricals. The rest is
    estimated from samples. Where either is deterministic, the squared distance of the actions
    (mean over dimensions) stands for both.

    Args:
        kind: "kl" or "js".
        policy: [B, …].
        behavior: [B, …].
        key: consumed where samples are drawn.
        samples: actions drawn for each state.
        margin: how far actions are moved inside [−1, 1] before a squashed density.
    """
    behavior = jax.lax.stop_gradient(behavior)
    if isinstance(policy, Categorical) and isinstance(behavior, Categorical):
        return (
            categorical_kl(policy, behavior) if kind == "kl" else categorical_js(policy, behavior)
        )
    if isinstance(policy, Array) or isinstance(behavior, Array):
        return squared_distance(mode_of(policy), mode_of(behavior))
    assert not isinstance(policy, Categorical)
    assert not isinstance(behavior, Categorical)
    if kind == "js":
        return sampled_js(policy, behavior, key, samples, margin)
    if isinstance(policy, TanhNormal) and isinstance(behavior, TanhNormal):
        return normal_kl(policy, behavior)
    return sampled_kl(policy, behavior, key, samples, margin)


def mode_of(distribution: Policy | Behavior) -> Array:
    """The action itself where it is deterministic, else the distribution's mode."""
    return distribution if isinstance(distribution, Array) else distribution.mode()


def squared_distance(
    first: Float[Array, "*batch A"], second: Float[Array, "*batch A"]
) -> Float[Array, "*batch"]:
    """The squared difference of two actions, mean over dimensions."""
    return jnp.square(first - second).mean(axis=-1)


def normal_kl(first: TanhNormal | Normal, second: TanhNormal | Normal) -> Float[Array, "*batch"]:
    """KL of diagonal Gaussians: Σ ½(σ₁²/σ₂² + (μ₁ − μ₂)²/σ₂² − 1) − log(σ₁/σ₂)."""
    log_ratio = first.log_std - second.log_std
    distance = jnp.square((first.mean - second.mean) * jnp.exp(-second.log_std))
    return (0.5 * (jnp.exp(2.0 * log_ratio) + distance - 1.0) - log_ratio).sum(axis=-1)


def categorical_kl(first: Categorical, second: Categorical) -> Float[Array, "*batch"]:
    """Σ p log(p / q)."""
    log_first = jax.nn.log_softmax(first.logit, axis=-1)
    log_second = jax.nn.log_softmax(second.logit, axis=-1)
    return (jnp.exp(log_first) * (log_first - log_second)).sum(axis=-1)


def categorical_js(first: Categorical, second: Categorical) -> Float[Array, "*batch"]:
    """½ KL(p ‖ m) + ½ KL(q ‖ m), m the mean of both."""
    log_first = jax.nn.log_softmax(first.logit, axis=-1)
    log_second = jax.nn.log_softmax(second.logit, axis=-1)
    middle = Categorical(jnp.logaddexp(log_first, log_second))
    return 0.5 * (categorical_kl(first, middle) + categorical_kl(second, middle))


def sampled_kl(
    policy: TanhNormal | Mixture,
    behavior: TanhNormal | Mixture | KernelMixture,
    key: PRNGKey,
    samples: int,
    margin: float | Float[Array, ""],
) -> Float[Array, " B"]:
    """E over the policy's actions of log policy − log behavior, from `samples` actions a state."""
    wide = spread(behavior, samples)
    return expectation(
        lambda action, log_prob: log_prob - wide.log_prob(action, margin),
        policy,
        key,
        samples,
        margin,
    )


def sampled_js(
    policy: TanhNormal | Mixture,
    behavior: TanhNormal | Mixture | KernelMixture,
    key: PRNGKey,
    samples: int,
    margin: float | Float[Array, ""],
) -> Float[Array, " B"]:
    """log 2 − ½E_p[softplus(log q/p)] − ½E_q[softplus(log p/q)]: every estimate is ≤ log 2."""
    policy_key, behavior_key = jax.random.split(key)
    wide, wide_policy = spread(behavior, samples), spread(policy, samples)
    of_policy = expectation(
        lambda action, log_prob: -jax.nn.softplus(wide.log_prob(action, margin) - log_prob),
        policy,
        policy_key,
        samples,
        margin,
    )
    action = wide.sample(behavior_key)
    log_ratio = wide_policy.log_prob(action, margin) - wide.log_prob(action, margin)
    return LOG_TWO + 0.5 * (of_policy - jax.nn.softplus(log_ratio).mean(axis=1))


def expectation(
    quantity: Callable[[Float[Array, "B N A"], Float[Array, "B N"]], Float[Array, "B N"]],
    policy: TanhNormal | Mixture,
    key: PRNGKey,
    samples: int,
    margin: float | Float[Array, ""],
) -> Float[Array, " B"]:
    """Mean of quantity(action, log policy(action)) over samples, with an unbiased gradient.

    The gradient goes through the action. A mixture's choice of component has no such path, so its
    weights get the score-function gradient, each sample less the mean of the others as baseline.
    """
    wide = spread(policy, samples)
    if isinstance(wide, TanhNormal):
        return quantity(*wide.sample_and_log_prob(key)).mean(axis=1)
    action, log_choice = sample_components(wide, key)
    value = quantity(action, wide.log_prob(action, margin))  # [B, N]
    others = (value.sum(axis=1, keepdims=True) - value) / max(1, samples - 1)
    score = jax.lax.stop_gradient(value - others) * (log_choice - jax.lax.stop_gradient(log_choice))
    return (value + score).mean(axis=1)


def sample_components(
    mixture: Mixture, key: PRNGKey
) -> tuple[Float[Array, "B N A"], Float[Array, "B N"]]:
    """An action whose gradient goes through its components, and the log-probability of those."""
    component_key, noise_key = jax.random.split(key)
    if isinstance(mixture, JointMixture):
        whole = jax.random.categorical(component_key, mixture.logit)  # [B, N]
        chosen = jax.nn.one_hot(whole, mixture.logit.shape[-1], dtype=mixture.mean.dtype)
        mean, log_std = (mixture.pick(p, whole) for p in (mixture.mean, mixture.log_std))
        noise = jax.random.normal(noise_key, mean.shape, mean.dtype)
        log_weight = (jax.nn.log_softmax(mixture.logit, axis=-1) * chosen).sum(axis=-1)
        return jnp.tanh(mean + jnp.exp(log_std) * noise), log_weight
    component = jax.random.categorical(component_key, mixture.logit)  # [B, N, A]
    chosen = jax.nn.one_hot(component, mixture.logit.shape[-1], dtype=mixture.mean.dtype)
    mean, log_std = (mixture.mean * chosen).sum(axis=-1), (mixture.log_std * chosen).sum(axis=-1)
    noise = jax.random.normal(noise_key, mean.shape, mean.dtype)
    log_weight = (jax.nn.log_softmax(mixture.logit, axis=-1) * chosen).sum(axis=-1)
    return jnp.tanh(mean + jnp.exp(log_std) * noise), log_weight.sum(axis=-1)
