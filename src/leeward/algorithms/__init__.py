"""The algorithms, by name: a plain dictionary of every file's `ALGORITHM`."""

from __future__ import annotations

from leeward.algorithms import (
    awac,
    bc,
    bcq,
    cql,
    crr,
    discrete_bc,
    discrete_bcq,
    discrete_cql,
    discrete_crr,
    discrete_iql,
    dqn,
    fisher_brc,
    fmr,
    iql,
    qrdqn,
    rebrac,
    sac,
    td3_bc,
)
from leeward.errors import ConfigError, did_you_mean
from leeward.types import Algorithm, Box, Discrete

ALGORITHMS: dict[str, Algorithm] = {
    "awac": awac.ALGORITHM,
    "bc": bc.ALGORITHM,
    "bcq": bcq.ALGORITHM,
    "cal_ql": cql.CAL_QL,
    "cql": cql.ALGORITHM,
    "crr": crr.ALGORITHM,
    "discrete_bc": discrete_bc.ALGORITHM,
    "discrete_bcq": discrete_bcq.ALGORITHM,
    "discrete_cql": discrete_cql.ALGORITHM,
    "discrete_crr": discrete_crr.ALGORITHM,
    "discrete_iql": discrete_iql.ALGORITHM,
    "dqn": dqn.ALGORITHM,
    "fisher_brc": fisher_brc.ALGORITHM,
    "fmr": fmr.ALGORITHM,
    "iql": iql.ALGORITHM,
    "qrdqn": qrdqn.ALGORITHM,
    "rebrac": rebrac.ALGORITHM,
    "sac": sac.ALGORITHM,
    "td3_bc": td3_bc.ALGORITHM,
}
ALIASES = {"il": "bc", "qr_dqn": "qrdqn"}
"""Other names by which algorithms are known."""
DISCRETE = "discrete_"
"""What the name of an algorithm's form for discrete actions begins with."""


def get_algorithm(name: str) -> Algorithm:
    """The algorithm called `name`, written with - or _.

    Raises:
        ConfigError: no algorithm has that name.
    """
    key = name.lower().replace("-", "_")
    key = ALIASES.get(key, key)
    if key not in ALGORITHMS:
        raise ConfigError(
            f"unknown algorithm '{name}'.{did_you_mean(key, ALGORITHMS)} "
            f"Algorithms: {', '.join(name.replace('_', '-') for name in sorted(ALGORITHMS))}"
        )
    return ALGORITHMS[key]


def has_discrete_form(algorithm: Algorithm) -> bool:
    """Whether another algorithm stands for this one where actions are discrete."""
    return DISCRETE + algorithm.name in ALGORITHMS


def form_for(algorithm: Algorithm, space: Box | Discrete) -> Algorithm:
    """The algorithm itself, or the form of it that learns the actions of this space."""
    if isinstance(space, Discrete) and has_discrete_form(algorithm):
        return ALGORITHMS[DISCRETE + algorithm.name]
    return algorithm
