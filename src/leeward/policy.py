"""Policies outside of training: N trained runs that act side by side, or one of them alone.

NumPy goes in and out, in the environment's units; the observation and action maps of training
(`Scaling`) travel along. Batches are padded to a few sizes, so nothing compiles again for each one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from leeward.data.sampling import Scaling
from leeward.errors import CheckpointError, SpecError
from leeward.nn.distributions import Categorical, TanhMixture, TanhNormal
from leeward.types import ActFn, Algorithm, Box, Spec

LARGEST_BATCH = 1024
"""Observations in one call of the program; more are served in pieces (ours: bounds memory)."""
Densities = TanhNormal | TanhMixture | Categorical


class TrainedRun(NamedTuple):
    """Where one of the N policies comes from."""

    seed: int
    settings: Mapping[str, float]
    """The values of swept settings."""
    step: int
    """Updates in the last phase."""
    return_mean: float | None = None
    """Mean return of the evaluation at this step, None where there was none."""
    score_mean: float | None = None
    """The same, normalized (0 random, 100 expert), None where no reference is known."""


@dataclasses.dataclass(frozen=True)
class PolicyStack:
    """The policies of N runs of one training, side by side."""

    algorithm: Algorithm
    config: Any
    """Its float fields hold one value, or one value a run."""
    spec: Spec
    scaling: Scaling
    policies: Any
    """`algorithm.policy` of every run: a pytree whose leaves have a leading axis N."""
    runs: tuple[TrainedRun, ...]
    env: str | None = None
    """The environment's id, where there was one."""
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The data set's `name` and `hash`."""

    def act(self, observation: np.ndarray) -> np.ndarray:
        """Deterministic actions: [N, E, *obs] → [N, E, A] inside the box, or [N, E] integers."""
        action = _act_side_by_side(
            self.algorithm.act, self.spec, self.policies, self.scaling, observation
        )
        return np.array(action)  # a copy that may be written to

    def select(self, seed: int | None = None, run: int | None = None) -> Policy:
        """One run's policy: the one at index `run`, else the one with that seed, else the first.

        Raises:
            CheckpointError: no such run, or several with that seed (a sweep), so that only `run`
                tells them apart.
        """
        index = self._index(seed, run)
        return Policy(
            algorithm=self.algorithm,
            config=_config_of_run(self.config, index),
            spec=self.spec,
            scaling=self.scaling,
            policy=jax.tree.map(lambda leaf: leaf[index], self.policies),
            run=self.runs[index],
            env=self.env,
            data=self.data,
        )

    def _index(self, seed: int | None, run: int | None) -> int:
        if run is not None:
            if not 0 <= run < len(self.runs):
                raise CheckpointError(f"there is no run {run}: runs are 0 to {len(self.runs) - 1}")
            return run
        if seed is None:
            return 0
        found = [i for i, trained in enumerate(self.runs) if trained.seed == seed]
        if not found:
            seeds = ", ".join(str(s) for s in sorted({trained.seed for trained in self.runs}))
            raise CheckpointError(f"there is no run with seed {seed}: seeds are {seeds}")
        if len(found) > 1:
            choices = "; ".join(f"run {i}: {_settings(self.runs[i])}" for i in found)
            raise CheckpointError(f"{len(found)} runs have seed {seed}, choose one ({choices})")
        return found[0]


