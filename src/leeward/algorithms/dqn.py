"""DQN: values of discrete actions by Q-learning; a baseline offline, where it overestimates.

Mnih et al., "Human-level control through deep reinforcement learning", 2015, Nature 518; by default
with the targets of Double DQN: van Hasselt, Guez & Silver, 2015, arXiv 1509.06461. Rate, batch and
a copy of the target every 500 updates are Tianshou's (examples/atari/atari_dqn.py).

Differences from the paper: Adam in place of RMSProp, and PyTorch's default initialization.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from leeward.config import config as configuration
from leeward.losses import huber, of_action, td_target
from leeward.nn.discrete import QNetwork, make_q_network
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
    double: bool = True
    """Choose the next action by the online network, not by the target (Double DQN)."""
    lr: float = 1e-4
    """Adam rate."""
    discount: float = 0.99
    """Discount of future rewards."""
    target_every: int = 500
    """Updates between copies of the network to its target."""
    n_step: int = 1
    """Rewards summed before the target bootstraps."""
    normalize_observations: bool = False
    """Standardize vectors by the data's mean and std + 1e-3; images stay as they are."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    network: QNetwork
    target_network: QNetwork
    network_opt: optax.OptState


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """The network and its target, which starts as a copy."""
    network = make_q_network(spec, config.hidden, key)
    return State(network, network, optax.adam(config.lr).init(network))  # type: ignore[arg-type]


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One step on the Huber loss; the target follows after every `target_every` updates."""
    del key  # nothing is drawn
    target_q = state.target_network(batch.next_observation)  # [B, A]
    chooser = state.network(batch.next_observation) if config.double else target_q
    target = td_target(batch, of_action(target_q, jnp.argmax(chooser, axis=1)))

    def loss(network: QNetwork) -> tuple[Float[Array, ""], Metrics]:
        q = of_action(network(batch.observation), batch.action)  # [B]
        total = huber(target - q).mean()
        return total, {"critic/loss": total, "critic/q": q.mean()}

    network, network_opt, metrics = descend(
        loss, state.network, optax.adam(config.lr), state.network_opt
    )
    state = state._replace(network=network, network_opt=network_opt)
    state, _ = every(config.target_every, step + 1, copy_target, state)
    return state, metrics


def copy_target(state: State) -> tuple[State, Metrics]:
    """The target as the online network is now."""
    return state._replace(target_network=state.network), {}


def policy(state: State) -> QNetwork:
    """The online network."""
    return state.network


def act(policy: QNetwork, observation: Shaped[Array, "..."], key: PRNGKey) -> Int[Array, "*batch"]:
    """The action with the highest value."""
    del key  # deterministic
    return jnp.argmax(policy(observation), axis=-1)


ALGORITHM = Algorithm(
    name="dqn",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=policy,
    act=act,
    actions=("discrete",),
)
