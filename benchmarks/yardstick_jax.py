"""The TD3+BC update as bare code: a JAX scan of 2,000 updates, 2 × 256, batch 256.

Prints updates a second, over as many updates as Leeward's rate is taken over: what the engine must
not be slower than.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import optax

OBSERVATION, ACTION, ROWS, BATCH, UPDATES = 17, 6, 200_000, 256, 2_000
REPEATS = 8
ADAM = optax.adam(3e-4)


def make_network(key: jax.Array, sizes: tuple[int, ...]) -> list[tuple[jax.Array, jax.Array]]:
    """Weights and biases of an MLP."""
    keys = jax.random.split(key, len(sizes) - 1)
    pairs = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [(jax.random.normal(k, (i, o)) / jnp.sqrt(i), jnp.zeros(o)) for k, i, o in pairs]


def apply(network: list[tuple[jax.Array, jax.Array]], features: jax.Array) -> jax.Array:
    """An MLP with ReLU."""
    for weight, bias in network[:-1]:
        features = jax.nn.relu(features @ weight + bias)
    return features @ network[-1][0] + network[-1][1]


def values(critics: list[Any], observation: jax.Array, action: jax.Array) -> jax.Array:
    """[2, B] both critics."""
    both = jnp.concatenate([observation, action], -1)
    return jnp.stack([apply(critic, both)[:, 0] for critic in critics])


def update(state: dict[str, Any], data: dict[str, jax.Array]) -> dict[str, Any]:
    """One update of the critics, and every second time of actor and targets."""
    key, index_key, noise_key = jax.random.split(state["key"], 3)
    index = jax.random.randint(index_key, (BATCH,), 0, ROWS)
    batch = {name: column[index] for name, column in data.items()}
    noise = jnp.clip(0.2 * jax.random.normal(noise_key, (BATCH, ACTION)), -0.5, 0.5)
    next_action = jnp.clip(jnp.tanh(apply(state["target_actor"], batch["next"])) + noise, -1, 1)
    next_q = values(state["target_critics"], batch["next"], next_action).min(0)
    target = batch["reward"] + 0.99 * (1 - batch["termination"]) * next_q

    def critic_loss(critics: list[Any]) -> jax.Array:
        q = values(critics, batch["observation"], batch["action"])
        return ((q - target) ** 2).mean(1).sum()

    gradient = jax.grad(critic_loss)(state["critics"])
    step, critic_opt = ADAM.update(gradient, state["critic_opt"])
    state = state | {
        "key": key,
        "critics": optax.apply_updates(state["critics"], step),
        "critic_opt": critic_opt,
        "count": state["count"] + 1,
    }
    return jax.lax.cond(
        state["count"] % 2 == 0, lambda s: update_actor(s, batch), lambda s: s, state
    )


def update_actor(state: dict[str, Any], batch: dict[str, jax.Array]) -> dict[str, Any]:
    """One update of the actor and of all targets."""

    def actor_loss(actor: list[Any]) -> jax.Array:
        action = jnp.tanh(apply(actor, batch["observation"]))
        both = jnp.concatenate([batch["observation"], action], -1)
        q = apply(state["critics"][0], both)[:, 0]
        weight = 2.5 / jax.lax.stop_gradient(jnp.abs(q).mean())
        return -weight * q.mean() + ((action - batch["action"]) ** 2).mean()

    def mix(target: Any, online: Any) -> Any:
        return jax.tree.map(lambda t, o: 0.995 * t + 0.005 * o, target, online)

    step, actor_opt = ADAM.update(jax.grad(actor_loss)(state["actor"]), state["actor_opt"])
    actor = optax.apply_updates(state["actor"], step)
    return state | {
        "actor": actor,
        "actor_opt": actor_opt,
        "target_actor": mix(state["target_actor"], actor),
        "target_critics": mix(state["target_critics"], state["critics"]),
    }


def main() -> None:
    """Compiles, then times."""
    keys = jax.random.split(jax.random.key(0), 7)
    data = {
        "observation": jax.random.normal(keys[0], (ROWS, OBSERVATION)),
        "action": jax.random.uniform(keys[1], (ROWS, ACTION), minval=-1.0),
        "reward": jax.random.normal(keys[2], (ROWS,)),
        "next": jax.random.normal(keys[3], (ROWS, OBSERVATION)),
        "termination": jnp.zeros(ROWS),
    }
    actor = make_network(keys[4], (OBSERVATION, 256, 256, ACTION))
    sizes = (OBSERVATION + ACTION, 256, 256, 1)
    critics = [make_network(key, sizes) for key in keys[5:7]]
    state = {
        "actor": actor,
        "critics": critics,
        "target_actor": actor,
        "target_critics": critics,
        "actor_opt": ADAM.init(actor),
        "critic_opt": ADAM.init(critics),
        "key": keys[0],
        "count": 0,
    }
    run = jax.jit(
        lambda s, d: jax.lax.scan(lambda s, _: (update(s, d), None), s, None, length=UPDATES)[0]
    )
    state = jax.block_until_ready(run(state, data))
    begin = time.perf_counter()
    for _ in range(REPEATS):
        state = run(state, data)
    jax.block_until_ready(state)
    print(f"{REPEATS * UPDATES / (time.perf_counter() - begin):.1f}")


if __name__ == "__main__":
    main()
