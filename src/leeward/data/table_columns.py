"""Which columns of a table hold what: given by name or pattern, else guessed from plain names."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Sequence

from leeward.errors import DataError, did_you_mean

_GUESSES: dict[str, str] = {
    "observation": r"(obs|observation|state)([_.\[ ].*|\d*)",
    "action": r"(act|action|a)([_.\[ ].*|\d*)",
    "reward": r"reward|rewards|r",
    "episode": r"(episode|trajectory|traj)([_ ]?(id|index|number|nr|no))?",
    "step": r"step|t|timestep|time_step|step_id|step_index|frame_index",
    "termination": r"termination|terminated|terminal|done|dones|is_terminal",
    "truncation": r"truncation|truncated|timeout|time_limit",
}
"""Names, whole and without regard to capitals, that are taken to mean each."""


@dataclasses.dataclass(frozen=True)
class TableColumns:
    """The columns of a table; what is None is guessed where a name is plain."""

    observation: str | Sequence[str] | None = None
    """Names or patterns such as 'obs_*', in the order wanted."""
    action: str | Sequence[str] | None = None
    """Names or patterns, such as 'a_*'."""
    reward: str | None = None
    """One name; 'none' if the table has no rewards (imitation)."""
    episode: str | None = None
    """The column that tells episodes apart; 'none' if there is none."""
    step: str | None = None
    """The column that orders an episode's rows; 'none' to keep the table's order."""
    termination: str | None = None
    """True where the task ended; 'none' if no task ever ends."""
    truncation: str | None = None
    """True where the recording stopped; 'none' to go by episode alone."""


@dataclasses.dataclass(frozen=True)
class Mapping:
    """Columns found in a table."""

    observation: tuple[str, ...]
    action: tuple[str, ...]
    reward: str | None
    episode: str | None
    step: str | None
    termination: str | None
    truncation: str | None

    def all(self) -> list[str]:
        """Every column that is used."""
        single = (self.reward, self.episode, self.step, self.termination, self.truncation)
        return [*self.observation, *self.action, *(name for name in single if name is not None)]

    def describe(self, names: Sequence[str]) -> str:
        """One line that says which column was taken for what."""
        parts = []
        used: set[str] = set()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            listed = [value] if isinstance(value, str) else list(value or ())
            used.update(listed)
            parts.append(f"{field.name} = {', '.join(listed) or '(none)'}")
        unused = [name for name in names if name not in used]
        if unused:
            parts.append(f"not used: {', '.join(unused)}")
        return "columns: " + "; ".join(parts)


def find_columns(table: str, names: Sequence[str], wanted: TableColumns) -> Mapping:
    """The columns that `wanted` means among `names`.

    Args:
        table: the file, for messages.
        names: the table's columns.
        wanted: names, patterns and None.

    Raises:
        DataError: a name that is not there, a pattern that matches nothing, an observation,
            action or reward that can be neither found nor guessed, or a column used twice.
    """
    taken: dict[str, str] = {}
    single = {
        field: _single(table, field, getattr(wanted, field), names, taken)
        for field in ("reward", "episode", "step", "termination", "truncation")
    }
    several = {
        field: _several(table, field, getattr(wanted, field), names, taken)
        for field in ("observation", "action")
    }
    if single["reward"] is None and wanted.reward != "none":
        raise DataError(
            f"{table}: no column looks like the reward: name it with --reward, or say "
            f"--reward none for imitation without rewards; the columns are {', '.join(names)}"
        )
    return Mapping(**several, **single)  # type: ignore[arg-type]


def _single(
    table: str, field: str, given: str | None, names: Sequence[str], taken: dict[str, str]
) -> str | None:
    if given == "none":
        return None
    if given is not None:
        _check_name(table, field, given, names)
        _take(table, field, given, taken)
        return given
    found = [name for name in names if re.fullmatch(_GUESSES[field], name.strip().lower())]
    if len(found) > 1:
        raise DataError(
            f"{table}: the columns {' and '.join(found)} both look like the {field}: choose with "
            f"{_flag(field)}"
        )
    if found:
        _take(table, field, found[0], taken)
    return found[0] if found else None


def _several(
    table: str,
    field: str,
    given: str | Sequence[str] | None,
    names: Sequence[str],
    taken: dict[str, str],
) -> tuple[str, ...]:
    if given is None:
        guess = _GUESSES[field]
        found = [n for n in names if n not in taken and re.fullmatch(guess, n.strip().lower())]
        if not found:
            raise DataError(
                f"{table}: no column looks like the {field}: name them with {_flag(field)} "
                f"(patterns such as 'x_*' work); the columns are {', '.join(names)}"
            )
    else:
        found = []
        for pattern in [given] if isinstance(given, str) else given:
            matches = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
            if not matches:
                _check_name(table, field, pattern, names)
                matches = [pattern]
            found += [name for name in matches if name not in found]
    for name in found:
        _take(table, field, name, taken)
    return tuple(found)


def _check_name(table: str, field: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise DataError(
            f"{table} has no column '{name}' ({_flag(field)}).{did_you_mean(name, names)} "
            f"The columns are {', '.join(names)}"
        )


def _take(table: str, field: str, name: str, taken: dict[str, str]) -> None:
    if name in taken:
        raise DataError(f"{table}: the column '{name}' is used for {taken[name]} and for {field}")
    taken[name] = field


def _flag(field: str) -> str:
    """The command's flag for a field."""
    return {"termination": "--terminal"}.get(field, f"--{field}")
