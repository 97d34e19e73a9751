"""Policies as files that run where no training code does: ONNX, StableHLO or NumPy alone.

Normalization and action scaling are inside, and the batch has any size. Beside the file lies a card
(JSON) that says what it takes and gives and where it comes from.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from leeward import acting
from leeward.errors import CheckpointError, ConfigError, SpecError, did_you_mean
from leeward.export.card import card_of, card_path, with_scores
from leeward.export.files import write_files
from leeward.export.forms import FORMS, Form, Run
from leeward.export.loaded import ExportedPolicy, is_exported, load_exported
from leeward.export.operators import observation_type
from leeward.policy import Policy, load_policy
from leeward.types import Box

__all__ = ["Exported", "ExportedPolicy", "export", "is_exported", "load_exported"]

ROWS = 20
"""Random observations on which an exported file is compared with the policy before it is kept."""
TOLERANCE = 1e-5
"""Largest difference, in units of half the action range where that is more than 1."""
CALLS, LONGEST = 1_000, 0.5
"""Calls whose latency is measured, and the seconds after which no more are made."""


class Exported(NamedTuple):
    """What `export` wrote, and what it found out."""

    path: Path
    card: Path
    difference: float
    """Largest difference from the policy, in units of half the action range where that is more
    than 1; of discrete actions the share of observations with another one."""
    latency: float | None
    """Median seconds of a call with one observation, of the ONNX form."""
    note: str = ""
    """Why it is this of several runs with different settings, where it was not asked for."""


def export(
    policy: Policy | str | Path,
    out: str | Path,
    *,
    form: str | None = None,
    seed: int | None = None,
    checkpoint: str | int | None = None,
    run: int | None = None,
    overwrite: bool = False,
) -> Exported:
    """Writes one policy as a file for deployment, with its card.

    Args:
        policy: a policy, a run directory, or the folder of a saved policy.
        out: the file; .onnx, .stablehlo or .py (NumPy's form).
        form: "onnx", "stablehlo" or "numpy"; default by the file's suffix.
        seed: of a run directory, as `load_policy`.
        checkpoint: of a run directory, as `load_policy`.
        run: of a run directory, as `load_policy`.
        overwrite: replace files that are there.

    Raises:
        ConfigError: an unknown form, another suffix, files that are there, or (of ONNX and NumPy) a
            policy with operations that have no counterpart.
        MissingExtra: the form's packages are not installed.
        SpecError: a policy whose training diverged.
        CheckpointError: no policy there, or the file cannot be written.
        DiskError: the disk is full or fails. What was there before is still there.

    Example:
        >>> leeward.export("runs/hopper", "hopper.onnx", seed=0)  # doctest: +SKIP
        >>> act = leeward.load_exported("hopper.onnx")  # doctest: +SKIP
        >>> action = act(observation)  # doctest: +SKIP
    """
    path = Path(out).expanduser()
    name, chosen = _form(form, path)
    for other in (path, card_path(path)):
        if other.exists() and not overwrite:
            raise ConfigError(f"{other} exists: --overwrite replaces it")
    if not isinstance(policy, Policy):
        directory = Path(policy)
        policy = with_scores(load_policy(directory, seed, checkpoint, run=run), directory)
    _check_weights(policy)
    card = card_of(policy, name)
    content = chosen.write(policy, card)
    _, call = chosen.read(path, content)
    observation = _observations(policy)
    difference = _difference(policy, call, observation)
    latency = _latency(call, observation[:1]) if name == "onnx" else None
    beside = {**card, "sha256": hashlib.sha256(content).hexdigest()}
    text = json.dumps(beside, indent=1) + "\n"
    write_files({card_path(path): text.encode(), path: content})
    return Exported(path, card_path(path), difference, latency, policy.note)


def _form(name: str | None, path: Path) -> tuple[str, Form]:
    """The form asked for, else the one that the file's suffix belongs to.

    Raises:
        ConfigError: there is none, or the suffix belongs to another.
    """
    suffixes = ", ".join(f"{form.suffix} ({known})" for known, form in FORMS.items())
    if name is None:
        for known, form in FORMS.items():
            if path.suffix.lower() == form.suffix:
                return known, form
        raise ConfigError(f"--out {path} must end in {suffixes}, or say which with --format")
    if name not in FORMS:
        raise ConfigError(
            f"unknown format '{name}'.{did_you_mean(name, FORMS)} Formats: {', '.join(FORMS)}"
        )
    if path.suffix.lower() != FORMS[name].suffix:
        raise ConfigError(f"--out {path} must end in {FORMS[name].suffix} for --format {name}")
    return name, FORMS[name]


def _check_weights(policy: Policy) -> None:
    """Raises SpecError for NaN and infinite weights, which discrete actions would not show."""
    for leaf in jax.tree.leaves(policy.policy):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.isfinite(leaf).all():
            raise SpecError(
                f"the policy of seed {policy.run.seed} has weights that are not finite numbers: "
                "its training diverged"
            )


def _observations(policy: Policy) -> np.ndarray:
    """Random ones, spread as those of the data are."""
    draw = np.random.default_rng(0)
    shape = (ROWS, *policy.spec.observation_shape)
    if policy.spec.observation_dtype == "uint8":
        return draw.integers(0, 256, shape).astype(np.uint8)
    mean = np.asarray(policy.scaling.observation_mean)
    std = np.asarray(policy.scaling.observation_std)
    return (mean + std * draw.normal(size=shape)).astype(np.float32)


def _difference(policy: Policy, call: Run, observation: np.ndarray) -> float:
    """How far the exported file is from the policy, many observations at once and one alone.

    Raises:
        CheckpointError: too far.
    """
    expected = policy(observation)
    found = np.concatenate([call(observation[:1]), call(observation)[1:]])
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        raise CheckpointError(
            f"the exported file gives {found.shape} {found.dtype}, the policy {expected.shape} "
            f"{expected.dtype}: nothing was written"
        )
    if isinstance(policy.spec.action, Box):
        scale = np.maximum(1.0, np.asarray(policy.scaling.action_scale))
        error = (np.abs(found - expected) / scale).max(axis=1)
    else:
        error = (found != expected).astype(np.float64)
    exchanged = ROWS // 10 if _chooses(policy) else 0
    if not np.sort(error)[-1 - exchanged] <= TOLERANCE:
        raise CheckpointError(
            f"the exported file does not act as the policy does (difference {error.max():g}): "
            "nothing was written"
        )
    return float(error.max() if isinstance(policy.spec.action, Box) else error.mean())


def _chooses(policy: Policy) -> bool:
    """Whether actions are the best of several: of two worth the same but for rounding, any is."""

    def call(observation: jax.Array) -> jax.Array:
        act = policy.algorithm.act
        return acting.act(act, policy.spec, policy.policy, policy.scaling, observation)

    operations = str(jax.make_jaxpr(call)(observation_type(policy.spec, 1)))
    return any(f"{name}[" in operations for name in ("argmax", "argmin"))


def _latency(call: Run, observation: np.ndarray) -> float:
    """Median seconds of a call."""
    start = time.perf_counter()
    times: list[float] = []
    while len(times) < CALLS and time.perf_counter() - start < LONGEST:
        before = time.perf_counter()
        call(observation)
        times.append(time.perf_counter() - before)
    return statistics.median(times)
