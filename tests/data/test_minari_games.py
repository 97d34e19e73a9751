"""Minari's Atari sets: screens in colors become the frames that games are evaluated with."""

from __future__ import annotations

import copy
import weakref
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from minari.data_collector import EpisodeBuffer

import leeward
from leeward.data import minari as reader
from leeward.data.load import load_dataset
from leeward.data.minari_environment import implied
from leeward.data.screens import area_weights, gray_frames
from leeward.types import Discrete
from minari_sets import create
from training import train

pytest.importorskip("ale_py", reason="the games are an extra: pip install 'leeward[atari]'")
NAME = "atari/breakout/expert-v0"
SCREEN = spaces.Box(0, 255, (210, 160, 3), np.uint8)
LENGTHS = (5, 3, 4)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "minari"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    return folder


def spec_of(name: str, **arguments: Any) -> EnvSpec:
    """A registered environment's, as if it had been made with these arguments."""
    spec = copy.deepcopy(gymnasium.spec(name))
    spec.kwargs.update(arguments)
    return spec


def make(name: str = NAME, **arguments: Any) -> list[np.ndarray]:
    """Three episodes of screens of one color each, without sticky actions; the screens."""
    draw, buffers, screens = np.random.default_rng(0), [], []
    for episode, length in enumerate(LENGTHS):
        colors = draw.integers(0, 256, (length + 1, 1, 1, 3), np.uint8)
        screens.append(np.broadcast_to(colors, (length + 1, 210, 160, 3)).copy())
        buffers.append(
            EpisodeBuffer(
                id=episode,
                observations=screens[-1],
                actions=draw.integers(0, 4, length),
                rewards=draw.integers(0, 8, length).astype(float),
                terminations=np.arange(length) == length - 1,
                truncations=np.zeros(length, bool),
            )
        )
    given = {"repeat_action_probability": 0, **arguments}
    create(
        name,
        buffers,
        env=spec_of("ALE/Breakout-v5", **given),
        observation_space=SCREEN,
        action_space=spaces.Discrete(4),
    )
    return screens


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_screens_are_trained_on_as_frames_and_the_game_is_implied(tmp_path: Path) -> None:
    screens = make()
    data = load_dataset(NAME, offline=True)
    assert data.spec.observation_shape == (4, 84, 84)
    assert data.action_space == Discrete(4)
    assert data.observation.shape == (sum(LENGTHS) + 3, 84, 84)
    luma = np.concatenate([s[:, 0, 0] @ np.array([0.299, 0.587, 0.114]) for s in screens])
    near = np.abs(data.observation - luma[:, None, None]).max()
    assert near < 4  # the set keeps screens as JPEG files
    assert data.episode_lengths().tolist() == list(LENGTHS)
    assert data.transitions == sum(LENGTHS)
    assert data.metadata["env"] == "BreakoutNoFrameskip-v4"
    run = train(
        tmp_path / "run", NAME, "bc", hidden=(4,), steps=1, batch_size=2, eval_every=0
    )  # which makes the game and compares it with the data
    kept = leeward.Run(run).config
    assert kept["environment"] == "BreakoutNoFrameskip-v4"
    assert kept["data"]["notes"][0].startswith("screens of 210 × 160 pixels in colors became")
    assert "--reward-transform sign" in kept["data"]["notes"][1]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_episode_s_screens_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    seen: list[weakref.ref] = []

    def recording(screen: np.ndarray) -> np.ndarray:
        assert [one() for one in seen] == [None] * len(seen)
        seen.append(weakref.ref(screen))
        return gray_frames(screen)

    monkeypatch.setattr(reader, "gray_frames", recording)
    load_dataset(NAME, offline=True)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("name", "arguments", "space", "env", "said"),
    [
        ("ALE/Pong-v5", {}, SCREEN, "ALE/Pong-v5", "screens of 210 × 160"),
        ("ALE/Pong-v5", {"repeat_action_probability": 0.0}, SCREEN, "PongNoFrameskip-v4", ""),
        ("ALE/Pong-v5", {"render_mode": "rgb_array"}, SCREEN, "ALE/Pong-v5", ""),
        ("ALE/Pong-v5", {"frameskip": 2}, SCREEN, None, "with frameskip 2, not 4: no environment"),
        ("ALE/Pong-v5", {"mode": 1}, SCREEN, None, "with mode 1, not None"),
        (
            "ALE/Pong-v5",
            {"repeat_action_probability": 0.5},
            SCREEN,
            None,
            "with repeat_action_probability 0.5, neither 0 nor 0.25",
        ),
        ("PongNoFrameskip-v4", {}, SCREEN, None, "with observations of shape (210, 160, 3)"),
        (
            "ALE/Pong-v5",
            {"repeat_action_probability": 0},
            spaces.Box(0, 255, (4, 84, 84), np.uint8),
            "PongNoFrameskip-v4",
            None,
        ),
        (
            "PongNoFrameskip-v4",
            {},
            spaces.Box(0, 255, (4, 84, 84), np.uint8),
            "PongNoFrameskip-v4",
            None,
        ),
    ],
)
def test_what_games_imply(
    name: str, arguments: dict[str, Any], space: spaces.Box, env: str | None, said: str | None
) -> None:
    found = implied(spec_of(name, **arguments), space)
    assert found.env == env
    assert found.screens == (space is SCREEN and name.startswith("ALE/"))
    assert (found.notes == ()) if said is None else (said in " ".join(found.notes))


def test_areas_are_means() -> None:
    """A pixel of 84 covers 2.5 rows of 210: two whole ones and half of a third."""
    weights = area_weights(210)
    np.testing.assert_allclose(weights[0, :4], [0.4, 0.4, 0.2, 0.0], atol=1e-6)
    np.testing.assert_allclose(weights[1, :6], [0.0, 0.0, 0.2, 0.4, 0.4, 0.0], atol=1e-6)
    np.testing.assert_allclose(area_weights(160).sum(axis=1), 1.0, rtol=1e-5)
    screen = np.zeros((2, 210, 160, 3), np.uint8)
    screen[1, 2, :, 1] = 200  # green, a row that two pixels share
    frame = gray_frames(screen)
    assert not frame[0].any()
    np.testing.assert_array_equal(frame[1, :2], np.full((2, 84), round(0.2 * round(0.587 * 200))))
    assert not frame[1, 2:].any()
