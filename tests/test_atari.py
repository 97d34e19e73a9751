"""Atari games with the standard preprocessing, where the games are installed."""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import leeward
from leeward import atari, cli
from leeward.algorithms import qrdqn
from leeward.collect import EPISODES_OF, CollectOptions, collect
from leeward.copies import make_copies
from leeward.data.registry import normalized_score
from leeward.data.sampling import fit_scaling, gather, to_device
from leeward.data.screens import area_weights, gray_frames
from leeward.environments import environment_spec, make_environment, with_sticky_actions
from leeward.errors import SimulationError
from leeward.evaluate import Evaluator, episode_seed
from leeward.policy import Policy, PolicyStack, TrainedRun, save_policy
from leeward.types import Discrete

pytest.importorskip("ale_py", reason="the games are an extra: pip install 'leeward[atari]'")
PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"


@pytest.fixture(scope="module")
def game() -> gymnasium.Env:
    return make_environment(PONG)


def test_observations_are_four_gray_frames(game: gymnasium.Env) -> None:
    spec = environment_spec(PONG)
    assert spec.observation_shape == (4, 84, 84)
    assert spec.observation_dtype == "uint8"
    assert spec.action == Discrete(6)
    first, _ = game.reset(seed=3)
    assert all(np.array_equal(first[0], first[i]) for i in range(1, 4))
    second, reward, termination, truncation, _ = game.step(2)
    np.testing.assert_array_equal(second[:3], first[1:])
    assert not np.array_equal(second[3], first[3])
    assert (reward, termination, truncation) == (0.0, False, False)


def test_an_episode_is_fixed_by_its_seed_and_starts_differ(game: gymnasium.Env) -> None:
    def frames(seed: int) -> np.ndarray:
        game.reset(seed=seed)
        return np.stack([game.step(action % 6)[0][3] for action in range(30)])

    first = frames(7)
    np.testing.assert_array_equal(first, frames(7))
    assert not np.array_equal(first, frames(8))  # another number of no-op steps
    other = make_environment(PONG)
    other.reset(seed=7)
    assert np.array_equal(other.step(0)[0][3], first[0])


def test_ids_say_whether_actions_stick() -> None:
    make_environment(PONG).close()  # imports the games
    assert atari.find_game(PONG) == atari.Game("pong", 0.0)
    assert atari.find_game("ALE/Pong-v5") == atari.Game("pong", 0.25)
    assert atari.find_game("SpaceInvadersNoFrameskip-v4") == atari.Game("space_invaders", 0.0)
    assert atari.find_game("Pong-v4") is None
    assert atari.find_game("NothingNoFrameskip-v4") is None
    assert atari.find_game(lambda: make_environment(PONG)) is None


@pytest.mark.parametrize("name", ["SpaceInvadersNoFrameskip-v4", "ALE/SpaceInvaders-v5"])
def test_every_game_has_a_form_with_sticky_actions(name: str) -> None:
    assert with_sticky_actions(name) == "ALE/SpaceInvaders-v5"
    found = atari.find_game(with_sticky_actions(name))
    assert found == atari.Game("space_invaders", 0.25)


def test_only_games_have_sticky_actions() -> None:
    with pytest.raises(SimulationError) as caught:
        with_sticky_actions("CartPole-v1")
    assert str(caught.value) == "only Atari games have sticky actions, and CartPole-v1 is none"


def test_scores_are_normalized_by_random_and_human_play() -> None:
    found = normalized_score(PONG, [-20.7, 14.6])
    assert found is not None
    np.testing.assert_allclose(found, [0.0, 100.0], atol=0.1)
    other = normalized_score("ALE/Breakout-v5", 31.8 - 1.7 + 1.7)
    assert other is not None
    np.testing.assert_allclose(other, 100 * (31.8 - 1.7) / (30.5 - 1.7), rtol=1e-2)


def test_a_missing_rom_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_environment(PONG).close()
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(SimulationError) as caught:
        make_environment(PONG)
    assert str(caught.value) == (
        f"the ROM of pong cannot be read ([Errno 2] No such file or directory: "
        f"'{tmp_path}/pong.bin'): unset ALE_ROMS_DIR, or reinstall ale-py, which holds the ROMs of "
        "all games"
    )


def test_a_window_is_refused() -> None:
    with pytest.raises(SimulationError) as error:
        make_environment(PONG, render_mode="human")
    assert str(error.value) == "Atari games have no window here: watch them with --video FILE"
    shown = make_environment(PONG, render_mode="rgb_array")
    shown.reset(seed=0)
    picture = shown.render()
    assert isinstance(picture, np.ndarray)
    assert picture.shape == (336, 336, 3)


