"""Atari games with the standard preprocessing, by ale-py's own environments.

Every action is repeated for four frames, the last two of which are combined by their maximum; gray
images of 84 × 84 pixels, four of them stacked; up to 30 no-op steps at the start, then FIRE where
the game needs it; at most 108,000 frames an episode (Mnih et al. 2015, and OpenAI's baselines). Ids
like PongNoFrameskip-v4 repeat no actions; ALE/Pong-v5 repeats the action before with probability
0.25 (sticky actions, Machado et al. 2018, arXiv 1709.06009). Rewards are the game's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from leeward.errors import SimulationError

STACK = 4
"""Frames of one observation."""
SIDE = 84
"""Rows and columns of a frame."""
EVALUATION_EPSILON = 0.001
"""Share of random actions in evaluations (the paper of Double DQN, arXiv 1509.06461, has 0.001)."""
STICKINESS = 0.25
_ID = re.compile(r"^(ALE/\w+-v5|\w+NoFrameskip-v[04])$")
_SEEDS = 2**31


class Game(NamedTuple):
    """One game as ale-py calls it."""

    rom: str
    stickiness: float
    """Probability that the action before is repeated."""


def find_game(name: object) -> Game | None:
    """The game behind an environment's id, None for all else; ale-py must have been imported."""
    if not isinstance(name, str) or not _ID.match(name) or name not in gymnasium.registry:
        return None
    sticky = not name.endswith("-v4")
    return Game(gymnasium.registry[name].kwargs["game"], STICKINESS if sticky else 0.0)


def sticky_id(name: str) -> str | None:
    """The id of the same game with sticky actions; None for all else, as `find_game`."""
    if find_game(name) is None:
        return None
    return f"ALE/{re.sub(r'^ALE/|NoFrameskip-v[04]$|-v5$', '', name)}-v5"


class Frames(NamedTuple):
    """What all copies answered."""

    frame: np.ndarray
    """[N, 84, 84]: the newest frames."""
    reward: np.ndarray
    """[N] float32."""
    termination: np.ndarray
    truncation: np.ndarray
    lives: np.ndarray
    """[N]: lives left; 0 in games without."""


class Copies:
    """N copies of a game that are stepped together, in threads of ale-py's own."""

    def __init__(self, game: Game, copies: int) -> None:
        """Makes the copies.

        Raises:
            SimulationError: the game's ROM is missing or damaged.
        """
        from ale_py.vector_env import AtariVectorEnv

        self.count = copies
        try:
            self._made = AtariVectorEnv(
                game.rom,
                copies,
                repeat_action_probability=game.stickiness,
                reward_clipping=False,
                stack_num=1,
                img_height=SIDE,
                img_width=SIDE,
                autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP,  # `reset` comes before it
            )
        except OSError as error:
            reason = str(error).partition("\n")[0]
            raise SimulationError(
                f"the ROM of {game.rom} cannot be read ({reason}): unset ALE_ROMS_DIR, or "
                "reinstall ale-py, which holds the ROMs of all games"
            ) from error
        self.actions = int(self._made.single_action_space.n)  # type: ignore[attr-defined]

    def reset(self, seeds: Sequence[int], which: np.ndarray) -> Frames:
        """Begins new episodes in the copies where `which` [N] is True, with one seed for each."""
        options = None if which.all() else {"reset_mask": which}
        frame, info = self._made.reset(seed=np.asarray(seeds) % _SEEDS, options=options)
        nothing = np.zeros(self.count)
        ended = nothing.astype(bool)
        return Frames(frame[:, 0], nothing.astype(np.float32), ended, ended, info["lives"])

    def step(self, action: np.ndarray) -> Frames:
        """One step of all copies."""
        frame, reward, termination, truncation, info = self._made.step(action.astype(np.int32))
        return Frames(
            frame[:, 0],
            np.asarray(reward, np.float32),
            np.asarray(termination, bool),
            np.asarray(truncation, bool) & ~np.asarray(termination, bool),
            info["lives"],
        )

    def close(self) -> None:
        """Frees the copies."""
        self._made.close()


class AtariGame(gymnasium.Env[np.ndarray, Any]):
    """One copy of a game; observations [4, 84, 84], before the first frame repetitions of it."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (Gymnasium's name)

    def __init__(self, game: Game, render_mode: str | None = None) -> None:
        """Makes the copy.

        Raises:
            SimulationError: a window is asked for.
        """
        if render_mode == "human":
            raise SimulationError("Atari games have no window here: watch them with --video FILE")
        self.render_mode = render_mode
        self._copies = Copies(game, 1)
        self.observation_space = gymnasium.spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(self._copies.actions)
        self._stack = np.zeros((STACK, SIDE, SIDE), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode; `seed` fixes it."""
        super().reset(seed=seed)
        start = int(self.np_random.integers(_SEEDS)) if seed is None else seed
        first = self._copies.reset([start], np.ones(1, bool))
        self._stack[:] = first.frame[0]
        return self._stack.copy(), {"lives": int(first.lives[0])}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Four frames of the game."""
        answer = self._copies.step(np.array([int(action)]))
        self._stack[:-1] = self._stack[1:].copy()
        self._stack[-1] = answer.frame[0]
        return (
            self._stack.copy(),
            float(answer.reward[0]),
            bool(answer.termination[0]),
            bool(answer.truncation[0]),
            {"lives": int(answer.lives[0])},
        )

    def render(self) -> np.ndarray:  # type: ignore[override]
        """The newest frame, four times as large, in gray."""
        large = self._stack[-1].repeat(4, axis=0).repeat(4, axis=1)
        return np.repeat(large[:, :, None], 3, axis=2)

    def close(self) -> None:
        """Frees the copy."""
        self._copies.close()


class RandomActions(gymnasium.Wrapper):
    """Takes a uniformly random action in place of a share of those given."""

    def __init__(self, env: gymnasium.Env[Any, Any], epsilon: float) -> None:
        """`epsilon` is that share; what is random comes from the environment's own generator."""
        super().__init__(env)
        self._epsilon = epsilon

    def step(self, action: Any) -> Any:
        """One step, perhaps with another action."""
        generator = self.np_random
        if generator.random() < self._epsilon:
            action = int(generator.integers(self.action_space.n))  # type: ignore[attr-defined]
        return self.env.step(action)
