"""A value network of the data's own behavior: TD(0) with target networks, LayerNorm, an ensemble.

V(s) by TD(0) on the rewards as logged, or on a constant one where there are none; beside it, where
asked for, Q(s, a) on the same targets r + γV⁻(s'), so that no action outside the data is valued.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Shaped

from leeward.config import config as configuration
from leeward.data.demonstrations import (
    constant_reward,
    episode_emphasis,
    value_measures,
    without_rewards,
)
from leeward.data.sampling import DeviceData
from leeward.losses import td_target
from leeward.nn.actors import observation_size
from leeward.nn.critics import Critic, Value, make_value
from leeward.nn.layers import make_mlp
from leeward.optim import apply_gradient, clip_norm, cosine, descend, polyak
from leeward.types import Batch, Metrics, PRNGKey, Spec, Step


@configuration
class ValueConfig:
    """Settings of an algorithm that fits a value network."""

    value_steps: int = 100_000
    """Updates of the value networks, which come first."""
    value_ensemble: int = 2
    """Value networks."""
    value_aggregation: Literal["mean", "min"] = "mean"
    """How they are made one."""
    value_reward: Literal["auto", "data", "constant"] = "auto"
    """Rewards: the data's, or 1 a step and 0 at a termination; auto: that where all are 0."""
    conservative: bool = False
    """Hold values beside the data's states down to those of the data's."""
    conservative_weight: float = 1.0
    """Weight of that term."""
    conservative_noise: float = 0.3
    """Std of the noise that leads beside the data, in the units of observations."""
    emphasis_steps: int = 5
    """First and last steps of an episode to which the next three settings apply."""
    start_emphasis: float = 1.0
    """Factor of an episode's first steps in the value's loss."""
    success_emphasis: float = 1.0
    """Factor of the last steps before a termination with a reward above the mean."""
    failure_emphasis: float = 1.0
    """Factor of the last steps before any other termination."""
    value_lr: float = 3e-4
    """Adam rate of the value networks."""
    value_lr_decay: bool = False
    """Lower that rate to 0 by a cosine."""
    gradient_clip: float = 0.0
    """Largest norm of the value networks' gradient; 0 leaves it as it is."""
    discount: float = 0.99
    """Discount of future rewards."""
    tau: float = 0.005
    """Step of the target value networks towards the online ones."""


class ValueState(NamedTuple):
    """Networks, their optimizers' memory, and what is known of the data."""

    online: tuple[Value, ...]
    target: tuple[Value, ...]
    online_opt: optax.OptState
    critic: Critic | None  # Q(s, a), only where it is asked for
    critic_opt: optax.OptState | None
    rewardless: Float[Array, ""]  # 1.0 where rewards are replaced; filled in by `enter`
    emphasis: Float[Array, " T"]  # of every transition, likewise


def init(
    config: ValueConfig, spec: Spec, hidden: tuple[int, ...], with_critic: bool, key: PRNGKey
) -> ValueState:
    """Networks with LayerNorm and PyTorch's default initialization."""
    value_key, critic_key = jax.random.split(key)
    value = tuple(
        make_value(spec, hidden, member_key, layer_norm=True)
        for member_key in jax.random.split(value_key, config.value_ensemble)
    )
    adam = optax.adam(0.0)  # rates are set in the updates; the state does not depend on them
    critic = None
    if with_critic:
        sizes = (observation_size(spec) + spec.action.size, *hidden, 1)
        critic = Critic(make_mlp(sizes, critic_key, layer_norm=True))
    return ValueState(
        online=value,
        target=value,
        online_opt=adam.init(value),  # type: ignore[arg-type]
        critic=critic,
        critic_opt=None if critic is None else adam.init(critic),  # type: ignore[arg-type]
        rewardless=jnp.zeros(()),
        emphasis=jnp.ones(1),
    )


def enter(config: ValueConfig, state: ValueState, data: DeviceData) -> ValueState:
    """Decides which rewards are learned from, and how much each transition counts."""
    replace = config.value_reward == "constant"
    if config.value_reward == "auto":
        replace = without_rewards(data)
    emphasis = episode_emphasis(
        data,
        config.emphasis_steps,
        config.start_emphasis,
        config.success_emphasis,
        config.failure_emphasis,
    )
    return state._replace(rewardless=jnp.asarray(replace, jnp.float32), emphasis=emphasis)


