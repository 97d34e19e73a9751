"""BC with discrete actions: a categorical policy fitted to the data's actions by cross-entropy.

On vectors the network is an MLP; on images the convolutions of Mnih et al. 2015 come first.
`--preset tianshou` leaves bytes unscaled, as its code does.
"""

from __future__ import annotations

from typing import NamedTuple

import optax
from jaxtyping import Array, Float, Int, Shaped

from leeward.config import config as configuration
from leeward.data.sampling import DeviceData
from leeward.nn.behavior import fit_quality
from leeward.nn.discrete import CategoricalActor, make_categorical_actor
from leeward.optim import descend
from leeward.pretraining.behavior import in_part
from leeward.types import (
    Algorithm,
    Batch,
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
class Config:
    steps: int = 1_000_000
    """Updates."""
    batch_size: int = 32
    """Transitions an update."""
    hidden: tuple[int, ...] = (512,)
    """Hidden sizes, behind the convolutions where observations are images."""
    lr: float = 3e-4
    """Adam rate."""
    validation_fraction: float = 0.0
    """Share of episodes held out for early stopping; 0 trains on all and never stops early."""
    validation_every: int = 1_000
    """Updates between measurements of the held-out loss."""
    patience: int = 10
    """Measurements without improvement before training stops and the best weights return."""
    normalize_observations: bool = False
    """Standardize vectors by the data's mean and std + 1e-3; images stay as they are."""
    scale_images: bool = True
    """Divide the bytes of images by 255."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    actor: CategoricalActor
    actor_opt: optax.OptState


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """The network with PyTorch's default initialization, as Tianshou and d3rlpy have."""
    actor = make_categorical_actor(spec, config.hidden, key, scale_images=config.scale_images)
    return State(actor, optax.adam(config.lr).init(actor))  # type: ignore[arg-type]


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One step on the cross-entropy."""
    del key, step  # nothing is drawn

    def loss(actor: CategoricalActor) -> tuple[Float[Array, ""], Metrics]:
        policy = actor(batch.observation)
        cloning = -policy.log_prob(batch.action).mean()
        right = (policy.mode() == batch.action).mean()
        return cloning, {"behavior/loss": cloning, "behavior/accuracy": right}

    actor, actor_opt, metrics = descend(loss, state.actor, optax.adam(config.lr), state.actor_opt)
    return State(actor, actor_opt), metrics


def validation_loss(config: Config, state: State, batch: Batch) -> Float[Array, " B"]:
    """The cross-entropy of held-out transitions."""
    del config
    return -state.actor(batch.observation).log_prob(batch.action)


def measure(config: Config, state: State, data: DeviceData, held_out: DeviceData | None) -> Metrics:
    """Likelihood and accuracy on held-out episodes, where there are any."""
    del config

    def measured(batch: Batch) -> dict[str, Array]:
        return fit_quality(state.actor(batch.observation), batch.action, 0.0)

    return {} if held_out is None else in_part(measured, data, held_out)


def policy(state: State) -> CategoricalActor:
    """The actor."""
    return state.actor


def act(
    policy: CategoricalActor, observation: Shaped[Array, "..."], key: PRNGKey
) -> Int[Array, "*batch"]:
    """The likeliest action."""
    del key  # deterministic
    return policy(observation).mode()


ALGORITHM = Algorithm(
    name="discrete_bc",
    config_type=Config,
    init=init,
    phases=(
        Phase(
            "train",
            lambda config: config.steps,
            update,
            early_stopping=EarlyStopping(
                loss=validation_loss,
                fraction=lambda config: config.validation_fraction,
                every=lambda config: config.validation_every,
                patience=lambda config: config.patience,
            ),
            measurement=Measurement(measure),
        ),
    ),
    policy=policy,
    act=act,
    actions=("discrete",),
    presets={"tianshou": {"lr": 1e-4, "scale_images": False}},  # examples/offline/atari_il.py
)
