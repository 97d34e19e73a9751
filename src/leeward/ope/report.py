"""What the estimates say: values with intervals, reasons for distrust, ranks and agreement."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

ESTIMATORS = {
    "fqe": "fitted Q evaluation",
    "one-step": "one step of improvement on the behavior",
    "pdis": "per-decision importance sampling",
    "wis": "weighted importance sampling",
    "sn-pdis": "self-normalized per-decision importance sampling",
    "dr": "doubly robust",
    "wdr": "weighted doubly robust",
}
"""The estimators, in the order of tables."""


class Estimate(NamedTuple):
    """One estimate of a policy's discounted return from the first states of the data's episodes."""

    value: float | None
    """None where it cannot be computed; `reasons` say why."""
    interval: tuple[float, float] | None = None
    """95 %, over episodes."""
    effective: float | None = None
    """Effective sample size in episodes, where episodes are weighted."""
    reasons: tuple[str, ...] = ()
    """Why it should not be trusted."""

    @property
    def trusted(self) -> bool:
        """Whether nothing speaks against it."""
        return self.value is not None and not self.reasons


@dataclasses.dataclass(frozen=True)
class PolicyEstimates:
    """All estimates of one policy."""

    name: str
    estimates: Mapping[str, Estimate]

    @property
    def sentence(self) -> str:
        """What can be relied on, and what cannot and why, in plain words."""
        trusted = [name for name in ESTIMATORS if self.estimates[name].trusted]
        if len(trusted) == len(ESTIMATORS):
            return f"{self.name}: nothing speaks against any estimate."
        reasons: dict[str, list[str]] = {}
        for name in ESTIMATORS:
            for reason in self.estimates[name].reasons:
                reasons.setdefault(reason, []).append(name)
        said = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        if not trusted:
            return f"{self.name}: no estimate should be trusted. {said}."
        return f"{self.name}: trust {', '.join(trusted)} only. {said}."


@dataclasses.dataclass(frozen=True)
class Report:
    """The estimates of several policies on one data set."""

    data: str
    episodes: int
    discount: float
    behavior: Estimate
    """The value of whoever made the data."""
    policies: tuple[PolicyEstimates, ...]
    notes: tuple[str, ...] = ()

    @property
    def deciding(self) -> tuple[str, ...]:
        """Estimators that rank: those trusted for every policy; else fitted Q evaluation alone."""
        found = tuple(n for n in ESTIMATORS if all(p.estimates[n].trusted for p in self.policies))
        if found or any(p.estimates["fqe"].value is None for p in self.policies):
            return found
        return ("fqe",)

    def ranks(self, estimator: str) -> np.ndarray:
        """[policies]: 1 is the highest value; those without a value come last."""
        value = [p.estimates[estimator].value for p in self.policies]
        return _ranks(np.array([-np.inf if v is None else v for v in value]))

    def order(self) -> list[int]:
        """Policies from best to worst by their mean rank; ties by the first deciding estimator."""
        if not self.deciding:
            return list(range(len(self.policies)))
        ranks = np.stack([self.ranks(name) for name in self.deciding])
        return sorted(range(len(self.policies)), key=lambda i: (ranks[:, i].mean(), ranks[0, i]))

    def agreement(self) -> dict[tuple[str, str], float]:
        """Kendall's τ of every two estimators that have a value for all policies; 1: same order."""
        if len(self.policies) < 2:
            return {}
        from scipy.stats import kendalltau  # takes a second to import

        names = [
            n for n in ESTIMATORS if all(p.estimates[n].value is not None for p in self.policies)
        ]
        found = {}
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                result: Any = kendalltau(self.ranks(one), self.ranks(other))
                found[one, other] = float(np.nan_to_num(result.statistic))  # all ranks alike: 0
        return found

    def verdict(self) -> str:
        """Which policy comes first, by which estimators, and whether they agree."""
        if len(self.policies) == 1:
            return self.policies[0].sentence
        if not self.deciding:
            return "No estimator has a value for every policy, so they cannot be ranked."
        firsts: dict[str, list[str]] = {}
        for name in self.deciding:
            first = self.policies[int(np.argmin(self.ranks(name)))].name
            firsts.setdefault(first, []).append(name)
        said = "; ".join(
            f"{', '.join(names)} {'puts' if len(names) == 1 else 'put'} {first} first"
            for first, names in firsts.items()
        )
        if not all(p.estimates[self.deciding[0]].trusted for p in self.policies):
            return f"No estimator is trusted for every policy. As a guess: {said}."
        if len(self.deciding) == 1:
            return f"One estimator is trusted for every policy: {said}."
        return f"{'They agree' if len(firsts) == 1 else 'They disagree'}: {said}."

    def to_json(self) -> dict[str, Any]:
        """JSON values; `reliable` says whether nothing speaks against an estimate."""
        order = self.order()
        return {
            "data": self.data,
            "episodes": self.episodes,
            "discount": self.discount,
            "behavior": _json(self.behavior),
            "policies": [
                {
                    "name": p.name,
                    "rank": order.index(i) + 1,
                    "estimates": {n: _json(p.estimates[n]) for n in ESTIMATORS},
                    "sentence": p.sentence,
                }
                for i, p in enumerate(self.policies)
            ],
            "ranked_by": list(self.deciding),
            "agreement": [
                {"estimators": list(pair), "kendall_tau": tau}
                for pair, tau in self.agreement().items()
            ],
            "verdict": self.verdict(),
            "notes": list(self.notes),
        }

    def to_csv(self) -> str:
        """One line a policy and estimator."""
        file = io.StringIO()
        columns = ("policy", "rank", "estimator", "value", "low", "high", "effective_sample_size")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*columns, "reliable", "reasons"])
        order = self.order()
        for i, policy in enumerate(self.policies):
            for name in ESTIMATORS:
                found = policy.estimates[name]
                low, high = found.interval or ("", "")
                writer.writerow(
                    [
                        policy.name,
                        order.index(i) + 1,
                        name,
                        "" if found.value is None else found.value,
                        low,
                        high,
                        "" if found.effective is None else found.effective,
                        int(found.trusted),
                        "; ".join(found.reasons),
                    ]
                )
        return file.getvalue()


def _ranks(values: np.ndarray) -> np.ndarray:
    """1 for the highest; equal values share the lowest of their ranks."""
    return 1 + (values[None, :] > values[:, None]).sum(axis=1)


def _json(estimate: Estimate) -> dict[str, Any]:
    interval = estimate.interval
    return {
        "value": estimate.value,
        "low": None if interval is None else interval[0],
        "high": None if interval is None else interval[1],
        "effective_sample_size": estimate.effective,
        "reliable": estimate.trusted,
        "reasons": list(estimate.reasons),
    }
