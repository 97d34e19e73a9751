"""CRR: the data's actions cloned where a critic holds them better than the policy's own.

Wang et al., "Critic Regularized Regression", 2020, arXiv 2006.15134. The three weights f are the
paper's: exp(A/β) clipped at 20, 1[A > 0], and 1 (cloning); four samples, β 1 and hard copies of the
targets every 100 updates are the paper's and d3rlpy's.

Differences from the paper: feed-forward networks in place of residual ones, a scalar critic in
place of a distributional one (as d3rlpy), and a plain Gaussian in place of a mixture.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.config import config as configuration
from leeward.losses import advantage_weight, td_target
from leeward.nn.critics import Ensemble, make_ensemble
from leeward.nn.gaussian import LearnedStdActor, make_learned_std_actor
from leeward.nn.many import ensemble_each, spread
from leeward.optim import descend, every
from leeward.types import Algorithm, Batch, Metrics, Phase, PRNGKey, Sampling, Spec, Step


@configuration
class Config:
    steps: int = 1_000_000
    """Updates in total."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes of actor and critics."""
    critics: int = 1
    """Critics; their least value counts."""
    weighting: Literal["exp", "binary", "all"] = "exp"
    """Weight of an action in the actor's loss: min(exp(A/β), clip), 1 where A > 0, or always 1."""
    advantage: Literal["mean", "max"] = "mean"
    """A is Q(s, a) less the mean, or the largest, Q of the policy's samples."""
    samples: int = 4
    """Actions that the policy draws at every observation for the advantage (m in the paper)."""
    beta: float = 1.0
    """Temperature of the exponential weight."""
    weight_clip: float = 20.0
    """Largest exponential weight."""
    actor_lr: float = 3e-4
    """Adam rate of the actor."""
    critic_lr: float = 3e-4
    """Adam rate of the critics."""
    discount: float = 0.99
    """Discount of future rewards."""
    target_every: int = 100
    """Updates between copies of actor and critics to their targets."""
    normalize_observations: bool = False
    """Standardize observations by the data's mean and std + 1e-3."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    actor: LearnedStdActor
    critic: Ensemble
    target_actor: LearnedStdActor
    target_critic: Ensemble
    actor_opt: optax.OptState
    critic_opt: optax.OptState


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """Networks with PyTorch's default initialization, as d3rlpy has."""
    actor_key, critic_key = jax.random.split(key)
    actor = make_learned_std_actor(spec, config.hidden, actor_key)
    critic = make_ensemble(config.critics, spec, config.hidden, critic_key)
    return State(
        actor=actor,
        critic=critic,
        target_actor=actor,
        target_critic=critic,
        actor_opt=optax.adam(config.actor_lr).init(actor),  # type: ignore[arg-type]
        critic_opt=optax.adam(config.critic_lr).init(critic),  # type: ignore[arg-type]
    )


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One step of the critics and of the actor; every `target_every` updates the targets follow."""
    critic_key, actor_key = jax.random.split(key)
    critic, critic_opt, critic_metrics = update_critic(config, state, batch, critic_key)
    actor, actor_opt, actor_metrics = update_actor(config, state, batch, actor_key)
    state = state._replace(actor=actor, critic=critic, actor_opt=actor_opt, critic_opt=critic_opt)
    state, _ = every(config.target_every, step, copy_targets, state)
    return state, critic_metrics | actor_metrics


def copy_targets(state: State) -> tuple[State, Metrics]:
    """The targets as the online networks are now."""
    return state._replace(target_actor=state.actor, target_critic=state.critic), {}


def update_critic(
    config: Config, state: State, batch: Batch, key: PRNGKey
) -> tuple[Ensemble, optax.OptState, Metrics]:
    """The critics towards the least target value of an action that the target policy draws."""
    next_action = state.target_actor(batch.next_observation).sample(key)
    next_q = state.target_critic(batch.next_observation, next_action).min(axis=0)  # [B]
    target = td_target(batch, next_q)

    def loss(critic: Ensemble) -> tuple[Float[Array, ""], Metrics]:
        q = critic(batch.observation, batch.action)  # [E, B]
        squared_error = jnp.square(q - target[None, :]).mean(axis=1).sum()
        return squared_error, {"critic/loss": squared_error, "critic/q": q.mean()}

    return descend(loss, state.critic, optax.adam(config.critic_lr), state.critic_opt)


def update_actor(
    config: Config, state: State, batch: Batch, key: PRNGKey
) -> tuple[LearnedStdActor, optax.OptState, Metrics]:
    """Maximizes f(A)·log π(a|s) over the data's actions (eq. 1)."""
    policy_action = spread(state.actor(batch.observation), config.samples).sample(key)  # [B, m, A]
    policy_q = ensemble_each(state.critic, batch.observation, policy_action).min(axis=0)  # [B, m]
    value = policy_q.mean(axis=1) if config.advantage == "mean" else policy_q.max(axis=1)
    advantage = state.critic(batch.observation, batch.action).min(axis=0) - value  # [B]
    weight = action_weight(config, advantage)

    def loss(actor: LearnedStdActor) -> tuple[Float[Array, ""], Metrics]:
        total = -(weight * actor(batch.observation).log_prob(batch.action)).mean()
        return total, {
            "actor/loss": total,
            "actor/advantage": advantage.mean(),
            "actor/weight": weight.mean(),
        }

    return descend(loss, state.actor, optax.adam(config.actor_lr), state.actor_opt)


def action_weight(config: Config, advantage: Float[Array, " B"]) -> Float[Array, " B"]:
    """f(A), without gradient (section 3 of the paper)."""
    if config.weighting == "exp":
        return advantage_weight(advantage, 1.0 / config.beta, config.weight_clip)
    if config.weighting == "binary":
        return (advantage > 0.0).astype(advantage.dtype)
    return jnp.ones_like(advantage)


def policy(state: State) -> LearnedStdActor:
    """The actor."""
    return state.actor


def act(
    policy: LearnedStdActor, observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """The mean action."""
    del key  # deterministic
    return policy(observation).mode()


ALGORITHM = Algorithm(
    name="crr",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=policy,
    act=act,
)
