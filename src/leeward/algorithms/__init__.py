"""The algorithms, by name: a plain dictionary of every file's `ALGORITHM`."""

from __future__ import annotations

from leeward.algorithms import awac, bc, bcq, cql, crr, fisher_brc, iql, rebrac, sac, td3_bc
from leeward.errors import ConfigError, did_you_mean
from leeward.types import Algorithm

ALGORITHMS: dict[str, Algorithm] = {
    "awac": awac.ALGORITHM,
    "bc": bc.ALGORITHM,
    "bcq": bcq.ALGORITHM,
    "cal_ql": cql.CAL_QL,
    "cql": cql.ALGORITHM,
    "crr": crr.ALGORITHM,
    "fisher_brc": fisher_brc.ALGORITHM,
    "iql": iql.ALGORITHM,
    "rebrac": rebrac.ALGORITHM,
    "sac": sac.ALGORITHM,
    "td3_bc": td3_bc.ALGORITHM,
}


def get_algorithm(name: str) -> Algorithm:
    """The algorithm called `name`, written with - or _.

    Raises:
        ConfigError: no algorithm has that name.
    """
    key = name.lower().replace("-", "_")
    if key not in ALGORITHMS:
        raise ConfigError(
            f"unknown algorithm '{name}'.{did_you_mean(key, ALGORITHMS)} "
            f"Algorithms: {', '.join(name.replace('_', '-') for name in sorted(ALGORITHMS))}"
        )
    return ALGORITHMS[key]
