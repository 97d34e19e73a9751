"""Sections of a report about where it comes from: runs, data, diagnostics, how to repeat it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leeward.report import blocks
from leeward.report.attachments import Attached, Video
from leeward.report.blocks import Block, Section
from leeward.report.figures import Drawing
from leeward.report.tables import Table, table
from leeward.results import Results, environment_name
from leeward.run import Run
from leeward.trained import task_name

SHOWN_ROWS = 12
"""Rows up to which a table is shown at once; longer ones are folded."""


def runs_section(results: Results, tables: dict[str, Table]) -> Section:
    """What was trained on what."""
    lines = []
    for (method, name), cell in results.cells.items():
        for run in {one.run.directory: one.run for one in cell}.values():
            own = [one for one in cell if one.run is run]
            seeds = " ".join(str(one.row["seed"]) for one in own)
            at = max((one.evaluations[-1]["step"] for one in own if one.evaluations), default=None)
            environment = run.config["environment"]
            lines.append(
                (
                    method,
                    name,
                    environment_name(environment) if at is not None else None,
                    seeds,
                    run.config["steps"],
                    at,
                    "finished" if run.finished else "not finished",
                    str(run.directory),
                )
            )
    columns = (
        "Method", "Trained on", "Evaluated in", "Seeds", "Updates", "Last evaluation", "State",
        "Run",
    )  # fmt: skip
    tables["runs"] = table(columns, lines)
    fold = f"All {len(lines)} of them" if len(lines) > SHOWN_ROWS else ""
    return Section("runs", "What was trained on what", (blocks.rows(tables["runs"], fold),))


def data_section(results: Results, tables: dict[str, Table]) -> Section:
    """The data sets, and what the doctor found in them."""
    data: dict[str, Run] = {}
    for run in results.runs:
        data.setdefault(task_name(run), run)
    lines, found, taken = [], [], []
    for name, run in data.items():
        held = run.config["data"]
        lines.append(
            (
                name,
                held.get("transitions"),
                held.get("episodes"),
                held.get("return_mean"),
                len(held.get("findings", ())),
                str(held.get("hash", ""))[:12],
            )
        )
        found += [
            (
                name,
                str(one.get("severity", "")),
                str(one.get("code", "")),
                one.get("count"),
                str(one.get("message", "")),
                str(one.get("remedy", "")),
            )
            for one in held.get("findings", ())
        ]
        taken += [f"{name}: {note}" for note in held.get("notes", ())]
    columns = ("Data", "Transitions", "Episodes", "Mean return", "Findings", "Hash")
    tables["data"] = table(columns, lines)
    parts: list[Block] = [blocks.rows(tables["data"])]
    if found:
        columns = ("Data", "Severity", "Code", "Rows", "Found", "What to do")
        tables["findings"] = table(columns, found)
        fold = f"All {len(found)} findings" if len(found) > SHOWN_ROWS else ""
        parts.append(blocks.rows(tables["findings"], fold))
    else:
        parts.append(blocks.text("The data doctor found nothing that would hinder learning."))
    if taken:
        parts.append(blocks.notes(taken))
    return Section("data", "The data, and what the doctor found", tuple(parts))


def estimates_section(attached: Sequence[Attached], tables: dict[str, Table]) -> Section | None:
    """Estimates without an environment."""
    if not attached:
        return None
    intro = "What the policies are worth by the data alone (leeward ope)."
    parts = [blocks.text(intro), *_attached(attached)]
    for number, one in enumerate(attached):
        tables[f"estimates-{number + 1}"] = one.tables[0]
    return Section("estimates", "Estimates from data", tuple(parts))


def diagnostics_section(
    drawings: Mapping[str, Sequence[Drawing]],
    measured: Table | None,
    attached: Sequence[Attached],
    tables: dict[str, Table],
) -> Section | None:
    """Actors and critics while they trained, and diagnostics that lie in the runs."""
    parts: list[Block] = []
    if measured is not None:
        tables["measurements"] = measured
        parts.append(
            blocks.text("Measured once, at the end of a phase, on data held out where it says so:")
        )
        fold = f"All {len(measured.rows)} numbers" if len(measured.rows) > SHOWN_ROWS else ""
        parts.append(blocks.rows(measured, fold))
    if drawings:
        parts.append(
            blocks.text(
                "Means over seeds of what was logged while training, against updates; bands span "
                "the lowest and the highest seed. All other metrics are in every run's "
                "metrics.jsonl."
            )
        )
    for name, shown in drawings.items():
        parts.append(blocks.figures(shown, folded=name if len(drawings) > 1 else ""))
    parts += _attached(attached)
    return Section("diagnostics", "Actors and critics", tuple(parts)) if parts else None


def _attached(attached: Sequence[Attached]) -> list[Block]:
    parts: list[Block] = []
    for one in attached:
        parts.append(blocks.text(f"From {one.title}:"))
        if one.text:
            parts.append(blocks.notes(one.text))
        for shown in one.tables:
            fold = f"{shown.title or 'values'} ({len(shown.rows)} rows)"
            parts.append(blocks.rows(shown, fold if len(shown.rows) > SHOWN_ROWS else ""))
    return parts


def video_section(videos: Sequence[Video], links: Mapping[Path, str]) -> Section | None:
    """Videos in the page, or links to those beside it."""
    if not videos:
        return None
    parts = tuple(
        Block("link", text=video.title, items=(links[video.path],))
        if video.address is None
        else Block("video", text=video.title, items=(video.address,))
        for video in videos
    )
    return Section("videos", "Videos", parts)


def repeat_section(results: Results) -> Section:
    """The commands that train the runs again, and what they ran with."""
    commands = [repeat_command(run) for run in results.runs if run.all_combinations]
    drawn = [str(run.directory) for run in results.runs if not run.all_combinations]
    versions = {json.dumps(run.config["versions"], sort_keys=True) for run in results.runs}
    lines = [
        ", ".join(f"{name} {number}" for name, number in json.loads(version).items())
        for version in sorted(versions)
    ]
    made = [str(run.directory) for run in results.runs if run.config["data"].get("source") is None]
    parts = [
        blocks.text(
            "Every run's config.json holds all its settings; these commands train them again."
        ),
        blocks.code(commands, f"{len(commands)} commands" if len(commands) > SHOWN_ROWS else ""),
        blocks.text(f"Made with {'; or '.join(lines)}."),
    ]
    if drawn:
        parts.append(
            blocks.text(f"Parts of a sweep, which leeward sweep repeats: {', '.join(drawn)}.")
        )
    if made:
        parts.append(
            blocks.text(
                f"Trained on data made in Python, which no command loads: {', '.join(made)}."
            )
        )
    return Section("repeat", "How to repeat it", tuple(parts))


def repeat_command(run: Run) -> str:
    """The command that trains a run again; DATA where its data were made in Python."""
    data = run.config["data"]
    if "origin" in run.config:
        return shlex.join(["leeward", "finetune", *_finetuning(run)])
    words = ["leeward", "train", run.algorithm.replace("_", "-")]
    words.append("DATA" if data.get("source") is None else str(data["source"]))
    words += ["--config", str(run.directory / "config.json"), *_flags(data.get("options", {}))]
    return shlex.join(words)


def _finetuning(run: Run) -> list[str]:
    """The run that a fine-tuning began with, and its flags."""
    saved, options = run.config, run.config["options"]
    names = ("log_every", "eval_every", "eval_episodes", "checkpoint_every")
    values = {"env": saved["environment"], **saved["finetune"]}
    values |= {name: options[name] for name in names}
    return [saved["origin"]["run"], *_flags(values)]


def _flags(options: Mapping[str, Any]) -> list[str]:
    """How the data were read, as flags."""
    columns = options.get("columns", {})
    named = {"terminal" if name == "termination" else name: v for name, v in columns.items()}
    words: list[str] = []
    for name, value in {**{n: v for n, v in options.items() if n != "columns"}, **named}.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif isinstance(value, list | tuple):
            words += [flag, *map(str, value)]
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return words
