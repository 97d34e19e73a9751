"""Choosing the best policy of a training run by its estimated value: `train --select ope`."""

from __future__ import annotations

import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.sampling import fit_scaling, to_device
from leeward.ope import distrust, fitted
from leeward.ope.fitted import Config, Question
from leeward.ope.targets import Target, in_network_units, next_choices, weights_are_finite
from leeward.ope.walks import find_walks
from leeward.policy import PolicyStack


class Selector:
    """Estimates the policies of N runs by fitted Q evaluation, always with the same batches.

    An estimate depends on the policy alone, not on when it is made: those of different moments and
    seeds can be compared.
    """

    def __init__(self, dataset: Dataset, discount: float, steps: int) -> None:
        """Prepares the data.

        Args:
            dataset: the data as logged, rewards untransformed.
            discount: of future rewards.
            steps: updates of every estimate.

        Raises:
            DataError: data without any first state.
        """
        walks = find_walks(dataset)
        self._dataset = dataset
        self._scaling = fit_scaling(dataset, normalize_observations=True)
        self._data = to_device(dataset, self._scaling)
        self._first = dataset.start[walks.first]
        self._config = Config(steps=steps, discount=discount)

    def estimate(self, policies: PolicyStack) -> np.ndarray:
        """[N]: every run's estimated discounted return; NaN where it cannot be believed.

        That is where a policy diverged, its critics did, or no policy could have such a value.
        """
        dataset, runs = self._dataset, len(policies.runs)
        one = [policies.select(run=run) for run in range(runs)]
        sound = [run for run in range(runs) if weights_are_finite(one[run].policy)]
        result = np.full(runs, np.nan)
        if not sound:
            return result
        targets = [Target.of_policy(f"run {run}", one[run], dataset) for run in sound]
        questions = [
            Question(
                self._units(next_choices(dataset, target.choice, target.next_choice)),
                np.ones(dataset.transitions, np.float32),
            )
            for target in targets
        ]
        fits = fitted.fit(self._data, dataset.spec, questions, self._config)
        reward = dataset.reward[dataset.start]
        for run, target, fit in zip(sound, targets, fits, strict=True):
            choice = self._units(target.choice[self._first])
            value = float(fitted.predict(fit, self._data, self._first, choice).mean())
            if np.isfinite(value) and not distrust.impossible(value, reward, self._config.discount):
                result[run] = value
        return result

    def _units(self, choice: np.ndarray) -> np.ndarray:
        return in_network_units(self._dataset, self._scaling, choice)
