"""Environments by id and by callable: what is known of them, and every error text."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import small_environments
from leeward import robotics
from leeward.data import registry
from leeward.environments import (
    EnvironmentSpec,
    check_matches,
    environment_id,
    environment_spec,
    make_environment,
)
from leeward.errors import MissingExtra, SimulationError, SpecError
from leeward.types import Box, Discrete, Spec

HOPPER = EnvironmentSpec("Hopper-v4", (11,), "float64", Box((-1.0,) * 3, (1.0,) * 3), 1000)


def error_of(call: Callable[[], object], kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def space_of(observation: spaces.Space[Any] | None, action: spaces.Space[Any] | None) -> type:
    class Made(gymnasium.Env):
        observation_space = observation or spaces.Box(-1.0, 1.0, (2,))
        action_space = action or spaces.Discrete(2)

    Made.__module__, Made.__qualname__ = "mine", "Made"
    return Made


def test_an_id_is_described() -> None:
    assert environment_spec("InvertedPendulum-v5") == EnvironmentSpec(
        "InvertedPendulum-v5", (4,), "float64", Box((-3.0,), (3.0,)), 1000
    )
    assert environment_spec("CartPole-v1").action == Discrete(2)


def test_an_id_with_its_module_is_described() -> None:
    spec = environment_spec("small_environments:LeewardTest/Corridor-v0")
    assert spec == EnvironmentSpec(
        "small_environments:LeewardTest/Corridor-v0", (5, 1, 1), "uint8", Discrete(3), 9
    )


def test_a_callable_is_described() -> None:
    spec = environment_spec(small_environments.line_of_twelve_steps)
    assert spec == EnvironmentSpec(
        "small_environments:line_of_twelve_steps", (2,), "float64", Box((-2.0,), (2.0,)), None
    )


def test_a_callable_gets_the_render_mode_only_if_it_takes_one() -> None:
    made = make_environment(small_environments.line_of_twelve_steps, render_mode="rgb_array")
    assert made.render_mode == "rgb_array"
    plain = make_environment(small_environments.Corridor, render_mode="rgb_array")
    assert isinstance(plain, small_environments.Corridor)


def test_the_advice_against_old_versions_is_hidden_and_nothing_else() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_environment("Hopper-v4").close()
        assert [str(w.message) for w in caught] == []
        make_environment("InvertedPendulum").close()
    assert "latest versioned environment" in str(caught[0].message)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Hoper-v4", "unknown environment 'Hoper-v4'. Did you mean Hopper-v4 or Hopper-v5"),
        ("Hopper-v9", "unknown environment 'Hopper-v9'. Did you mean Hopper-v5 or Hopper-v4?"),
        ("qqqq", "unknown environment 'qqqq'. Environments: leeward list environments"),
        ("", "unknown environment ''. Environments: leeward list environments"),
        (
            "hopper-medium-v2",
            "unknown environment 'hopper-medium-v2'. That is a data set; its environment is "
            "Hopper-v4",
        ),
        (
            "Hopper-v3",
            "environment Hopper-v3 is no longer part of Gymnasium. "
            "Did you mean Hopper-v5 or Hopper-v4?",
        ),
        (
            "json:qqqq-v0",
            "the module 'json' registers no 'qqqq-v0'. Environments: leeward list environments",
        ),
        (
            "no_such_package:Some-v0",
            "environment no_such_package:Some-v0 cannot be made: importing the module "
            "'no_such_package' failed (ModuleNotFoundError: No module named 'no_such_package')",
        ),
    ],
)
def test_unknown_ids(name: str, text: str) -> None:
    found = error_of(lambda: make_environment(name), SimulationError)
    assert found.startswith(text)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("leeward.environments.importlib.import_module", missing)
    for name, package, extra in (
        ("ALE/Nothing-v5", "ale-py", "atari"),
        ("NothingNoFrameskip-v4", "ale-py", "atari"),
        ("AdroitNothing-v1", "gymnasium-robotics", "robotics"),
        ("gymnasium_robotics:AdroitNothing-v1", "gymnasium-robotics", "robotics"),
        ("Leeward/Nothing-v1", "gymnasium-robotics", "robotics"),
    ):
        assert error_of(lambda name=name: make_environment(name), MissingExtra) == (
            f"environment {name} needs the package '{package}', which is not installed: "
            f"pip install 'leeward[{extra}]'"
        )


def test_environments_of_d4rl_names_have_the_step_limits_of_their_data() -> None:
    robotics.register()
    known = [entry for name in registry.names() if (entry := registry.find(name))]
    own = [entry for entry in known if str(entry.env).startswith(robotics.PREFIX)]
    assert {entry.group for entry in own} == {"antmaze", "maze2d", "adroit"}
    registered = {name for name in gymnasium.registry if name.startswith(robotics.PREFIX)}
    assert {entry.env for entry in own} == registered
    for entry in own:
        assert gymnasium.registry[str(entry.env)].max_episode_steps == entry.max_episode_steps
        assert registry.step_limit(entry.env) == entry.max_episode_steps
        # of all data sets of an environment, or a run's score would depend on which it is
        assert registry.reference_scores(str(entry.env)) == registry.reference_scores(entry.name)


def test_a_package_that_gymnasium_misses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**arguments: Any) -> None:
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed, run `pip …`")

    gymnasium.register("LeewardTest/Missing-v0", fail)
    monkeypatch.setitem(gymnasium.registry, "x", gymnasium.registry.pop("LeewardTest/Missing-v0"))
    monkeypatch.setitem(gymnasium.registry, "LeewardTest/Missing-v0", gymnasium.registry["x"])
    assert error_of(lambda: make_environment("LeewardTest/Missing-v0"), SimulationError) == (
        "environment LeewardTest/Missing-v0 cannot be made: Box2D is not installed, run `pip …`"
    )


def test_a_callable_that_fails_or_returns_something_else() -> None:
    def fails() -> gymnasium.Env:
        raise ValueError("no such file\nand more")

    def wrong() -> Any:
        return 3

    name = environment_id(fails)
    assert error_of(lambda: make_environment(fails), SimulationError) == (
        f"environment {name} cannot be made: ValueError: no such file"
    )
    assert error_of(lambda: make_environment(wrong), SimulationError) == (
        f"environment {environment_id(wrong)} cannot be made: the callable returned int, not a "
        "gymnasium.Env"
    )


NO_ARRAY = ", and Leeward learns from one array of numbers: wrap it in "
FLATTEN = "gymnasium.wrappers.FlattenObservation"
NO_ACTION = (
    ", and Leeward needs one Box of real numbers or one Discrete space: wrap it in "
    "gymnasium.wrappers.TransformAction"
)


@pytest.mark.parametrize(
    ("observation", "action", "text"),
    [
        (
            spaces.Dict({"a": spaces.Discrete(2)}),
            None,
            f"has dictionary observations{NO_ARRAY}{FLATTEN}",
        ),
        (spaces.Tuple([spaces.Discrete(2)]), None, f"has tuple observations{NO_ARRAY}{FLATTEN}"),
        (spaces.Discrete(4), None, f"has integer observations{NO_ARRAY}{FLATTEN}"),
        (None, spaces.MultiDiscrete([2, 3]), f"has multi-discrete actions{NO_ACTION}"),
        (None, spaces.MultiBinary(2), f"has multi-binary actions{NO_ACTION}"),
        (None, spaces.Box(0, 3, (1,), np.int64), f"has integer box actions{NO_ACTION}"),
        (
            None,
            spaces.Discrete(2, start=1),
            "numbers its actions from 1: wrap it in gymnasium.wrappers.TransformAction so that "
            "they count from 0",
        ),
        (
            None,
            spaces.Box(-1.0, 1.0, (2, 2)),
            "has actions of shape (2, 2), and Leeward needs one axis: wrap it in "
            "gymnasium.wrappers.TransformAction",
        ),
        (
            None,
            spaces.Box(-np.inf, np.inf, (2,)),
            "has actions without bounds: wrap it in gymnasium.wrappers.TransformAction to give "
            "them finite ones",
        ),
    ],
)
def test_spaces_that_cannot_be_learned(
    observation: spaces.Space[Any] | None, action: spaces.Space[Any] | None, text: str
) -> None:
    made = space_of(observation, action)
    found = error_of(lambda: environment_spec(made), SpecError)
    assert found == f"environment mine:Made {text}"


def test_matching_data_and_environment() -> None:
    spec = Spec((11,), "float32", Box((-1.0,) * 3, (1.0,) * 3))
    check_matches(spec, {}, HOPPER)
    check_matches(spec, {"env": "Hopper-v2"}, HOPPER)  # another version of the task
    check_matches(spec, {"env": "Hopper-v4"}, HOPPER._replace(id="mine:Changed-v0"))
    check_matches(spec, {"env": "Hopper-v4"}, HOPPER._replace(id="mine:make"))
    pong = HOPPER._replace(id="ALE/Pong-v5")
    check_matches(spec, {"env": "PongNoFrameskip-v4"}, pong)


def test_metadata_that_name_another_environment() -> None:
    spec = Spec((11,), "float32", Box((-1.0,) * 3, (1.0,) * 3))
    metadata = {"name": "logs", "env": "Walker2d-v4"}
    assert error_of(lambda: check_matches(spec, metadata, HOPPER), SpecError) == (
        "logs was recorded in Walker2d-v4, not in Hopper-v4: use --env Walker2d-v4, or leave "
        "--env out"
    )


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            Spec((17,), "float32", HOPPER.action),
            "observations have shape (17,), the environment's (11,)",
        ),
        (Spec((11,), "uint8", HOPPER.action), "observations are uint8, the environment's float64"),
        (
            Spec((11,), "float32", Box((-1.0,), (1.0,))),
            "it has continuous actions of size 1, the environment continuous actions of size 3",
        ),
        (
            Spec((11,), "float32", Discrete(3)),
            "it has 3 discrete actions, the environment continuous actions of size 3",
        ),
    ],
)
def test_data_that_do_not_match(spec: Spec, text: str) -> None:
    assert error_of(lambda: check_matches(spec, {"name": "logs"}, HOPPER), SpecError) == (
        f"logs does not match environment Hopper-v4: {text}: use the environment that it comes from"
    )
