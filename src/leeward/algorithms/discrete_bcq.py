"""BCQ with discrete actions: Q-learning among actions that a model of the data finds likely.

Fujimoto, Conti, Ghavamzadeh & Pineau, "Benchmarking Batch Deep Reinforcement Learning Algorithms",
2019, arXiv 1910.01708. τ 0.3, the rate of 6.25e-5 and a copy of the target every 8,000 updates are
the paper's and its authors' code's (sfujim/BCQ).

Difference: by default values and model share all hidden layers, as in d3rlpy; the authors' heads
share the convolutions alone and have a layer of 512 each, which `--preset tianshou` sets. That
preset also leaves bytes unscaled, as Tianshou's code does.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Shaped

from leeward.config import config as configuration
from leeward.losses import huber, of_action, td_target
from leeward.nn.discrete import TwoHeads, make_two_heads
from leeward.optim import descend, every
from leeward.types import Algorithm, Batch, Metrics, Phase, PRNGKey, Sampling, Spec, Step


@configuration
class Config:
    steps: int = 1_000_000
    """Updates in total."""
    batch_size: int = 32
    """Transitions an update."""
    hidden: tuple[int, ...] = (512,)
    """Hidden sizes that values and model share, behind the convolutions for images."""
    head_hidden: tuple[int, ...] = ()
    """Hidden sizes that each of the two has for itself."""
    threshold: float = 0.3
    """τ: actions less likely than this share of the likeliest are never chosen."""
    logit_penalty: float = 1e-2
    """Weight of the mean squared logit of the model."""
    lr: float = 6.25e-5
    """Adam rate."""
    discount: float = 0.99
    """Discount of future rewards."""
    target_every: int = 8_000
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
    network: TwoHeads
    target_network: TwoHeads
    threshold: Float[Array, ""]  # of the config, so that the policy knows it; fixed
    network_opt: optax.OptState


class Policy(NamedTuple):
    """What acts: the best of the likely actions."""

    network: TwoHeads
    threshold: Float[Array, ""]


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """The network and its target, which starts as a copy."""
    network = make_two_heads(
        spec, config.hidden, config.head_hidden, key, scale_images=config.scale_images
    )
    return State(
        network=network,
        target_network=network,
        threshold=jnp.asarray(config.threshold, jnp.float32),
        network_opt=optax.adam(config.lr).init(network),  # type: ignore[arg-type]
    )


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One step of values and model together; every `target_every` updates a new target."""
    del key  # nothing is drawn
    next_q, next_logit = state.network(batch.next_observation)  # [B, A] each
    action = jnp.argmax(among_likely(next_q, next_logit, config.threshold), axis=1)  # [B]
    target = td_target(batch, of_action(state.target_network.q(batch.next_observation), action))

    def loss(network: TwoHeads) -> tuple[Float[Array, ""], Metrics]:
        q, logit = network(batch.observation)  # [B, A] each: the trunk runs once
        q = of_action(q, batch.action)
        regression = huber(target - q).mean()
        cloning = -of_action(jax.nn.log_softmax(logit, axis=1), batch.action).mean()
        penalty = jnp.square(logit).mean()
        return regression + cloning + config.logit_penalty * penalty, {
            "critic/loss": regression,
            "critic/q": q.mean(),
            "behavior/loss": cloning,
            "behavior/squared_logit": penalty,
        }

    network, network_opt, metrics = descend(
        loss, state.network, optax.adam(config.lr), state.network_opt
    )
    state = state._replace(network=network, network_opt=network_opt)
    state, _ = every(config.target_every, step + 1, copy_target, state)
    return state, metrics


def likely(
    logit: Float[Array, "*batch A"], threshold: float | Float[Array, ""]
) -> Bool[Array, "*batch A"]:
    """Whether log π − max log π ≥ log τ: the likeliest action is always among them."""
    highest = jnp.broadcast_to(logit.max(axis=-1, keepdims=True), logit.shape)
    # Logits differ as log-probabilities do; a quotient of probabilities would underflow.
    return (logit - highest >= jnp.log(threshold)) | (logit == highest)


def among_likely(
    q: Float[Array, "*batch A"],
    logit: Float[Array, "*batch A"],
    threshold: float | Float[Array, ""],
) -> Float[Array, "*batch A"]:
    """Q of likely actions, −∞ of others."""
    return jnp.where(likely(logit, threshold), q, -jnp.inf)


def copy_target(state: State) -> tuple[State, Metrics]:
    """The target as the online network is now."""
    return state._replace(target_network=state.network), {}


def policy(state: State) -> Policy:
    """The online network and the threshold."""
    return Policy(state.network, state.threshold)


def act(policy: Policy, observation: Shaped[Array, "..."], key: PRNGKey) -> Int[Array, "*batch"]:
    """The likely action with the highest value."""
    del key  # deterministic
    q, logit = policy.network(observation)
    return jnp.argmax(among_likely(q, logit, policy.threshold), axis=-1)


ALGORITHM = Algorithm(
    name="discrete_bcq",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=policy,
    act=act,
    actions=("discrete",),
    presets={  # examples/offline/atari_bcq.py
        "tianshou": {"hidden": (), "head_hidden": (512,), "scale_images": False},
    },
)
