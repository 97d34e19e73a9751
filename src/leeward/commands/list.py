"""`leeward list algorithms|datasets|environments`."""

from __future__ import annotations

import importlib.util

from rich.console import Console
from rich.table import Table

from leeward.errors import ConfigError, did_you_mean

KINDS = ("algorithms", "datasets", "environments")


def main(arguments: list[str]) -> int:
    """Prints one of the lists."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: leeward list {'|'.join(KINDS)} [PART OF A NAME]")  # noqa: T201
        return 0 if arguments else 2
    kind, part = arguments[0], (arguments[1].lower() if len(arguments) > 1 else "")
    if kind not in KINDS:
        raise ConfigError(
            f"cannot list '{kind}'.{did_you_mean(kind, KINDS)} Lists: {', '.join(KINDS)}"
        )
    table = {"algorithms": algorithms, "datasets": datasets, "environments": environments}[kind]()
    shown = Table(*table[0], box=None)
    for row in table[1]:
        if part in row[0].lower():
            shown.add_row(*row)
    Console(width=None if Console().is_terminal else 160).print(shown)
    return 0


Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]


def algorithms() -> Rows:
    """Names, action kinds, phases and presets."""
    from leeward.algorithms import all_algorithms
    from leeward.published import settings as published

    rows = [
        (
            name.replace("_", "-"),
            ", ".join(algorithm.actions),
            " → ".join(phase.name for phase in algorithm.phases),
            ", ".join([*algorithm.presets, *published.names(name)]) or "–",
        )
        for name, algorithm in sorted(all_algorithms().items())
    ]
    return ("algorithm", "actions", "phases", "presets"), rows


def datasets() -> Rows:
    """Names, groups, environments and where they come from."""
    from leeward.data import registry

    rows = []
    for name in registry.names():
        entry = registry.find(name)
        assert entry is not None
        environment = entry.env or f"none ({entry.no_env_reason})"
        rows.append((name, entry.group, environment, entry.url or "shipped with leeward"))
    return ("data set", "group", "environment", "source"), rows


def environments() -> Rows:
    """Environments that can be made here, with their random and expert returns where known."""
    import gymnasium

    from leeward import robotics
    from leeward.data import registry

    if importlib.util.find_spec("gymnasium_robotics"):
        robotics.register()
    rows = []
    for name in sorted(gymnasium.registry):
        if name.split("/")[0] in (
            "phys2d",
            "tabular",
            "GymV21Environment-v0",
            "GymV26Environment-v0",
        ):
            continue
        scores = registry.reference_scores(name)
        rows.append(
            (
                name,
                "" if scores is None else f"{scores.minimum:.1f}",
                "" if scores is None else f"{scores.maximum:.1f}",
            )
        )
    return ("environment", "score 0 at", "score 100 at"), rows
