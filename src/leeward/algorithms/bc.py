"""Behavior cloning: a policy fitted to the data's actions, deterministic or as a density.

Deterministic: mean squared error (CORL's any-percent BC). Gaussian and mixture: the negative
log-likelihood of a tanh-squashed density, with the entropy regularization of the Fisher-BRC
reference code (google-research/fisher_brc, `behavioral_cloning.py`) as an option; its stand-alone
`--algo_name bc` is `--preset reference`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.config import config as configuration
from leeward.data.sampling import DeviceData
from leeward.losses import entropy_regularized_likelihood, temperature_loss
from leeward.nn.actors import (
    DeterministicActor,
    MixtureActor,
    NormalActor,
    make_deterministic_actor,
    make_mixture_actor,
    make_normal_actor,
)
from leeward.nn.behavior import fit_quality
from leeward.nn.layers import orthogonal
from leeward.optim import descend, reference_decay
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

Actor = DeterministicActor | NormalActor | MixtureActor


@configuration
class Config:
    steps: int = 1_000_000
    """Updates."""
    batch_size: int = 256
    """Transitions an update."""
    density: Literal["deterministic", "gaussian", "mixture"] = "deterministic"
    """What is fitted: a point, or the density of a tanh-squashed normal or of a mixture of them."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes."""
    components: int = 5
    """Normals in the mixture of every action dimension (density mixture)."""
    lr: float = 3e-4
    """Adam rate."""
    lr_decay: bool = False
    """A tenth of the rate after 80 % of the steps, a hundredth after 90 %."""
    entropy_bonus: bool = False
    """Add α times the entropy, α fitted to an entropy of −A (densities only)."""
    initial_alpha: float = 1.0
    """Weight of the entropy at the start."""
    margin: float = 1e-6
    """Actions are clipped this far inside [-1, 1] before a density."""
    adam_eps: float = 1e-8
    """Adam's epsilon."""
    validation_fraction: float = 0.0
    """Share of episodes held out for early stopping; 0 trains on all and never stops early."""
    validation_every: int = 1_000
    """Updates between measurements of the held-out loss."""
    patience: int = 10
    """Measurements without improvement before training stops and the best weights return."""
    normalize_observations: bool = True
    """Standardize observations by the data's mean and std + 1e-3."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    actor: Actor
    log_alpha: Float[Array, ""]
    actor_opt: optax.OptState
    alpha_opt: optax.OptState


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """Densities start as in the Fisher-BRC reference (orthogonal), the rest as in PyTorch."""
    weights = {"initializer": orthogonal(2**0.5), "last_initializer": orthogonal(1e-2)}
    if config.density == "deterministic":
        actor = make_deterministic_actor(spec, config.hidden, key)
    elif config.density == "gaussian":
        actor = make_normal_actor(spec, config.hidden, key, **weights)
    else:
        actor = make_mixture_actor(spec, config.hidden, config.components, key, **weights)
    log_alpha = jnp.log(jnp.asarray(config.initial_alpha, jnp.float32))
    adam = optax.adam(config.lr)
    return State(actor, log_alpha, adam.init(actor), adam.init(log_alpha))  # type: ignore[arg-type]


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One step on the cloning loss; with `entropy_bonus` one step of its weight."""
    rate = reference_decay(step, config.lr, config.steps) if config.lr_decay else config.lr
    adam = optax.adam(rate, eps=config.adam_eps)

    def loss(actor: Actor) -> tuple[Float[Array, ""], Metrics]:
        if config.entropy_bonus and isinstance(actor, NormalActor | MixtureActor):
            return entropy_regularized_likelihood(
                actor(batch.observation), batch.action, state.log_alpha, key, config.margin
            )
        cloning = cloning_loss(config, actor, batch).mean()
        return cloning, {"behavior/loss": cloning}

    actor, actor_opt, metrics = descend(loss, state.actor, adam, state.actor_opt)
    state = state._replace(actor=actor, actor_opt=actor_opt)
    if "behavior/entropy" not in metrics:
        return state, metrics

    def alpha_loss(log_alpha: Float[Array, ""]) -> tuple[Float[Array, ""], Metrics]:
        target_entropy = -float(batch.action.shape[1])
        total = temperature_loss(log_alpha, -metrics["behavior/entropy"], target_entropy)
        return total, {"behavior/alpha_loss": total, "behavior/alpha": jnp.exp(log_alpha)}

    log_alpha, alpha_opt, alpha_metrics = descend(
        alpha_loss, state.log_alpha, adam, state.alpha_opt
    )
    return state._replace(log_alpha=log_alpha, alpha_opt=alpha_opt), metrics | alpha_metrics


def cloning_loss(config: Config, actor: Actor, batch: Batch) -> Float[Array, " B"]:
    """Squared error (mean over dimensions) or negative log-likelihood of every transition."""
    if isinstance(actor, DeterministicActor):
        return jnp.square(actor(batch.observation) - batch.action).mean(axis=-1)
    return -actor(batch.observation).log_prob(batch.action, config.margin)


def validation_loss(config: Config, state: State, batch: Batch) -> Float[Array, " B"]:
    """The cloning loss of held-out transitions."""
    return cloning_loss(config, state.actor, batch)


def measure(config: Config, state: State, data: DeviceData, held_out: DeviceData | None) -> Metrics:
    """Likelihood and error on held-out episodes, where there are any."""

    def measured(batch: Batch) -> dict[str, Array]:
        return fit_quality(state.actor(batch.observation), batch.action, config.margin)

    return {} if held_out is None else in_part(measured, data, held_out)


def policy(state: State) -> Actor:
    """The actor."""
    return state.actor


def act(policy: Actor, observation: Float[Array, "*batch obs"], key: PRNGKey) -> Array:
    """The deterministic action: the actor's output, or the mode of its distribution."""
    del key  # deterministic
    if isinstance(policy, DeterministicActor):
        return policy(observation)
    return policy(observation).mode()


ALGORITHM = Algorithm(
    name="bc",
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
    tensorboard={
        "behavior/loss": "bc_actor_loss",
        "behavior/alpha": "bc_alpha",
        "behavior/alpha_loss": "bc_alpha_loss",
        "behavior/log_prob": "bc_log_probs",
        "behavior/entropy": "bc_entropy",
    },
    presets={
        "reference": {
            "density": "gaussian",
            "lr": 1e-3,
            "lr_decay": True,
            "entropy_bonus": True,
            "adam_eps": 1e-7,
            "normalize_observations": False,
            "sampling": "epoch",
        },
        "tianshou": {  # examples/offline/d4rl_il.py
            "density": "deterministic",
            "hidden": (256, 256),
            "lr": 1e-4,
            "normalize_observations": False,
        },
    },
)
