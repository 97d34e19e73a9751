"""`leeward watch RUN`: a trained policy in a window, or in a video file."""

from __future__ import annotations

from dataclasses import dataclass

from leeward.commands.parsing import flags_of, parse, positional


@dataclass(frozen=True)
class WatchOptions:
    """Flags of `watch`."""

    video: str | None = None
    """Write an mp4 file instead of opening a window; needed where there is no display."""
    episodes: int = 1
    """How many episodes."""
    seed: int | None = None
    """Which of the run's seeds; default the first, with the settings that held-out episodes favor
    where there are several."""
    run_index: int | None = None
    """Which run, counted from 0, where several settings were trained together."""
    checkpoint: str = "best"
    """Which policy: best (by the evaluations of training), last, or a checkpoint's STEP."""
    env: str | None = None
    """Another environment than the run's."""
    start_seed: int = 0
    """Other numbers give other starts."""


def main(arguments: list[str]) -> int:
    """Shows one policy."""
    parsed = parse(
        [positional("run", "a run directory or a saved policy"), *flags_of(WatchOptions)],
        arguments,
        prog="leeward watch",
        description="Shows a trained policy in its environment.",
    )
    from leeward.policy import load_policy
    from leeward.watch import watch

    policy = load_policy(
        parsed.run, seed=parsed.seed, checkpoint=parsed.checkpoint, run=parsed.run_index
    )
    if policy.note:
        print(policy.note)  # noqa: T201
    result = watch(
        policy,
        parsed.env,
        video=parsed.video,
        episodes=parsed.episodes,
        seed=parsed.start_seed,
    )
    for episode, value in enumerate(result.returns):
        print(f"episode {episode}: return {value:.1f}")  # noqa: T201
    if result.video is not None:
        print(f"video: {result.video}")  # noqa: T201
    return 0
