"""Environments: made from a Gymnasium id or a callable, described, and compared with data.

What Gymnasium or an environment's own code raises becomes one line that says what to do.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from leeward import atari, robotics
from leeward.data import registry
from leeward.errors import LeewardError, MissingExtra, SimulationError, SpecError, did_you_mean
from leeward.types import Box, Discrete, Spec

EnvironmentSource = str | Callable[..., gymnasium.Env]
"""A Gymnasium id ("Hopper-v4", "my_package:MyEnv-v0"), or a callable that makes an environment.

Arguments may stand behind an id, as JSON: 'CartPole-v1?{"sutton_barto_reward": true}'.

A callable is also how an environment is changed for evaluation: it may return a wrapped one, such
as one whose first state or actions are disturbed. All that is random in it should come from the
`np_random` that `reset(seed=…)` sets.
"""


class EnvironmentSpec(NamedTuple):
    """What is known of an environment without stepping it."""

    id: str
    """Its Gymnasium id as given, or "module:callable"; a colon means code of the user's own."""
    observation_shape: tuple[int, ...]
    observation_dtype: str
    action: Box | Discrete
    max_episode_steps: int | None
    """The step limit, or None where the environment declares none."""


class _Plugin(NamedTuple):
    """A package that registers environments when it is imported."""

    pattern: re.Pattern[str]
    module: str
    package: str
    extra: str


_PLUGINS = (
    _Plugin(re.compile(r"^ALE/|(NoFrameskip|Deterministic)-v\d+$"), "ale_py", "ale-py", "atari"),
    _Plugin(
        re.compile(
            r"^(gymnasium_robotics:"
            r"|PointMaze|AntMaze|Adroit|FrankaKitchen|Fetch|HandReach|HandManipulate)"
        ),
        "gymnasium_robotics",
        "gymnasium-robotics",
        "robotics",
    ),
)
_ID = re.compile(r"^(?:ALE/)?(?P<task>.+?)(?:NoFrameskip|Deterministic)?(?:-v\d+)?$")
_KINDS = {
    "Dict": "dictionary",
    "Tuple": "tuple",
    "MultiDiscrete": "multi-discrete",
    "MultiBinary": "multi-binary",
    "Discrete": "integer",
}


def make_environment(
    env: EnvironmentSource, *, render_mode: str | None = None
) -> gymnasium.Env[Any, Any]:
    """The environment with that id, or the one that the callable returns.

    Args:
        env: an id or a callable. A callable gets `render_mode` where it takes such an argument.
        render_mode: "human", "rgb_array" or None, as Gymnasium defines them.

    Raises:
        SimulationError: an unknown id, or an environment that fails while it is made.
        MissingExtra: the package that holds the environment is not installed.
    """
    if isinstance(env, str):
        return _make_by_id(env, render_mode)
    arguments = _render_argument(render_mode) if _accepts_render_mode(env) else {}
    name = environment_id(env)
    try:
        with _without_version_warnings():
            made = env(**arguments)
    except Exception as error:  # the user's own code may raise anything
        raise SimulationError(f"environment {name} cannot be made: {_reason(error)}") from error
    if not isinstance(made, gymnasium.Env):
        raise SimulationError(
            f"environment {name} cannot be made: the callable returned "
            f"{type(made).__name__}, not a gymnasium.Env"
        )
    return made


def environment_id(env: EnvironmentSource) -> str:
    """The id itself, or "module:name" of a callable."""
    if isinstance(env, str):
        return env
    return f"{env.__module__}:{getattr(env, '__qualname__', type(env).__qualname__)}"


def environment_spec(env: EnvironmentSource) -> EnvironmentSpec:
    """Makes the environment, describes it and closes it again.

    Raises:
        SpecError: its observations are no single array, or its actions neither one bounded Box
            with one axis nor one Discrete space.
        SimulationError, MissingExtra: as `make_environment`.
    """
    made = make_environment(env)
    try:
        return describe(made, environment_id(env))
    finally:
        made.close()


