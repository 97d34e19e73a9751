"""Do estimates rank policies as episodes do? Ten policies on Hopper, played and estimated.

Trains three runs with checkpoints (TD3+BC, IQL, BC), takes ten policies of different quality from
them, plays each for its true discounted return, estimates each from the data alone, and compares:
rank correlation (Spearman), and regret, what is lost by taking the policy that an estimator puts
first (in the mean, where it puts several first), as a share of the range from the worst to the
best. All that is there already is kept, so the command can be stopped and repeated; delete a file
in --work to make it anew.

    python benchmarks/ope.py --data hopper-medium-expert.hdf5

`--speed` measures instead how many updates a second fitted Q evaluation makes beside TD3+BC, in
turn, several rounds, on the same data; the machine must be idle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

import leeward
from leeward import engine
from leeward.algorithms import td3_bc
from leeward.data.dataset import Dataset
from leeward.data.sampling import fit_scaling, to_device
from leeward.evaluate import Evaluator
from leeward.ope import OpeOptions, Target, estimate
from leeward.ope import fitted as fqe
from leeward.ope.report import ESTIMATORS
from speed import processor

HERE = Path(__file__).parent
DISCOUNT = 0.99


class Candidate(NamedTuple):
    """A policy: a run, and the number of updates that it had."""

    run: str
    step: int

    def __str__(self) -> str:
        return f"{self.run} after {self.step:,}"


RUNS: dict[str, dict[str, Any]] = {
    "td3-bc": {"steps": 30_000},
    "iql": {"steps": 20_000, "reward_transform": "return-range"},
    "bc": {"steps": 10_000},
}
EVERY = 1_000  # updates between checkpoints
CANDIDATES = (
    *(Candidate("td3-bc", step) for step in (1_000, 3_000, 10_000, 30_000)),
    *(Candidate("iql", step) for step in (1_000, 5_000, 20_000)),
    *(Candidate("bc", step) for step in (1_000, 3_000, 10_000)),
)


def main(arguments: list[str] | None = None) -> int:
    """Runs what is missing, then writes the table."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.data is None or not options.data.is_file():
        parser.error("--data is needed: a D4RL file, such as hopper-medium-expert.hdf5")
    data = leeward.load_dataset(options.data, env=options.env)
    if options.speed:
        print(speed(data, options.rounds))
        return 0
    folder = options.work / f"{options.data.stem}-seed-{options.seed}"
    for name in RUNS:
        train(name, folder / name, data, options)
    candidates = [c._replace(step=scaled(c.step, options.scale)) for c in CANDIDATES]
    truth = [played(candidate, folder, options) for candidate in candidates]
    found = estimated(candidates, folder, data, options)
    text = table(candidates, truth, found, options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text)
    print(text)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a D4RL file of Hopper")
    parser.add_argument("--env", default="Hopper-v4")
    parser.add_argument("--seed", type=int, default=0, help="of training")
    parser.add_argument("--episodes", type=int, default=50, help="played by every policy")
    parser.add_argument("--steps", type=int, default=20_000, help="of fitted Q evaluation")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual updates")
    parser.add_argument("--work", type=Path, default=Path("runs/ope"))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "ope.md")
    parser.add_argument("--speed", action="store_true", help="only measure updates a second")
    parser.add_argument("--rounds", type=int, default=5, help="of --speed")
    return parser


def scaled(steps: int, scale: float) -> int:
    """A number of updates as a multiple of the distance of checkpoints."""
    every = max(1, round(EVERY * scale))
    return every * round(steps / EVERY)


def train(name: str, directory: Path, data: Dataset, options: argparse.Namespace) -> None:
    """One run with all its checkpoints, unless it is finished."""
    if (directory / "final").is_dir():
        return
    print(f"training {name}", flush=True)
    if (directory / "config.json").is_file():
        leeward.resume(directory, data=data, quiet=True)
        return
    settings = RUNS[name] | {"steps": scaled(RUNS[name]["steps"], options.scale)}
    every = scaled(EVERY, options.scale)
    leeward.train(
        name,
        data,
        env=options.env,
        seeds=[options.seed],
        run_dir=directory,
        eval_every=0,
        checkpoint_every=every,
        keep_checkpoints=10_000,
        log_every=every,
        logger=(),
        quiet=True,
        **settings,
    )


