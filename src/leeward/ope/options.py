"""Settings of off-policy evaluation. Fields become flags."""

from __future__ import annotations

from dataclasses import dataclass

from leeward.errors import ConfigError
from leeward.ope.fitted import Config


@dataclass(frozen=True)
class OpeOptions:
    """Settings of all estimators."""

    discount: float = 0.99
    """Discount of future rewards; estimates are of the discounted return."""
    steps: int = 20_000
    """Updates of fitted Q evaluation, for every policy."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes of the critics and of the behavior density."""
    behavior_steps: int = 10_000
    """Updates of the behavior density."""
    bandwidth: float | None = None
    """Width of the normal that stands for a deterministic action, of the [-1, 1] action range;
    default by Scott's rule."""
    seed: int = 0
    """Of weights and batches."""


def check_options(options: OpeOptions) -> None:
    """Rejects impossible values.

    Raises:
        ConfigError: the option, its value and what is allowed.
    """
    if not 0.0 <= options.discount < 1.0:
        raise ConfigError(f"--discount must be at least 0 and below 1, got {options.discount}")
    for name in ("steps", "batch_size", "behavior_steps"):
        if getattr(options, name) < 1:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} must be at least 1, got {getattr(options, name)}")
    if options.bandwidth is not None and not 0.0 < options.bandwidth <= 10.0:
        raise ConfigError(f"--bandwidth must be above 0 and at most 10, got {options.bandwidth}")


def fitted_config(options: OpeOptions) -> Config:
    """The settings of fitted Q evaluation."""
    return Config(
        steps=options.steps,
        batch_size=options.batch_size,
        hidden=options.hidden,
        discount=options.discount,
    )
