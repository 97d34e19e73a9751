"""TD3+BC: TD3 with a behavior-cloning term in the actor's loss.

Fujimoto & Gu, "A Minimalist Approach to Offline Reinforcement Learning", 2021, arXiv 2106.06860.
Defaults are the paper's (its Table 3 and the authors' code). Differences: none known.

`fmr` holds the actor to a model of the data's behavior, cloned beside it, where Q is low (see
algorithms/fmr.py).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.config import config as configuration
from leeward.losses import td_target
from leeward.nn.actors import DeterministicActor, make_deterministic_actor
from leeward.nn.critics import Ensemble, make_ensemble
from leeward.nn.divergence import squared_distance
from leeward.nn.feedback import Weighting, feedback_weight, standardize
from leeward.optim import descend, every, polyak
from leeward.types import Algorithm, Batch, Metrics, Online, Phase, PRNGKey, Sampling, Spec, Step


@configuration
class Config:
    steps: int = 1_000_000
    """Critic updates in total."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes of actor and critics."""
    actor_lr: float = 3e-4
    """Adam rate of the actor."""
    critic_lr: float = 3e-4
    """Adam rate of the critics."""
    discount: float = 0.99
    """Discount of future rewards."""
    tau: float = 0.005
    """Step of the target networks towards the online ones."""
    alpha: float = 2.5
    """Weight of Q against cloning: 0 is behavior cloning, large is TD3."""
    policy_delay: int = 2
    """Critic updates per update of actor and targets."""
    noise_std: float = 0.2
    """Std of the target action's noise, in units of the [-1, 1] action range."""
    noise_clip: float = 0.5
    """Bound of the target action's noise, in the same units."""
    n_step: int = 1
    """Rewards summed before the target bootstraps."""
    fmr: Literal["off", "add", "replace"] = "off"
    """FMR's term of the actor: none, beside the cloning term, or in its place."""
    fmr_weight: float = 1.0
    """λ: weight of that term."""
    fmr_weighting: Weighting = "low-value"
    """How its weights follow Q of the behavior's action (see fmr)."""
    normalize_observations: bool = True
    """Standardize observations by the data's mean and std + 1e-3."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    actor: DeterministicActor
    critic: Ensemble
    target_actor: DeterministicActor
    target_critic: Ensemble
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    behavior: DeterministicActor | None = None  # only with FMR's term
    behavior_opt: optax.OptState | None = None


SIGNAL_CLIP = 3.0
"""FMR's standardized values are clipped to ± this (ours, as in algorithms/fmr.py)."""
EXPLORATION_STD = 0.1
"""Std of the noise with which it acts online (TD3, arXiv 1802.09477, section 6.1)."""


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """Networks with PyTorch's default initialization, as the authors' code has."""
    actor_key, critic_key = jax.random.split(key)
    actor = make_deterministic_actor(spec, config.hidden, actor_key)
    critic = make_ensemble(2, spec, config.hidden, critic_key)
    state = State(
        actor=actor,
        critic=critic,
        target_actor=actor,
        target_critic=critic,
        actor_opt=optax.adam(config.actor_lr).init(actor),  # type: ignore[arg-type]
        critic_opt=optax.adam(config.critic_lr).init(critic),  # type: ignore[arg-type]
    )
    if config.fmr == "off":
        return state
    behavior = make_deterministic_actor(spec, config.hidden, jax.random.fold_in(actor_key, 1))
    behavior_opt = optax.adam(config.actor_lr).init(behavior)  # type: ignore[arg-type]
    return state._replace(behavior=behavior, behavior_opt=behavior_opt)


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One critic step; every `policy_delay` steps one step of actor and targets."""
    state, critic_metrics = update_critic(config, state, batch, key)
    state, actor_metrics = every(
        config.policy_delay, step, lambda s: update_actor(config, s, batch), state
    )
    return state, critic_metrics | actor_metrics


def update_critic(
    config: Config, state: State, batch: Batch, key: PRNGKey
) -> tuple[State, Metrics]:
    """Both critics towards the smaller target value of a smoothed target action."""
    noise = config.noise_std * jax.random.normal(key, batch.action.shape)  # [B, A]
    noise = jnp.clip(noise, -config.noise_clip, config.noise_clip)
    next_action = jnp.clip(state.target_actor(batch.next_observation) + noise, -1.0, 1.0)
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


def update_actor(config: Config, state: State, batch: Batch) -> tuple[State, Metrics]:
    """The actor towards high Q₁ and the data's actions, then actor and critic targets."""

    def loss(actor: DeterministicActor) -> tuple[Float[Array, ""], Metrics]:
        action = actor(batch.observation)
        q = state.critic.member[0](batch.observation, action)  # [B]; the first critic, as in TD3
        # The weight is a number, not a path for gradients.
        weight = config.alpha / jax.lax.stop_gradient(jnp.abs(q).mean())
        cloning = jnp.square(action - batch.action).mean()
        metrics = {"actor/cloning": cloning, "actor/q_weight": weight}
        held = cloning
        if config.fmr != "off":
            feedback = fmr_term(config, state, batch, action)
            held = config.fmr_weight * feedback + (cloning if config.fmr == "add" else 0.0)
            metrics["actor/feedback"] = feedback
        total = held - weight * q.mean()
        return total, metrics | {"actor/loss": total}

    actor, actor_opt, metrics = descend(
        loss, state.actor, optax.adam(config.actor_lr), state.actor_opt
    )
    if config.fmr != "off":
        state = update_behavior(config, state, batch)
    return state._replace(
        actor=actor,
        actor_opt=actor_opt,
        target_actor=polyak(state.target_actor, actor, config.tau),
        target_critic=polyak(state.target_critic, state.critic, config.tau),
    ), metrics


def fmr_term(
    config: Config, state: State, batch: Batch, action: Float[Array, "B A"]
) -> Float[Array, ""]:
    """mean(‖action − a_β‖² · w), a_β the behavior model's and w by Q₁(s, a_β)."""
    assert state.behavior is not None
    behavior_action = state.behavior(batch.observation)
    q = state.critic.member[0](batch.observation, behavior_action)  # [B]
    weight = feedback_weight(standardize(q), config.fmr_weighting, SIGNAL_CLIP)
    return (squared_distance(action, behavior_action) * weight).mean()


def update_behavior(config: Config, state: State, batch: Batch) -> State:
    """One step of the behavior model's cloning."""
    assert state.behavior is not None
    assert state.behavior_opt is not None

    def loss(behavior: DeterministicActor) -> tuple[Float[Array, ""], Metrics]:
        return jnp.square(behavior(batch.observation) - batch.action).mean(), {}

    adam = optax.adam(config.actor_lr)
    behavior, behavior_opt, _ = descend(loss, state.behavior, adam, state.behavior_opt)
    return state._replace(behavior=behavior, behavior_opt=behavior_opt)


def policy(state: State) -> DeterministicActor:
    """The actor."""
    return state.actor


def act(
    policy: DeterministicActor, observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """The actor's action."""
    del key  # deterministic
    return policy(observation)


def explore(
    policy: DeterministicActor, observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """The actor's action with Gaussian noise: how it acts while it learns online."""
    action = policy(observation)
    noise = EXPLORATION_STD * jax.random.normal(key, action.shape)
    return jnp.clip(action + noise, -1.0, 1.0)


ALGORITHM = Algorithm(
    name="td3_bc",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=policy,
    act=act,
    online=Online(explore),
    presets={"tianshou": {"n_step": 3}},  # examples/offline/d4rl_td3_bc.py; all else is the same
)