class Discounted(gymnasium.Wrapper):
    """Rewards times the discount to the number of the step, so that returns are discounted."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._factor = 1.0

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self._factor = 1.0
        return self.env.reset(**arguments)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, termination, truncation, info = self.env.step(action)
        reward, self._factor = float(reward) * self._factor, self._factor * DISCOUNT
        return observation, reward, termination, truncation, info


def played(candidate: Candidate, folder: Path, options: argparse.Namespace) -> list[float]:
    """The discounted return of every episode, played unless that is done."""
    path = folder / f"{candidate.run}-{candidate.step}.json"
    if path.is_file():
        returns = json.loads(path.read_text())
        if len(returns) == options.episodes:
            return returns
    print(f"playing {candidate}", flush=True)
    policy = leeward.load_policy(folder / candidate.run, checkpoint=candidate.step)
    with Evaluator(
        options.env, episodes=options.episodes, evaluation_seed=7, wrapper=Discounted
    ) as evaluator:
        returns = evaluator.evaluate(policy.stack()).returns[0]
    path.write_text(json.dumps(returns.tolist()))
    return returns.tolist()


def estimated(
    candidates: list[Candidate], folder: Path, data: Dataset, options: argparse.Namespace
) -> dict[str, Any]:
    """The report of `leeward ope`, and how long it took, made unless it is there."""
    path = folder / f"estimates-{options.steps}.json"
    names = [str(candidate) for candidate in candidates]
    if path.is_file():
        found = json.loads(path.read_text())
        if [policy["name"] for policy in found["policies"]] == names:
            return found
    print("estimating", flush=True)
    begin = time.perf_counter()
    targets = [
        Target.of_policy(str(c), leeward.load_policy(folder / c.run, checkpoint=c.step), data)
        for c in candidates
    ]
    settings = OpeOptions(discount=DISCOUNT, steps=options.steps)
    found = estimate(data, targets, settings).to_json()
    found["seconds"] = time.perf_counter() - begin
    path.write_text(json.dumps(found))
    return found


def table(
    candidates: list[Candidate],
    truth: list[list[float]],
    found: dict[str, Any],
    options: argparse.Namespace,
) -> str:
    """Estimators by how well they rank, then policies with their numbers."""
    true = np.array([np.mean(returns) for returns in truth])
    lines = [
        f"# Off-policy evaluation: {len(candidates)} policies, {options.data.stem}, {options.env}",
        "",
        f"Truth: mean discounted return (discount {DISCOUNT}) of {options.episodes} episodes. "
        f"Estimates from {found['episodes']:,} episodes of data, fitted Q evaluation with "
        f"{options.steps:,} updates a policy, {found['seconds']:.0f} s for all on "
        f"{processor()}. Regret: what is lost by the policy put first (the mean of those put "
        "first), of the range of values. –: no value for every policy, or the same for all.",
        "",
        "| estimator | Spearman | regret | mean error | trusted |",
        "|---|---|---|---|---|",
    ]
    for name in ESTIMATORS:
        own = [policy["estimates"][name] for policy in found["policies"]]
        trusted = sum(one["reliable"] for one in own)
        value = np.array([np.nan if o["value"] is None else o["value"] for o in own])
        if np.isnan(value).any():
            lines.append(f"| {name} | – | – | – | {trusted} of {len(own)} |")
            continue
        error = float(np.abs(value - true).mean())
        lines.append(
            f"| {name} | {_ranking(value, true)} | {error:.1f} | {trusted} of {len(own)} |"
        )
    ranking = -np.array([policy["rank"] for policy in found["policies"]], float)
    lines += [
        f"| ranking of `leeward ope` | {_ranking(ranking, true)} | "
        f"| by {', '.join(found['ranked_by']) or 'none'} |",
        "",
        f"Its verdict: {found['verdict']}",
        "",
        f"| policy | truth ± standard error | {' | '.join(ESTIMATORS)} |",
        f"|---|---|{'---|' * len(ESTIMATORS)}",
    ]
    for i in np.argsort(-true):
        spread = np.std(truth[i], ddof=1) / np.sqrt(len(truth[i]))
        cells = [_cell(found["policies"][i]["estimates"][name]) for name in ESTIMATORS]
        lines.append(f"| {candidates[i]} | {true[i]:.1f} ± {spread:.1f} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "? marks estimates that the report says not to trust.", ""])


def _ranking(value: np.ndarray, true: np.ndarray) -> str:
    """Rank correlation and regret; dashes where all values are the same, which rank nothing."""
    if np.ptp(value) == 0.0:
        return "– | –"
    return f"{float(spearmanr(value, true).statistic):.2f} | {regret(value, true):.2f}"


def regret(value: np.ndarray, true: np.ndarray) -> float:
    """(best − true value of the policy put first) / (best − worst); the mean of those put first."""
    first = true[value == value.max()].mean()
    return float((true.max() - first) / (true.max() - true.min()))


def _cell(one: dict[str, Any]) -> str:
    if one["value"] is None:
        return "–"
    return f"{one['value']:.4g}{'' if one['reliable'] else '?'}"


def speed(data: Dataset, rounds: int) -> str:
    """Updates a second of TD3+BC and of fitted Q evaluation of one and of four policies."""
    device = to_device(data, fit_scaling(data, True))
    shape = (data.transitions, data.action.shape[1])
    choice = jnp.asarray(np.random.default_rng(0).uniform(-1.0, 1.0, shape), jnp.float32)

    def fit_of(count: int) -> Any:
        state, config, key = _ready(fqe.init, fqe.Config(), data, count)
        return (
            fqe.PHASE,
            config,
            key,
            state._replace(
                center=jnp.zeros(count),
                scale=jnp.ones(count),
                next_choice=jnp.stack([choice] * count),
                weight=jnp.ones((count, data.transitions)),
            ),
        )

    phase = td3_bc.ALGORITHM.phases[0]
    state, config, key = _ready(td3_bc.init, td3_bc.Config(), data, 1)
    rows = {"td3-bc": (phase, config, key, state), "fqe": fit_of(1), "fqe, 4 policies": fit_of(4)}
    rates: dict[str, list[float]] = {name: [] for name in rows}
    for turn in range(rounds + 1):
        for name, (phase, config, key, state) in rows.items():
            count = key.shape[0]
            length = 2_000 // count
            means = engine.zero_means(phase, 0, config, state, device, key)
            begin = time.perf_counter()
            state, means, _, _ = engine.run_chunk(
                phase, 0, config, state, device, key, means, jnp.int32(0), jnp.int32(length)
            )
            np.asarray(next(iter(means.total.values())))
            if turn > 0:  # the first compiles
                rates[name].append(count * length / (time.perf_counter() - begin))
            rows[name] = (phase, config, key, state)
    base = statistics.median(rates["td3-bc"])
    lines = [f"| {processor()} | updates/s | of TD3+BC |", "|---|---|---|"]
    for name, values in rates.items():
        median = statistics.median(values)
        span = f"{min(values):.0f}–{max(values):.0f}"
        lines.append(f"| {name} | {median:.0f} ({span}) | {median / base:.2f} |")
    return "\n".join(lines)


def _ready(init: Any, config: Any, data: Dataset, count: int) -> tuple[Any, Any, Any]:
    """State, stacked config and keys of some runs."""
    key, stacked = engine.run_keys([0] * count), engine.stack_configs(config, [{}] * count)
    return engine.init_states(init, data.spec, stacked, key), stacked, key


if __name__ == "__main__":
    sys.exit(main())
