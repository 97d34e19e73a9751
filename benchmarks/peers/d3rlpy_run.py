"""Trains with d3rlpy, one seed: one row of benchmarks/compare.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import d3rlpy
import numpy as np
import protocol
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.optimizers import AdamFactory
from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory
from protocol import Job, Stopwatch


def main() -> None:
    """Trains, evaluates and writes the result."""
    job = protocol.read_job()
    (seed,) = job.seeds
    d3rlpy.seed(seed)
    transitions = protocol.read_transitions(job)
    dataset = d3rlpy.dataset.MDPDataset(
        observations=transitions.observations,
        actions=transitions.actions,
        rewards=transitions.rewards,
        terminals=transitions.terminals.astype(np.float32),
        timeouts=transitions.timeouts.astype(np.float32),
        action_space=d3rlpy.constants.ActionSpace.CONTINUOUS,
    )
    algorithm = make_config(job).create(device="cpu:0")
    stopwatch = Stopwatch(job)
    algorithm.fit(
        dataset,
        n_steps=job.updates,
        n_steps_per_epoch=job.warm_up,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
        callback=lambda _algorithm, _epoch, step: stopwatch.after(step),
    )
    if "acting_samples" in job.settings:  # d3rlpy has one number for training and acting
        algorithm.impl._n_action_samples = job.settings["acting_samples"]
    returns = [] if job.probe else [protocol.episode_returns(algorithm.predict, job, seed)]
    protocol.write_result(job, stopwatch, returns, ("d3rlpy", "torch"))


def make_config(job: Job) -> Any:
    """The algorithm's configuration, from the settings that all libraries have."""
    settings = job.settings
    shared = {
        "batch_size": settings["batch_size"],
        "gamma": settings["discount"],
        "tau": settings["tau"],
        "actor_learning_rate": settings["actor_lr"],
        "critic_learning_rate": settings["critic_lr"],
        "actor_encoder_factory": VectorEncoderFactory(settings["hidden"]),
        "critic_encoder_factory": VectorEncoderFactory(settings["hidden"]),
    }
    if settings["normalize_observations"]:
        shared["observation_scaler"] = d3rlpy.preprocessing.StandardObservationScaler()
    return CONFIGS[job.algorithm](settings, shared, job.updates)


def td3_bc(settings: Mapping[str, Any], shared: dict[str, Any], updates: int) -> Any:
    """TD3+BC."""
    del updates  # no schedule
    return d3rlpy.algos.TD3PlusBCConfig(
        **shared,
        alpha=settings["alpha"],
        update_actor_interval=settings["policy_delay"],
        target_smoothing_sigma=settings["noise_std"],
        target_smoothing_clip=settings["noise_clip"],
    )


def iql(settings: Mapping[str, Any], shared: dict[str, Any], updates: int) -> Any:
    """IQL; critics and value network share an optimizer here, so their rates are one."""
    if settings["value_lr"] != settings["critic_lr"]:
        raise ValueError("d3rlpy trains value network and critics at one rate")
    return d3rlpy.algos.IQLConfig(
        **shared,
        value_encoder_factory=VectorEncoderFactory(settings["hidden"]),
        actor_optim_factory=AdamFactory(
            lr_scheduler_factory=CosineAnnealingLRFactory(T_max=updates)
        ),
        expectile=settings["expectile"],
        weight_temp=settings["beta"],
        max_weight=settings["weight_clip"],
    )


def cql(settings: Mapping[str, Any], shared: dict[str, Any], updates: int) -> Any:
    """CQL with a fixed weight: its multiplier stays 1."""
    del updates  # no schedule
    return d3rlpy.algos.CQLConfig(
        **shared,
        conservative_weight=settings["cql_weight"],
        n_action_samples=settings["sampled_actions"],
        initial_temperature=settings["alpha"],
        temp_learning_rate=settings["alpha_lr"],
        alpha_learning_rate=0.0,
        initial_alpha=1.0,
    )


def bcq(settings: Mapping[str, Any], shared: dict[str, Any], updates: int) -> Any:
    """BCQ."""
    del updates  # no schedule
    return d3rlpy.algos.BCQConfig(
        **shared,
        imitator_encoder_factory=VectorEncoderFactory(settings["vae_hidden"]),
        imitator_learning_rate=settings["vae_lr"],
        n_action_samples=settings["sampled_actions"],
        action_flexibility=settings["phi"],
        lam=settings["minimum_weight"],
        beta=0.5,  # of the KL term, a constant in Leeward
    )


CONFIGS = {"td3_bc": td3_bc, "iql": iql, "cql": cql, "bcq": bcq}

if __name__ == "__main__":
    main()
