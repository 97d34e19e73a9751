"""`Target`: a policy to evaluate, by what it does at every observation of the data."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.sampling import Scaling
from leeward.errors import SpecError
from leeward.ope.observations import by_pieces, next_observed, observed
from leeward.policy import Policy
from leeward.types import Box, Discrete, Spec


@dataclasses.dataclass(frozen=True)
class Target:
    """What a policy does at each of R rows and T next observations. Any policy can be one."""

    name: str
    choice: np.ndarray
    """[R, A] actions in the environment's units, or [R, C] probabilities of discrete actions."""
    next_choice: np.ndarray | None = None
    """[T, …] the same at next observations that are stored apart; None where they are rows."""

    @staticmethod
    def of_policy(name: str, policy: Policy, dataset: Dataset) -> Target:
        """The deterministic actions of a saved policy, which are what evaluation runs.

        Raises:
            SpecError: the policy was made for other observations or actions, or diverged.
        """
        check_fits(name, policy.spec, dataset)
        if not weights_are_finite(policy.policy):
            raise SpecError(
                f"{name} has weights that are not finite numbers: its training diverged"
            )
        rows = np.arange(len(dataset.reward))
        choice = by_pieces(lambda row: _choices(policy, dataset, observed(dataset, row)), rows)
        if dataset.next_observation is None:
            return Target(name, choice)
        following = by_pieces(
            lambda number: _choices(policy, dataset, next_observed(dataset, number)),
            np.arange(dataset.transitions),
        )
        return Target(name, choice, following)

    def check(self, dataset: Dataset) -> None:
        """Raises SpecError where the arrays do not fit the data."""
        space = dataset.action_space
        size = space.size
        apart = dataset.next_observation
        wanted = (len(dataset.observation), size)
        next_wanted = None if apart is None else (len(apart), size)
        found = self.choice.shape, None if self.next_choice is None else self.next_choice.shape
        if found != (wanted, next_wanted):
            raise SpecError(
                f"{self.name}: choices have shapes {found[0]} and {found[1]}, "
                f"the data ask for {wanted} and {next_wanted}"
            )
        for array in (self.choice, self.next_choice):
            if array is not None and not np.isfinite(array).all():
                raise SpecError(f"{self.name}: choices are not all finite numbers")
        if isinstance(space, Discrete) and not np.allclose(self.choice.sum(axis=1), 1.0, atol=1e-3):
            raise SpecError(f"{self.name}: probabilities of actions do not sum to 1")


def check_fits(name: str, spec: Spec, dataset: Dataset) -> None:
    """Raises SpecError where a policy of this spec cannot be asked about the data."""
    own, other = dataset.spec, spec
    same_kind = type(own.action) is type(other.action) and own.action.size == other.action.size
    if own[:2] != other[:2] or not same_kind:
        raise SpecError(
            f"{name} was made for observations {other.observation_shape} and {_said(other)}, but "
            f"{dataset.metadata.get('name', 'the data set')} has observations "
            f"{own.observation_shape} and {_said(own)}"
        )


def weights_are_finite(policy: object) -> bool:
    """Whether all weights of a policy are finite numbers."""
    return all(
        bool(jnp.isfinite(leaf).all())
        for leaf in jax.tree.leaves(policy)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    )


def in_network_units(dataset: Dataset, scaling: Scaling, choice: np.ndarray) -> np.ndarray:
    """Choices as the networks see them: actions in [−1, 1]; probabilities unchanged."""
    if isinstance(dataset.action_space, Discrete):
        return choice.astype(np.float32)
    scaled = (choice - np.asarray(scaling.action_center)) / np.asarray(scaling.action_scale)
    return np.clip(scaled, -1.0, 1.0).astype(np.float32)


def next_choices(dataset: Dataset, choice: np.ndarray, apart: np.ndarray | None) -> np.ndarray:
    """[T, …]: what is chosen at every transition's next observation."""
    if apart is not None:
        return apart
    # After a last row that has no successor nothing is bootstrapped: any row will do.
    return choice[np.minimum(dataset.start + 1, len(choice) - 1)]


def _choices(policy: Policy, dataset: Dataset, observation: np.ndarray) -> np.ndarray:
    action = policy(observation)
    if isinstance(dataset.action_space, Discrete):
        return np.eye(dataset.action_space.size, dtype=np.float32)[action]
    return action


def _said(spec: Spec) -> str:
    if isinstance(spec.action, Box):
        return f"{spec.action.size} continuous action dimensions"
    return f"{spec.action.size} discrete actions"
