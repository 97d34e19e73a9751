"""FMR: behavior cloning held to a frozen behavior model where a value network says it matters.

Feedback-manipulation regularization for offline imitation, in three phases: a value network V, a
behavior model π_β, then the policy, which minimizes L_BC + λ·mean(D(π ‖ π_β)·w(s)).

The source contradicts itself: as printed w is V(s) − baseline, which rewards leaving π_β at states
of low value, while its text asks for a weak penalty at high and a strong one at low value. The
default here, `low-value`, is a positive weight that does what the text asks; `centered` is the
formula as printed, `reversed` its opposite. Further differences: states are those of the data (the
source's expectation is over the policy's own, which are not known offline); the baseline of the
standardized value is the mean over the data; V and π_β are computed once and gathered.

On images every network stands on convolutions of its own (Mnih et al. 2015).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from leeward.config import config as configuration
from leeward.data.dataset import Dataset, split_by_episode
from leeward.data.passes import over_transitions
from leeward.data.sampling import DeviceData, observe
from leeward.errors import ConfigError
from leeward.nn.behavior import (
    Actor,
    DensityKind,
    Outputs,
    behavior_of,
    continuous_only,
    distribution_of,
    fit_quality,
    make_actor,
    misfit,
    outputs,
)
from leeward.nn.divergence import DivergenceKind, divergence, mode_of
from leeward.nn.feedback import (
    Schedule,
    Weighting,
    decayed,
    feedback_weight,
    standardize,
    warmed_up,
)
from leeward.optim import descend
from leeward.pretraining import behavior as behaviors
from leeward.pretraining import value as values
from leeward.types import (
    Algorithm,
    Batch,
    Discrete,
    EarlyStopping,
    Measurement,
    Metrics,
    Phase,
    PRNGKey,
    Sampling,
    Spec,
    Step,
)


@configuration
class Config(behaviors.BehaviorConfig, values.ValueConfig):
    steps: int = 100_000
    """Updates of the policy, which comes last."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes of all networks."""
    fmr_weight: float = 0.1
    """λ: weight of the divergence from the behavior model; 0 is behavior cloning."""
    fmr_schedule: Schedule = "constant"
    """λ throughout; raised from 1e-5 over the first updates; or lowered after every epoch."""
    warmup_steps: int = 2_000
    """Updates of the policy over which the warm-up raises λ; 0: none."""
    fmr_decay: float = 0.9
    """Factor of λ after every epoch, where it decays."""
    weighting: Weighting = "low-value"
    """Where the divergence counts: softplus(−z) of the standardized value z; z less its mean, the
    formula as printed; or the opposite of that."""
    signal: Literal["value", "q", "advantage"] = "value"
    """What is z: V(s), Q(s, a) of the behavior model's action a, or Q(s, a) − V(s)."""
    signal_clip: float = 3.0
    """The standardized signal is clipped to ± this."""
    divergence: DivergenceKind = "kl"
    """KL, or Jensen-Shannon, which is bounded; squared distance where either is deterministic."""
    divergence_samples: int = 4
    """Actions a state from which divergences without a closed form are estimated."""
    divergence_clip: float = 50.0
    """Bound c of the divergence of one state, which enters as c·tanh(D/c)."""
    density: DensityKind = "gaussian"
    """The policy: what is fitted to continuous actions. The normals of a mixture are those of each
    action dimension, of a joint-mixture those of whole actions. Discrete actions always get a
    categorical distribution, and no other value than gaussian is accepted."""
    actor_lr: float = 3e-4
    """Adam rate of the policy."""
    validation_fraction: float = 0.1
    """Share of episodes held out of all phases, by which everything is measured; 0: none."""
    validation_every: int = 1_000
    """Updates between measurements of the held-out loss."""
    patience: int = 10
    """Measurements without improvement before the behavior model stops, its best weights kept."""
    policy_patience: int = 0
    """The same of the policy; 0: it never stops early."""
    normalize_observations: bool = True
    """Standardize observations by the data's mean and std + 1e-3."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    value: values.ValueState
    behavior: behaviors.BehaviorState
    actor: Actor
    actor_opt: optax.OptState
    reference: Outputs  # of the behavior model at all T transitions; filled in by `enter_policy`
    signal: Float[Array, " T"]  # likewise


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """Policy and behavior model start as BC's networks do."""
    value_key, behavior_key, actor_key = jax.random.split(key, 3)
    behavior = behaviors.init(config, spec, config.hidden, behavior_key)
    actor = make_actor(config.density, spec, config.hidden, config.components, actor_key)
    nowhere = jnp.zeros((1, *spec.observation_shape))
    if len(spec.observation_shape) != 1:
        nowhere = nowhere.astype(jnp.uint8)
    return State(
        value=values.init(config, spec, config.hidden, config.signal != "value", value_key),
        behavior=behavior,
        actor=actor,
        actor_opt=optax.adam(config.actor_lr).init(actor),  # type: ignore[arg-type]
        reference=outputs(behavior.model, nowhere, jnp.full(1, -1)),
        signal=jnp.zeros(1),
    )


