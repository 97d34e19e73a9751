"""The `leeward` command: which subcommand, before anything heavy is imported."""

from __future__ import annotations

import importlib
import sys
from typing import NamedTuple


class Command(NamedTuple):
    """A subcommand: its line of help and where its `main(arguments)` is."""

    help: str
    module: str


COMMANDS = {
    "train": Command("train a policy from logged data, or --resume a run", "train"),
    "sweep": Command("train many: algorithms × data × seeds × settings, here or on Ray", "sweep"),
    "evaluate": Command("run a trained policy in its environment", "evaluate"),
    "watch": Command("watch a trained policy, in a window or as a video", "watch"),
    "inspect": Command("check whether data are fit to learn from", "inspect"),
    "report": Command("put all that runs say on one page", "report"),
    "compare": Command("say whether one method is better than another", "compare"),
    "convert": Command("write data in another format, a part of it, or repaired", "convert"),
    "finetune": Command("go on with a trained run in its environment", "finetune"),
    "collect": Command("make data with an online learner, a trained or a random policy", "collect"),
    "reproduce": Command("train a published row again and compare", "reproduce"),
    "ope": Command("estimate what policies are worth from data alone, and rank them", "ope"),
    "export": Command("write a policy as a file that runs without training code", "export"),
    "list": Command("list algorithms, data sets or environments", "list"),
    "quickstart": Command(
        "train BC and Fisher-BRC on the shipped data, compare them", "quickstart"
    ),
}


def usage() -> str:
    """The text of `leeward --help`."""
    width = max(map(len, COMMANDS)) + 2
    lines = "\n".join(f"  {name:<{width}}{command.help}" for name, command in COMMANDS.items())
    return (
        "usage: leeward COMMAND …\n\n"
        "Offline reinforcement learning and offline imitation: from logged data to a policy.\n\n"
        f"commands:\n{lines}\n\n"
        "leeward COMMAND --help tells more; leeward --version the version.\n"
        "Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted (state saved)."
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())  # noqa: T201
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"leeward {version('leeward')}")  # noqa: T201
        return 0
    from leeward.errors import LeewardError, did_you_mean

    name = arguments[0]
    if name not in COMMANDS:
        return _fail(
            f"unknown command '{name}'.{did_you_mean(name, COMMANDS)} Commands: "
            + ", ".join(COMMANDS)
        )
    module = importlib.import_module(f"leeward.commands.{COMMANDS[name].module}")
    from leeward.progress import shown_downloads

    try:
        with shown_downloads(quiet="--quiet" in arguments):
            return module.main(arguments[1:]) or 0
    except LeewardError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe, such as head, has left
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.errno in (28, 122):  # the disk or a quota is full
            return _fail(f"{error.filename or 'the disk'}: {error.strerror}: free some space", 1)
        raise


def _fail(message: str, code: int = 2) -> int:
    print(f"leeward: error: {message}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
