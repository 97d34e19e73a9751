"""Online QR-DQN: the learner that makes data of discrete actions, on copies stepped together.

Every random number comes from (seed, step) or (seed, episode). At every checkpoint all copies begin
new episodes, so a training that was killed and continued equals one that was not.

training/: config.json, evaluations.jsonl, policies/STEP (each one that was evaluated),
checkpoints/STEP (the newest).
"""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from leeward import atari, checkpoint
from leeward.algorithms import qrdqn
from leeward.copies import Copies, make_copies
from leeward.data.sampling import Scaling
from leeward.environments import EnvironmentSource, environment_id
from leeward.errors import ConfigError
from leeward.evaluate import Evaluator
from leeward.logging import JsonLines
from leeward.online_folder import find_newest, record_evaluation, save_newest
from leeward.policy import PolicyStack, TrainedRun
from leeward.progress import View
from leeward.replay_ring import Ring
from leeward.types import Batch, Metrics, PRNGKey, Step

INIT_TAG, UPDATE_TAG, ACTION_TAG = 0, 1, 2
TRAINING_EPISODES = 1
"""Tag of the episodes of training; 0 is evaluation's."""


@dataclass(frozen=True)
class QRDQNOptions:
    """How the online learner of discrete actions trains (Tianshou's examples/atari/atari_qrdqn)."""

    steps: int = 10_000_000
    """Steps in the environment, of all copies together."""
    copies: int = 10
    """Copies of the environment that are stepped together."""
    updates_per_step: int = 1
    """Updates after every step of all copies."""
    random_steps: int = 5_000
    """First steps, with uniformly random actions and without updates."""
    batch_size: int = 32
    """Transitions an update."""
    buffer_size: int = 100_000
    """Latest steps that updates draw from."""
    hidden: tuple[int, ...] = (512,)
    """Hidden sizes, behind the convolutions where observations are images."""
    quantiles: int = 200
    """Quantiles of every action's return."""
    double: bool = True
    """Choose the next action by the online network, not by the target as the paper does."""
    lr: float = 1e-4
    """Adam rate (the paper: 5e-5)."""
    adam_eps: float = 1e-8
    """Adam's epsilon (the paper: 0.0003125)."""
    discount: float = 0.99
    """Discount of future rewards."""
    n_step: int = 3
    """Rewards summed before the target bootstraps."""
    target_every: int = 500
    """Updates between copies of the network to its target."""
    exploration_start: float = 1.0
    """Share of random actions at the start."""
    exploration_end: float = 0.05
    """Share of random actions after --exploration-steps."""
    exploration_steps: int = 1_000_000
    """Steps over which that share falls, in a straight line."""
    clip_rewards: Literal["atari", "always", "never"] = "atari"
    """Learn from the sign of rewards alone: in Atari games, always, or never."""
    eval_every: int = 100_000
    """Steps between evaluations; the policy of every one is kept, and medium and expert are
    chosen among them."""
    eval_episodes: int = 10
    """Episodes of every evaluation."""
    checkpoint_every: int = 100_000
    """Steps between checkpoints, from which the same command continues after a kill."""


def check_qrdqn(options: QRDQNOptions) -> None:
    """Rejects impossible values before anything is written.

    Raises:
        ConfigError: the option, its value and what is allowed.
    """
    positive = ("steps", "copies", "updates_per_step", "batch_size", "quantiles", "n_step")
    positive += ("target_every", "exploration_steps", "eval_every", "eval_episodes")
    for name in (*positive, "checkpoint_every"):
        if getattr(options, name) < 1:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} must be at least 1, got {getattr(options, name)}")
    if not 1 <= options.random_steps < options.steps:
        raise ConfigError(
            f"--random-steps must be 1 or more and less than --steps {options.steps}, got "
            f"{options.random_steps}"
        )
    if not options.hidden or min(options.hidden) < 1:
        raise ConfigError("--hidden needs one positive size or more, such as --hidden 512")
    for name in ("lr", "adam_eps"):
        if getattr(options, name) <= 0.0:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} must be positive, got {getattr(options, name)}")
    if not 0.0 <= options.discount < 1.0:
        raise ConfigError(f"--discount must lie in [0, 1), got {options.discount}")
    for name in ("exploration_start", "exploration_end"):
        if not 0.0 <= getattr(options, name) <= 1.0:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} must lie in [0, 1], got {getattr(options, name)}")
    least = options.copies * (options.n_step + 2 * atari.STACK)
    if options.buffer_size < least:
        raise ConfigError(f"--buffer-size must be at least {least}, got {options.buffer_size}")