def describe(made: gymnasium.Env[Any, Any], name: str) -> EnvironmentSpec:
    """What is known of an environment that was made; `name` is how errors call it.

    Raises:
        SpecError: as `environment_spec`.
    """
    observation = made.observation_space
    if not isinstance(observation, gymnasium.spaces.Box):
        raise SpecError(
            f"environment {name} has {_kind(observation)} observations, and Leeward learns from "
            "one array of numbers: wrap it in gymnasium.wrappers.FlattenObservation"
        )
    return EnvironmentSpec(
        id=name,
        observation_shape=observation.shape,
        observation_dtype=str(observation.dtype),
        action=_action_space(made.action_space, name),
        max_episode_steps=None if made.spec is None else made.spec.max_episode_steps,
    )


def with_sticky_actions(env: str) -> str:
    """The same Atari game with sticky actions, as RL Unplugged's policies are evaluated: ALE/…-v5.

    Raises:
        SimulationError: no Atari game.
        MissingExtra: the games are not installed.
    """
    _import_plugin(env)
    sticky = atari.sticky_id(env)
    if sticky is None:
        raise SimulationError(f"only Atari games have sticky actions, and {env} is none")
    return sticky


def check_matches(spec: Spec, metadata: Mapping[str, Any], environment: EnvironmentSpec) -> None:
    """Checks that data (or a policy) and an environment belong together.

    Where `metadata` names an environment (`env`), it must be the same task, in any version; an
    environment of the user's own (an id with a module, or a callable) needs only matching shapes.

    Raises:
        SpecError: another environment, or shapes, types or action sizes that differ.
    """
    name = str(metadata.get("name", "the data"))
    recorded = metadata.get("env")
    own = ":" in environment.id.partition("?")[0]
    if recorded is not None and not own and _task(str(recorded)) != _task(environment.id):
        raise SpecError(
            f"{name} was recorded in {recorded}, not in {environment.id}: use --env {recorded}, "
            "or leave --env out"
        )
    difference = _difference(spec, environment)
    if difference is not None:
        remedy = "use the environment that it comes from"
        raise SpecError(
            f"{name} does not match environment {environment.id}: {difference}: {remedy}"
        )


def _difference(spec: Spec, environment: EnvironmentSpec) -> str | None:
    """The first thing that differs, or None."""
    if spec.observation_shape != environment.observation_shape:
        return (
            f"observations have shape {spec.observation_shape}, the environment's "
            f"{environment.observation_shape}"
        )
    if (spec.observation_dtype == "uint8") != (environment.observation_dtype == "uint8"):
        return (
            f"observations are {spec.observation_dtype}, the environment's "
            f"{environment.observation_dtype}"
        )
    action, other = spec.action, environment.action
    if type(action) is not type(other) or action.size != other.size:
        return f"it has {_actions(action)}, the environment {_actions(other)}"
    return None


def _actions(space: Box | Discrete) -> str:
    if isinstance(space, Discrete):
        return f"{space.size} discrete actions"
    return f"continuous actions of size {space.size}"


def _task(name: str) -> str:
    """An id without module, version and Atari's variants, to compare tasks."""
    name = name.partition("?")[0]
    match = _ID.match(name.rpartition(":")[2])
    return (match["task"] if match else name).lower()