def test_a_share_of_the_actions_is_random() -> None:
    class Recorder(gymnasium.Env):
        action_space = gymnasium.spaces.Discrete(10)
        observation_space = gymnasium.spaces.Discrete(1)

        def reset(self, **given: object) -> tuple[int, dict]:  # type: ignore[override]
            super().reset(seed=5)
            return 0, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
            return 0, float(action), False, False, {}

    env = atari.RandomActions(Recorder(), 0.25)
    env.reset()
    taken = np.array([env.step(0)[1] for _ in range(2000)])
    assert (taken != 0).mean() == pytest.approx(0.25 * 0.9, abs=0.03)


def test_a_lost_life_ends_what_can_be_expected_but_not_the_game() -> None:
    copies = make_copies(BREAKOUT, 2, 1, 0)
    assert copies.stack == 4
    assert copies.spec.observation_shape == (4, 84, 84)
    assert {row.shape for row in copies.begin({0: 0, 1: 1}).values()} == {(84, 84)}
    draw = np.random.default_rng(0)
    for _ in range(400):
        answers = copies.step(draw.integers(0, 4, 2))
        if answers.termination.any():
            break
    assert answers.termination.any()
    assert not answers.ended.any()
    copies.close()


def test_a_new_episode_of_one_copy_is_the_same_beside_any_other() -> None:
    pair, alone = make_copies(BREAKOUT, 2, 1, 0), make_copies(BREAKOUT, 1, 1, 0)
    pair.begin({0: 0, 1: 1})
    for _ in range(5):
        pair.step(np.array([1, 2]))
    first, expected = pair.begin({1: 7}), alone.begin({0: 7})
    np.testing.assert_array_equal(first[1], expected[0])
    for action in (1, 2, 3, 3, 2, 2):
        np.testing.assert_array_equal(
            pair.step(np.array([0, action])).row[1], alone.step(np.array([action])).row[0]
        )
    pair.close()
    alone.close()


def test_collected_frames_make_the_game_s_observations(tmp_path: Path) -> None:
    """Over whole games: frames are stored once; stacks by index equal the game's, bit for bit."""
    count = 700
    options = CollectOptions(policy="random", transitions=count, seed=4)
    (one,) = collect(BREAKOUT, tmp_path / "breakout.hdf5", options)
    data = leeward.load_dataset(one.path)
    assert data.frame_stack == 4
    assert data.observation.shape == (count + data.episodes, 84, 84)
    assert data.transitions == count
    assert data.metadata["env"] == BREAKOUT
    assert data.action_space == Discrete(4)
    np.testing.assert_allclose(data.episode_returns(), one.returns)
    device = to_device(data, fit_scaling(data, True))
    batch = jax.tree.map(np.asarray, gather(device, jax.numpy.arange(count), 0.99))
    env, row, whole = make_environment(BREAKOUT), 0, 0
    for episode in range(data.episodes):
        observation, _ = env.reset(seed=episode_seed(EPISODES_OF["random"], 4, episode))
        ended = False
        while not ended and row < count:
            np.testing.assert_array_equal(batch.observation[row], observation)
            observation, reward, ended, _, _ = env.step(int(batch.action[row]))
            np.testing.assert_array_equal(batch.next_observation[row], observation)
            assert (batch.reward[row], batch.termination[row]) == (reward, ended)
            row += 1
        whole += ended
    assert row == count
    assert whole >= 2


def area_resize(image: np.ndarray, size: tuple[int, int], interpolation: int) -> np.ndarray:
    """OpenCV's INTER_AREA for smaller images: means over areas, rounded."""
    assert (size, interpolation) == ((84, 84), cv2_stub.INTER_AREA)
    down, across = (area_weights(length) for length in image.shape)
    return np.rint(down @ image.astype(np.float32) @ across.T).astype(np.uint8)


cv2_stub = types.SimpleNamespace(INTER_AREA=3, resize=area_resize)


