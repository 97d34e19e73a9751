"""BCQ: the best of actions that a model of the data proposes, each perturbed a little.

Fujimoto, Meger & Precup, "Off-Policy Deep Reinforcement Learning without Exploration", 2019, arXiv
1812.02900. The VAE's 2 × 750, the rates of 1e-3, λ 0.75, Φ 0.05 and 10 actions a target are the
paper's and its authors' code's (sfujim/BCQ); critics and perturbation are 2 × 256 as in Tianshou
(400 and 300 in the authors' code, with batches of 100).

Difference: the latents of the actions that a policy chooses from are drawn once and kept with it,
so that it is deterministic and can be exported; the authors draw new ones at every step.

Tianshou decodes the target's actions but never perturbs them; ours are perturbed by the target
perturbation, as the paper says. `--preset tianshou` has its example's settings (a VAE of 2 × 512);
the example's `--n-step 3` reaches nothing there, so it is not set.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.config import config as configuration
from leeward.losses import td_target
from leeward.nn.actors import continuous_size, observation_size
from leeward.nn.critics import Critic, Ensemble, make_ensemble
from leeward.nn.layers import MLP, make_mlp
from leeward.nn.many import map_in_parts, repeat_rows
from leeward.nn.vae import VAE, decode, draw_latent, make_vae
from leeward.optim import descend, polyak
from leeward.types import Algorithm, Batch, Metrics, Phase, PRNGKey, Sampling, Spec, Step

PART = 32
"""Next states a part of the target (ours: 32 × 10 actions × 750 units fit a core's cache)."""


@configuration
class Config:
    steps: int = 1_000_000
    """Updates in total."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes of critics and perturbation."""
    vae_hidden: tuple[int, ...] = (750, 750)
    """Hidden sizes of the VAE's encoder and decoder."""
    latent_size: int = 0
    """Latents of the VAE; 0: twice the action size."""
    phi: float = 0.05
    """Φ: largest perturbation of an action, in units of the [-1, 1] action range."""
    minimum_weight: float = 0.75
    """λ: weight of the smaller target critic; the larger has the rest."""
    sampled_actions: int = 10
    """Actions proposed at every next state, the best of which is the target's."""
    acting_samples: int = 100
    """Actions that the policy chooses from."""
    actor_lr: float = 1e-3
    """Adam rate of the perturbation."""
    critic_lr: float = 1e-3
    """Adam rate of the critics."""
    vae_lr: float = 1e-3
    """Adam rate of the VAE."""
    discount: float = 0.99
    """Discount of future rewards."""
    tau: float = 0.005
    """Step of the target networks towards the online ones."""
    n_step: int = 1
    """Rewards summed before the target bootstraps."""
    normalize_observations: bool = False
    """Standardize observations by the data's mean and std + 1e-3."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    vae: VAE
    perturbation: MLP
    critic: Ensemble
    target_perturbation: MLP
    target_critic: Ensemble
    latent: Float[Array, "K Z"]  # of the actions that the policy chooses from; fixed
    phi: Float[Array, ""]  # of the config, so that the policy knows it; fixed
    vae_opt: optax.OptState
    perturbation_opt: optax.OptState
    critic_opt: optax.OptState


class Policy(NamedTuple):
    """What acts: proposals of the decoder, perturbed, the best by the first critic."""

    decoder: MLP
    perturbation: MLP
    critic: Critic
    latent: Float[Array, "K Z"]
    phi: Float[Array, ""]


class Proposal(NamedTuple):
    """States and the latents of what is proposed there."""

    observation: Float[Array, "B obs"]
    latent: Float[Array, "B N Z"]


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """Networks with PyTorch's default initialization, as the authors' code has."""
    vae_key, perturbation_key, critic_key, latent_key = jax.random.split(key, 4)
    size = continuous_size(spec)
    latent_size = config.latent_size or 2 * size
    vae = make_vae(spec, config.vae_hidden, latent_size, vae_key)
    perturbation = make_mlp((observation_size(spec) + size, *config.hidden, size), perturbation_key)
    critic = make_ensemble(2, spec, config.hidden, critic_key)
    return State(
        vae=vae,
        perturbation=perturbation,
        critic=critic,
        target_perturbation=perturbation,
        target_critic=critic,
        latent=draw_latent(latent_key, (config.acting_samples, latent_size)),
        phi=jnp.asarray(config.phi, jnp.float32),
        vae_opt=optax.adam(config.vae_lr).init(vae),  # type: ignore[arg-type]
        perturbation_opt=optax.adam(config.actor_lr).init(perturbation),  # type: ignore[arg-type]
        critic_opt=optax.adam(config.critic_lr).init(critic),  # type: ignore[arg-type]
    )


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """VAE, then critics, then perturbation, then the targets, on one batch."""
    del step
    vae_key, critic_key, perturbation_key = jax.random.split(key, 3)
    state, vae_metrics = update_vae(config, state, batch, vae_key)
    state, critic_metrics = update_critic(config, state, batch, critic_key)
    state, actor_metrics = update_perturbation(config, state, batch, perturbation_key)
    return state._replace(
        target_perturbation=polyak(state.target_perturbation, state.perturbation, config.tau),
        target_critic=polyak(state.target_critic, state.critic, config.tau),
    ), vae_metrics | critic_metrics | actor_metrics


def update_vae(config: Config, state: State, batch: Batch, key: PRNGKey) -> tuple[State, Metrics]:
    """Mean squared error plus half the mean divergence from N(0, 1), over batch and dimensions."""

    def loss(vae: VAE) -> tuple[Float[Array, ""], Metrics]:
        mean, log_std = vae.encode(batch.observation, batch.action)  # [B, Z]
        latent = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)
        error = jnp.square(vae.decode(batch.observation, latent) - batch.action).mean()
        divergence = 0.5 * (jnp.square(mean) + jnp.exp(2.0 * log_std) - 1.0) - log_std
        total = error + 0.5 * divergence.mean()
        return total, {
            "behavior/loss": total,
            "behavior/error": error,
            "behavior/divergence": divergence.mean(),
        }

    vae, vae_opt, metrics = descend(loss, state.vae, optax.adam(config.vae_lr), state.vae_opt)
    return state._replace(vae=vae, vae_opt=vae_opt), metrics


def update_critic(
    config: Config, state: State, batch: Batch, key: PRNGKey
) -> tuple[State, Metrics]:
    """Both critics towards the best of the perturbed proposals at the next state."""
    shape = (batch.reward.shape[0], config.sampled_actions, state.latent.shape[1])
    proposal = Proposal(batch.next_observation, draw_latent(key, shape))
    next_value = map_in_parts(lambda part: best_value(config, state, part), proposal, PART)  # [B]
    target = td_target(batch, next_value)

    def loss(critic: Ensemble) -> tuple[Float[Array, ""], Metrics]:
        q = critic(batch.observation, batch.action)  # [E, B]
        squared_error = jnp.square(q - target[None, :]).mean(axis=1).sum()
        return squared_error, {"critic/loss": squared_error, "critic/q": q.mean()}

    critic, critic_opt, metrics = descend(
        loss, state.critic, optax.adam(config.critic_lr), state.critic_opt
    )
    return state._replace(critic=critic, critic_opt=critic_opt), metrics


def best_value(config: Config, state: State, proposal: Proposal) -> Float[Array, " B"]:
    """max over proposals of λ·min Q⁻ + (1 − λ)·max Q⁻, each perturbed by the *target* network."""
    count, size = proposal.latent.shape[1:]
    observation = repeat_rows(proposal.observation, count)  # [BN, obs]
    decoded = state.vae.decode(observation, proposal.latent.reshape(-1, size))
    action = perturb(state.target_perturbation, observation, decoded, config.phi)
    q = state.target_critic(observation, action)  # [E, BN]
    weight = config.minimum_weight
    value = weight * q.min(axis=0) + (1.0 - weight) * q.max(axis=0)
    return value.reshape(-1, count).max(axis=1)


def update_perturbation(
    config: Config, state: State, batch: Batch, key: PRNGKey
) -> tuple[State, Metrics]:
    """The perturbation towards a higher Q₁ of a proposed action."""
    latent = draw_latent(key, (batch.reward.shape[0], state.latent.shape[1]))
    proposed = state.vae.decode(batch.observation, latent)

    def loss(perturbation: MLP) -> tuple[Float[Array, ""], Metrics]:
        action = perturb(perturbation, batch.observation, proposed, config.phi)
        total = -state.critic.member[0](batch.observation, action).mean()
        return total, {"actor/loss": total, "actor/shift": jnp.abs(action - proposed).mean()}

    perturbation, perturbation_opt, metrics = descend(
        loss, state.perturbation, optax.adam(config.actor_lr), state.perturbation_opt
    )
    return state._replace(perturbation=perturbation, perturbation_opt=perturbation_opt), metrics


def perturb(
    perturbation: MLP,
    observation: Float[Array, "*batch obs"],
    action: Float[Array, "*batch A"],
    phi: float | Float[Array, ""],
) -> Float[Array, "*batch A"]:
    """The action moved by at most Φ in each dimension, inside the box."""
    shift = jnp.tanh(perturbation(jnp.concatenate([observation, action], axis=-1)))
    return jnp.clip(action + phi * shift, -1.0, 1.0)


def policy(state: State) -> Policy:
    """Decoder, perturbation, first critic and the latents to choose from."""
    return Policy(
        state.vae.decoder, state.perturbation, state.critic.member[0], state.latent, state.phi
    )


def act(
    policy: Policy, observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """The perturbed proposal with the highest Q₁."""
    del key  # deterministic: the latents are the policy's own
    leading, count = observation.shape[:-1], policy.latent.shape[0]
    repeated = jnp.broadcast_to(
        observation[..., None, :], (*leading, count, observation.shape[-1])
    )  # [..., K, obs]
    latent = jnp.broadcast_to(policy.latent, (*leading, *policy.latent.shape))
    proposed = decode(policy.decoder, repeated, latent)
    action = perturb(policy.perturbation, repeated, proposed, policy.phi)  # [..., K, A]
    best = jnp.argmax(policy.critic(repeated, action), axis=-1)  # [...]
    return jnp.take_along_axis(action, best[..., None, None], axis=-2)[..., 0, :]


ALGORITHM = Algorithm(
    name="bcq",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=policy,
    act=act,
    presets={
        "tianshou": {  # examples/offline/d4rl_bcq.py
            "hidden": (256, 256),
            "vae_hidden": (512, 512),
            "latent_size": 0,
            "phi": 0.05,
            "minimum_weight": 0.75,
            "actor_lr": 1e-3,
            "critic_lr": 1e-3,
            "vae_lr": 1e-3,
        }
    },
)
