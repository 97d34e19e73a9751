"""`Target`: a policy to evaluate, by what it does at every observation of the data."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from leeward import acting
from leeward.data.dataset import Dataset
from leeward.data.sampling import Scaling
from leeward.errors import SpecError
from leeward.ope.observations import by_pieces, next_observed, observed
from leeward.policy import Policy, flat_observation
from leeward.types import Box, Discrete, Spec

SAMPLES = 8
"""Actions drawn of a saved policy at every observation (ours: means of them enter the fits)."""


@dataclasses.dataclass(frozen=True)
class Target:
    """What a policy does at each of R rows and T next observations. Any policy can be one."""

    name: str
    choice: np.ndarray
    """[R, A] actions in the environment's units, or [R, C] probabilities of discrete actions; of a
    stochastic policy over continuous actions [R, M, A], M actions drawn at every row."""
    next_choice: np.ndarray | None = None
    """[T, …] the same at next observations that are stored apart; None where they are rows."""
    log_density: np.ndarray | None = None
    """[R] log-density of the data's own actions under a stochastic policy, in the environment's
    units; the data's rows that are no steps may hold anything."""

    @staticmethod
    def of_policy(
        name: str, policy: Policy, dataset: Dataset, *, stochastic: bool = False
    ) -> Target:
        """What a saved policy does: its deterministic actions, which are what evaluation runs.

        Args:
            name: what it is called.
            policy: the policy.
            dataset: the data.
            stochastic: the policy as it samples its actions instead.

        Raises:
            SpecError: the policy was made for other observations or actions, diverged, or is to
                sample and has no density.
        """
        check_fits(name, policy.spec, dataset)
        if not weights_are_finite(policy.policy):
            raise SpecError(
                f"{name} has weights that are not finite numbers: its training diverged"
            )
        if stochastic and not policy.has_density:
            raise SpecError(f"{name} has no density, so it cannot be valued as it samples")
        act = _sampled if stochastic else _chosen
        rows = np.arange(len(dataset.reward))
        choice = by_pieces(lambda row: act(policy, observed(dataset, row), row), rows)
        following = density = None
        if dataset.next_observation is not None:
            number = np.arange(dataset.transitions)
            following = by_pieces(lambda i: act(policy, next_observed(dataset, i), i), number)
        if stochastic and isinstance(dataset.action_space, Box):
            density = by_pieces(
                lambda row: policy.log_prob(observed(dataset, row), dataset.action[row]), rows
            )
        return Target(name, choice, following, density)

    def check(self, dataset: Dataset) -> None:
        """Raises SpecError where the arrays do not fit the data."""
        space = dataset.action_space
        size = self.choice.shape[1:] if self._samples(dataset) else (space.size,)
        apart = dataset.next_observation
        wanted = (len(dataset.observation), *size)
        next_wanted = None if apart is None else (len(apart), *size)
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
        self._check_density(dataset)

    def _samples(self, dataset: Dataset) -> bool:
        """Whether the choices are several actions a row."""
        continuous = isinstance(dataset.action_space, Box)
        several = self.choice.ndim == 3 and self.choice.shape[1] > 0
        return continuous and several and self.choice.shape[2] == dataset.action_space.size

    def _check_density(self, dataset: Dataset) -> None:
        if self._samples(dataset) != (self.log_density is not None):
            raise SpecError(
                f"{self.name}: several actions a row and the log-density of the data's actions go "
                "together: give both for a stochastic policy over continuous actions, else none"
            )
        density = self.log_density
        if density is None:
            return
        rows = dataset.reward.shape
        if density.shape != rows or np.isnan(density[dataset.start]).any():
            raise SpecError(
                f"{self.name}: log-densities must be {rows[0]} numbers, one a row, got shape "
                f"{density.shape}" + (" with NaN" if density.shape == rows else "")
            )


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


def _chosen(policy: Policy, observation: np.ndarray, number: np.ndarray) -> np.ndarray:
    """[M, A] the deterministic actions, or [M, C] probability 1 for each of discrete ones."""
    del number
    action = policy(observation)
    if isinstance(policy.spec.action, Discrete):
        return np.eye(policy.spec.action.size, dtype=np.float32)[action]
    return action


def _sampled(policy: Policy, observation: np.ndarray, number: np.ndarray) -> np.ndarray:
    """[M, SAMPLES, A] actions drawn at each, or [M, C] probabilities of discrete ones."""
    if isinstance(policy.spec.action, Box):
        flat, _ = flat_observation(policy.spec, observation)
        draw = partial(acting.sample, policy.spec, SAMPLES, policy.policy, policy.scaling)
        return acting.in_pieces(draw, flat, number.astype(np.int32))
    each = [
        policy.log_prob(observation, np.full(len(observation), action))
        for action in range(policy.spec.action.size)
    ]
    return np.exp(np.stack(each, axis=1))


def _said(spec: Spec) -> str:
    if isinstance(spec.action, Box):
        return f"{spec.action.size} continuous action dimensions"
    return f"{spec.action.size} discrete actions"
