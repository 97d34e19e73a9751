"""`leeward finetune RUN [flags]` and `leeward finetune --resume RUN`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from leeward.commands.parsing import flags_of, parse, pick, positional
from leeward.commands.show import run_table
from leeward.finetune import FinetuneOptions, finetune, resume


@dataclass(frozen=True)
class ResumeFinetuneOptions:
    """Flags of `finetune --resume`."""

    resume: str
    """The fine-tuned run to continue."""
    steps: int | None = None
    """A new number of steps, to go on."""
    max_time: str | None = None
    """Stop and save after this long (90s, 30m, 2h)."""
    quiet: bool = False
    """No progress view."""


def main(arguments: list[str]) -> int:
    """Goes on with a trained run online, or with a fine-tuning."""
    if any(a.split("=")[0] == "--resume" for a in arguments):
        parsed = parse(
            flags_of(ResumeFinetuneOptions),
            arguments,
            prog="leeward finetune --resume RUN",
            description="Continues a killed, interrupted or finished fine-tuning.",
        )
        run = resume(
            parsed.resume, steps=parsed.steps, max_time=parsed.max_time, quiet=parsed.quiet
        )
    else:
        parsed = parse(
            [positional("run", "a run directory, trained offline"), *flags_of(FinetuneOptions)],
            arguments,
            prog="leeward finetune",
            description="Goes on with a trained run in an environment (or --resume RUN).",
        )
        run = finetune(parsed.run, **dataclasses.asdict(pick(FinetuneOptions, parsed)))
    if not parsed.quiet:
        run_table(run)
    return 0
