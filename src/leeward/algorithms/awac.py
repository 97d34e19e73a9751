"""AWAC: the data's actions cloned, each weighted by how much better than the policy it is.

Nair, Gupta, Dalal & Levine, "AWAC: Accelerating Online Reinforcement Learning with Offline
Datasets", 2020, arXiv 2006.09359. λ 1 as in the paper; CORL's `awac.py` has 0.3333 for locomotion,
and its three layers of 256, rates of 3e-4, state-independent log-std and clip of 100 are ours.

Difference from CORL: the mean is squashed by tanh, so that it cannot leave the box.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.config import config as configuration
from leeward.losses import advantage_weight, td_target
from leeward.nn.critics import Ensemble, make_ensemble
from leeward.nn.gaussian import FixedStdActor, make_fixed_std_actor
from leeward.optim import descend, polyak
from leeward.types import Algorithm, Batch, Metrics, Phase, PRNGKey, Sampling, Spec, Step


@configuration
class Config:
    steps: int = 1_000_000
    """Updates in total."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256, 256)
    """Hidden sizes of actor and critics (CORL)."""
    temperature: float = 1.0
    """λ: advantages are divided by it before the exponential; CORL has 0.3333 for locomotion."""
    weight_clip: float = 100.0
    """Largest weight of one action in the actor's loss."""
    actor_lr: float = 3e-4
    """Adam rate of the actor."""
    critic_lr: float = 3e-4
    """Adam rate of the critics."""
    discount: float = 0.99
    """Discount of future rewards."""
    tau: float = 0.005
    """Step of the target critics towards the online ones."""
    normalize_observations: bool = True
    """Standardize observations by the data's mean and std + 1e-3 (CORL)."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    actor: FixedStdActor
    critic: Ensemble
    target_critic: Ensemble
    actor_opt: optax.OptState
    critic_opt: optax.OptState


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """Networks with PyTorch's default initialization, as CORL has."""
    actor_key, critic_key = jax.random.split(key)
    actor = make_fixed_std_actor(spec, config.hidden, actor_key)
    critic = make_ensemble(2, spec, config.hidden, critic_key)
    return State(
        actor=actor,
        critic=critic,
        target_critic=critic,
        actor_opt=optax.adam(config.actor_lr).init(actor),  # type: ignore[arg-type]
        critic_opt=optax.adam(config.critic_lr).init(critic),  # type: ignore[arg-type]
    )


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One step of the critics, then of the actor, then of the target critics."""
    del step
    critic_key, actor_key = jax.random.split(key)
    state, critic_metrics = update_critic(config, state, batch, critic_key)
    state, actor_metrics = update_actor(config, state, batch, actor_key)
    target_critic = polyak(state.target_critic, state.critic, config.tau)
    return state._replace(target_critic=target_critic), critic_metrics | actor_metrics


def update_critic(
    config: Config, state: State, batch: Batch, key: PRNGKey
) -> tuple[State, Metrics]:
    """Both critics towards the smaller target value of an action that the policy draws."""
    next_action = state.actor(batch.next_observation).sample(key)
    next_q = state.target_critic(batch.next_observation, next_action).min(axis=0)  # [B]
    target = td_target(batch, next_q)

    def loss(critic: Ensemble) -> tuple[Float[Array, ""], Metrics]:
        q = critic(batch.observation, batch.action)  # [E, B]
        squared_error = jnp.square(q - target[None, :]).mean(axis=1).sum()
        return squared_error, {"critic/loss": squared_error, "critic/q": q.mean()}

    critic, critic_opt, metrics = descend(
        loss, state.critic, optax.adam(config.critic_lr), state.critic_opt
    )
    return state._replace(critic=critic, critic_opt=critic_opt), metrics


def update_actor(config: Config, state: State, batch: Batch, key: PRNGKey) -> tuple[State, Metrics]:
    """Maximizes log π(a|s), weighted by the advantage over an action that the policy draws.

    The weight is min(exp(A/λ), clip) with A = min Q(s, a) − min Q(s, ã), ã ~ π (eq. 13).
    """
    policy_action = state.actor(batch.observation).sample(key)
    value = state.critic(batch.observation, policy_action).min(axis=0)  # [B]
    advantage = state.critic(batch.observation, batch.action).min(axis=0) - value
    weight = advantage_weight(advantage, 1.0 / config.temperature, config.weight_clip)

    def loss(actor: FixedStdActor) -> tuple[Float[Array, ""], Metrics]:
        total = -(weight * actor(batch.observation).log_prob(batch.action)).mean()
        return total, {
            "actor/loss": total,
            "actor/advantage": advantage.mean(),
            "actor/weight": weight.mean(),
        }

    actor, actor_opt, metrics = descend(
        loss, state.actor, optax.adam(config.actor_lr), state.actor_opt
    )
    return state._replace(actor=actor, actor_opt=actor_opt), metrics


def policy(state: State) -> FixedStdActor:
    """The actor."""
    return state.actor


def act(
    policy: FixedStdActor, observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """The mean action."""
    del key  # deterministic
    return policy(observation).mode()


ALGORITHM = Algorithm(
    name="awac",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=policy,
    act=act,
)
