"""QR-DQN: quantiles of the return of every discrete action; a baseline offline.

Dabney, Rowland, Bellemare & Munos, "Distributional Reinforcement Learning with Quantile
Regression", 2018, arXiv 1710.10044: 200 quantiles, κ = 1. The rate of 1e-4 and a copy of the target
every 500 updates are Tianshou's (examples/atari/atari_qrdqn.py); `--preset paper` has the paper's
(5e-5, Adam's ε of 0.01/32) and the copy every 10,000 updates of the DQN that it builds on.
`--preset tianshou` chooses next actions by the online network and leaves bytes unscaled, as its
code does.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from leeward.config import config as configuration
from leeward.losses import of_action, quantile_huber, quantile_target
from leeward.nn.discrete import QuantileNetwork, make_quantile_network
from leeward.optim import descend, every
from leeward.types import Algorithm, Batch, Metrics, Phase, PRNGKey, Sampling, Spec, Step


@configuration
class Config:
    steps: int = 1_000_000
    """Updates in total."""
    batch_size: int = 32
    """Transitions an update."""
    hidden: tuple[int, ...] = (512,)
    """Hidden sizes, behind the convolutions where observations are images."""
    quantiles: int = 200
    """Quantiles of every action's return."""
    double: bool = False
    """Choose the next action by the online network, not by the target."""
    lr: float = 1e-4
    """Adam rate."""
    adam_eps: float = 1e-8
    """Adam's epsilon."""
    discount: float = 0.99
    """Discount of future rewards."""
    target_every: int = 500
    """Updates between copies of the network to its target."""
    n_step: int = 1
    """Rewards summed before the target bootstraps."""
    normalize_observations: bool = False
    """Standardize vectors by the data's mean and std + 1e-3; images stay as they are."""
    scale_images: bool = True
    """Divide the bytes of images by 255."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    network: QuantileNetwork
    target_network: QuantileNetwork
    network_opt: optax.OptState


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """The network and its target, which starts as a copy."""
    network = make_quantile_network(
        spec, config.hidden, config.quantiles, key, scale_images=config.scale_images
    )
    return State(network, network, optax.adam(config.lr).init(network))  # type: ignore[arg-type]


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One step of quantile regression; the target follows after every `target_every` updates."""
    del key  # nothing is drawn
    target = next_quantiles(config, state, batch)  # [B, K]

    def loss(network: QuantileNetwork) -> tuple[Float[Array, ""], Metrics]:
        quantile = of_action(network(batch.observation), batch.action)  # [B, K]
        total = quantile_huber(quantile, target).mean()
        return total, {"critic/loss": total, "critic/q": quantile.mean()}

    adam = optax.adam(config.lr, eps=config.adam_eps)
    network, network_opt, metrics = descend(loss, state.network, adam, state.network_opt)
    state = state._replace(network=network, network_opt=network_opt)
    state, _ = every(config.target_every, step + 1, copy_target, state)
    return state, metrics


def next_quantiles(config: Config, state: State, batch: Batch) -> Float[Array, "B K"]:
    """The target of every quantile: those of the next state's best action, discounted."""
    target = state.target_network(batch.next_observation)  # [B, A, K]
    chooser = state.network(batch.next_observation) if config.double else target
    best = jnp.argmax(chooser.mean(axis=2), axis=1)  # [B]
    return quantile_target(batch, of_action(target, best))


def copy_target(state: State) -> tuple[State, Metrics]:
    """The target as the online network is now."""
    return state._replace(target_network=state.network), {}


def policy(state: State) -> QuantileNetwork:
    """The online network."""
    return state.network


def act(
    policy: QuantileNetwork, observation: Shaped[Array, "..."], key: PRNGKey
) -> Int[Array, "*batch"]:
    """The action with the highest mean return."""
    del key  # deterministic
    return jnp.argmax(policy(observation).mean(axis=-1), axis=-1)


ALGORITHM = Algorithm(
    name="qrdqn",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=policy,
    act=act,
    actions=("discrete",),
    presets={
        "paper": {"lr": 5e-5, "adam_eps": 0.01 / 32, "target_every": 10_000},
        # examples/atari/atari_qrdqn.py; n_step 3 there online
        "tianshou": {"double": True, "scale_images": False},
    },
)
