"""A value network of the data's own behavior: TD(0) with target networks, LayerNorm, an ensemble.

V(s) by TD(0) on the rewards as logged, or on a constant one where there are none; beside it, where
asked for, Q(s, a) on the same targets r + γV⁻(s'), so that no action outside the data is valued,
and a discriminator of expert states against all others (leeward.pretraining.discriminator).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from leeward.config import config as configuration
from leeward.data.dataset import Dataset
from leeward.data.demonstrations import (
    constant_reward,
    episode_emphasis,
    expert_states,
    value_measures,
    without_rewards,
)
from leeward.data.passes import over_numbers, over_transitions, part_size
from leeward.data.sampling import DeviceData, observe
from leeward.errors import ConfigError, DataError
from leeward.losses import td_target
from leeward.nn.behavior import blurred
from leeward.nn.critics import Critic, Value, make_value
from leeward.nn.encoders import Encoded, on_features
from leeward.nn.feedback import varies
from leeward.nn.layers import make_mlp
from leeward.optim import apply_gradient, clip_norm, cosine, descend, polyak
from leeward.pretraining import closeup, discriminator
from leeward.types import Batch, CloseUp, Metrics, PRNGKey, Spec, Step

Network = Value | Encoded
"""A value network: V(s), or V of an image's features."""


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
    """Std of the noise that leads beside the data, in the units of observations (images: of
    white), for this term and for the discriminator."""
    adversarial: bool = False
    """Add to V, both standardized, the logit of a discriminator of expert states against states
    beside the data and those of other episodes."""
    adversarial_weight: float = 1.0
    """Weight of that logit."""
    expert_fraction: float = 1.0
    """Share of episodes, those with the highest returns, whose states are the expert's."""
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

    online: tuple[Network, ...]
    target: tuple[Network, ...]
    online_opt: optax.OptState
    critic: Critic | Encoded | None  # Q(s, a), only where it is asked for
    critic_opt: optax.OptState | None
    judge: discriminator.State | None  # likewise
    rewardless: Float[Array, ""]  # 1.0 where rewards are replaced; filled in by `enter`
    emphasis: Float[Array, " T"]  # of every transition, likewise


def init(
    config: ValueConfig, spec: Spec, hidden: tuple[int, ...], with_critic: bool, key: PRNGKey
) -> ValueState:
    """Networks with LayerNorm and PyTorch's default initialization."""
    value_key, critic_key = jax.random.split(key)

    def make(spec: Spec, key: PRNGKey) -> Value:
        return make_value(spec, hidden, key, layer_norm=True)

    def make_q(spec: Spec, key: PRNGKey) -> Critic:
        sizes = (spec.observation_shape[0] + spec.action.size, *hidden, 1)
        return Critic(make_mlp(sizes, key, layer_norm=True))

    value = tuple(
        on_features(make, spec, member_key)
        for member_key in jax.random.split(value_key, config.value_ensemble)
    )
    adam = optax.adam(0.0)  # rates are set in the updates; the state does not depend on them
    critic = on_features(make_q, spec, critic_key) if with_critic else None
    judge = None
    if config.adversarial:
        judge = discriminator.init(on_features(make, spec, jax.random.fold_in(key, 2)))
    return ValueState(
        online=value,
        target=value,
        online_opt=adam.init(value),  # type: ignore[arg-type]
        critic=critic,
        critic_opt=None if critic is None else adam.init(critic),  # type: ignore[arg-type]
        judge=judge,
        rewardless=jnp.zeros(()),
        emphasis=jnp.ones(1),
    )


def check(config: ValueConfig, data: Dataset) -> None:
    """Raises where the settings do not fit the data."""
    name = data.metadata.get("name", "the data set")
    if config.value_reward == "data" and not data.reward[data.start].any():
        raise DataError(
            f"every reward of {name} is 0, so there is no value to learn: use --value-reward "
            "constant (1 a step, 0 at a termination), or plain bc"
        )
    if not 0.0 < config.expert_fraction <= 1.0:
        raise ConfigError(f"--expert-fraction must be in (0, 1], got {config.expert_fraction:g}")
    if config.adversarial and config.expert_fraction < 1.0 and not data.next_rows_chain():
        raise DataError(
            f"{name} is not in order of time, so the returns of its episodes are not known: set "
            "--expert-fraction 1"
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
    judge = state.judge
    if judge is not None:
        judge = judge._replace(expert=expert_states(data, config.expert_fraction))
    return state._replace(
        rewardless=jnp.asarray(replace, jnp.float32), emphasis=emphasis, judge=judge
    )


def update(
    config: ValueConfig, state: ValueState, batch: Batch, key: PRNGKey, step: Step
) -> tuple[ValueState, Metrics]:
    """One step of the value networks, of Q and discriminator where there are any; then targets."""
    goal = target(config, state, batch)
    judge, judge_metrics = state.judge, {}
    weight = state.emphasis[batch.index]
    weight = weight / weight.mean()  # [B]
    rate = config.value_lr
    if config.value_lr_decay:
        rate = cosine(step, config.value_lr, config.value_steps)
    if judge is not None:
        key, judge_key = jax.random.split(key)
        beside = blurred(batch.observation, config.conservative_noise, judge_key)
        judge, judge_metrics = discriminator.update(judge, batch, beside, rate)

    def loss(online: tuple[Network, ...]) -> tuple[Float[Array, ""], Metrics]:
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

        def critic_loss(critic: Critic | Encoded) -> tuple[Float[Array, ""], Metrics]:
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
        judge=judge,
    ), metrics | judge_metrics


