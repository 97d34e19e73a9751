"""A policy exported by Leeward, in one file. Needs NumPy alone.

    from policy import load                 # this file, whatever it is called
    act = load()
    action = act(observation)               # [..., *observation shape] → [..., *action shape]

or, for a file of observations:

    python policy.py observations.npy actions.npy

ARCHIVE at the end is a NumPy archive (.npz) in base64. It holds arrays and, as JSON text, the
"program": operators of the ONNX standard (opset 18, https://onnx.ai/onnx/operators) in order, each
with the names of its inputs and outputs. The input is "observation" with a leading batch axis, the
output "action". Nothing in the archive is ever executed as code: an operator that is not in
OPERATORS below is refused.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

FORMAT = 1
"""Version of the archive's layout."""


def _slice(values: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    index = [slice(None)] * values.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[int(axis)] = slice(int(start), int(end), int(step))
    return values[tuple(index)]


def _gather_nd(values: Any, indices: Any, batch_dims: int) -> Any:
    """The elements (or slices) that the last axis of `indices` addresses behind the batch axes."""
    shape = indices.shape[:-1]
    batch = np.meshgrid(*map(np.arange, shape[:batch_dims]), indexing="ij") if batch_dims else []
    ones = (1,) * (len(shape) - batch_dims)
    places = [place.reshape(*place.shape, *ones) for place in batch]
    return values[(*places, *np.moveaxis(indices, -1, 0))]


OPERATORS: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "ArgMax": lambda values, axis, keepdims: np.argmax(values, axis, keepdims=bool(keepdims)),
    "ArgMin": lambda values, axis, keepdims: np.argmin(values, axis, keepdims=bool(keepdims)),
    "Cast": lambda values, to: values.astype(to),
    "Concat": lambda *values, axis: np.concatenate(values, axis),
    "Div": np.divide,
    "Equal": np.equal,
    "Exp": np.exp,
    "Expand": lambda values, shape: np.broadcast_to(
        values, np.broadcast_shapes(values.shape, tuple(shape))
    ),
    "Gather": lambda values, indices, axis: np.take(values, indices, axis),
    "GatherND": _gather_nd,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Identity": lambda values: values,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Log": np.log,
    "MatMul": np.matmul,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pow": np.power,
    "ReduceMax": lambda values, axes, keepdims: np.max(
        values, tuple(axes), keepdims=bool(keepdims)
    ),
    "ReduceMin": lambda values, axes, keepdims: np.min(
        values, tuple(axes), keepdims=bool(keepdims)
    ),
    "ReduceSum": lambda values, axes, keepdims: np.sum(
        values, tuple(axes), keepdims=bool(keepdims)
    ),
    "Reshape": lambda values, shape: np.reshape(values, tuple(shape)),
    "Shape": lambda values: np.array(np.shape(values), np.int64),
    "Sigmoid": lambda values: 1.0 / (1.0 + np.exp(-values)),
    "Sign": np.sign,
    "Slice": _slice,
    "Split": lambda values, split, axis: np.split(values, np.cumsum(split)[:-1].tolist(), axis),
    "Sqrt": np.sqrt,
    "Squeeze": lambda values, axes: np.squeeze(values, tuple(axes)),
    "Sub": np.subtract,
    "Tanh": np.tanh,
    "Transpose": lambda values, perm: np.transpose(values, perm),
    "Unsqueeze": lambda values, axes: np.expand_dims(values, tuple(axes)),
    "Where": np.where,
}


class Policy:
    """A loaded policy: `policy(observation)` gives the action, `policy.card` says what it is."""

    def __init__(self, arrays: dict[str, Any]) -> None:
        """Takes the archive's arrays.

        Raises:
            ValueError: another layout, a newer one, or an operator that is not known.
        """
        arrays = dict(arrays)
        try:
            program = json.loads(arrays.pop("program").tobytes())
            version, self.card = program["format"], program["card"]
            self._nodes = [
                (node["operator"], node["inputs"], node["outputs"], node["attributes"])
                for node in program["nodes"]
            ]
            self._shape = tuple(int(size) for size in self.card["observation"]["shape"][1:])
            self._dtype = np.dtype(self.card["observation"]["dtype"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError("not a policy in NumPy's form") from error
        if version != FORMAT:
            raise ValueError(f"format {version}, and this program reads format {FORMAT}")
        for operator, *_ in self._nodes:
            if operator not in OPERATORS:
                raise ValueError(f"unknown operator '{operator}'")
        self._arrays = arrays

    def __call__(self, observation: Any) -> Any:
        """The action for observations with any leading axes.

        Raises:
            ValueError: observations of another shape, or of floats where bytes are meant.
        """
        observation = np.asarray(observation)
        leading = observation.shape[: observation.ndim - len(self._shape)]
        if observation.shape[len(leading) :] != self._shape:
            raise ValueError(
                f"observations have shape {observation.shape}, the policy expects {self._shape} "
                "with any leading axes"
            )
        if (observation.dtype == np.uint8) != (self._dtype == np.uint8):
            raise ValueError(f"observations are {observation.dtype}, not {self._dtype}")
        action = self.batch(observation.reshape(-1, *self._shape).astype(self._dtype))
        return action.reshape(leading + action.shape[1:])

    def batch(self, observation: Any) -> Any:
        """Actions [B, …] for observations [B, …] of the right type."""
        values = {**self._arrays, "observation": observation}
        with np.errstate(all="ignore"):  # NaN and infinity are results
            for operator, inputs, outputs, attributes in self._nodes:
                result = OPERATORS[operator](*[values[name] for name in inputs], **attributes)
                if len(outputs) == 1:
                    values[outputs[0]] = result
                else:
                    values.update(zip(outputs, result, strict=True))
        return values["action"]


def load() -> Policy:
    """The policy in ARCHIVE."""
    with np.load(io.BytesIO(base64.b64decode(ARCHIVE)), allow_pickle=False) as archive:
        return Policy({name: archive[name] for name in archive.files})


def main(arguments: list[str]) -> int:
    """Writes the actions for a file of observations."""
    if len(arguments) != 2:
        print("usage: python policy.py OBSERVATIONS.npy ACTIONS.npy", file=sys.stderr)  # noqa: T201
        return 2
    np.save(arguments[1], load()(np.load(arguments[0], allow_pickle=False)))
    return 0


ARCHIVE = ""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
