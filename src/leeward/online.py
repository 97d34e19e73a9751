"""Online SAC: the learner that makes data, one update a step, resumable from its last checkpoint.

Every random number comes from (seed, step) or (seed, episode), and checkpoints are taken between
episodes, so a training that was killed and continued equals one that was not.

training/: config.json, evaluations.jsonl, policies/STEP (each one that was evaluated),
checkpoints/STEP (the newest).
"""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from leeward import checkpoint, policy_folder
from leeward.algorithms import sac
from leeward.data.sampling import Scaling
from leeward.environments import EnvironmentSource
from leeward.errors import ConfigError, SpecError
from leeward.evaluate import Evaluator
from leeward.logging import JsonLines
from leeward.online_folder import find_newest, record_evaluation, save_newest
from leeward.policy import PolicyStack, TrainedRun
from leeward.progress import View
from leeward.replay import (
    Replay,
    Transition,
    explore,
    first_rows,
    grow,
    learn,
    make_replay,
    remember,
    to_columns,
)
from leeward.rollout import Columns, Simulator
from leeward.types import Box, Metrics, Spec

INIT_TAG, UPDATE_TAG, ACTION_TAG = 0, 1, 2
TRAINING_EPISODES = 1
"""Tag of the episodes of training; 0 is evaluation's."""


@dataclass(frozen=True)
class OnlineOptions:
    """How the online learner trains (SAC; defaults of its paper, arXiv 1812.05905)."""

    steps: int = 1_000_000
    """Steps in the environment; every one after the random ones is followed by one update."""
    random_steps: int = 10_000
    """First steps, with uniformly random actions and without updates."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes of actor and critics."""
    lr: float = 3e-4
    """Adam rate of actor, critics and temperature."""
    discount: float = 0.99
    """Discount of future rewards."""
    eval_every: int = 5_000
    """Steps between evaluations; the policy of every one is kept, and medium and expert are
    chosen among them."""
    eval_episodes: int = 10
    """Episodes of every evaluation."""
    checkpoint_every: int = 50_000
    """Steps between checkpoints, from which the same command continues after a kill."""


def check_online(options: OnlineOptions) -> None:
    """Rejects impossible values before anything is written.

    Raises:
        ConfigError: the option, its value and what is allowed.
    """
    positive = ("steps", "batch_size", "eval_every", "eval_episodes", "checkpoint_every")
    for name in positive:
        if getattr(options, name) < 1:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} must be at least 1, got {getattr(options, name)}")
    if not 0 <= options.random_steps < options.steps:
        raise ConfigError(
            f"--random-steps must be 0 or more and less than --steps {options.steps}, got "
            f"{options.random_steps}"
        )
    if not options.hidden or min(options.hidden) < 1:
        raise ConfigError("--hidden needs one positive size or more, such as --hidden 256 256")
    if options.lr <= 0.0:
        raise ConfigError(f"--lr must be positive, got {options.lr}")
    if not 0.0 <= options.discount < 1.0:
        raise ConfigError(f"--discount must lie in [0, 1), got {options.discount}")


@dataclass
class Position:
    """Where a training stands."""

    updates: int = 0
    """Steps made in the environment (the name by which checkpoints are ordered)."""
    episode: int = 0
    """Episodes begun."""
    log_size: int = 0
    """Bytes of evaluations.jsonl."""


