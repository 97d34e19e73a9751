"""Fisher-BRC: an actor-critic whose critic is an offset plus the log behavior density.

Kostrikov, Tompson, Fergus & Nachum, "Offline Reinforcement Learning with Fisher Divergence Critic
Regularization", 2021, arXiv 2103.08050. Defaults are those of the reference code's command
(google-research/fisher_brc), which has f_reg 0.1 where its class has 1.0.

Differences from the reference: the mixture's own samples have their exact density (the reference
inverts tanh, which fails where it saturates); `bc_pretraining_steps` other than 1,000,000 moves the
boundaries of the behavior model's learning rate along.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.config import config as configuration
from leeward.losses import (
    entropy_regularized_likelihood,
    gradient_penalty,
    td_target,
    temperature_loss,
)
from leeward.nn.actors import MixtureActor, NormalActor, make_mixture_actor, make_normal_actor
from leeward.nn.critics import Ensemble, make_ensemble
from leeward.nn.layers import orthogonal
from leeward.optim import descend, polyak, reference_decay
from leeward.types import Algorithm, Batch, Metrics, Phase, PRNGKey, Sampling, Spec, Step


@configuration
class Config:
    steps: int = 1_000_000
    """Updates of critic and actor (reference: num_updates)."""
    bc_pretraining_steps: int = 1_000_000
    """Updates of the behavior model before them."""
    batch_size: int = 256
    """Transitions an update."""
    f_reg: float = 0.1
    """Weight of the gradient penalty on the offset."""
    reward_bonus: float = 5.0
    """Added to every reward, which keeps episodes from ending early on purpose."""
    hidden: tuple[int, ...] = (256, 256, 256)
    """Hidden sizes of actor and critics."""
    behavior_hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes of the behavior model (the reference code; the paper's appendix says three)."""
    components: int = 5
    """Normals in the mixture of every action dimension."""
    behavior_lr: float = 1e-3
    """Adam rate of the behavior model: a tenth after 80 % of its steps, a hundredth after 90 %."""
    actor_lr: float = 3e-4
    """Adam rate of the actor."""
    critic_lr: float = 3e-4
    """Adam rate of the critics."""
    alpha_lr: float = 3e-4
    """Adam rate of the entropy temperature."""
    initial_alpha: float = 1.0
    """Entropy temperature at the start, of the actor and of the behavior model."""
    discount: float = 0.99
    """Discount of future rewards."""
    tau: float = 0.005
    """Step of the target critics towards the online ones."""
    margin: float = 1e-6
    """Actions are clipped this far inside [-1, 1] before a density; wider (0.001 to 0.05) for data
    with many actions on the bounds."""
    adam_eps: float = 1e-7
    """Adam's epsilon (Keras' default, hence the reference's)."""
    normalize_observations: bool = False
    """Standardize observations by the data's mean and std + 1e-3."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch, the reference)."""


class State(NamedTuple):
    behavior: MixtureActor  # fitted in the first phase, frozen in the second
    behavior_log_alpha: Float[Array, ""]
    actor: NormalActor
    log_alpha: Float[Array, ""]
    offset: Ensemble  # Q(s, a) = offset(s, a) + log behavior(a | s)
    target_offset: Ensemble
    behavior_opt: optax.OptState
    behavior_alpha_opt: optax.OptState
    actor_opt: optax.OptState
    alpha_opt: optax.OptState
    offset_opt: optax.OptState


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """Networks with orthogonal weights (gain √2, last layer 0.01) and zero biases."""
    behavior_key, actor_key, offset_key = jax.random.split(key, 3)
    first, last = orthogonal(2**0.5), orthogonal(1e-2)
    behavior = make_mixture_actor(
        spec,
        config.behavior_hidden,
        config.components,
        behavior_key,
        initializer=first,
        last_initializer=last,
    )
    actor = make_normal_actor(
        spec, config.hidden, actor_key, initializer=first, last_initializer=last
    )
    offset = make_ensemble(
        2, spec, config.hidden, offset_key, initializer=first, last_initializer=last
    )
    log_alpha = jnp.log(jnp.asarray(config.initial_alpha, jnp.float32))
    adam = optax.adam(0.0)  # rates are set in the updates; the state does not depend on them
    return State(
        behavior=behavior,
        behavior_log_alpha=log_alpha,
        actor=actor,
        log_alpha=log_alpha,
        offset=offset,
        target_offset=offset,
        behavior_opt=adam.init(behavior),  # type: ignore[arg-type]
        behavior_alpha_opt=adam.init(log_alpha),
        actor_opt=adam.init(actor),  # type: ignore[arg-type]
        alpha_opt=adam.init(log_alpha),
        offset_opt=adam.init(offset),  # type: ignore[arg-type]
    )


