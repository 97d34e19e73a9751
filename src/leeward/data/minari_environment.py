"""Which environment a Minari data set implies, and whether its observations are a game's screens.

An environment that was made with arguments other than its id stands for is called by both:
`CartPole-v1?{"sutton_barto_reward": true}` (`environments.split_arguments`).
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from leeward.data.screens import SIDE

STACK = 4
"""Frames of one observation in the standard preprocessing."""
_GAME = re.compile(r"^(?:ALE/(?P<game>\w+)-v5|\w+NoFrameskip-v[04])$")
_STICKY = 0.25  # the probability with which ALE/…-v5 repeats an action
_STANDARD = {
    "obs_type": "rgb",
    "frameskip": 4,
    "full_action_space": False,
    "continuous": False,
    "mode": None,
    "difficulty": None,
}
"""What the games' standard preprocessing needs of an ALE/…-v5 environment, all its defaults."""


class Implied(NamedTuple):
    """What a data set says of its environment."""

    env: str | None
    notes: tuple[str, ...] = ()
    screens: bool = False
    """Whether observations are screens in colors, which become frames."""


def implied(spec: EnvSpec | None, observation: gymnasium.Space) -> Implied:
    """What is implied by the environment that a set was recorded in.

    Args:
        spec: the environment's, as it was made; None where the set does not tell.
        observation: the set's observation space.
    """
    if spec is None:
        return Implied(None)
    game = _GAME.match(spec.id)
    if game is not None:
        return _of_game(spec, game["game"], observation)
    arguments = _arguments(spec)
    if spec.additional_wrappers:
        names = ", ".join(wrapper.name for wrapper in spec.additional_wrappers)
        return _none(spec, f"inside wrappers ({names}), which are not made again")
    try:
        text = json.dumps(arguments, sort_keys=True)
    except TypeError:
        return _none(spec, "with arguments that are no JSON values")
    return Implied(f"{spec.id}?{text}" if arguments else spec.id)


def _arguments(spec: EnvSpec) -> dict[str, Any]:
    """The arguments that the id does not stand for, where it is registered; else all."""
    made = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    usual = gymnasium.registry.get(spec.id)
    if usual is None:
        return made
    own = usual.kwargs
    made = {name: value for name, value in made.items() if name not in own or own[name] != value}
    if spec.max_episode_steps not in (None, usual.max_episode_steps):
        made["max_episode_steps"] = spec.max_episode_steps
    return made


def _of_game(spec: EnvSpec, game: str | None, observation: gymnasium.Space) -> Implied:
    """Games are evaluated with the standard preprocessing alone, with or without sticky actions."""
    shape: tuple[int, ...] = tuple(observation.shape or ())
    dtype = getattr(observation, "dtype", None)
    stacked = shape == (STACK, SIDE, SIDE)
    screens = game is not None and len(shape) == 3 and shape[2] == 3
    if dtype != np.uint8 or not (stacked or screens):
        return _none(spec, f"with observations of shape {shape} and type {dtype}")
    if game is None:
        return Implied(spec.id)
    notes = []
    if screens:
        notes.append(
            f"screens of {shape[0]} × {shape[1]} pixels in colors became frames of {SIDE} × {SIDE} "
            f"gray ones, {STACK} to an observation; in evaluations a frame is the maximum of two "
            "screens, here it is one of them"
        )
    for name, usual in _STANDARD.items():
        value = spec.kwargs.get(name, usual)
        if value != usual:
            return _none(spec, f"with {name} {value}, not {usual}", *notes, screens=screens)
    sticky = spec.kwargs.get("repeat_action_probability", _STICKY)
    if sticky not in (0, _STICKY):
        other = f"with repeat_action_probability {sticky}, neither 0 nor {_STICKY}"
        return _none(spec, other, *notes, screens=screens)
    return Implied(spec.id if sticky else f"{game}NoFrameskip-v4", tuple(notes), screens)


def _none(spec: EnvSpec, why: str, *notes: str, screens: bool = False) -> Implied:
    note = (
        f"recorded in {spec.id} {why}: no environment is implied; --env names one that is like it"
    )
    return Implied(None, (*notes, note), screens)