def check(config: Config, data: Dataset) -> None:
    """Raises where data and settings do not fit together, before anything is trained."""
    if config.validation_fraction:
        split_by_episode(data, config.validation_fraction, seed=0)
    values.check(config, data)
    behaviors.check(config, data.action_space)
    for field, least in (("fmr_weight", 0.0), ("divergence_clip", 1e-6)):
        if getattr(config, field) < least:
            raise ConfigError(
                f"--{field.replace('_', '-')} must be at least {least:g}, got "
                f"{getattr(config, field):g}"
            )
    if isinstance(data.action_space, Discrete):
        if config.density != "gaussian":
            raise ConfigError(continuous_only("density", config.density))
    elif "deterministic" in (config.density, config.behavior) and config.divergence == "js":
        raise ConfigError(
            "--divergence js needs densities, but --density or --behavior is deterministic, where "
            "the squared distance takes its place: leave --divergence out"
        )


# --- Value and behavior: leeward.pretraining ---


def enter_value(config: Config, state: State, data: DeviceData, key: PRNGKey) -> State:
    """Looks at the rewards and at where episodes begin and end."""
    del key  # deterministic
    return state._replace(value=values.enter(config, state.value, data))


def update_value(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """TD(0)."""
    value, metrics = values.update(config, state.value, batch, key, step)
    return state._replace(value=value), metrics


def value_loss(config: Config, state: State, batch: Batch) -> Float[Array, " B"]:
    """The squared TD error of held-out transitions."""
    v = values.combined(config, state.value.online, batch.observation)
    return jnp.square(v - values.target(config, state.value, batch))


def measure_value(
    config: Config, state: State, data: DeviceData, held_out: DeviceData | None
) -> Metrics:
    """Whether V is to be trusted."""
    return values.measure(config, state.value, data, held_out)


def enter_behavior(config: Config, state: State, data: DeviceData, key: PRNGKey) -> State:
    """Shows a kernel density its data."""
    del config, key  # deterministic
    return state._replace(behavior=behaviors.enter(state.behavior, data))


def update_behavior(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """Cloning."""
    del step  # no schedule
    behavior, metrics = behaviors.update(config, state.behavior, batch, key)
    return state._replace(behavior=behavior), metrics


def behavior_loss(config: Config, state: State, batch: Batch) -> Float[Array, " B"]:
    """The behavior model's cloning loss of held-out transitions."""
    return behaviors.loss(config, state.behavior, batch)


def measure_behavior(
    config: Config, state: State, data: DeviceData, held_out: DeviceData | None
) -> Metrics:
    """How well the behavior model fits."""
    return behaviors.measure(config, state.behavior, data, held_out)


# --- Policy ---


def enter_policy(config: Config, state: State, data: DeviceData, key: PRNGKey) -> State:
    """Computes behavior model and signal at every transition, once."""
    del key  # deterministic

    def frozen(
        number: Int[Array, " part"],
    ) -> tuple[Outputs, Float[Array, " part"], Float[Array, " part"] | None]:
        observation = observe(data, data.start[number])
        output = outputs(state.behavior.model, observation, number)
        signal = raw_signal(config, state, observation, output)
        judge = state.value.judge
        return output, signal, None if judge is None else judge.network(observation)

    reference, signal, logit = over_transitions(frozen, data)
    signal = standardize(signal)
    if logit is not None:
        signal = standardize(signal + config.adversarial_weight * standardize(logit))
    return state._replace(reference=reference, signal=signal)


def raw_signal(
    config: Config, state: State, observation: Shaped[Array, "B *obs"], output: Outputs
) -> Float[Array, " B"]:
    """V(s), Q(s, a) or Q(s, a) − V(s), with a the behavior model's likeliest action."""
    value = values.combined(config, state.value.online, observation)
    if state.value.critic is None:
        return value
    action = mode_of(behavior_of(state.behavior.model, output))
    q = values.action_value(state.value.critic, observation, action)
    return q if config.signal == "q" else q - value


def update_policy(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One step on L_BC + λ·mean(D(π ‖ π_β)·w)."""
    output = jax.tree.map(lambda leaf: leaf[batch.index], state.reference)
    behavior = behavior_of(state.behavior.model, output)
    weight = feedback_weight(state.signal[batch.index], config.weighting, config.signal_clip)
    strength = strength_at(config, step, state.signal.shape[0])

    def loss(actor: Actor) -> tuple[Float[Array, ""], Metrics]:
        policy = actor(batch.observation)
        cloning = misfit(policy, batch.action, config.margin).mean()
        distance = divergence(
            config.divergence, policy, behavior, key, config.divergence_samples, config.margin
        )
        bounded = config.divergence_clip * jnp.tanh(distance / config.divergence_clip)
        feedback = (bounded * weight).mean()
        total = cloning + strength * feedback
        action = jnp.asarray(mode_of(policy), jnp.float32)
        return total, {
            "actor/loss": total,
            "actor/cloning": cloning,
            "actor/feedback": feedback,
            "actor/divergence": distance.mean(),
            "actor/clipped": (distance >= config.divergence_clip).mean(dtype=jnp.float32),
            "actor/action": action.mean(),
            "actor/action_std": action.std(),
        }

    actor, actor_opt, metrics = descend(
        loss, state.actor, optax.adam(config.actor_lr), state.actor_opt
    )
    return state._replace(actor=actor, actor_opt=actor_opt), metrics | {
        "actor/fmr_weight": strength,
        "actor/weight": weight.mean(),
        "actor/weight_variance": weight.var(),
    }


def strength_at(config: Config, step: Step, transitions: int) -> Float[Array, ""]:
    """λ at this update."""
    if config.fmr_schedule == "warmup":
        return warmed_up(config.fmr_weight, step, config.warmup_steps)
    if config.fmr_schedule == "decay":
        epoch = step // max(1, transitions // config.batch_size)
        return decayed(config.fmr_weight, config.fmr_decay, epoch)
    return jnp.asarray(config.fmr_weight, jnp.float32)


def policy_loss(config: Config, state: State, batch: Batch) -> Float[Array, " B"]:
    """The policy's cloning loss of held-out transitions."""
    return misfit(state.actor(batch.observation), batch.action, config.margin)


def measure_policy(
    config: Config, state: State, data: DeviceData, held_out: DeviceData | None
) -> Metrics:
    """Likelihood and error on held-out episodes, and the distance from the behavior model."""

    def measured(batch: Batch) -> dict[str, Array]:
        policy = state.actor(batch.observation)
        behavior = distribution_of(state.behavior.model, batch.observation)
        key = jax.random.key(0)  # the same draws for every run, so that runs compare
        distance = divergence(
            config.divergence, policy, behavior, key, config.divergence_samples, config.margin
        )
        return fit_quality(policy, batch.action, config.margin) | {"divergence": distance}

    return behaviors.in_part(measured, data, held_out)


def policy(state: State) -> Actor:
    """The actor."""
    return state.actor


def act(policy: Actor, observation: Shaped[Array, "..."], key: PRNGKey) -> Array:
    """The deterministic action: the actor's output, or the mode of its distribution."""
    del key  # deterministic
    return mode_of(policy(observation))


def stopping(loss: Callable[..., Array], patience: Callable[[Config], int]) -> EarlyStopping:
    """Every phase holds out the same episodes and measures its loss on them."""
    return EarlyStopping(
        loss=loss,
        fraction=lambda config: config.validation_fraction,
        every=lambda config: config.validation_every,
        patience=patience,
    )


ALGORITHM = Algorithm(
    name="fmr",
    config_type=Config,
    init=init,
    phases=(
        Phase(
            "value",
            lambda config: config.value_steps,
            update_value,
            enter=enter_value,
            early_stopping=stopping(value_loss, lambda config: 0),
            measurement=Measurement(
                measure_value, values.warnings, values.close_up(lambda state: state.value)
            ),
        ),
        Phase(
            "behavior",
            behaviors.steps,
            update_behavior,
            enter=enter_behavior,
            early_stopping=stopping(behavior_loss, lambda config: config.patience),
            measurement=Measurement(measure_behavior, behaviors.warnings),
        ),
        Phase(
            "policy",
            lambda config: config.steps,
            update_policy,
            enter=enter_policy,
            early_stopping=stopping(policy_loss, lambda config: config.policy_patience),
            measurement=Measurement(measure_policy),
        ),
    ),
    policy=policy,
    act=act,
    actions=("continuous", "discrete"),
    check=check,
    all_rows="asks its frozen networks about all rows at once",
    presets={  # ours: for demonstrations with several ways of doing the same thing
        "multimodal": {"density": "joint-mixture", "behavior": "kernel", "fmr_schedule": "warmup"}
    },
)
