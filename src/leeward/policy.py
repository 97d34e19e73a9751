"""Policies outside of training: N trained runs that act side by side, or one of them alone.

NumPy goes in and out, in the environment's units; the observation and action maps of training
(`Scaling`) travel along. Batches are padded to a few sizes, so nothing compiles again for each one.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import platform
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from leeward import acting, config, policy_folder
from leeward.algorithms import get_algorithm
from leeward.data.sampling import Scaling
from leeward.errors import CheckpointError, ConfigError, SpecError
from leeward.run import favored_runs
from leeward.types import Algorithm, Box, Discrete, Spec


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
    """The data set's `name`, `hash` and `ranges` (of vectors, every number's least and largest
    values); `observation_names`, `action_names` and `reward_transform` where there were any."""
    favored: tuple[int, ...] = ()
    """Indices of the runs with the settings that held-out episodes favor; none if not known."""

    def act(self, observation: np.ndarray) -> np.ndarray:
        """Deterministic actions: [N, E, *obs] → [N, E, A] inside the box, or [N, E] integers."""
        action = acting.act_side_by_side(
            self.algorithm.act, self.spec, self.policies, self.scaling, observation
        )
        return np.array(action)  # a copy that may be written to

    def actor(self, episodes: int) -> Callable[[np.ndarray], np.ndarray]:
        """`act` for many calls with observations [N, episodes, *obs]; equal up to rounding."""
        shape = (len(self.runs), episodes, *self.spec.observation_shape)
        return acting.actor(self.algorithm.act, self.spec, self.policies, self.scaling, shape)

    def select(self, seed: int | None = None, run: int | None = None) -> Policy:
        """One run's policy: the one at index `run`, else the one with that seed, else the first.

        Of runs with different settings it is one with those that held-out episodes favor.

        Raises:
            CheckpointError: no such run, or several whose settings differ (a sweep) and none of
                them favored, so that only `run` tells them apart.
        """
        index = self._index(seed, run)
        of_several = len({tuple(trained.settings.items()) for trained in self.runs}) > 1
        chosen = run is None and of_several and index in self.favored
        return Policy(
            algorithm=self.algorithm,
            config=_config_of_run(self.config, index),
            spec=self.spec,
            scaling=self.scaling,
            policy=jax.tree.map(lambda leaf: leaf[index], self.policies),
            run=self.runs[index],
            env=self.env,
            data=self.data,
            note=f"run {index}: held-out episodes favor {_settings(self.runs[index])}"
            if chosen
            else "",
        )

    def _index(self, seed: int | None, run: int | None) -> int:
        if run is not None:
            if not 0 <= run < len(self.runs):
                raise CheckpointError(f"there is no run {run}: runs are 0 to {len(self.runs) - 1}")
            return run
        found = [i for i, trained in enumerate(self.runs) if seed in (None, trained.seed)]
        if not found:
            seeds = ", ".join(str(s) for s in sorted({trained.seed for trained in self.runs}))
            raise CheckpointError(f"there is no run with seed {seed}: seeds are {seeds}")
        first: dict[tuple[tuple[str, float], ...], int] = {}  # run with each of the settings
        for i in found:
            first.setdefault(tuple(self.runs[i].settings.items()), i)
        if len(first) > 1:
            found = [i for i in found if i in self.favored]
        if found:
            return found[0]
        which = "the settings differ" if seed is None else f"{len(first)} runs have seed {seed}"
        choices = "; ".join(f"run {i}: {_settings(self.runs[i])}" for i in first.values())
        raise CheckpointError(f"{which}, choose one ({choices})")


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
    note: str = ""
    """Why it is this of several runs with different settings, where it was not asked for."""

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """The deterministic action, in the environment's units and inside its box.

        Args:
            observation: [..., *obs], as the environment gives it, with any leading axes.

        Returns:
            [..., A] float32, or [...] int32 for discrete actions.

        Raises:
            SpecError: observations of another shape, or that are not numbers.
        """
        flat, leading = flat_observation(self.spec, observation)
        call = partial(acting.act, self.algorithm.act, self.spec, self.policy, self.scaling)
        action = acting.in_pieces(call, flat)
        if action.dtype.kind == "f" and not np.isfinite(action).all():
            raise SpecError(_not_finite(flat, action))
        return action.reshape((*leading, *action.shape[1:]))

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
        flat, leading = flat_observation(self.spec, observation)
        action = np.asarray(action)
        size = (self.spec.action.size,) if isinstance(self.spec.action, Box) else ()
        if action.shape != (*leading, *size):
            raise SpecError(
                f"actions have shape {action.shape}, observations ask for {(*leading, *size)}"
            )
        action = action.astype(np.float32 if size else np.int32).reshape((len(flat), *size))
        call = partial(acting.log_prob, self.spec, self.policy, self.scaling)
        return acting.in_pieces(call, flat, action).reshape(leading)

    @cached_property
    def has_density(self) -> bool:
        """Whether `log_prob` exists: the policy is a distribution of actions."""
        return acting.has_density(self.spec, self.policy)

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


def flat_observation(spec: Spec, observation: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """Observations [B, *obs] in the type that policies take, and the leading axes they had.

    Raises:
        SpecError: another shape, or floats where bytes are meant, or bytes for floats.
    """
    observation = np.asarray(observation)
    shape = spec.observation_shape
    leading = observation.shape[: observation.ndim - len(shape)]
    if observation.shape[len(leading) :] != shape:
        raise SpecError(
            f"the policy expects observations of shape {shape} with any leading axes, "
            f"got {observation.shape}"
        )
    image = spec.observation_dtype == "uint8"
    if image != (observation.dtype == np.uint8):
        raise SpecError(
            f"the policy expects {spec.observation_dtype} observations, got {observation.dtype}"
        )
    flat = observation.reshape(-1, *shape)
    return flat if image else flat.astype(np.float32), leading


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


def save_policy(folder: str | Path, policies: PolicyStack | Policy) -> None:
    """Writes policies as a folder that loads without the data; an older one is replaced at once.

    Raises:
        CheckpointError: the folder holds something else, or cannot be written.
        DiskError: the disk is full or fails.
    """
    stack = policies.stack() if isinstance(policies, Policy) else policies
    description = {
        "algorithm": stack.algorithm.name,
        "config": _config_json(stack.config),
        "spec": _spec_json(stack.spec),
        "runs": [_run_json(run) for run in stack.runs],
        "env": stack.env,
        "data": dict(stack.data),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("leeward", "jax", "numpy")},
        },
    }
    arrays = jax.device_get({"policy": stack.policies, "scaling": stack.scaling})
    policy_folder.write(Path(folder), description, _by_path(arrays))


def load_policy(
    path: str | Path,
    seed: int | None = None,
    checkpoint: str | int | None = None,
    *,
    run: int | None = None,
) -> Policy:
    """One trained policy, without its data.

    Args:
        path: a run directory, or the folder of a saved policy.
        seed: the run's seed; default the first run. Where settings differ it is that of the runs
            that held-out episodes favor, if some were held out (`Policy.note` says so).
        checkpoint: as `load_policies`.
        run: the run's index, where several with different settings were trained together.

    Raises:
        CheckpointError: nothing there, damaged, newer than this version reads, no such run, or
            several with different settings of which none is favored.
    """
    return load_policies(path, checkpoint).select(seed, run)


def load_policies(path: str | Path, checkpoint: str | int | None = None) -> PolicyStack:
    """The policies of all runs of a run directory, or of the folder of a saved policy.

    Args:
        path: a run directory or a policy's folder.
        checkpoint: of a run directory: "best" (by the evaluations of training), "last", or a
            checkpoint's step; default the best where the run was evaluated, else the last.

    Raises:
        CheckpointError: nothing there, damaged, or newer than this version reads.
    """
    folder = policy_folder.find(Path(path), None if checkpoint is None else str(checkpoint))
    favored = favored_runs(Path(path))
    description, archive = policy_folder.read(folder)
    try:
        algorithm = get_algorithm(description["algorithm"])
        values = config.from_json(algorithm.config_type, description["config"])
        spec = _spec_from_json(description["spec"])
        runs = tuple(TrainedRun(**run) for run in description["runs"])
        env, data = description["env"], description["data"]
        if not runs:
            raise ValueError("no runs")
    except ConfigError as error:
        raise CheckpointError(
            f"{folder}: this version of leeward cannot read it: {error}"
        ) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / policy_folder.DESCRIPTION} is damaged") from error
    like = _shapes(algorithm, values, spec, len(runs))
    shapes = {name: (leaf.shape, leaf.dtype) for name, leaf in _by_path(like).items()}
    arrays = policy_folder.unpack(folder, archive, shapes)
    tree = jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(arrays[n]) for n in shapes])
    return PolicyStack(
        algorithm, values, spec, tree["scaling"], tree["policy"], runs, env, data, favored
    )


def _shapes(algorithm: Algorithm, values: Any, spec: Spec, runs: int) -> dict[str, Any]:
    """The shapes and types of everything in the archive."""

    def build(key: Any) -> dict[str, Any]:
        policy = algorithm.policy(algorithm.init(_config_of_run(values, 0), spec, key))
        size = spec.action.size if isinstance(spec.action, Box) else 1
        observation = jnp.zeros(spec.observation_shape)
        scaling = Scaling(observation, observation, jnp.zeros(size), jnp.zeros(size))
        stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (runs, *leaf.shape)), policy)
        return {"policy": stacked, "scaling": scaling}

    return jax.eval_shape(build, jax.random.key(0))


def _by_path(tree: Any) -> dict[str, Any]:
    """The leaves by their path as text, such as "policy/mlp/layers/0/weight"."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(p, simple=True, separator="/"): leaf for p, leaf in leaves}


