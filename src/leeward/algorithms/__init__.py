"""The algorithms, by name: a plain dictionary of every file's `ALGORITHM`.

Other packages add theirs by an entry point of the group `leeward.algorithms`, NAME =
"module:ALGORITHM"; such a package is imported only when its algorithm is asked for.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

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
GROUP = "leeward.algorithms"
"""The entry points of other packages' algorithms."""


def get_algorithm(name: str) -> Algorithm:
    """The algorithm called `name`, written with - or _.

    Raises:
        ConfigError: no algorithm has that name, or the package that adds it is faulty.
    """
    key = _key(name)
    key = ALIASES.get(key, key)
    if key in ALGORITHMS:
        return ALGORITHMS[key]
    others = installed()
    if key not in others:
        known = sorted([*ALGORITHMS, *others])
        raise ConfigError(
            f"unknown algorithm '{name}'.{did_you_mean(key, known)} "
            f"Algorithms: {', '.join(name.replace('_', '-') for name in known)}"
        )
    return _load(others[key])


def installed() -> dict[str, EntryPoint]:
    """Algorithms of other packages, by name, none of them imported.

    Raises:
        ConfigError: a package uses a name that Leeward or another package has already.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        key = _key(point.name)
        if key in ALGORITHMS or key in ALIASES or key in found:
            owner = _package(found[key]) if key in found else "leeward"
            raise ConfigError(
                f"the package {_package(point)} adds an algorithm '{point.name}', a name that "
                f"{owner} uses already: rename it there, or uninstall the package"
            )
        found[key] = point
    return found


def all_algorithms() -> dict[str, Algorithm]:
    """Leeward's own algorithms and those of other packages.

    Raises:
        ConfigError: a package that adds one is faulty.
    """
    return ALGORITHMS | {key: _load(point) for key, point in installed().items()}


def _load(point: EntryPoint) -> Algorithm:
    """The algorithm that an entry point names.

    Raises:
        ConfigError: it cannot be imported, is no `Algorithm`, or calls itself by another name.
    """
    where = f"the package {_package(point)} adds an algorithm '{point.name}' ({point.value})"
    try:
        value = point.load()
    except Exception as error:  # whatever that package's own code raises
        raise ConfigError(
            f"{where}, which cannot be imported ({type(error).__name__}: {error}): mend or "
            "uninstall the package"
        ) from error
    if not isinstance(value, Algorithm):
        raise ConfigError(f"{where}, which is no leeward.types.Algorithm: mend the entry point")
    if value.name != _key(point.name):
        raise ConfigError(f"{where}, whose own name is '{value.name}': give both the same name")
    return value


def _key(name: str) -> str:
    return name.lower().replace("-", "_")


def _package(point: EntryPoint) -> str:
    return "that installed it" if point.dist is None else point.dist.name


def has_discrete_form(algorithm: Algorithm) -> bool:
    """Whether another algorithm stands for this one where actions are discrete."""
    return DISCRETE + algorithm.name in ALGORITHMS


def form_for(algorithm: Algorithm, space: Box | Discrete) -> Algorithm:
    """The algorithm itself, or the form of it that learns the actions of this space."""
    if isinstance(space, Discrete) and has_discrete_form(algorithm):
        return ALGORITHMS[DISCRETE + algorithm.name]
    return algorithm
