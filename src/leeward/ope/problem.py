"""`Problem`: one data set made ready for all estimators, apart from the policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.sampling import DeviceData, Scaling, fit_scaling, to_device
from leeward.ope.behavior import fit_behavior
from leeward.ope.fitted import Question
from leeward.ope.options import OpeOptions
from leeward.ope.ratios import Behavior
from leeward.ope.targets import Target, in_network_units, next_choices
from leeward.ope.walks import Walks, find_walks, resampled
from leeward.types import Discrete


@dataclasses.dataclass(frozen=True)
class Problem:
    """One data set made ready: units, walks, discounts and the behavior's density."""

    dataset: Dataset
    options: OpeOptions
    scaling: Scaling
    data: DeviceData
    walks: Walks
    counts: np.ndarray
    """[1 + B, n]: the bootstrap's resamples."""
    behavior: Behavior

    @staticmethod
    def of(
        dataset: Dataset,
        options: OpeOptions,
        behavior: Behavior | None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Problem:
        """Everything that does not depend on the policies; fits the behavior where needed."""
        walks = find_walks(dataset)
        scaling = fit_scaling(dataset, normalize_observations=True)
        data = to_device(dataset, scaling)
        if behavior is None:
            behavior = fit_behavior(
                dataset,
                data,
                scaling,
                steps=options.behavior_steps,
                hidden=options.hidden,
                seed=options.seed,
                on_progress=on_progress,
            )
        counts = resampled(len(walks.first))
        return Problem(dataset, options, scaling, data, walks, counts, behavior)

    @property
    def row(self) -> np.ndarray:
        """[L]: the row of every step."""
        return self.dataset.start[self.walks.transition]

    @property
    def reward(self) -> np.ndarray:
        """[L] float64."""
        return self.dataset.reward[self.row].astype(np.float64)

    @property
    def weight(self) -> np.ndarray:
        """[L]: discount to the number of every step."""
        return self.options.discount ** self.walks.step.astype(np.float64)

    def in_units(self, choice: np.ndarray) -> np.ndarray:
        """Choices as the networks see them."""
        return in_network_units(self.dataset, self.scaling, choice)

    def next_choice(self, target: Target) -> np.ndarray:
        """[T, …]: what the policy does after every transition."""
        return self.in_units(next_choices(self.dataset, target.choice, target.next_choice))

    def taken(self, row: np.ndarray) -> np.ndarray:
        """[M, …]: the data's own actions as choices."""
        action = self.dataset.action[row]
        if isinstance(self.dataset.action_space, Discrete):
            return np.eye(self.dataset.action_space.size, dtype=np.float32)[action]
        return self.in_units(action)

    def data_question(self) -> Question | None:
        """The behavior as a policy to fit, by the actions it took next; None if not known."""
        known = self.data.next_action_known
        if known is None:
            return None
        start, last = self.dataset.start, len(self.dataset.reward) - 1
        weight = np.asarray(known)[start] | self.dataset.termination[start]
        choice = self.taken(np.minimum(start + 1, last))
        # Rows that record no action may hold anything, and 0 · NaN is NaN.
        choice = np.where(weight[:, None], choice, np.float32(0.0))
        return Question(choice, weight.astype(np.float32))
