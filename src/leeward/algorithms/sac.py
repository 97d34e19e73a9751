"""SAC: an off-policy actor-critic that also maximizes its policy's entropy.

Haarnoja, Zhou, Hartikainen, Tucker, Ha, Tan, Kumar, Zhu, Gupta, Abbeel & Levine, "Soft
Actor-Critic Algorithms and Applications", 2018, arXiv 1812.05905. Defaults are the paper's (its
Table 1: rates, discount, two hidden layers of 256, batch, target step) and the authors' code's
(temperature starts at 1). An online learner, which `leeward collect` uses to make data; trained
offline it is the usual baseline without any correction for actions that the data lack.

Differences from the paper: equation 18 descends α(−log π − H̄) in α, here the gradient is taken in
log α, as in the authors' code; networks start with PyTorch's default initialization.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.config import config as configuration
from leeward.losses import td_target, temperature_loss
from leeward.nn.actors import NormalActor, make_normal_actor
from leeward.nn.critics import Ensemble, make_ensemble
from leeward.optim import descend, polyak
from leeward.types import Algorithm, Batch, Metrics, Phase, PRNGKey, Sampling, Spec, Step


@configuration
class Config:
    steps: int = 1_000_000
    """Updates in total."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes of actor and critics."""
    actor_lr: float = 3e-4
    """Adam rate of the actor."""
    critic_lr: float = 3e-4
    """Adam rate of the critics."""
    alpha_lr: float = 3e-4
    """Adam rate of the entropy temperature."""
    initial_alpha: float = 1.0
    """Entropy temperature at the start."""
    discount: float = 0.99
    """Discount of future rewards."""
    tau: float = 0.005
    """Step of the target critics towards the online ones."""
    normalize_observations: bool = False
    """Standardize observations by the data's mean and std + 1e-3 (offline only)."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    actor: NormalActor
    log_alpha: Float[Array, ""]
    critic: Ensemble
    target_critic: Ensemble
    actor_opt: optax.OptState
    alpha_opt: optax.OptState
    critic_opt: optax.OptState


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """A Gaussian actor and twin critics."""
    actor_key, critic_key = jax.random.split(key)
    actor = make_normal_actor(spec, config.hidden, actor_key)
    critic = make_ensemble(2, spec, config.hidden, critic_key)
    log_alpha = jnp.log(jnp.asarray(config.initial_alpha, jnp.float32))
    return State(
        actor=actor,
        log_alpha=log_alpha,
        critic=critic,
        target_critic=critic,
        actor_opt=optax.adam(config.actor_lr).init(actor),  # type: ignore[arg-type]
        alpha_opt=optax.adam(config.alpha_lr).init(log_alpha),
        critic_opt=optax.adam(config.critic_lr).init(critic),  # type: ignore[arg-type]
    )


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """Critics, then actor, then temperature, then the target critics, on one batch."""
    del step
    critic_key, actor_key = jax.random.split(key)
    state, critic_metrics = update_critic(config, state, batch, critic_key)
    state, actor_metrics = update_actor(config, state, batch, actor_key)
    target_critic = polyak(state.target_critic, state.critic, config.tau)
    return state._replace(target_critic=target_critic), critic_metrics | actor_metrics


def update_critic(
    config: Config, state: State, batch: Batch, key: PRNGKey
) -> tuple[State, Metrics]:
    """Both critics towards r + γ(min Q⁻(s', a') − α log π(a'|s')), a' ~ π (eqs. 5 and 6)."""
    next_action, next_log_prob = state.actor(batch.next_observation).sample_and_log_prob(key)
    next_q = state.target_critic(batch.next_observation, next_action).min(axis=0)  # [B]
    target = td_target(batch, next_q - jnp.exp(state.log_alpha) * next_log_prob)

    def loss(critic: Ensemble) -> tuple[Float[Array, ""], Metrics]:
        q = critic(batch.observation, batch.action)  # [E, B]
        squared_error = 0.5 * jnp.square(q - target[None, :]).mean(axis=1).sum()
        return squared_error, {"critic/loss": squared_error, "critic/q": q.mean()}

    critic, critic_opt, metrics = descend(
        loss, state.critic, optax.adam(config.critic_lr), state.critic_opt
    )
    return state._replace(critic=critic, critic_opt=critic_opt), metrics


def update_actor(config: Config, state: State, batch: Batch, key: PRNGKey) -> tuple[State, Metrics]:
    """Minimizes α log π(ã|s) − min Q(s, ã), ã ~ π (eq. 9); then fits α to H̄ = −A (eq. 18)."""
    alpha = jnp.exp(state.log_alpha)

    def loss(actor: NormalActor) -> tuple[Float[Array, ""], Metrics]:
        action, log_prob = actor(batch.observation).sample_and_log_prob(key)
        q = state.critic(batch.observation, action).min(axis=0)  # [B]
        total = (alpha * log_prob - q).mean()
        return total, {"actor/loss": total, "actor/entropy": -log_prob.mean()}

    actor, actor_opt, metrics = descend(
        loss, state.actor, optax.adam(config.actor_lr), state.actor_opt
    )
    target_entropy = -float(batch.action.shape[1])

    def alpha_loss(log_alpha: Float[Array, ""]) -> tuple[Float[Array, ""], Metrics]:
        total = temperature_loss(log_alpha, -metrics["actor/entropy"], target_entropy)
        return total, {"actor/alpha_loss": total, "actor/alpha": jnp.exp(log_alpha)}

    log_alpha, alpha_opt, alpha_metrics = descend(
        alpha_loss, state.log_alpha, optax.adam(config.alpha_lr), state.alpha_opt
    )
    return state._replace(
        actor=actor, actor_opt=actor_opt, log_alpha=log_alpha, alpha_opt=alpha_opt
    ), metrics | alpha_metrics


def policy(state: State) -> NormalActor:
    """The actor."""
    return state.actor


def act(
    policy: NormalActor, observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """tanh of the actor's mean, as the paper evaluates."""
    del key  # deterministic
    return policy(observation).mode()


def explore(
    policy: NormalActor, observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """A sample from the actor: how it acts while it learns and collects."""
    return policy(observation).sample(key)


ALGORITHM = Algorithm(
    name="sac",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=policy,
    act=act,
)
