"""Networks for discrete actions: one output, or several, for every action."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float, Shaped

from leeward.errors import SpecError
from leeward.nn.distributions import Categorical
from leeward.nn.encoders import Encoder, make_encoder
from leeward.nn.layers import MLP, Linear, make_linear, make_mlp
from leeward.types import Discrete, PRNGKey, Spec


class Trunk(eqx.Module):
    """An encoder and hidden layers with ReLU; what heads stand on."""

    encoder: Encoder
    layers: tuple[Linear, ...]

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, "*batch features"]:
        """[..., *obs] → [..., features]."""
        features = self.encoder(observation)
        for layer in self.layers:
            features = jax.nn.relu(layer(features))
        return features


class QNetwork(eqx.Module):
    """Q(s, a) of every action."""

    trunk: Trunk
    head: Linear

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, "*batch A"]:
        """[..., *obs] → [..., A]."""
        return self.head(self.trunk(observation))


class QuantileNetwork(eqx.Module):
    """K quantiles of the return of every action."""

    trunk: Trunk
    head: Linear
    quantiles: int = eqx.field(static=True)

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, "*batch A K"]:
        """[..., *obs] → [..., A, K]."""
        output = self.head(self.trunk(observation))
        return output.reshape(*output.shape[:-1], -1, self.quantiles)


class CategoricalActor(eqx.Module):
    """A categorical distribution over actions."""

    trunk: Trunk
    head: Linear

    def __call__(self, observation: Shaped[Array, "..."]) -> Categorical:
        """The distribution of the action."""
        return Categorical(self.head(self.trunk(observation)))


class StateValue(eqx.Module):
    """V(s)."""

    trunk: Trunk
    head: Linear

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, "*batch"]:
        """[..., *obs] → [...]."""
        return self.head(self.trunk(observation))[..., 0]


class TwoHeads(eqx.Module):
    """Q and logits of a policy from one trunk, which runs once."""

    trunk: Trunk
    q_head: MLP
    policy_head: MLP

    def __call__(
        self, observation: Shaped[Array, "..."]
    ) -> tuple[Float[Array, "*batch A"], Float[Array, "*batch A"]]:
        """(Q, logits), both [..., A]."""
        features = self.trunk(observation)
        return self.q_head(features), self.policy_head(features)

    def q(self, observation: Shaped[Array, "..."]) -> Float[Array, "*batch A"]:
        """Q alone."""
        return self.q_head(self.trunk(observation))


def action_count(spec: Spec) -> int:
    """Number of actions A.

    Raises:
        SpecError: continuous actions.
    """
    if not isinstance(spec.action, Discrete):
        raise SpecError(f"this network needs discrete actions, got {spec.action}")
    return spec.action.size


def make_trunk(
    spec: Spec, hidden: tuple[int, ...], key: PRNGKey, *, scale_images: bool = True
) -> tuple[Trunk, int]:
    """A trunk (PyTorch's default initialization), and how many features it gives.

    Args:
        spec: shapes and dtype of observations.
        hidden: sizes of its layers.
        key: for the weights.
        scale_images: whether the bytes of images become [0, 1], or stay 0 to 255.
    """
    encoder_key, key = jax.random.split(key)
    encoder, size = make_encoder(spec, encoder_key, scale_images=scale_images)
    layers = []
    for width, layer_key in zip(hidden, jax.random.split(key, max(1, len(hidden))), strict=False):
        layers.append(make_linear(size, width, layer_key))
        size = width
    return Trunk(encoder, tuple(layers)), size


def make_q_network(spec: Spec, hidden: tuple[int, ...], key: PRNGKey) -> QNetwork:
    """One output an action."""
    trunk_key, head_key = jax.random.split(key)
    trunk, size = make_trunk(spec, hidden, trunk_key)
    return QNetwork(trunk, make_linear(size, action_count(spec), head_key))


def make_quantile_network(
    spec: Spec,
    hidden: tuple[int, ...],
    quantiles: int,
    key: PRNGKey,
    *,
    scale_images: bool = True,
) -> QuantileNetwork:
    """K outputs an action; arguments as `make_trunk` has them."""
    trunk_key, head_key = jax.random.split(key)
    trunk, size = make_trunk(spec, hidden, trunk_key, scale_images=scale_images)
    head = make_linear(size, action_count(spec) * quantiles, head_key)
    return QuantileNetwork(trunk, head, quantiles)


def make_categorical_actor(
    spec: Spec, hidden: tuple[int, ...], key: PRNGKey, *, scale_images: bool = True
) -> CategoricalActor:
    """One logit an action; arguments as `make_trunk` has them."""
    trunk_key, head_key = jax.random.split(key)
    trunk, size = make_trunk(spec, hidden, trunk_key, scale_images=scale_images)
    return CategoricalActor(trunk, make_linear(size, action_count(spec), head_key))


def make_state_value(spec: Spec, hidden: tuple[int, ...], key: PRNGKey) -> StateValue:
    """One output."""
    trunk_key, head_key = jax.random.split(key)
    trunk, size = make_trunk(spec, hidden, trunk_key)
    return StateValue(trunk, make_linear(size, 1, head_key))


def make_two_heads(
    spec: Spec,
    hidden: tuple[int, ...],
    head_hidden: tuple[int, ...],
    key: PRNGKey,
    *,
    scale_images: bool = True,
) -> TwoHeads:
    """Two heads with hidden layers of their own, if any, on one trunk, as `make_trunk` makes it."""
    trunk_key, q_key, policy_key = jax.random.split(key, 3)
    trunk, size = make_trunk(spec, hidden, trunk_key, scale_images=scale_images)
    sizes = (size, *head_hidden, action_count(spec))
    return TwoHeads(trunk, make_mlp(sizes, q_key), make_mlp(sizes, policy_key))
