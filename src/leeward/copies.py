"""Copies of an environment that a learner of discrete actions steps together, one row each."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from leeward import atari
from leeward.environments import EnvironmentSource, environment_spec
from leeward.errors import SpecError
from leeward.evaluate import episode_seed
from leeward.rollout import Simulator
from leeward.types import Discrete, Spec


class Answers(NamedTuple):
    """What N copies answered: rows, which are single frames where observations stack them."""

    row: np.ndarray
    """[N, *row]."""
    reward: np.ndarray
    """[N] float32."""
    termination: np.ndarray
    """[N] bool: nothing is to be expected after this step; in Atari also where a life was lost."""
    ended: np.ndarray
    """[N] bool: the copy needs a new episode."""


@runtime_checkable  # so that the tests' type checker can tell an instance
class Copies(Protocol):
    """N copies of one environment."""

    spec: Spec
    stack: int
    """Rows that make one observation."""

    def begin(self, episodes: dict[int, int]) -> dict[int, np.ndarray]:
        """Begins episodes, copy → the episode's number; copy → its first row."""
        ...

    def step(self, action: np.ndarray) -> Answers:
        """One step of all copies, [N] actions."""
        ...

    def close(self) -> None:
        """Closes all."""
        ...


def make_copies(env: EnvironmentSource, count: int, tag: int, seed: int) -> Copies:
    """The copies of an environment.

    Args:
        env: a Gymnasium id, or a callable.
        count: N.
        tag: tells apart the purposes for which episodes are started.
        seed: with the tag and its number it fixes every episode's start.

    Raises:
        SpecError: continuous actions, or observations that no network here takes.
    """
    known = environment_spec(env)
    if not isinstance(known.action, Discrete):
        raise SpecError(
            f"environment {known.id} has continuous actions, and qrdqn learns discrete ones: use "
            "--policy sac"
        )
    dtype = known.observation_dtype if known.observation_dtype == "uint8" else "float32"
    spec = Spec(known.observation_shape, dtype, known.action)
    game = atari.find_game(env)
    if game is None:
        return _Plain(env, spec, count, tag, seed)
    return _Atari(game, spec, count, tag, seed)


class _Plain:
    """Environments of any kind, one after another."""

    stack = 1

    def __init__(self, env: EnvironmentSource, spec: Spec, count: int, tag: int, seed: int) -> None:
        self.spec, self._tag, self._seed = spec, tag, seed
        self._made = [Simulator(env) for _ in range(count)]

    def begin(self, episodes: dict[int, int]) -> dict[int, np.ndarray]:
        return {
            copy: self._made[copy].reset(self._tag, self._seed, episode)
            for copy, episode in episodes.items()
        }

    def step(self, action: np.ndarray) -> Answers:
        answers = [made.step(np.asarray(a)) for made, a in zip(self._made, action, strict=True)]
        termination = np.array([answer.termination for answer in answers])
        return Answers(
            np.stack([answer.observation for answer in answers]),
            np.array([answer.reward for answer in answers]),
            termination,
            termination | np.array([answer.truncation for answer in answers]),
        )

    def close(self) -> None:
        for made in self._made:
            made.close()


class _Atari:
    """ale-py's own copies, in threads; a lost life ends what can be expected, not the episode."""

    stack = atari.STACK

    def __init__(self, game: atari.Game, spec: Spec, count: int, tag: int, seed: int) -> None:
        self.spec, self._tag, self._seed = spec, tag, seed
        self._made = atari.Copies(game, count)
        self._lives = np.zeros(count, np.int64)

    def begin(self, episodes: dict[int, int]) -> dict[int, np.ndarray]:
        which = np.isin(np.arange(self._made.count), list(episodes))
        seeds = [episode_seed(self._tag, self._seed, episodes[copy]) for copy in sorted(episodes)]
        first = self._made.reset(seeds, which)
        chosen = np.flatnonzero(which)
        rows = first.frame if len(first.frame) == len(chosen) else first.frame[chosen]
        lives = first.lives if len(first.lives) == len(chosen) else first.lives[chosen]
        self._lives[chosen] = lives
        return {int(copy): row.copy() for copy, row in zip(chosen, rows, strict=True)}

    def step(self, action: np.ndarray) -> Answers:
        answer = self._made.step(action)
        lost = answer.lives < self._lives
        self._lives = np.array(answer.lives)
        ended = answer.termination | answer.truncation
        return Answers(answer.frame.copy(), answer.reward, answer.termination | lost, ended)

    def close(self) -> None:
        self._made.close()
