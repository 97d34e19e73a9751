"""CRR with discrete actions: the data's actions cloned where they beat the policy's mean value.

Wang et al., "Critic Regularized Regression", 2020, arXiv 2006.15134, with one output an action, so
that means over the policy are exact, and with actor and critic on one trunk under one optimizer, as
in Tianshou (examples/offline/atari_crr.py). The advantage carries no gradient: with it, the actor's
loss would leak into critic and trunk.

`cql_weight` adds CQL's term to the loss; 0 is CRR alone, Tianshou's example has 10, and 50 on
Breakout's 1e6 transitions. `--preset tianshou` leaves bytes unscaled, as its code does.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from leeward.config import config as configuration
from leeward.losses import advantage_weight, conservative_gap, of_action, td_target
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
    """Hidden sizes that actor and critic share, behind the convolutions for images."""
    head_hidden: tuple[int, ...] = ()
    """Hidden sizes that each of the two has for itself."""
    weighting: Literal["exp", "binary", "all"] = "exp"
    """Weight of an action in the actor's loss: min(exp(A/β), clip), 1 where A > 0, or always 1."""
    beta: float = 1.0
    """Temperature of the exponential weight."""
    weight_clip: float = 20.0
    """Largest exponential weight."""
    cql_weight: float = 0.0
    """Weight of logsumexp Q(s, ·) − Q(s, a) in the loss."""
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
    scale_images: bool = True
    """Divide the bytes of images by 255."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    network: TwoHeads
    target_network: TwoHeads
    network_opt: optax.OptState


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """The network and its target, which starts as a copy."""
    network = make_two_heads(
        spec, config.hidden, config.head_hidden, key, scale_images=config.scale_images
    )
    return State(network, network, optax.adam(config.lr).init(network))  # type: ignore[arg-type]


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One step of actor and critic together; every `target_every` updates a new target."""
    del key  # nothing is drawn
    next_q, next_logit = state.target_network(batch.next_observation)  # [B, A] each
    target = td_target(batch, policy_mean(next_q, next_logit))

    def loss(network: TwoHeads) -> tuple[Float[Array, ""], Metrics]:
        q, logit = network(batch.observation)  # [B, A] each: the trunk runs once
        taken = of_action(q, batch.action)  # [B]
        regression = 0.5 * jnp.square(taken - target).mean()
        advantage = taken - policy_mean(q, logit)
        weight = action_weight(config, advantage)
        log_prob = of_action(jax.nn.log_softmax(logit, axis=1), batch.action)
        cloning = -(weight * log_prob).mean()
        gap = conservative_gap(q, batch.action).mean()
        return regression + cloning + config.cql_weight * gap, {
            "critic/loss": regression,
            "critic/q": taken.mean(),
            "critic/gap": gap,
            "actor/loss": cloning,
            "actor/advantage": advantage.mean(),
            "actor/weight": weight.mean(),
        }

    network, network_opt, metrics = descend(
        loss, state.network, optax.adam(config.lr), state.network_opt
    )
    state = state._replace(network=network, network_opt=network_opt)
    state, _ = every(config.target_every, step + 1, copy_target, state)
    return state, metrics


def policy_mean(q: Float[Array, "B A"], logit: Float[Array, "B A"]) -> Float[Array, " B"]:
    """Σ π(a|s) Q(s, a)."""
    return (jax.nn.softmax(logit, axis=1) * q).sum(axis=1)


def action_weight(config: Config, advantage: Float[Array, " B"]) -> Float[Array, " B"]:
    """f(A), without gradient (section 3 of the paper)."""
    if config.weighting == "exp":
        return advantage_weight(advantage, 1.0 / config.beta, config.weight_clip)
    if config.weighting == "binary":
        return (advantage > 0.0).astype(advantage.dtype)
    return jnp.ones_like(advantage)


def copy_target(state: State) -> tuple[State, Metrics]:
    """The target as the online network is now."""
    return state._replace(target_network=state.network), {}


def policy(state: State) -> TwoHeads:
    """The online network."""
    return state.network


def act(policy: TwoHeads, observation: Shaped[Array, "..."], key: PRNGKey) -> Int[Array, "*batch"]:
    """The actor's likeliest action."""
    del key  # deterministic
    return jnp.argmax(policy(observation)[1], axis=-1)


ALGORITHM = Algorithm(
    name="discrete_crr",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=policy,
    act=act,
    actions=("discrete",),
    presets={  # examples/offline/atari_crr.py, and README.md there
        "tianshou": {
            "hidden": (),
            "head_hidden": (512,),
            "cql_weight": 10.0,
            "scale_images": False,
        },
        "tianshou-breakout-1e6": {
            "hidden": (),
            "head_hidden": (512,),
            "cql_weight": 50.0,
            "scale_images": False,
        },
    },
)
