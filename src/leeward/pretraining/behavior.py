"""A behavior model: what the data's actions look like at every state, by cloning or by kernels.

Cloning stops early on held-out episodes (the engine's doing). Observations may be moved and blurred
while it trains, which widens what the model knows without changing an action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.config import config as configuration
from leeward.data.passes import mean_over
from leeward.data.sampling import DeviceData
from leeward.errors import ConfigError
from leeward.nn.behavior import (
    LOG_STD_FLOOR,
    BehaviorKind,
    BehaviorModel,
    at_floor,
    augmented,
    continuous_only,
    distribution_of,
    fit_quality,
    make_actor,
    make_kernel_density,
    misfit,
)
from leeward.nn.kernel import KernelDensity, evenly
from leeward.optim import descend
from leeward.types import Batch, Box, Discrete, Metrics, PRNGKey, Spec


@configuration
class BehaviorConfig:
    """Settings of an algorithm that fits a behavior model."""

    behavior_steps: int = 100_000
    """Updates of the behavior model, if it does not stop early (kernel: none)."""
    behavior: BehaviorKind = "gaussian"
    """The behavior model; kernel: the data's own actions at the nearest states. Of discrete actions
    only these two: gaussian is then a network's categorical distribution."""
    components: int = 5
    """Normals in a mixture: of each action dimension, or (joint-mixture) of whole actions."""
    neighbors: int = 16
    """Nearest states whose actions make up the kernel density."""
    bandwidth: float = 0.1
    """Std of the kernel density around each of their actions, in units of [-1, 1]; of discrete
    actions the share, at most 1, that is spread evenly over all."""
    observation_noise: float = 0.0
    """Std of noise on the behavior model's observations, which widens what it knows."""
    interpolation: float = 0.0
    """Move these observations up to this share of the way to the next ones."""
    behavior_lr: float = 3e-4
    """Adam rate of the behavior model."""
    margin: float = 1e-6
    """Actions are clipped this far inside [-1, 1] before a density."""


def check(config: BehaviorConfig, action_space: Box | Discrete) -> None:
    """Raises where the settings do not fit the actions."""
    if config.bandwidth < 1e-6:
        raise ConfigError(f"--bandwidth must be at least 1e-06, got {config.bandwidth:g}")
    if not isinstance(action_space, Discrete):
        return
    if config.behavior not in ("gaussian", "kernel"):
        raise ConfigError(continuous_only("behavior", config.behavior))
    if config.behavior == "kernel" and config.bandwidth > 1.0:
        raise ConfigError(
            "--bandwidth of discrete actions is the share that is spread evenly over all of them: "
            f"it must be at most 1, got {config.bandwidth:g}"
        )


class BehaviorState(NamedTuple):
    """The model and its optimizer's memory."""

    model: BehaviorModel
    opt: optax.OptState | None  # None: a kernel density is not trained


def init(
    config: BehaviorConfig, spec: Spec, hidden: tuple[int, ...], key: PRNGKey
) -> BehaviorState:
    """A network that starts as BC's, or a kernel density without its data."""
    if config.behavior == "kernel":
        return BehaviorState(make_kernel_density(spec, config.neighbors, config.bandwidth), None)
    model = make_actor(config.behavior, spec, hidden, config.components, key)
    return BehaviorState(model, optax.adam(0.0).init(model))  # type: ignore[arg-type]


def steps(config: BehaviorConfig) -> int:
    """Updates of the phase."""
    return 0 if config.behavior == "kernel" else config.behavior_steps


def enter(state: BehaviorState, data: DeviceData) -> BehaviorState:
    """Gives a kernel density its reference transitions."""
    if not isinstance(state.model, KernelDensity):
        return state
    number = jnp.asarray(evenly(data.start.shape[0]))
    row = data.start[number]
    return BehaviorState(
        state.model.filled(data.observation[row], data.action[row], number), state.opt
    )


def update(
    config: BehaviorConfig, state: BehaviorState, batch: Batch, key: PRNGKey
) -> tuple[BehaviorState, Metrics]:
    """One step of cloning; observations may be moved, actions stay."""
    if state.opt is None:
        return state, {}
    observation = augmented(
        batch.observation,
        batch.next_observation,
        config.observation_noise,
        config.interpolation,
        key,
    )

    def loss(model: BehaviorModel) -> tuple[Float[Array, ""], Metrics]:
        error = misfit(distribution_of(model, observation), batch.action, config.margin).mean()
        return error, {"behavior/loss": error}

    model, opt, metrics = descend(loss, state.model, optax.adam(config.behavior_lr), state.opt)
    return BehaviorState(model, opt), metrics


def loss(config: BehaviorConfig, state: BehaviorState, batch: Batch) -> Float[Array, " B"]:
    """The cloning loss of each transition, its observation as it is."""
    return misfit(distribution_of(state.model, batch.observation), batch.action, config.margin)


def measure(
    config: BehaviorConfig,
    state: BehaviorState,
    data: DeviceData,
    held_out: DeviceData | None,
) -> Metrics:
    """Likelihood and error on held-out episodes, and how many stds are at their floor."""

    def measured(batch: Batch) -> dict[str, Array]:
        behavior = distribution_of(state.model, batch.observation)
        quality = fit_quality(behavior, batch.action, config.margin)
        return quality | {"at_floor": at_floor(behavior)}

    return in_part(measured, data, held_out)


def in_part(
    measured: Callable[[Batch], dict[str, Array]], data: DeviceData, held_out: DeviceData | None
) -> Metrics:
    """Means over the held-out transitions, or over those trained on where none are held out."""
    part = "training" if held_out is None else "held_out"
    means = mean_over(measured, data if held_out is None else held_out)
    return {f"{part}/{name}": mean for name, mean in means.items()}


def warnings(numbers: Mapping[str, float]) -> list[str]:
    """What the measures say against the model."""
    floor = next(number for name, number in numbers.items() if name.endswith("/at_floor"))
    if floor < 0.01:
        return []
    return [
        f"{100 * floor:.0f} % of the behavior model's log-stds are at their floor of "
        f"{LOG_STD_FLOOR:g}, where KL explodes: actions that hardly vary are better "
        "modeled by --behavior deterministic, or compared by --divergence js"
    ]