def target(config: ValueConfig, state: ValueState, batch: Batch) -> Float[Array, " B"]:
    """reward + γ(1 − termination)·V⁻(s'), the reward replaced where the data has none."""
    next_value = combined(config, state.target, batch.next_observation)
    reward = jnp.where(state.rewardless > 0.0, constant_reward(batch.termination), batch.reward)
    return td_target(batch._replace(reward=reward), next_value)


def excess(
    config: ValueConfig,
    online: tuple[Network, ...],
    batch: Batch,
    value: Float[Array, "E B"],
    key: PRNGKey,
) -> Float[Array, ""]:
    """Σ over members of mean max(0, V(s + noise) − V(s))²: bounded, unlike a plain difference."""
    beside = each(online, blurred(batch.observation, config.conservative_noise, key))  # [E, B]
    above = jnp.maximum(beside - jax.lax.stop_gradient(value), 0.0)
    return jnp.square(above).mean(axis=1).sum()


def each(
    networks: tuple[Network, ...], observation: Shaped[Array, "B *obs"]
) -> Float[Array, "E B"]:
    """Every network's value."""
    return jnp.stack([member(observation) for member in networks])


def combined(
    config: ValueConfig, networks: tuple[Network, ...], observation: Shaped[Array, "B *obs"]
) -> Float[Array, " B"]:
    """The ensemble's value."""
    v = each(networks, observation)
    return v.min(axis=0) if config.value_aggregation == "min" else v.mean(axis=0)


def action_value(
    critic: Critic | Encoded,
    observation: Shaped[Array, "B *obs"],
    action: Shaped[Array, "B *act"],
) -> Float[Array, " B"]:
    """Q(s, a); integers reach the network one-hot."""
    if isinstance(critic, Encoded):
        return action_value(critic.network, critic.encoder(observation), action)
    if jnp.issubdtype(action.dtype, jnp.integer):
        size = critic.mlp.layers[0].weight.shape[0] - observation.shape[1]
        action = jax.nn.one_hot(action, size)
    return critic(observation, action)


def measure(
    config: ValueConfig, state: ValueState, data: DeviceData, held_out: DeviceData | None
) -> Metrics:
    """TD error and agreement with Monte-Carlo returns, on held-out episodes where there are any.

    `value/flat` is 1 where V is the same at all states that are trained on, where it weighs.
    """
    found = value_measures(
        lambda observation: combined(config, state.online, observation),
        data if held_out is None else held_out,
        config.discount,
        state.rewardless,
    )
    if state.judge is not None:
        part_data = data if held_out is None else held_out
        expert = expert_states(part_data, config.expert_fraction)
        found |= discriminator.measure(state.judge, part_data, expert, config.conservative_noise)

    def value(number: Int[Array, " part"]) -> Float[Array, " part"]:
        return combined(config, state.online, observe(data, data.start[number]))

    flat = ~varies(over_transitions(value, data))
    part = "training" if held_out is None else "held_out"
    return {f"{part}/{name}": number for name, number in found.items()} | {
        "value/rewardless": state.rewardless,
        "value/flat": flat.astype(jnp.float32),
    }


def look(
    config: ValueConfig, state: ValueState, data: DeviceData, transition: Int[Array, " P"]
) -> dict[str, Float[Array, " P"]]:
    """V at transitions, and the return after each: NaN where that is not known."""

    def value(number: Int[Array, " part"]) -> Float[Array, " part"]:
        return combined(config, state.online, observe(data, data.start[number]))

    returns = closeup.returns_at(data, config.discount, state.rewardless)
    return {
        "value": over_numbers(value, transition, part_size(data)),
        "return": returns[transition],
    }


def close_up(state_of: Callable[[Any], ValueState]) -> CloseUp:
    """What the report shows of V; `state_of` finds it in an algorithm's state."""
    return CloseUp(
        closeup.choose,
        lambda config, state, data, transition: look(config, state_of(state), data, transition),
    )


def warnings(numbers: Mapping[str, float]) -> list[str]:
    """What the measures say against trusting V."""
    said = []
    value = {name.partition("/")[2]: number for name, number in numbers.items()}
    if value["rewardless"] > 0.0:
        said.append(
            "the value learns from a reward of 1 a step and 0 at terminations: it only tells how "
            "long episodes go on"
        )
    if value["flat"] > 0.5:
        said.append(
            "the value is the same at all states, so it weighs them all alike: use data with "
            "rewards or terminations, or plain bc"
        )
    elif value.get("return_correlation", 1.0) < 0.3:
        said.append(
            f"values and returns correlate by {value['return_correlation']:.2f} only, so weights "
            "that come from them mean little: train longer (--value-steps), or use plain bc"
        )
    if value.get("discriminator_accuracy", 1.0) < 0.6:
        said.append(
            f"the discriminator is right at {100 * value['discriminator_accuracy']:.0f} % of "
            "states only, where guessing is at 50 %: raise --conservative-noise, which moves the "
            "states beside the data away, or leave --adversarial out"
        )
    return said