def _config_json(values: Any) -> dict[str, Any]:
    """The config as JSON; arrays of floats with as many digits as they have."""
    result = config.to_json(values)
    for name in config.float_fields(type(values)):
        if isinstance(result[name], list):
            result[name] = [float(str(np.float32(value))) for value in result[name]]
    return result


def _spec_json(spec: Spec) -> dict[str, Any]:
    action = spec.action
    return {
        "observation_shape": list(spec.observation_shape),
        "observation_dtype": spec.observation_dtype,
        "action": {"low": list(action.low), "high": list(action.high)}
        if isinstance(action, Box)
        else {"count": action.size},
    }


def _spec_from_json(values: Mapping[str, Any]) -> Spec:
    action = values["action"]
    return Spec(
        tuple(map(int, values["observation_shape"])),
        str(values["observation_dtype"]),
        Discrete(int(action["count"]))
        if "count" in action
        else Box(tuple(map(float, action["low"])), tuple(map(float, action["high"]))),
    )


def _run_json(run: TrainedRun) -> dict[str, Any]:
    def finite(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else float(value)

    return {
        "seed": int(run.seed),
        "settings": dict(run.settings),
        "step": int(run.step),
        "return_mean": finite(run.return_mean),
        "score_mean": finite(run.score_mean),
    }