@dataclasses.dataclass(frozen=True)
class Policy:
    """One trained policy: `policy(observation)` gives the action.

    Example:
        >>> policy = leeward.load_policy("runs/hopper", seed=0)  # doctest: +SKIP
        >>> action = policy(observation)  # doctest: +SKIP
    """

    algorithm: Algorithm
    config: Any
    spec: Spec
    scaling: Scaling
    policy: Any
    """`algorithm.policy` of the run."""
    run: TrainedRun
    env: str | None = None
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """The deterministic action, in the environment's units and inside its box.

        Args:
            observation: [..., *obs], as the environment gives it, with any leading axes.

        Returns:
            [..., A] float32, or [...] int32 for discrete actions.

        Raises:
            SpecError: observations of another shape, or that are not numbers.
        """
        flat, leading = self._flat(observation)
        call = partial(_act, self.algorithm.act, self.spec, self.policy, self.scaling)
        action = _in_pieces(call, flat)
        if action.dtype.kind == "f" and not np.isfinite(action).all():
            raise SpecError(_not_finite(flat, action))
        return action.reshape(*leading, *action.shape[1:])

    def log_prob(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """The log-density of actions in the environment's units (log-probability if discrete).

        It is the density of the scaled action less Σ log(scale), the change of units.

        Args:
            observation: [..., *obs].
            action: [..., A] in the environment's units, or [...] integers; same leading axes.

        Returns:
            [...] float32.

        Raises:
            SpecError: the policy has no density (`has_density`), or shapes do not fit.
        """
        if not self.has_density:
            raise SpecError(f"a policy of {self.algorithm.name} with these settings has no density")
        flat, leading = self._flat(observation)
        action = np.asarray(action)
        size = (self.spec.action.size,) if isinstance(self.spec.action, Box) else ()
        if action.shape != (*leading, *size):
            raise SpecError(
                f"actions have shape {action.shape}, observations ask for {(*leading, *size)}"
            )
        action = action.astype(np.float32 if size else np.int32).reshape(len(flat), *size)
        call = partial(_log_prob, self.spec, self.policy, self.scaling)
        return _in_pieces(call, flat, action).reshape(leading)

    @property
    def has_density(self) -> bool:
        """Whether `log_prob` exists: the policy is a distribution of actions."""
        if not callable(self.policy):
            return False
        shape = (1, *self.spec.observation_shape)
        observation = jax.ShapeDtypeStruct(shape, jnp.dtype(self.spec.observation_dtype))
        output = jax.eval_shape(lambda policy, o: policy(o), self.policy, observation)
        return isinstance(output, Densities)

    def stack(self) -> PolicyStack:
        """The same policy as a stack of one."""
        return PolicyStack(
            algorithm=self.algorithm,
            config=self.config,
            spec=self.spec,
            scaling=self.scaling,
            policies=jax.tree.map(lambda leaf: leaf[None], self.policy),
            runs=(self.run,),
            env=self.env,
            data=self.data,
        )

    def _flat(self, observation: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
        """Observations [B, *obs] in the stored type, and the leading axes they had."""
        observation = np.asarray(observation)
        shape = self.spec.observation_shape
        leading = observation.shape[: observation.ndim - len(shape)]
        if observation.shape[len(leading) :] != shape:
            raise SpecError(
                f"the policy expects observations of shape {shape} with any leading axes, "
                f"got {observation.shape}"
            )
        image = self.spec.observation_dtype == "uint8"
        if image != (observation.dtype == np.uint8):
            raise SpecError(
                f"the policy expects {self.spec.observation_dtype} observations, "
                f"got {observation.dtype}"
            )
        flat = observation.reshape(-1, *shape)
        return flat if image else flat.astype(np.float32), leading


@partial(jax.jit, static_argnums=(0, 1))
def _act(
    act: ActFn, spec: Spec, policy: Any, scaling: Scaling, observation: Shaped[Array, "B *obs"]
) -> Array:
    """The action in the environment's units, clipped to the box: rounding may leave it."""
    action = act(policy, scaling.normalize(observation), jax.random.key(0))
    action = scaling.to_environment(action)
    if isinstance(spec.action, Box):
        low, high = jnp.asarray(spec.action.low), jnp.asarray(spec.action.high)
        low, high = (jnp.broadcast_to(bound, action.shape) for bound in (low, high))
        return jnp.clip(action, low, high)
    return action


@partial(jax.jit, static_argnums=(0, 1))
def _act_side_by_side(
    act: ActFn, spec: Spec, policies: Any, scaling: Scaling, observation: Shaped[Array, "N E *obs"]
) -> Array:
    return jax.vmap(lambda policy, o: _act(act, spec, policy, scaling, o))(policies, observation)


@partial(jax.jit, static_argnums=0)
def _log_prob(
    spec: Spec,
    policy: Any,
    scaling: Scaling,
    observation: Shaped[Array, "B *obs"],
    action: Shaped[Array, "B *act"],
) -> Float[Array, " B"]:
    log_prob = policy(scaling.normalize(observation)).log_prob(scaling.to_network(action))
    if isinstance(spec.action, Box):
        return log_prob - jnp.log(scaling.action_scale).sum()
    return log_prob


def _in_pieces(call: Callable[..., Array], *inputs: np.ndarray) -> np.ndarray:
    """`call` on pieces of the inputs, each padded to a power of two by repeating its last row."""
    count = len(inputs[0])
    if count == 0:
        padded = [np.zeros((1, *array.shape[1:]), array.dtype) for array in inputs]
        return np.array(call(*padded))[:0]
    results = []
    for begin in range(0, count, LARGEST_BATCH):
        piece = [array[begin : begin + LARGEST_BATCH] for array in inputs]
        size = len(piece[0])
        missing = (1 << (size - 1).bit_length()) - size
        piece = [np.concatenate([p, np.repeat(p[-1:], missing, axis=0)]) for p in piece]
        results.append(np.asarray(call(*piece))[:size])
    return np.concatenate(results)


def _not_finite(observation: np.ndarray, action: np.ndarray) -> str:
    row = int(np.flatnonzero(~np.isfinite(action).all(axis=-1))[0])
    if not np.isfinite(observation[row]).all():
        return f"observation {row} holds a value that is not a finite number"
    return f"the policy gives no finite action for observation {row}: its training diverged"


def _settings(run: TrainedRun) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in run.settings.items()) or "no settings"


def _config_of_run(config: Any, index: int) -> Any:
    """The config with its float fields' values of one run."""
    values = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, list) or getattr(value, "ndim", 0) == 1:
            values[field.name] = float(value[index])
    return dataclasses.replace(config, **values)