def update(
    config: ValueConfig, state: ValueState, batch: Batch, key: PRNGKey, step: Step
) -> tuple[ValueState, Metrics]:
    """One step of the value networks, of Q where there is one, then of the targets."""
    goal = target(config, state, batch)
    weight = state.emphasis[batch.index]
    weight = weight / weight.mean()  # [B]
    rate = config.value_lr
    if config.value_lr_decay:
        rate = cosine(step, config.value_lr, config.value_steps)

    def loss(online: tuple[Value, ...]) -> tuple[Float[Array, ""], Metrics]:
        v = each(online, batch.observation)  # [E, B]
        total = (weight[None, :] * jnp.square(v - goal[None, :])).mean(axis=1).sum()
        if config.conservative:
            total = total + config.conservative_weight * excess(config, online, batch, v, key)
        return total, {"value/loss": total, "value/v": v.mean(), "value/v_std": v.std()}

    gradient, metrics = jax.grad(loss, has_aux=True)(state.online)
    gradient = clip_norm(gradient, config.gradient_clip)
    online, online_opt = apply_gradient(gradient, state.online, optax.adam(rate), state.online_opt)
    critic, critic_opt = state.critic, state.critic_opt
    if critic is not None and critic_opt is not None:

        def critic_loss(critic: Critic) -> tuple[Float[Array, ""], Metrics]:
            q = action_value(critic, batch.observation, batch.action)
            total = (weight * jnp.square(q - goal)).mean()
            return total, {"value/q_loss": total, "value/q": q.mean()}

        critic, critic_opt, more = descend(critic_loss, critic, optax.adam(rate), critic_opt)
        metrics = metrics | more
    return state._replace(
        online=online,
        target=polyak(state.target, online, config.tau),
        online_opt=online_opt,
        critic=critic,
        critic_opt=critic_opt,
    ), metrics


def target(config: ValueConfig, state: ValueState, batch: Batch) -> Float[Array, " B"]:
    """reward + γ(1 − termination)·V⁻(s'), the reward replaced where the data has none."""
    next_value = combined(config, state.target, batch.next_observation)
    reward = jnp.where(state.rewardless > 0.0, constant_reward(batch.termination), batch.reward)
    return td_target(batch._replace(reward=reward), next_value)


def excess(
    config: ValueConfig,
    online: tuple[Value, ...],
    batch: Batch,
    value: Float[Array, "E B"],
    key: PRNGKey,
) -> Float[Array, ""]:
    """Σ over members of mean max(0, V(s + noise) − V(s))²: bounded, unlike a plain difference."""
    noise = config.conservative_noise * jax.random.normal(key, batch.observation.shape)
    beside = each(online, batch.observation + noise)  # [E, B]
    above = jnp.maximum(beside - jax.lax.stop_gradient(value), 0.0)
    return jnp.square(above).mean(axis=1).sum()


def each(networks: tuple[Value, ...], observation: Float[Array, "B obs"]) -> Float[Array, "E B"]:
    """Every network's value."""
    return jnp.stack([member(observation) for member in networks])


def combined(
    config: ValueConfig, networks: tuple[Value, ...], observation: Float[Array, "B obs"]
) -> Float[Array, " B"]:
    """The ensemble's value."""
    v = each(networks, observation)
    return v.min(axis=0) if config.value_aggregation == "min" else v.mean(axis=0)


def action_value(
    critic: Critic, observation: Float[Array, "B obs"], action: Shaped[Array, "B *act"]
) -> Float[Array, " B"]:
    """Q(s, a); integers reach the network one-hot."""
    if jnp.issubdtype(action.dtype, jnp.integer):
        size = critic.mlp.layers[0].weight.shape[0] - observation.shape[1]
        action = jax.nn.one_hot(action, size)
    return critic(observation, action)


def measure(
    config: ValueConfig, state: ValueState, data: DeviceData, held_out: DeviceData | None
) -> Metrics:
    """TD error and agreement with Monte-Carlo returns, on held-out episodes where there are any."""
    found = value_measures(
        lambda observation: combined(config, state.online, observation),
        data if held_out is None else held_out,
        config.discount,
        state.rewardless,
    )
    part = "training" if held_out is None else "held_out"
    return {f"{part}/{name}": number for name, number in found.items()} | {
        "value/rewardless": state.rewardless
    }


def warnings(numbers: Mapping[str, float]) -> list[str]:
    """What the measures say against trusting V."""
    said = []
    value = {name.partition("/")[2]: number for name, number in numbers.items()}
    if value["rewardless"] > 0.0:
        said.append(
            "the value learns from a reward of 1 a step and 0 at terminations: it only tells how "
            "long episodes go on"
        )
    if value["v_std"] < 1e-3 * (1e-3 + abs(value["v_mean"])):
        said.append(
            "the value is the same at all states, so it weighs nothing: use data with rewards or "
            "terminations, or plain bc"
        )
    elif value.get("return_correlation", 1.0) < 0.3:
        said.append(
            f"values and returns correlate by {value['return_correlation']:.2f} only, so weights "
            "that come from them mean little: train longer (--value-steps), or use plain bc"
        )
    return said