def update_behavior(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """Maximizes the data's likelihood plus α times the entropy, and fits α to H̄ = −A."""
    rate = reference_decay(step, config.behavior_lr, config.bc_pretraining_steps)
    adam = optax.adam(rate, eps=config.adam_eps)

    def loss(behavior: MixtureActor) -> tuple[Float[Array, ""], Metrics]:
        return entropy_regularized_likelihood(
            behavior(batch.observation), batch.action, state.behavior_log_alpha, key, config.margin
        )

    behavior, behavior_opt, metrics = descend(loss, state.behavior, adam, state.behavior_opt)
    log_alpha, alpha_opt, alpha_metrics = update_alpha(
        state.behavior_log_alpha,
        -metrics["behavior/entropy"],
        -float(batch.action.shape[1]),
        adam,
        state.behavior_alpha_opt,
        "behavior",
    )
    return state._replace(
        behavior=behavior,
        behavior_opt=behavior_opt,
        behavior_log_alpha=log_alpha,
        behavior_alpha_opt=alpha_opt,
    ), metrics | alpha_metrics


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """Critic and its target, then actor, then temperature, on one batch."""
    del step
    critic_key, actor_key = jax.random.split(key)
    state, critic_metrics = update_critic(config, state, batch, critic_key)
    state, actor_metrics = update_actor(config, state, batch, actor_key)
    return state, critic_metrics | actor_metrics


def update_critic(
    config: Config, state: State, batch: Batch, key: PRNGKey
) -> tuple[State, Metrics]:
    """Fits offset + log μ to the bootstrapped target; penalizes the offset's action gradient."""
    next_key, penalty_key = jax.random.split(key)
    next_action = state.actor(batch.next_observation).sample(next_key)
    next_q = q_value(
        state.target_offset, state.behavior, batch.next_observation, next_action, config.margin
    )  # [E, B]
    bonus_batch = batch._replace(reward=batch.reward + config.reward_bonus)
    target = td_target(bonus_batch, next_q.min(axis=0))  # no entropy term
    log_behavior = state.behavior(batch.observation).log_prob(batch.action, config.margin)
    policy_action = state.actor(batch.observation).sample(penalty_key)

    def loss(offset: Ensemble) -> tuple[Float[Array, ""], Metrics]:
        q = offset(batch.observation, batch.action) + log_behavior[None, :]  # [E, B]
        squared_error = jnp.square(q - target[None, :]).mean(axis=1).sum()
        members = [partial(critic, batch.observation) for critic in offset.member]
        penalty, norm = gradient_penalty(members, policy_action)
        total = squared_error + config.f_reg * penalty
        return total, {
            "critic/loss": total,
            "critic/q1": q[0].mean(),
            "critic/q2": q[1].mean(),
            "critic/q1_gradient": norm[0],
            "critic/q2_gradient": norm[1],
        }

    adam = optax.adam(config.critic_lr, eps=config.adam_eps)
    offset, offset_opt, metrics = descend(loss, state.offset, adam, state.offset_opt)
    return state._replace(
        offset=offset,
        offset_opt=offset_opt,
        target_offset=polyak(state.target_offset, offset, config.tau),
    ), metrics


def update_actor(config: Config, state: State, batch: Batch, key: PRNGKey) -> tuple[State, Metrics]:
    """Minimizes α log π(ã|s) − min Q(s, ã), ã ~ π; then fits α to H̄ = −A."""
    alpha = jnp.exp(state.log_alpha)

    def loss(actor: NormalActor) -> tuple[Float[Array, ""], Metrics]:
        action, log_prob = actor(batch.observation).sample_and_log_prob(key)
        q = q_value(state.offset, state.behavior, batch.observation, action, config.margin)
        total = (alpha * log_prob - q.min(axis=0)).mean()
        return total, {"actor/loss": total, "actor/entropy": -log_prob.mean()}

    actor, actor_opt, metrics = descend(
        loss, state.actor, optax.adam(config.actor_lr, eps=config.adam_eps), state.actor_opt
    )
    log_alpha, alpha_opt, alpha_metrics = update_alpha(
        state.log_alpha,
        -metrics["actor/entropy"],
        -float(batch.action.shape[1]),
        optax.adam(config.alpha_lr, eps=config.adam_eps),
        state.alpha_opt,
        "actor",
    )
    return state._replace(
        actor=actor, actor_opt=actor_opt, log_alpha=log_alpha, alpha_opt=alpha_opt
    ), metrics | alpha_metrics


def update_alpha(
    log_alpha: Float[Array, ""],
    log_prob: Float[Array, ""],
    target_entropy: float,
    adam: optax.GradientTransformation,
    alpha_opt: optax.OptState,
    part: str,
) -> tuple[Float[Array, ""], optax.OptState, Metrics]:
    """One step of a temperature on the batch's mean log-probability."""

    def loss(log_alpha: Float[Array, ""]) -> tuple[Float[Array, ""], Metrics]:
        total = temperature_loss(log_alpha, log_prob, target_entropy)
        return total, {f"{part}/alpha_loss": total, f"{part}/alpha": jnp.exp(log_alpha)}

    return descend(loss, log_alpha, adam, alpha_opt)


def q_value(
    offset: Ensemble,
    behavior: MixtureActor,
    observation: Float[Array, "B obs"],
    action: Float[Array, "B A"],
    margin: float | Float[Array, ""],
) -> Float[Array, "E B"]:
    """offset(s, a) + log μ(a|s); gradients reach the action through both."""
    return offset(observation, action) + behavior(observation).log_prob(action, margin)[None, :]


def policy(state: State) -> NormalActor:
    """The actor."""
    return state.actor


def act(
    policy: NormalActor, observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """tanh of the actor's mean, as the reference evaluates."""
    del key  # deterministic
    return policy(observation).mode()


ALGORITHM = Algorithm(
    name="fisher_brc",
    config_type=Config,
    init=init,
    phases=(
        Phase("behavior", lambda config: config.bc_pretraining_steps, update_behavior),
        Phase("train", lambda config: config.steps, update),
    ),
    policy=policy,
    act=act,
    tensorboard={
        "behavior/loss": "bc_actor_loss",
        "behavior/alpha": "bc_alpha",
        "behavior/alpha_loss": "bc_alpha_loss",
        "behavior/log_prob": "bc_log_probs",
        "behavior/entropy": "bc_entropy",
        "actor/loss": "actor_loss",
        "actor/alpha": "alpha",
        "actor/alpha_loss": "alpha_loss",
        "critic/loss": "critic_loss",
        "critic/q1": "q1",
        "critic/q2": "q2",
        "critic/q1_gradient": "q1_grad",
        "critic/q2_gradient": "q2_grad",
    },
    presets={"reference": {"sampling": "epoch"}},
)
