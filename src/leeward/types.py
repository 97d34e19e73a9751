"""The core types: what flows between data, algorithms and the training engine. No logic.

Axis letters in comments: B batch, E ensemble, N runs (seeds × settings), R rows, T transitions,
A action size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from jaxtyping import Array, Float, Int, Key, Shaped

Metrics = dict[str, Float[Array, ""]]
"""Scalars named "part/quantity"; the same names at every call."""
UNMEASURED = -(2.0**127)
"""Stands in an update's metrics for "not measured at this update", and is left out of means.

A finite number that no loss comes to, exact in bfloat16, float32 and float64, and not NaN: a metric
that turns NaN is news.
"""


class Box(NamedTuple):
    """Continuous actions between two bounds, one pair a dimension, in the environment's units."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def size(self) -> int:
        """Number of action dimensions A."""
        return len(self.low)


class Discrete(NamedTuple):
    """Integer actions 0 … size − 1."""

    size: int


class Spec(NamedTuple):
    """Shapes and dtypes of one problem; hashable, so a static argument of compiled programs."""

    observation_shape: tuple[int, ...]
    observation_dtype: str
    action: Box | Discrete


class Batch(NamedTuple):
    """Transitions in network units: observations normalised, continuous actions in [−1, 1].

    `discount` is γ to the number of steps that `reward` sums (1 unless n-step), so that the target
    is always reward + discount · (1 − termination) · next value. `index` is the position of each
    transition in the data, for columns that an algorithm computed once and gathers. `next_action`
    means something only where `next_action_known` is 1: elsewhere the next row holds no action of
    this episode.
    """

    observation: Shaped[Array, "B *obs"]
    action: Float[Array, "B A"] | Int[Array, " B"]
    reward: Float[Array, " B"]
    next_observation: Shaped[Array, "B *obs"]
    next_action: Float[Array, "B A"] | Int[Array, " B"]
    termination: Float[Array, " B"]  # 1.0 only where the task ended; never for a time limit
    discount: Float[Array, " B"]
    index: Int[Array, " B"]  # pyright: ignore[reportIncompatibleMethodOverride]
    next_action_known: Float[Array, " B"]  # 1.0 where the data has the action taken next


Sampling = Literal["uniform", "epoch"]
PRNGKey = Key[Array, ""]
Step = Int[Array, ""]
UpdateFn = Callable[[Any, Any, Batch, PRNGKey, Step], tuple[Any, Metrics]]
"""(config, state, batch, key, step) → (state, metrics). Pure."""
ActFn = Callable[[Any, Shaped[Array, "B *obs"], PRNGKey], Array]
"""(policy, observation [B, *obs], key) → action [B, A] in [−1, 1], or [B] integers. Pure."""


class EarlyStopping(NamedTuple):
    """How a phase measures itself on episodes held out of training, and when it gives up.

    `loss(config, state, batch)` returns one number a transition [B]; the engine averages it over
    all held-out transitions every `every(config)` steps and stops a run after `patience(config)`
    measurements without improvement, going back to its best state.
    A patience of 0 only measures: the run goes on, and its last state is kept.
    `fraction(config)` is the share of episodes held out; 0 switches early stopping off.
    """

    loss: Callable[[Any, Any, Batch], Float[Array, " B"]]
    fraction: Callable[[Any], float]
    every: Callable[[Any], int]
    patience: Callable[[Any], int]


class CloseUp(NamedTuple):
    """What a phase shows of single transitions at its end, kept for the report's figures."""

    choose: Callable[[Any], Mapping[str, Any]]
    """data.sampling.DeviceData → NumPy arrays about the transitions chosen, the same for all runs;
    "transition" [P] holds their numbers. Outside compiled programs."""
    look: Callable[[Any, Any, Any, Int[Array, " P"]], Mapping[str, Array]]
    """(config, state, data.sampling.DeviceData, transitions [P]) → arrays of one run. Pure."""


class Measurement(NamedTuple):
    """What a phase finds out about itself once, at its end."""

    numbers: Callable[[Any, Any, Any, Any], Metrics]
    """(config, state, data.sampling.DeviceData trained on, the same held out or None) → numbers."""
    warnings: Callable[[Mapping[str, float]], list[str]] = lambda numbers: []
    """One run's numbers → sentences for the log: what is wrong and what to do."""
    closeup: CloseUp | None = None


class Phase(NamedTuple):
    """One stage of training: its updates, its length and what happens on entering it."""

    name: str
    steps: Callable[[Any], int]
    update: UpdateFn
    enter: Callable[[Any, Any, Any, PRNGKey], Any] | None = None
    """(config, state, data.sampling.DeviceData, key) → state, once, before the first update."""
    early_stopping: EarlyStopping | None = None
    measurement: Measurement | None = None


class Online(NamedTuple):
    """How an algorithm goes on learning in an environment, with the updates of its last phase."""

    explore: ActFn
    """How it acts there, in [−1, 1]: a sample of its policy, or its action with noise."""
    whole_episodes: Callable[[Any], bool] = lambda config: False
    """Whether transitions count only once their episode has ended, since the phase's `enter`
    computes something from what followed them; it is then called again with what was seen."""


class Algorithm(NamedTuple):
    """Everything the engine needs to know of one algorithm."""

    name: str
    config_type: type
    init: Callable[[Any, Spec, PRNGKey], Any]
    """(config, spec, key) → state."""
    phases: tuple[Phase, ...]
    policy: Callable[[Any], Any]
    """state → the part of it that acts, which is what is saved, evaluated and exported."""
    act: ActFn
    """The deterministic (greedy) action that evaluation and export use."""
    actions: tuple[str, ...] = ("continuous",)
    """Kinds of action space it can learn: "continuous", "discrete"."""
    tensorboard: Mapping[str, str] = {}
    """Our metric names → the reference code's names, used in TensorBoard."""
    presets: Mapping[str, Mapping[str, Any]] = {}
    """Named sets of config fields, such as "reference"."""
    check: Callable[[Any, Any], None] | None = None
    """(config, data set) → raises DataError or ConfigError where they do not fit together, before
    anything is written; None where all data of the right kind of action do."""
    online: Online | None = None
    """How a trained run is continued in an environment (leeward finetune); None: it is not."""
    all_rows: str | None = None
    """Why the data cannot stay on disk, as the end of a sentence after the name, where `enter` or a
    measurement goes over all rows; None where updates, and small columns, are all there is."""