class Training:
    """One online training in its folder."""

    def __init__(
        self,
        env: EnvironmentSource,
        options: OnlineOptions,
        seed: int,
        directory: Path,
        view: View,
        interrupted: threading.Event,
    ) -> None:
        """Prepares the training, or what is left of it after the newest checkpoint.

        Raises:
            SpecError: SAC cannot learn with the environment's actions or observations.
            ConfigError: the checkpoint is past `options.steps`.
        """
        self.options, self.seed, self.directory = options, seed, directory
        self.view, self.interrupted = view, interrupted
        self.simulator = Simulator(env)
        self.evaluator = Evaluator(env, episodes=options.eval_episodes)
        self.spec = learnable(self.simulator)
        self.scaling, self.center, self.scale = make_scaling(self.spec)
        self.config = sac.Config(
            batch_size=options.batch_size,
            hidden=options.hidden,
            actor_lr=options.lr,
            critic_lr=options.lr,
            alpha_lr=options.lr,
            discount=options.discount,
        )
        key = jax.random.key(seed)
        self._update_key = jax.random.fold_in(key, UPDATE_TAG)
        self._action_key = jax.random.fold_in(key, ACTION_TAG)
        state = jax.jit(sac.init, static_argnums=1)(
            self.config, self.spec, jax.random.fold_in(key, INIT_TAG)
        )
        self.state: sac.State = jax.tree.map(jnp.copy, state)  # it is donated: nothing shared
        self.position = Position()
        self.metrics: Metrics = {}
        self.replay = self._restore()
        self.log = JsonLines(directory / "evaluations.jsonl")
        self.log.cut(self.position.log_size)

    def go(self) -> None:
        """Trains to the end; saves on the way and there.

        Raises:
            KeyboardInterrupt: SIGINT or SIGTERM; the training was saved.
        """
        saved = self.position.updates
        self._started = (time.monotonic(), saved)
        self.view.start("training", saved, self.options.steps)
        if saved == self.options.steps and not self._evaluated(saved):
            self._evaluate(saved)  # it was interrupted here, and this is to be its end
            self._save()
        while self.position.updates < self.options.steps:
            self._episode()
            step, period = self.position.updates, self.options.checkpoint_every
            over = step == self.options.steps
            if over or step // period > saved // period or self.interrupted.is_set():
                self._save()
                saved = step
            if self.interrupted.is_set():
                self.view.event(f"interrupted: saved after {step} steps; the same command goes on")
                raise KeyboardInterrupt

    def close(self) -> None:
        """Closes environments and log."""
        self.simulator.close()
        self.evaluator.close()
        self.log.close()

    def saw(self) -> Columns:
        """Every step made so far, as it is written to files."""
        return to_columns(first_rows(self.replay, self.position.updates), self.center, self.scale)

    def policies(self, step: int) -> PolicyStack:
        """The policy as it is now."""
        return PolicyStack(
            sac.ALGORITHM,
            self.config,
            self.spec,
            self.scaling,
            jax.tree.map(lambda leaf: leaf[None], sac.policy(self.state)),
            (TrainedRun(self.seed, {}, step),),
            env=self.simulator.name,
        )

    def _episode(self) -> None:
        """One episode, or what of it fits into the steps."""
        observation = self.simulator.reset(TRAINING_EPISODES, self.seed, self.position.episode)
        self.position.episode += 1
        ended = False
        while not ended:
            step = self.position.updates
            unit, action = self._action(observation, step)
            answer = self.simulator.step(action)
            last = step + 1 == self.options.steps and not answer.termination
            transition = Transition(
                observation,
                unit,
                answer.reward,
                answer.observation,
                answer.termination,
                answer.truncation or last,
            )
            self.replay = remember(self.replay, transition, step)
            if step >= self.options.random_steps:
                self.state, self.metrics = learn(
                    self.config, self.state, self.replay, self._update_key, step
                )
            observation = answer.observation
            self.position.updates += 1
            self._after_step()
            ended = answer.termination or transition.truncation
            ended = ended or self.position.updates == self.options.steps

    def _action(self, observation: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        """The action in network units and in the environment's, inside its box."""
        if step < self.options.random_steps:
            draw = np.random.default_rng([self.seed, step])
            unit = draw.uniform(-1.0, 1.0, len(self.center)).astype(np.float32)
        else:
            unit = np.asarray(explore(sac.policy(self.state), observation, self._action_key, step))
        return unit, self.center + self.scale * unit

    def _after_step(self) -> None:
        step = self.position.updates
        if step % 200 == 0:
            begun, first = self._started
            self.view.advance(step, (step - first) / (time.monotonic() - begun))
        if step % self.options.eval_every == 0 or step == self.options.steps:
            self._evaluate(step)

    def _evaluated(self, step: int) -> bool:
        return policy_folder.exists(self.directory / "policies" / str(step))

    def _evaluate(self, step: int) -> None:
        """Records the deterministic policy's episodes and keeps the policy."""
        record_evaluation(
            self.directory, self.evaluator, self.policies(step), self.metrics, self.log, self.view
        )
        self.position.log_size = self.log.settle()

    def _save(self) -> None:
        step = self.position.updates
        arrays = {"state": self.state, "replay": first_rows(self.replay, step)}
        save_newest(self.directory, step, arrays, dataclasses.asdict(self.position))

    def _restore(self) -> Replay:
        """Goes back to the newest checkpoint, if there is one; the replay as it was there."""
        found = find_newest(self.directory, self.view, self.options.steps)
        if found is None:
            return make_replay(self.spec, self.options.steps)
        self.position = Position(**checkpoint.manifest(found))
        rows = jax.eval_shape(lambda: make_replay(self.spec, self.position.updates))
        arrays = checkpoint.restore(found, {"state": self.state, "replay": rows})
        self.state = arrays["state"]
        return grow(arrays["replay"], self.spec, self.options.steps)


def learnable(simulator: Simulator) -> Spec:
    """The environment's shapes, if SAC can learn in it.

    Raises:
        SpecError: discrete actions, or observations that are not vectors.
    """
    known = simulator.spec
    if not isinstance(known.action, Box):
        raise SpecError(
            f"environment {simulator.name} has discrete actions, and sac learns continuous ones: "
            "use --policy qrdqn, random, or a run that was trained in it"
        )
    if len(known.observation_shape) != 1 or known.observation_dtype == "uint8":
        raise SpecError(
            f"environment {simulator.name} has observations of shape {known.observation_shape} "
            f"and type {known.observation_dtype}, and sac learns from vectors: wrap it in "
            "gymnasium.wrappers.FlattenObservation"
        )
    return Spec(known.observation_shape, "float32", known.action)


def make_scaling(spec: Spec) -> tuple[Scaling, np.ndarray, np.ndarray]:
    """Observations as they are, actions from their box; the latter's center and scale again."""
    assert isinstance(spec.action, Box)
    low, high = np.array(spec.action.low), np.array(spec.action.high)
    center = ((low + high) / 2).astype(np.float32)
    scale = ((high - low) / 2).astype(np.float32)
    shape = spec.observation_shape
    scaling = Scaling(jnp.zeros(shape), jnp.ones(shape), jnp.asarray(center), jnp.asarray(scale))
    return scaling, center, scale
