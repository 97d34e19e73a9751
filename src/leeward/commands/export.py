"""`leeward export RUN`: a trained policy as a file that runs without training code."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from leeward.commands.parsing import flags_of, parse, positional


@dataclass(frozen=True)
class ExportOptions:
    """Flags of `export`."""

    out: str
    """The file to write: .onnx, .stablehlo or .py (the NumPy form)."""
    format: str | None = None
    """onnx, stablehlo or numpy; default by --out."""
    seed: int | None = None
    """Which of the run's seeds; default the first, with the settings that held-out episodes favor
    where there are several."""
    checkpoint: str | None = None
    """Which policy: best (by the evaluations of training), last, or a checkpoint's STEP; default
    the best where the run was evaluated, else the last."""
    run_index: int | None = None
    """Which run, counted from 0, where several settings were trained together."""
    overwrite: bool = False
    """Replace files that are there."""


def main(arguments: list[str]) -> int:
    """Exports one policy and says what was written."""
    parsed = parse(
        [positional("run", "a run directory or a saved policy"), *flags_of(ExportOptions)],
        arguments,
        prog="leeward export",
        description="Writes a trained policy as a file for deployment, with a card (JSON).",
    )
    from leeward.export import export, load_exported

    done = export(
        parsed.run,
        parsed.out,
        form=parsed.format,
        seed=parsed.seed,
        checkpoint=parsed.checkpoint,
        run=parsed.run_index,
        overwrite=parsed.overwrite,
    )
    card = load_exported(done.path).card
    observation, action = card["observation"], card["action"]
    lines = [
        f"{done.path}: {card['algorithm']}, seed {card['seed']}, {_shape(observation)} → "
        f"{_shape(action)}",
        *([done.note] if done.note else []),
        f"card: {done.card}",
    ]
    if card["format"] == "numpy":
        lines.append(f"it needs NumPy alone: python {done.path} OBSERVATIONS.npy ACTIONS.npy")
    lines.append(f"largest difference from the run's policy: {done.difference:.1g}")
    if done.latency is not None:
        lines.append(
            f"latency of one observation: {1e6 * done.latency:.1f} µs (median; onnxruntime, CPU, "
            "one thread)"
        )
    console = Console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


def _shape(described: dict[str, object]) -> str:
    return f"{described['name']} {described['shape']} {described['dtype']}"