def test_frames_are_those_of_gymnasium_s_preprocessing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a whole game. How many no-op steps it began with is found by its first frames."""
    monkeypatch.setitem(sys.modules, "cv2", cv2_stub)
    ours = make_environment(BREAKOUT)
    ours.reset(seed=5)
    theirs = gymnasium.wrappers.AtariPreprocessing(
        gymnasium.make(BREAKOUT, disable_env_checker=True), noop_max=0
    )
    draw, actions = np.random.default_rng(0), []
    played: list[tuple[np.ndarray, float, bool]] = []
    while not played or not played[-1][2]:
        actions.append(int(draw.integers(4)))
        observation, reward, ended, _, _ = ours.step(actions[-1])
        played.append((observation[3], float(reward), ended))
    _begin_like(theirs, [frame for frame, _, _ in played[:5]], actions)
    for action, (frame, reward, ended) in zip(actions, played, strict=True):
        observation, other, over, _, _ = theirs.step(action)
        assert (other, over) == (reward, ended)
        if not over:  # their last frame is of an earlier step: the game ended within it
            assert np.abs(observation.astype(int) - frame).max() <= 1
    assert len(played) > 100


def _begin_like(env: Any, frames: list[np.ndarray], actions: list[int]) -> None:
    """Leaves the environment where a game began: after FIRE and as many no-op steps as fit."""
    for steps in range(31):
        before = [1, *[0] * steps]
        _begin(env, before)
        if all(
            np.abs(env.step(action)[0].astype(int) - frame).max() <= 1
            for frame, action in zip(frames, actions, strict=False)
        ):
            _begin(env, before)
            return
    pytest.fail("no number of no-op steps leads to these frames")


def _begin(env: Any, before: list[int]) -> None:
    env.reset(seed=0)
    for action in before:
        env.unwrapped.step(action)


def test_screens_in_colors_become_the_game_s_frames() -> None:
    """What is made of a Minari set's screens is what the game gives, but for rounding."""
    made = gymnasium.make("ALE/Breakout-v5", disable_env_checker=True)
    screen, _ = made.reset(seed=0)
    gray = np.zeros(screen.shape[:2], np.uint8)
    made.unwrapped.ale.getScreenGrayscale(gray)  # type: ignore[attr-defined]
    small = area_resize(gray, (84, 84), cv2_stub.INTER_AREA)
    assert np.abs(gray_frames(screen[None])[0].astype(int) - small).max() <= 1
    made.close()


@pytest.fixture(scope="module")
def policies() -> PolicyStack:
    """A policy of random weights."""
    config = qrdqn.Config(hidden=(4,), quantiles=2)
    data = leeward.Dataset.from_arrays(
        np.zeros((3, 4, 84, 84), np.uint8),
        np.zeros(3, int),
        np.zeros(3),
        np.zeros(3, bool),
        action_count=6,
    )
    state = qrdqn.init(config, data.spec, jax.random.key(0))
    scaling = fit_scaling(data, False)
    return Policy(qrdqn.ALGORITHM, config, data.spec, scaling, state.network, _run()).stack()


def test_evaluations_have_the_game_s_own_rewards_and_some_random_actions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Evaluator(PONG) as games, Evaluator("CartPole-v1") as others:
        (game,), (other,) = games.copies(1), others.copies(1)
        assert isinstance(game, atari.RandomActions)
        assert game._epsilon == atari.EVALUATION_EPSILON == 0.001
        assert not isinstance(other, atari.RandomActions)
    invaders = make_environment("SpaceInvadersNoFrameskip-v4")
    invaders.reset(seed=0)
    rewards = [float(invaders.step(1)[1]) for _ in range(150)]  # FIRE
    assert max(rewards) >= 5.0


@pytest.mark.parametrize("stickiness", [0.0, 1.0])
def test_sticky_actions_repeat_the_one_before(stickiness: float) -> None:
    """With a probability of 1 no other action than the first is ever taken."""

    def frames(action: int) -> np.ndarray:
        copies = atari.Copies(atari.Game("pong", stickiness), 1)
        copies.reset([3], np.ones(1, bool))
        found = np.stack([copies.step(np.array([action])).frame[0] for _ in range(20)])
        copies.close()
        return found

    assert np.array_equal(frames(2), frames(3)) == (stickiness == 1.0)


def test_a_policy_plays_whole_games(policies: PolicyStack) -> None:
    assert policies.spec.observation_shape == environment_spec(PONG).observation_shape
    with Evaluator(PONG, episodes=1) as evaluator:
        result = evaluator.evaluate(policies)
    assert -21.0 <= result.returns[0, 0] <= 0.0
    assert result.lengths[0, 0] > 700
    assert result.scores is not None


def test_the_command_evaluates_with_sticky_actions(
    policies: PolicyStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []

    def evaluate(stack: PolicyStack, env: str, **options: Any) -> None:
        played.append(env)
        raise SimulationError("not played")

    monkeypatch.setattr(sys.modules["leeward.evaluate"], "evaluate", evaluate)
    save_policy(tmp_path / "policy", dataclasses.replace(policies, env=PONG))
    for flags in ([], ["--sticky-actions"], ["--sticky-actions", "--env", BREAKOUT]):
        assert cli.main(["evaluate", str(tmp_path / "policy"), *flags]) == 2
    assert played == [PONG, "ALE/Pong-v5", "ALE/Breakout-v5"]


def _run() -> TrainedRun:
    return TrainedRun(0, {}, 1)
