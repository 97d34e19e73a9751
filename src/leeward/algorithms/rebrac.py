"""ReBRAC: TD3+BC with cloning penalties of their own for actor and critic, and deeper networks.

Tarasov, Kurenkov, Nikulin & Kolesnikov, "Revisiting the Minimalist Approach to Offline
Reinforcement Learning", 2023, arXiv 2305.09836. Three layers, LayerNorm in the critics (after each
ReLU, as in the authors' code), batches of 1024 and rates of 1e-3 are the paper's for locomotion;
its Table 11 has a pair of penalties for every task.

Differences from the authors' code: the penalties' defaults are a cautious pair of the paper's grid
(the code's default is 1 and 1, which no task of the paper has); targets follow the networks after
their step, not before.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.config import config as configuration
from leeward.data.dataset import Dataset
from leeward.errors import DataError
from leeward.losses import td_target
from leeward.nn.actors import DeterministicActor, continuous_size, observation_size
from leeward.nn.critics import Critic, Ensemble
from leeward.nn.layers import Initializer, fan_in_uniform, make_mlp
from leeward.optim import apply_gradient, descend, every, gradient_in_parts, polyak
from leeward.types import Algorithm, Batch, Metrics, Phase, PRNGKey, Sampling, Spec, Step

PART = 128
"""Rows a part of the critics' gradient (ours: three layers of them fit a core's cache)."""


@configuration
class Config:
    steps: int = 1_000_000
    """Critic updates in total."""
    batch_size: int = 1024
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256, 256)
    """Hidden sizes of actor and critics."""
    actor_penalty: float = 0.1
    """β₁: weight of the squared distance to the data's action in the actor's loss."""
    critic_penalty: float = 0.01
    """β₂: weight of the squared distance to the data's next action in the critics' target."""
    actor_lr: float = 1e-3
    """Adam rate of the actor."""
    critic_lr: float = 1e-3
    """Adam rate of the critics."""
    discount: float = 0.99
    """Discount of future rewards."""
    tau: float = 0.005
    """Step of the target networks towards the online ones."""
    policy_delay: int = 2
    """Critic updates per update of actor and targets."""
    noise_std: float = 0.2
    """Std of the target action's noise, in units of the [-1, 1] action range."""
    noise_clip: float = 0.5
    """Bound of the target action's noise, in the same units."""
    normalize_observations: bool = False
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


class Regression(NamedTuple):
    """What the critics are fitted to."""

    observation: Float[Array, "B obs"]
    action: Float[Array, "B A"]
    target: Float[Array, " B"]


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """The authors' weights (EDAC's): biases 0.1, last layers uniform in ±0.001 and ±0.003."""
    actor_key, *critic_keys = jax.random.split(key, 3)
    inputs, outputs = observation_size(spec), continuous_size(spec)
    actor = DeterministicActor(
        make_mlp(
            (inputs, *config.hidden, outputs),
            actor_key,
            initializer=biased,
            last_initializer=uniform(1e-3),
        )
    )
    critic = Ensemble(
        tuple(
            Critic(
                make_mlp(
                    (inputs + outputs, *config.hidden, 1),
                    critic_key,
                    initializer=biased,
                    last_initializer=uniform(3e-3),
                    layer_norm=True,
                    norm_after=True,
                )
            )
            for critic_key in critic_keys
        )
    )
    return State(
        actor=actor,
        critic=critic,
        target_actor=actor,
        target_critic=critic,
        actor_opt=optax.adam(config.actor_lr).init(actor),  # type: ignore[arg-type]
        critic_opt=optax.adam(config.critic_lr).init(critic),  # type: ignore[arg-type]
    )


def biased(key: PRNGKey, size_in: int, size_out: int) -> tuple[Array, Array]:
    """PyTorch's default weight, bias 0.1."""
    return fan_in_uniform(key, size_in, size_out)[0], jnp.full(size_out, 0.1)


def uniform(bound: float) -> Initializer:
    """Weight and bias uniform in ±bound."""

    def initialize(key: PRNGKey, size_in: int, size_out: int) -> tuple[Array, Array]:
        weight_key, bias_key = jax.random.split(key)
        weight = jax.random.uniform(weight_key, (size_in, size_out), minval=-bound, maxval=bound)
        return weight, jax.random.uniform(bias_key, (size_out,), minval=-bound, maxval=bound)

    return initialize


def check(config: Config, data: Dataset) -> None:
    """Raises DataError where the data do not keep the action taken next."""
    del config
    if not data.next_rows_chain():
        raise DataError(
            "rebrac needs the action taken next, which is not known in data whose next "
            "observations do not chain row to row: use data in order of time, or td3-bc"
        )


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
    """Both critics towards min Q⁻(s', a') − β₂·‖a' − the data's next action‖².

    The distance is a sum over dimensions, and absent where the data have no next action.
    """
    noise = config.noise_std * jax.random.normal(key, batch.action.shape)  # [B, A]
    noise = jnp.clip(noise, -config.noise_clip, config.noise_clip)
    next_action = jnp.clip(state.target_actor(batch.next_observation) + noise, -1.0, 1.0)
    distance = jnp.square(next_action - batch.next_action).sum(axis=1)  # [B]
    distance = batch.next_action_known * distance
    next_q = state.target_critic(batch.next_observation, next_action).min(axis=0)  # [B]
    target = td_target(batch, next_q - config.critic_penalty * distance)

    def loss(critic: Ensemble, part: Regression) -> tuple[Float[Array, ""], Metrics]:
        q = critic(part.observation, part.action)  # [E, B]
        squared_error = jnp.square(q - part.target[None, :]).mean(axis=1).sum()
        return squared_error, {"critic/loss": squared_error, "critic/q": q.mean()}

    regression = Regression(batch.observation, batch.action, target)
    gradient, metrics = gradient_in_parts(loss, state.critic, regression, PART)
    critic, critic_opt = apply_gradient(
        gradient, state.critic, optax.adam(config.critic_lr), state.critic_opt
    )
    metrics = metrics | {"critic/next_distance": distance.mean()}
    return state._replace(critic=critic, critic_opt=critic_opt), metrics


def update_actor(config: Config, state: State, batch: Batch) -> tuple[State, Metrics]:
    """The actor towards min Q / mean|min Q| − β₁·‖π(s) − a‖², then both targets."""

    def loss(actor: DeterministicActor) -> tuple[Float[Array, ""], Metrics]:
        action = actor(batch.observation)
        q = state.critic(batch.observation, action).min(axis=0)  # [B]
        # The scale is a number, not a path for gradients.
        scale = 1.0 / jax.lax.stop_gradient(jnp.abs(q).mean())
        distance = jnp.square(action - batch.action).sum(axis=1)  # [B]; β₁ assumes the sum
        total = (config.actor_penalty * distance - scale * q).mean()
        return total, {
            "actor/loss": total,
            "actor/distance": distance.mean(),
            "actor/q_scale": scale,
        }

    actor, actor_opt, metrics = descend(
        loss, state.actor, optax.adam(config.actor_lr), state.actor_opt
    )
    return state._replace(
        actor=actor,
        actor_opt=actor_opt,
        target_actor=polyak(state.target_actor, actor, config.tau),
        target_critic=polyak(state.target_critic, state.critic, config.tau),
    ), metrics


def policy(state: State) -> DeterministicActor:
    """The actor."""
    return state.actor


def act(
    policy: DeterministicActor, observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """The actor's action."""
    del key  # deterministic
    return policy(observation)


ALGORITHM = Algorithm(
    name="rebrac",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    check=check,
    policy=policy,
    act=act,
)
