"""Does a flow earn its place beside mixtures? Demonstrations that go four ways, cloned.

Demonstrations at states in the plane leave in one of four directions that turn with the state.
Mixtures of normals and plain flow matching (Lipman et al., "Flow Matching for Generative
Modeling", 2023, arXiv 2210.02747; straight paths, Euler steps) are cloned from them alike. A row
says which share of actions is far from every way. Rows that benchmarks/results/fmr_flow.jsonl
holds already are skipped.

    python benchmarks/fmr_flow.py
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from leeward.nn.behavior import Actor, make_actor, misfit
from leeward.nn.divergence import mode_of
from leeward.nn.layers import MLP, make_mlp
from leeward.optim import descend
from leeward.types import Box, Metrics, PRNGKey, Spec
from records import append, conclude, read_lines, surroundings

HERE = Path(__file__).parent
SPEC = Spec((2,), "float32", Box((-1.0, -1.0), (1.0, 1.0)))
WAYS, LENGTH, NOISE = 4, 0.7, 0.05
DEMONSTRATIONS, ASKED = 5_000, 2_000
FAR = 0.2
"""Distance from every way beyond which an action is none of them: four stds of the noise."""
BATCH, RATE, COMPONENTS, MARGIN = 256, 1e-3, 5, 1e-6


class Setup(NamedTuple):
    """One row."""

    policy: str
    """mixture, joint-mixture or flow."""
    hidden: tuple[int, ...]
    updates: int
    euler_steps: int = 0


ROWS = {
    "mixture": Setup("mixture", (64, 64), 3_000),
    "joint-mixture": Setup("joint-mixture", (64, 64), 3_000),
    "flow": Setup("flow", (64, 64), 3_000, 10),
    "joint-mixture-large": Setup("joint-mixture", (256, 256), 6_000),
    "flow-large": Setup("flow", (256, 256), 6_000, 20),
}


def main(arguments: list[str] | None = None) -> int:
    """Measures the rows that are missing and writes the table."""
    parser = argparse.ArgumentParser(description="Mixtures and flow matching, cloned four ways.")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--updates", type=int, help="in place of each row's own")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "fmr_flow.jsonl")
    parser.add_argument("--table", action="store_true", help="only write the table")
    options = parser.parse_args(arguments)
    for name in () if options.table else options.rows:
        setup = ROWS[name]
        setup = setup._replace(updates=options.updates or setup.updates)
        key = {"row": name, **setup._asdict(), "hidden": list(setup.hidden), "seeds": options.seeds}
        if any(all(line.get(n) == v for n, v in key.items()) for line in read_lines(options.out)):
            print(f"{name}: there already")
            continue
        print(f"{name}: running", flush=True)
        append(options.out, key | measure(setup, options.seeds) | surroundings())
    return conclude(options.out, make_table)


# --- The task ---


def directions(state: Float[Array, "B 2"]) -> Float[Array, "B W 2"]:
    """The actions of the four ways: a cross that turns with the first coordinate."""
    turn = jnp.broadcast_to(state[:, :1], (state.shape[0], WAYS))
    angle = turn + 2.0 * jnp.pi / WAYS * jnp.broadcast_to(jnp.arange(WAYS)[None, :], turn.shape)
    return LENGTH * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)


def demonstrate(count: int, key: PRNGKey) -> tuple[Float[Array, "B 2"], Float[Array, "B 2"]]:
    """States, and actions that go one of their ways, each as often, with noise."""
    state_key, way_key, noise_key = jax.random.split(key, 3)
    state = jax.random.normal(state_key, (count, 2))
    way = jax.random.randint(way_key, (count,), 0, WAYS)
    action = directions(state)[jnp.arange(count), way]
    return state, action + NOISE * jax.random.normal(noise_key, (count, 2))


def off_every_way(state: Float[Array, "B 2"], action: Float[Array, "B 2"]) -> Bool[Array, " B"]:
    """Whether actions are far from all ways of their states."""
    away = directions(state) - jnp.broadcast_to(action[:, None], (len(state), WAYS, 2))
    return jnp.linalg.norm(away, axis=-1).min(axis=1) > FAR


# --- The flow ---


class Flow(eqx.Module):
    """A velocity that carries normal noise to actions."""

    mlp: MLP

    def __call__(
        self, state: Float[Array, "B 2"], place: Float[Array, "B 2"], moment: Float[Array, "B 1"]
    ) -> Float[Array, "B 2"]:
        """The velocity at a place, at a moment from 0 (noise) to 1 (action)."""
        return self.mlp(jnp.concatenate([state, place, moment], axis=1))


def flow_loss(
    flow: Flow, state: Float[Array, "B 2"], action: Float[Array, "B 2"], key: PRNGKey
) -> Float[Array, ""]:
    """Mean ‖v(s, (1 − t)ε + t·a, t) − (a − ε)‖², with ε normal and t even in [0, 1]."""
    noise_key, moment_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, action.shape)
    moment = jax.random.uniform(moment_key, (len(state), 1))
    share = jnp.broadcast_to(moment, action.shape)
    velocity = flow(state, (1.0 - share) * noise + share * action, moment)
    return jnp.square(velocity - (action - noise)).sum(axis=1).mean()


def carried(
    flow: Flow, state: Float[Array, "B 2"], noise: Float[Array, "B 2"], steps: int
) -> Float[Array, "B 2"]:
    """Where the flow carries noise to, in Euler steps."""

    def step(place: Array, number: Int[Array, ""]) -> tuple[Array, None]:
        moment = jnp.full((len(state), 1), number / steps)
        return place + flow(state, place, moment) / steps, None

    return jax.lax.scan(step, noise, jnp.arange(steps))[0]


# --- Cloning ---


def clone(
    model: Any, loss: Callable[..., Float[Array, ""]], updates: int, key: PRNGKey
) -> tuple[Any, float]:
    """The model after so many updates of `loss(model, state, action, key)`, and their seconds."""
    state, action = demonstrate(DEMONSTRATIONS, jax.random.fold_in(key, 0))
    adam = optax.adam(RATE)

    def update(carry: Any, step: Int[Array, ""]) -> tuple[Any, None]:
        batch_key, loss_key = jax.random.split(jax.random.fold_in(key, 1 + step))
        row = jax.random.randint(batch_key, (BATCH,), 0, DEMONSTRATIONS)

        def total(model: Any) -> tuple[Float[Array, ""], Metrics]:
            return loss(model, state[row], action[row], loss_key), {}

        return descend(total, carry[0], adam, carry[1])[:2], None

    run = jax.jit(lambda carry: jax.lax.scan(update, carry, jnp.arange(updates))[0])
    start = model, adam.init(model)
    compiled = run.lower(start).compile()
    begin = time.perf_counter()
    trained, _ = jax.block_until_ready(compiled(start))
    return trained, time.perf_counter() - begin


def mixture_loss(
    actor: Actor, state: Float[Array, "B 2"], action: Float[Array, "B 2"], key: PRNGKey
) -> Float[Array, ""]:
    """Mean −log-likelihood."""
    del key  # nothing is drawn
    return misfit(actor(state), action, MARGIN).mean()


def measure(setup: Setup, seeds: list[int]) -> dict[str, Any]:
    """Shares of actions that are off every way, and seconds of training, one of each a seed."""
    found: dict[str, list[float]] = {"sampled": [], "deterministic": [], "seconds": []}
    for seed in seeds:
        init_key, train_key, state_key, draw_key = jax.random.split(jax.random.key(seed), 4)
        state, _ = demonstrate(ASKED, state_key)
        if setup.policy == "flow":
            flow = Flow(make_mlp((5, *setup.hidden, 2), init_key))
            flow, seconds = clone(flow, flow_loss, setup.updates, train_key)
            noise = jax.random.normal(draw_key, (ASKED, 2))
            sampled = carried(flow, state, noise, setup.euler_steps)
            plain = carried(flow, state, jnp.zeros((ASKED, 2)), setup.euler_steps)
        else:
            kind: Any = setup.policy
            actor = make_actor(kind, SPEC, setup.hidden, COMPONENTS, init_key)
            actor, seconds = clone(actor, mixture_loss, setup.updates, train_key)
            policy: Any = actor(state)
            sampled, plain = policy.sample(draw_key), mode_of(policy)
        found["sampled"].append(float(off_every_way(state, sampled).mean()))
        found["deterministic"].append(float(off_every_way(state, plain).mean()))
        found["seconds"].append(round(seconds, 2))
    return found


def make_table(lines: list[dict[str, Any]]) -> str:
    """One row a policy, means over seeds."""
    head = "policy", "hidden sizes, updates", "sampled, off every way", "deterministic, off", "s"
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for line in lines:
        euler = f" ({line['euler_steps']} Euler steps)" if line["euler_steps"] else ""
        sampled, plain, seconds = (
            float(np.mean(line[name])) for name in ("sampled", "deterministic", "seconds")
        )
        rows.append(
            f"| {line['policy']}{euler} | {' '.join(map(str, line['hidden']))}, "
            f"{line['updates']:,} | {100 * sampled:.1f} % | {100 * plain:.1f} % | {seconds:.1f} |"
        )
    seeds = sorted({len(line["seeds"]) for line in lines})
    return "\n".join(rows) + (
        f"\n\nMeans over {' or '.join(map(str, seeds))} seeds; s: seconds of training one.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