def _action_space(space: gymnasium.Space[Any], name: str) -> Box | Discrete:
    if isinstance(space, gymnasium.spaces.Discrete):
        if space.start != 0:
            raise SpecError(
                f"environment {name} numbers its actions from {space.start}: wrap it in "
                "gymnasium.wrappers.TransformAction so that they count from 0"
            )
        return Discrete(int(space.n))
    if not isinstance(space, gymnasium.spaces.Box) or space.dtype.kind != "f":
        kind = "integer box" if isinstance(space, gymnasium.spaces.Box) else _kind(space)
        raise SpecError(
            f"environment {name} has {kind} actions, and Leeward needs one Box of real numbers or "
            "one Discrete space: wrap it in gymnasium.wrappers.TransformAction"
        )
    if len(space.shape) != 1:
        raise SpecError(
            f"environment {name} has actions of shape {space.shape}, and Leeward needs one axis: "
            "wrap it in gymnasium.wrappers.TransformAction"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise SpecError(
            f"environment {name} has actions without bounds: wrap it in "
            "gymnasium.wrappers.TransformAction to give them finite ones"
        )
    return Box(tuple(map(float, space.low)), tuple(map(float, space.high)))


def _kind(space: gymnasium.Space[Any]) -> str:
    name = type(space).__name__
    return _KINDS.get(name, name.lower())


def split_arguments(name: str) -> tuple[str, dict[str, Any]]:
    """(id, arguments) of an environment that is named with those it is made with.

    Raises:
        SimulationError: what stands behind the id is no JSON object.
    """
    identity, mark, text = name.partition("?")
    if not mark:
        return name, {}
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise SimulationError(
            f"environment {name}: behind '?' there must be arguments as one JSON object, such as "
            '{"frame_skip": 2}'
        )
    return identity, arguments


def _make_by_id(name: str, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    name, arguments = split_arguments(name)
    module = name.rpartition(":")[0]
    _import_plugin(name)
    try:
        if module:
            importlib.import_module(module)
    except Exception as error:  # importing the user's own code may raise anything
        raise SimulationError(
            f"environment {name} cannot be made: importing the module '{module}' failed "
            f"({_reason(error)})"
        ) from error
    try:
        game = atari.find_game(name)
        if game is not None and not arguments:
            return atari.AtariGame(game, render_mode)
        with _without_version_warnings():
            # Shapes and numbers are checked where episodes run, at less cost in every step.
            arguments |= _render_argument(render_mode)
            return gymnasium.make(name, disable_env_checker=True, **arguments)
    except LeewardError:
        raise
    except Exception as error:  # an environment's own code may raise anything
        registered = name.rpartition(":")[2]
        if registered not in gymnasium.registry:
            place = f"the module '{module}' registers no" if module else "unknown environment"
            raise SimulationError(f"{place} '{registered}'.{_advice(registered)}") from error
        if registered not in _available():
            raise SimulationError(
                f"environment {name} is no longer part of Gymnasium.{_advice(registered)}"
            ) from error
        raise SimulationError(f"environment {name} cannot be made: {_reason(error)}") from error


def _import_plugin(name: str) -> None:
    """Imports the package that registers an environment, if it is one that we know of.

    Raises:
        MissingExtra: it is not installed.
    """
    for plugin in _PLUGINS:
        if plugin.pattern.search(name) and name not in gymnasium.registry:
            try:
                importlib.import_module(plugin.module)
            except ImportError as error:
                purpose = f"environment {name}"
                raise MissingExtra(plugin.package, plugin.extra, purpose) from error
    if name.startswith(robotics.PREFIX):
        robotics.require(f"environment {name}")
        robotics.register()


def _available() -> list[str]:
    """Ids that can be made.

    Gymnasium keeps dropped ones as entries that only raise; gymnasium-robotics puts others there,
    which need mujoco-py.
    """
    dropped = re.compile(r"^(_raise_|gymnasium_robotics\.envs\.mujoco\.)")
    return [
        name
        for name, entry in gymnasium.registry.items()
        if not dropped.match(str(getattr(entry.entry_point, "__name__", entry.entry_point)))
    ]


def _advice(name: str) -> str:
    """' Did you mean …?', or the environment of the data set that the name belongs to."""
    entry = registry.find(name)
    if entry is not None and entry.env is not None:
        return f" That is a data set; its environment is {entry.env}"
    options = _available()
    if not _PLUGINS[0].pattern.search(name):  # else Hopper would be taken for the game Gopher
        atari_module = _PLUGINS[0].module
        options = [
            n
            for n in options
            if not str(gymnasium.registry[n].entry_point).startswith(atari_module)
        ]
    return did_you_mean(name, sorted(options, reverse=True)) or (
        " Environments: leeward list environments"
    )


def _render_argument(render_mode: str | None) -> dict[str, Any]:
    """Nothing where no mode is asked for: an environment need not know the argument."""
    return {} if render_mode is None else {"render_mode": render_mode}


def _accepts_render_mode(env: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(env).parameters.values()
    except (TypeError, ValueError):  # callables written in C have no signature
        return False
    return any(p.name == "render_mode" or p.kind is p.VAR_KEYWORD for p in parameters)


@contextmanager
def _without_version_warnings() -> Iterator[None]:
    """Hides Gymnasium's advice to use -v5: D4RL's data are nearest to -v4, so we mean -v4."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*The environment .* is out of date", category=DeprecationWarning
        )
        yield


def _reason(error: BaseException) -> str:
    """The first line of an error, with its type where the text says little."""
    text = str(error).strip()
    first = text.splitlines()[0] if text else ""
    if isinstance(error, gymnasium.error.Error):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
