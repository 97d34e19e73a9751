"""Evaluation: every run's policy in its own copies of the environment, all stepped together.

One batched policy call serves all runs and episodes of a step. Episodes start from seeds that
depend on (evaluation seed, run seed, episode) alone, so the order in which they run, and how many
run at once, changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from leeward import atari
from leeward.data.registry import normalized_score
from leeward.disturbance import Disturbed
from leeward.environments import (
    EnvironmentSource,
    EnvironmentSpec,
    check_matches,
    describe,
    environment_id,
    make_environment,
)
from leeward.errors import LeewardError, SimulationError
from leeward.policy import Policy, TrainedRun
from leeward.types import Box, Spec

COPIES = 100
"""Copies of the environment at once, over all runs (ours: a MuJoCo one takes about 1 MB and
10 ms to make; more of them make no step cheaper)."""
LONGEST_EPISODE = 200_000
"""Steps after which an episode without a declared limit counts as endless (ours: the longest
known are Atari's, 108,000 frames)."""


@runtime_checkable
class Actors(Protocol):
    """What is evaluated: the policies of N runs (`PolicyStack`), or an exported file's of one."""

    @property
    def spec(self) -> Spec: ...
    @property
    def runs(self) -> tuple[TrainedRun, ...]: ...
    @property
    def policies(self) -> Any:
        """Weights with a leading axis N, where they are at hand."""
        ...

    @property
    def env(self) -> str | None: ...
    def actor(self, episodes: int) -> Callable[[np.ndarray], np.ndarray]:
        """Actions for many calls with observations [N, episodes, *obs]."""
        ...


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What every episode gave. N runs, K episodes."""

    returns: np.ndarray
    """[N, K] float64: undiscounted returns."""
    lengths: np.ndarray
    """[N, K] int64: steps."""
    scores: np.ndarray | None
    """[N, K] float64: normalized returns (0 random, 100 expert), None where none are known."""

    @property
    def mean_return(self) -> np.ndarray:
        """[N]: the mean over each run's episodes."""
        return self.returns.mean(axis=1)

    @property
    def mean_score(self) -> np.ndarray | None:
        """[N]: the mean normalized score of each run, or None."""
        return None if self.scores is None else self.scores.mean(axis=1)


class Evaluator:
    """Environments that are kept from one evaluation to the next; a context manager."""

    def __init__(
        self,
        env: EnvironmentSource,
        *,
        episodes: int = 10,
        evaluation_seed: int = 0,
        reference: str | Mapping[str, Any] | None = None,
        copies: int = COPIES,
        wrapper: Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Prepares evaluations; environments are made when the first one needs them.

        Args:
            env: an id, or a callable that makes an environment.
            episodes: episodes of every run.
            evaluation_seed: another one gives other starts.
            reference: whose reference returns normalize the scores: a data set's name or metadata;
                default the environment's.
            copies: the environment's copies at once, over all runs; at least one a run is made.
            wrapper: put around every copy, such as one that disturbs the first state or actions;
                all that is random in it should come from the seed that its `reset` gets.
            render_mode: as `make_environment`.

        Raises:
            SimulationError: `episodes` below 1.
        """
        if episodes < 1:
            raise SimulationError(f"an evaluation needs at least 1 episode, got {episodes}")
        self.name = environment_id(env)
        self.episodes = episodes
        self._env, self._render_mode, self._wrapper = env, render_mode, wrapper
        self._most = copies
        self._seed = evaluation_seed
        self._reference = self.name if reference is None else reference
        self._made: list[gymnasium.Env[Any, Any]] = []
        self._spec: EnvironmentSpec | None = None

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the environments."""
        while self._made:
            self._made.pop().close()

    @property
    def spec(self) -> EnvironmentSpec:
        """The environment's description; makes the first copy."""
        if self._spec is None:
            self._spec = describe(self.copies(1)[0], self.name)
        return self._spec

    def evaluate(
        self,
        policies: Actors,
        on_episode: Callable[[int], None] | None = None,
        without: Collection[int] = (),
    ) -> Evaluation:
        """Episodes of every run's deterministic policy.

        Args:
            policies: the policies of N runs.
            on_episode: called with the number of finished episodes whenever one finishes.
            without: indexes of runs to leave out, such as diverged ones: their returns are NaN and
                their lengths 0.

        Raises:
            SpecError: the policies do not fit the environment.
            SimulationError: a weight, action, observation or reward that is not a finite number,
                an episode that does not end, or an error in the environment.
        """
        check_matches(policies.spec, {"name": "the policy"}, self.spec)
        _check_weights(policies, without)
        rollout = _Rollout(self, policies, without, self._most)
        rollout.play(on_episode)
        return Evaluation(
            rollout.returns,
            rollout.lengths,
            normalized_score(self._reference, rollout.returns),
        )

    def episode_seed(self, run_seed: int, episode: int) -> int:
        """The seed of an episode's reset."""
        return episode_seed(self._seed, run_seed, episode)

    def copies(self, count: int) -> list[gymnasium.Env[Any, Any]]:
        """That many environments, made where there are fewer."""
        while len(self._made) < count:
            made = make_environment(self._env, render_mode=self._render_mode)
            if atari.find_game(self._env) is not None:
                made = atari.RandomActions(made, atari.EVALUATION_EPSILON)
            self._made.append(made if self._wrapper is None else self._wrapper(made))
        return self._made[:count]


def evaluate(
    policies: Actors | Policy,
    env: EnvironmentSource | None = None,
    *,
    episodes: int = 10,
    evaluation_seed: int = 0,
    reference: str | Mapping[str, Any] | None = None,
    on_episode: Callable[[int], None] | None = None,
    start_noise: float = 0.0,
    action_noise: float = 0.0,
) -> Evaluation:
    """Episodes of one policy or of many; arguments and errors as `Evaluator` and its `evaluate`.

    Without `env`, the environment that the policies were trained for. `start_noise` and
    `action_noise` disturb the first state and every action, as `disturbance.Disturbed` says.
    """
    stack = policies.stack() if isinstance(policies, Policy) else policies

    def disturbed(made: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        return Disturbed(made, start_noise, action_noise)

    with Evaluator(
        environment_of(stack, env),
        episodes=episodes,
        evaluation_seed=evaluation_seed,
        reference=reference,
        wrapper=disturbed if start_noise or action_noise else None,
    ) as evaluator:
        return evaluator.evaluate(stack, on_episode)


def environment_of(policies: Actors | Policy, env: EnvironmentSource | None) -> EnvironmentSource:
    """The environment asked for, else the one that the policies were trained for.

    Raises:
        SimulationError: there is neither.
    """
    if env is not None:
        return env
    if policies.env is None:
        raise SimulationError("the policy was trained without an environment: name one (--env)")
    return policies.env


def episode_seed(evaluation_seed: int, run_seed: int, episode: int) -> int:
    """The seed of one episode's reset, from these three alone."""
    sequence = np.random.SeedSequence([evaluation_seed, run_seed, episode])
    return int(sequence.generate_state(1)[0])


@dataclasses.dataclass(slots=True)
class _Slot:
    """One copy of the environment and the episode that it is in."""

    env: gymnasium.Env[Any, Any]
    run: int
    column: int
    episode: int
    steps: int = 0
    total: float = 0.0


class _Rollout:
    """All episodes of one evaluation; `width` of every run at a time, the next when one ends."""

    def __init__(
        self, evaluator: Evaluator, policies: Actors, without: Collection[int], most: int
    ) -> None:
        self.evaluator, self.policies, self.spec = evaluator, policies, evaluator.spec
        runs, episodes = len(policies.runs), evaluator.episodes
        chosen = [run for run in range(runs) if run not in without]
        width = _width(len(chosen), episodes, most)
        self.returns = np.full((runs, episodes), np.nan)
        self.lengths = np.zeros((runs, episodes), np.int64)
        dtype = np.uint8 if self.spec.observation_dtype == "uint8" else np.float32
        # One shape to the end, for a policy prepared once: finished slots stay as they are.
        self.observation = np.zeros((runs, width, *self.spec.observation_shape), dtype)
        places = [(run, column) for run in chosen for column in range(width)]
        copies = evaluator.copies(len(places))
        self.slots = [
            _Slot(env, *place, place[1]) for env, place in zip(copies, places, strict=True)
        ]
        self.started = [width] * runs
        self.act = policies.actor(width)
        self.longest = max(LONGEST_EPISODE, self.spec.max_episode_steps or 0)

    def play(self, on_episode: Callable[[int], None] | None) -> None:
        """Steps everything until every episode has ended."""
        finished = 0
        for slot in self.slots:
            self._begin(slot)
        while self.slots:
            action = self._actions()
            ended = [slot for slot in self.slots if self._step(slot, action)]
            for slot in ended:
                self._end(slot)
                finished += 1
                if on_episode is not None:
                    on_episode(finished)

    def _begin(self, slot: _Slot) -> None:
        slot.steps, slot.total = 0, 0.0
        seed = self.evaluator.episode_seed(self.policies.runs[slot.run].seed, slot.episode)
        try:
            observation, _ = slot.env.reset(seed=seed)
        except LeewardError:
            raise
        except Exception as error:  # an environment's own code may raise anything
            raise self._failure(slot, f"failed to reset ({_reason(error)})") from error
        if np.shape(observation) != self.spec.observation_shape:
            raise self._failure(
                slot,
                f"gave an observation of shape {np.shape(observation)}, which its space says has "
                f"shape {self.spec.observation_shape}",
            )
        self.observation[slot.run, slot.column] = observation

    def _actions(self) -> np.ndarray:
        """[N, width, A] or [N, width]: actions in the environment's units, inside its box."""
        action = self.act(self.observation)
        space = self.spec.action
        if not isinstance(space, Box):
            return action
        if not np.isfinite(action).all():
            self._find_not_finite(action)
        if space != self.policies.spec.action:
            action = np.clip(
                action, np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
            )
        return action

    def _find_not_finite(self, action: np.ndarray) -> None:
        for slot in self.slots:
            place = slot.run, slot.column
            if np.isfinite(action[place]).all():
                continue
            if not np.isfinite(self.observation[place]).all():
                raise self._failure(slot, "gave an observation that is not a finite number")
            raise SimulationError(
                f"the policy of seed {self.policies.runs[slot.run].seed} gave an action that is "
                f"not a finite number, at step {slot.steps} of episode {slot.episode}: its "
                "training diverged"
            )

    def _step(self, slot: _Slot, action: np.ndarray) -> bool:
        """One step of one environment; whether its episode ended."""
        chosen = action[slot.run, slot.column]
        try:
            observation, reward, termination, truncation, _ = slot.env.step(
                chosen if chosen.ndim else int(chosen)
            )
            self.observation[slot.run, slot.column] = observation
            slot.total += float(reward)
        except LeewardError:
            raise
        except Exception as error:  # an environment's own code may raise anything
            raise self._failure(slot, f"failed to step ({_reason(error)})") from error
        slot.steps += 1
        if slot.steps >= self.longest and not (termination or truncation):
            raise self._failure(slot, "does not end: register it with max_episode_steps")
        return bool(termination or truncation)

    def _end(self, slot: _Slot) -> None:
        """Records the episode, and begins the run's next one or retires the slot."""
        if not np.isfinite(slot.total):
            raise self._failure(slot, "gave a reward that is not a finite number")
        self.returns[slot.run, slot.episode] = slot.total
        self.lengths[slot.run, slot.episode] = slot.steps
        if self.started[slot.run] < self.evaluator.episodes:
            slot.episode = self.started[slot.run]
            self.started[slot.run] += 1
            self._begin(slot)
        else:
            self.slots.remove(slot)

    def _failure(self, slot: _Slot, what: str) -> SimulationError:
        return SimulationError(
            f"environment {self.spec.id} {what}, at step {slot.steps} of episode {slot.episode} "
            f"(seed {self.policies.runs[slot.run].seed})"
        )


def _check_weights(policies: Actors, without: Collection[int]) -> None:
    """Raises SimulationError for a policy with NaN or infinite weights.

    Discrete actions would not show them: the likeliest of NaN is action 0.
    """
    finite = np.ones(len(policies.runs), bool)
    for leaf in jax.tree.leaves(policies.policies):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            finite &= np.isfinite(leaf).reshape(len(finite), -1).all(axis=1)
    for run in map(int, np.flatnonzero(~finite)):
        if run not in without:
            raise SimulationError(
                f"the policy of seed {policies.runs[run].seed} has weights that are not finite "
                "numbers: its training diverged"
            )


def _reason(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _width(runs: int, episodes: int, copies: int) -> int:
    """Episodes of one run stepped side by side: as equal rounds as `copies` allows."""
    most = max(1, copies // max(1, runs))
    rounds = -(-episodes // most)
    return -(-episodes // rounds)
