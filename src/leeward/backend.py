"""Which device JAX uses, and where it keeps compiled programs."""

from __future__ import annotations

import contextlib

import jax

from leeward.data.download import cache_folder
from leeward.errors import ConfigError
from leeward.options import RunOptions


def prepare_jax(options: RunOptions) -> None:
    """Chooses the device and keeps compiled programs between processes, unless set already.

    Raises:
        ConfigError: the device is not there.
    """
    if options.device is not None:
        _choose(options.device)
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        cache = cache_folder() / "compiled"
        with contextlib.suppress(OSError):  # an unwritable home only costs the cache
            cache.mkdir(parents=True, exist_ok=True)
            jax.config.update("jax_compilation_cache_dir", str(cache))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _choose(device: str) -> None:
    """Makes JAX use a kind of device, or leaves everything as it was.

    Raises:
        ConfigError: there is none, or this process uses another kind already.
    """
    before = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_platforms", {"gpu": "cuda"}.get(device, device))
    try:
        used = jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # the latter, without a word: no NVIDIA GPU
        jax.config.update("jax_platforms", before)
        reason = "".join(f" ({line.rstrip('.')})" for line in str(error).splitlines()[:1])
        cuda = ", or pip install 'leeward[cuda]' for NVIDIA's" if device == "gpu" else ""
        raise ConfigError(
            f"--device {device}: JAX finds none here{reason}: leave --device out to use the "
            f"fastest there is{cuda}"
        ) from error
    if used != device:  # it was chosen when something was first computed
        jax.config.update("jax_platforms", before)
        raise ConfigError(
            f"--device {device}: this process uses the {used} already: choose it in a new one, "
            "before anything else is computed"
        )
