"""Makes data sets that `leeward collect` wrote part of the package: files, registry and cards.

    python scripts/ship.py data/hopper-expert-v4.hdf5 data/hopper-medium-v4.hdf5 …

Next observations are left out, as in D4RL's first files, which halves a file: they are the next
rows. Only the last step before a time limit then starts no transition.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.hdf5 import open_hdf5, read_column, read_metadata
from leeward.data.load import load_dataset
from leeward.data.write import write_d4rl
from leeward.types import Box

DATA = Path(__file__).parents[1] / "src" / "leeward" / "data"
LEAST, MOST = 50_000, 100_000
"""Transitions of a set that ships."""
CARD = """# {name}

{transitions:,} transitions of Gymnasium's `{env}` (MuJoCo): {behavior}. Made by \
`leeward collect`, with a SAC learner that was trained online.

| | |
|---|---|
| Observation | {observations} |
| Action | {actions} |
| Episodes | {episodes:,}: {ended:,} ended by the task, {cut:,} by the time limit or the end of \
the recording; from {shortest:,} to {longest:,} steps, median {median:,.0f} |
| Returns | mean {return_mean:,.1f}, standard deviation {return_std:,.1f}, least \
{return_min:,.1f}, most {return_max:,.1f}; normalized mean {score:.1f} |
| Score 0, score 100 | {reference_minimum:,.2f}, {reference_maximum:,.2f}: {reference_source} |
| File | D4RL's columns without `next_observations`, which are the next rows; {size:.1f} MB |

## How it was made

```sh
{command}
```

The same machine, versions and number of threads give the same rows again ({versions}); others \
give rows like them. The versions, the command and the returns are in the file too, under \
`metadata/`.

## License

CC0 1.0 (public domain). The simulator's model comes with Gymnasium (MIT) and is not part of the \
data.
"""


def ship(source: Path, data: Path = DATA) -> Path:
    """Writes one file, its card and its entry in the registry; returns the file's place.

    Args:
        source: what `leeward collect` wrote.
        data: the folder that has `shipped/` and `registry/shipped.json`.

    Raises:
        SystemExit: it is too small or too large.
    """
    with open_hdf5(source) as file:
        names = ("observations", "actions", "rewards", "terminals", "timeouts")
        column = {name: read_column(file, name) for name in names}
        metadata = read_metadata(file)
    path = data / "shipped" / source.name
    path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data) as folder:  # an older set stays until this one fits
        made = Path(folder) / source.name
        write_d4rl(
            made,
            observation=column["observations"],
            action=column["actions"],
            reward=column["rewards"],
            termination=column["terminals"],
            truncation=column["timeouts"],
            metadata=metadata,
        )
        dataset = load_dataset(made)
        if not LEAST <= dataset.transitions <= MOST:
            raise SystemExit(
                f"{source} has {dataset.transitions:,} transitions, not {LEAST:,} to {MOST:,}: "
                "collect it again with another --transitions"
            )
        made.replace(path)
    path.with_suffix(".md").write_text(card(path, dataset, metadata), "utf-8")
    registry = data / "registry" / "shipped.json"
    known = json.loads(registry.read_text("utf-8"))
    env = str(metadata["env_id"])
    known["datasets"][path.stem] = {
        "env": env,
        "max_episode_steps": gymnasium.spec(env).max_episode_steps,
        "reference": [metadata["reference_minimum"], metadata["reference_maximum"]],
    }
    registry.write_text(json.dumps(known, indent=2) + "\n", "utf-8")
    return path


def card(path: Path, dataset: Dataset, metadata: Mapping[str, Any]) -> str:
    """What a set is and how it was made."""
    lengths = dataset.episode_lengths()
    low, high = metadata["reference_minimum"], metadata["reference_maximum"]
    space = dataset.action_space
    assert isinstance(space, Box)
    bounds = sorted(set(zip(space.low, space.high, strict=True)))
    versions = {k.removeprefix("version_"): v for k, v in metadata.items() if "version_" in k}
    return CARD.format(
        **metadata,
        name=path.stem,
        env=metadata["env_id"],
        transitions=dataset.transitions,
        observations=_numbers(dataset.observation.shape[1]),
        actions=f"{_numbers(space.size)} in " + ", ".join(f"[{a:g}, {b:g}]" for a, b in bounds),
        ended=int(dataset.termination.sum()),
        cut=int(dataset.truncation.sum()),
        shortest=int(lengths.min()),
        longest=int(lengths.max()),
        median=float(np.median(lengths)),
        score=100.0 * (metadata["return_mean"] - low) / (high - low),
        size=path.stat().st_size / 1e6,
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
    )


def _numbers(count: int) -> str:
    return f"{count} number{'' if count == 1 else 's'}"


def main() -> None:
    """Ships every file named."""
    for name in sys.argv[1:]:
        path = ship(Path(name))
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB; its card and registry entry are there")


if __name__ == "__main__":
    main()