@dataclass
class Progress:
    """Where a training stands."""

    updates: int = 0
    """Steps made in the environment (the name by which checkpoints are ordered)."""
    learned: int = 0
    """Updates of the network."""
    episode: int = 0
    """Episodes begun."""
    log_size: int = 0
    """Bytes of evaluations.jsonl."""


@partial(jax.jit, donate_argnums=1)
def learn(
    config: qrdqn.Config, state: qrdqn.State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[qrdqn.State, Metrics]:
    """One update."""
    return qrdqn.update(config, state, batch, key, step)


@jax.jit
def greedy(policy: Any, observation: Shaped[Array, "N *obs"]) -> Shaped[Array, " N"]:
    """The action with the highest value in every copy."""
    return qrdqn.act(policy, observation, jax.random.key(0))


class DiscreteTraining:
    """One online training in its folder."""

    def __init__(
        self,
        env: EnvironmentSource,
        options: QRDQNOptions,
        seed: int,
        directory: Path,
        view: View,
        interrupted: threading.Event,
    ) -> None:
        """Prepares the training, or what is left of it after the newest checkpoint.

        Raises:
            SpecError: QR-DQN cannot learn with the environment's actions or observations.
            ConfigError: the checkpoint is past `options.steps`.
        """
        self.options, self.seed, self.directory = options, seed, directory
        self.view, self.interrupted, self.name = view, interrupted, environment_id(env)
        self.copies: Copies = make_copies(env, options.copies, TRAINING_EPISODES, seed)
        self.evaluator = Evaluator(env, episodes=options.eval_episodes)
        clip = {"atari": self.copies.stack > 1, "always": True, "never": False}
        self.clips = clip[options.clip_rewards]
        self.config = qrdqn.Config(
            batch_size=options.batch_size,
            hidden=options.hidden,
            quantiles=options.quantiles,
            double=options.double,
            lr=options.lr,
            adam_eps=options.adam_eps,
            discount=options.discount,
            target_every=options.target_every,
        )
        self.state: qrdqn.State = self._first_state()
        spec = self.copies.spec
        row = spec.observation_shape[1:] if self.copies.stack > 1 else spec.observation_shape
        rows = options.buffer_size // options.copies + 1
        self.ring = Ring(options.copies, rows, row, spec.observation_dtype, self.copies.stack)
        self.position, self.metrics = Progress(), {}
        self._restore()
        self.log = JsonLines(directory / "evaluations.jsonl")
        self.log.cut(self.position.log_size)

    def go(self) -> None:
        """Trains to the end; saves on the way and there.

        Raises:
            KeyboardInterrupt: SIGINT or SIGTERM; the training was saved.
        """
        options, first = self.options, self.position.updates
        begun = time.monotonic()
        self.view.start("training", first, options.steps)
        self._begin(range(options.copies))
        while self.position.updates < options.steps:
            before = self.position.updates
            self._round()
            step = self.position.updates
            if before // 1_000 != step // 1_000:
                rate = (step - first) / (time.monotonic() - begun)
                self.view.advance(min(step, options.steps), rate, "steps")
            over = step >= options.steps
            if over or before // options.eval_every != step // options.eval_every:
                self._evaluate(step)
            due = before // options.checkpoint_every != step // options.checkpoint_every
            if over or due or self.interrupted.is_set():
                self._save()
                self._begin(range(options.copies))
            if self.interrupted.is_set() and not over:
                self.view.event(f"interrupted: saved after {step} steps; the same command goes on")
                raise KeyboardInterrupt

    def close(self) -> None:
        """Closes environments and log."""
        self.copies.close()
        self.evaluator.close()
        self.log.close()

    def policies(self, step: int) -> PolicyStack:
        """The policy as it is now."""
        shape = self.copies.spec.observation_shape
        return PolicyStack(
            qrdqn.ALGORITHM,
            self.config,
            self.copies.spec,
            Scaling(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(1), jnp.ones(1)),
            jax.tree.map(lambda leaf: leaf[None], qrdqn.policy(self.state)),
            (TrainedRun(self.seed, {}, step),),
            env=self.name,
        )

    def _first_state(self) -> qrdqn.State:
        key = jax.random.fold_in(jax.random.key(self.seed), INIT_TAG)
        state = jax.jit(qrdqn.init, static_argnums=1)(self.config, self.copies.spec, key)
        return jax.tree.map(jnp.copy, state)  # it is donated: nothing shared

    def _begin(self, copies: Any) -> None:
        """New episodes in these copies."""
        numbers = {int(copy): self.position.episode + i for i, copy in enumerate(copies)}
        self.position.episode += len(numbers)
        for copy, row in self.copies.begin(numbers).items():
            self.ring.begin(copy, row)

    def _round(self) -> None:
        """One step of all copies, and the updates that follow it."""
        step, options = self.position.updates, self.options
        action = self._actions(step)
        answers = self.copies.step(action)
        reward = np.sign(answers.reward) if self.clips else answers.reward
        for copy in range(options.copies):
            self.ring.step(
                copy,
                int(action[copy]),
                float(reward[copy]),
                bool(answers.termination[copy]),
                answers.row[copy],
            )
            if answers.termination[copy] and not answers.ended[copy]:
                self.ring.begin(copy, answers.row[copy])  # the game goes on with the next life
        if answers.ended.any():
            self._begin(np.flatnonzero(answers.ended))
        self.position.updates += options.copies
        if step < options.random_steps:
            return
        for number in range(options.updates_per_step):
            generator = np.random.default_rng([self.seed, UPDATE_TAG, step, number])
            size, n_step = options.batch_size, options.n_step
            batch = self.ring.sample(generator, size, n_step, options.discount)
            self.state, self.metrics = learn(
                self.config,
                self.state,
                batch,
                jax.random.key(0),
                jnp.int32(self.position.learned),
            )
            self.position.learned += 1

    def _actions(self, step: int) -> np.ndarray:
        """[N]: random ones with the share that belongs to the step, else the best."""
        options, spec = self.options, self.copies.spec
        generator = np.random.default_rng([self.seed, ACTION_TAG, step])
        action = generator.integers(spec.action.size, size=options.copies)
        share = min(1.0, step / options.exploration_steps)
        epsilon = options.exploration_start
        epsilon += share * (options.exploration_end - options.exploration_start)
        explores = generator.random(options.copies) < epsilon
        if step < options.random_steps or explores.all():
            return action
        best = np.asarray(greedy(qrdqn.policy(self.state), self.ring.newest()))
        return np.where(explores, action, best)

    def _evaluate(self, step: int) -> None:
        """Records the greedy policy's episodes and keeps the policy."""
        record_evaluation(
            self.directory, self.evaluator, self.policies(step), self.metrics, self.log, self.view
        )
        self.position.log_size = self.log.settle()

    def _save(self) -> None:
        arrays = {"state": self.state, "ring": self.ring.arrays()}
        position = dataclasses.asdict(self.position)
        save_newest(self.directory, self.position.updates, arrays, position)

    def _restore(self) -> None:
        """Goes back to the newest checkpoint, if there is one."""
        overshoot = self.options.copies - 1
        found = find_newest(self.directory, self.view, self.options.steps, overshoot)
        if found is None:
            return
        self.position = Progress(**checkpoint.manifest(found))
        arrays = checkpoint.restore(found, {"state": self.state, "ring": self.ring.arrays()})
        self.state = arrays["state"]
        self.ring.restore(arrays["ring"])
