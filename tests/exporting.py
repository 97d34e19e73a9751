"""Policies with drawn weights, to be exported, and the forms called on them."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward.algorithms import ALGORITHMS, td3_bc
from leeward.data.sampling import Scaling
from leeward.errors import LeewardError
from leeward.export import card, export, forms
from leeward.policy import Policy, TrainedRun
from leeward.types import Algorithm, Box, Discrete, Spec
from subjects import small_config

VECTORS = Spec((3,), "float32", Box((-2.0, 0.0), (2.0, 10.0)))
CHOICES = Spec((3,), "float32", Discrete(4))
FILES = {"onnx": "p.onnx", "stablehlo": "p.stablehlo", "numpy": "p.py"}
IMAGES = Spec((36, 36, 2), "uint8", Discrete(4))


def scaling_of(spec: Spec) -> Scaling:
    """Neither centered nor of unit size."""
    shape = spec.observation_shape
    box = spec.action if isinstance(spec.action, Box) else Box((-1.0,), (1.0,))
    low, high = jnp.asarray(box.low), jnp.asarray(box.high)
    return Scaling(jnp.full(shape, 0.5), jnp.full(shape, 2.0), (low + high) / 2, (high - low) / 2)


def policy_of(algorithm: Algorithm, spec: Spec, seed: int = 0, **settings: Any) -> Policy:
    """A tiny one with drawn weights."""
    config = small_config(algorithm, **settings)
    key = jax.random.key(0)
    shapes = jax.eval_shape(lambda: algorithm.policy(algorithm.init(config, spec, key)))
    draw = np.random.default_rng(seed)

    def weight(leaf: Any) -> jax.Array:
        if leaf.ndim == 0:  # a threshold or a bound, which is positive
            return jnp.asarray(0.3, leaf.dtype)
        size = 0.1 if leaf.ndim == 1 else 1.5 / leaf.shape[0] ** 0.5
        return jnp.asarray(size * draw.normal(size=leaf.shape), leaf.dtype)

    return Policy(
        algorithm=algorithm,
        config=config,
        spec=spec,
        scaling=scaling_of(spec),
        policy=jax.tree.map(weight, shapes),
        run=TrainedRun(3, {}, 40, 12.5, None),
        data={"name": "drawn", "hash": "abc"},
    )


def varied_policy_of(algorithm: Algorithm, spec: Spec, seen: np.ndarray) -> Policy:
    """The first with drawn weights that does not take one action whatever it sees."""
    policies = (policy_of(algorithm, spec, seed) for seed in range(200))
    return next(policy for policy in policies if len(np.unique(policy(seen))) > 1)


@functools.cache
def td3_bc_policy() -> Policy:
    """The one that most tests export."""
    return policy_of(ALGORITHMS["td3_bc"], VECTORS)


def function_policy(function: Callable[..., jax.Array], weight: np.ndarray, size: int) -> Policy:
    """What a function of (weight, observation [B, 3]) gives, as actions [B, size]."""
    spec = Spec((3,), "float32", Box((-1e6,) * size, (1e6,) * size))
    algorithm = td3_bc.ALGORITHM._replace(
        name="function", act=lambda policy, observation, key: function(policy, observation)
    )
    return Policy(
        algorithm=algorithm,
        config=td3_bc.Config(),
        spec=spec,
        scaling=Scaling(jnp.zeros(3), jnp.ones(3), jnp.zeros(size), jnp.ones(size)),
        policy=jnp.asarray(weight),
        run=TrainedRun(0, {}, 0),
    )


def observations(spec: Spec, count: int) -> np.ndarray:
    """As the environment gives them."""
    draw = np.random.default_rng(1)
    if spec.observation_dtype == "uint8":
        blocks = draw.integers(0, 256, (count, 4, 4, 2)).repeat(9, axis=1).repeat(9, axis=2)
        brightness = np.linspace(0.0, 1.0, count)[:, None, None, None]  # else all look alike
        return (brightness * blocks).astype(np.uint8)
    return (0.5 + 2.0 * draw.normal(size=(count, *spec.observation_shape))).astype(np.float32)


def exported(policy: Policy, form: str) -> forms.Run:
    """The policy in one of the forms, written and read again."""
    chosen = forms.FORMS[form]
    content = chosen.write(policy, card.card_of(policy, form))
    return chosen.read(Path(f"policy{chosen.suffix}"), content)[1]


def archive_in(program: Path) -> bytes:
    """The archive in a file of NumPy's form."""
    return base64.b64decode(program.read_text().split('ARCHIVE = """\n')[1].split('"""')[0])


def with_archive(program: Path, archive: bytes) -> bytes:
    """The file with another archive in it."""
    old, new = (base64.encodebytes(content) for content in (archive_in(program), archive))
    content = program.read_bytes()
    assert content.count(old) == 1
    return content.replace(old, new)


def write_all(folder: Path) -> Path:
    """The folder, with a policy in every form."""
    for name in FILES.values():
        export(td3_bc_policy(), folder / name)
    return folder


def error_of(call: Callable[[], object], kind: type[LeewardError]) -> str:
    """The text of the error that a call must raise."""
    with pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files_in(folder: Path) -> list[str]:
    """The names of a folder's files."""
    return sorted(path.name for path in folder.iterdir())
