"""A small JAX function as a list of NumPy calls, for loops in which dispatch costs more than work.

A compiled program of a small network takes some 50 µs to start and hands its work to other threads;
between two steps of a simulator that is a quarter of the time, and much more where other programs
compete for the cores. The same operations called in NumPy take a third of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn

from leeward.flat_jaxpr import flatten, type_of

Values = Sequence[np.ndarray]


class Call(NamedTuple):
    """One operation: values from slots, results into slots."""

    function: Callable[..., Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Program(NamedTuple):
    """A traced function of some arrays known beforehand and one that changes."""

    constants: dict[int, Any]
    known: tuple[int, ...]
    """Slots of the arrays known beforehand."""
    changing: int
    """Slot of the one that changes."""
    once: tuple[Call, ...]
    """Operations on what is known."""
    each: tuple[Call, ...]
    """The rest, in order."""
    result: int
    slots: int

    def bind(self, known: Values) -> Callable[[np.ndarray], np.ndarray]:
        """The function of the changing array alone, all that can be computed now computed."""
        values: list[Any] = [None] * self.slots
        for slot, value in (self.constants | dict(zip(self.known, known, strict=True))).items():
            values[slot] = value
        _run(self.once, values)

        def call(changing: np.ndarray) -> np.ndarray:
            current = values.copy()
            current[self.changing] = changing
            _run(self.each, current)
            return current[self.result]

        return call


def trace(
    function: Callable[..., Any], known: Sequence[jax.ShapeDtypeStruct], changing: Any
) -> Program | None:
    """`function(*known, changing)` → one array, as NumPy calls; None where it uses others.

    Args:
        function: traceable by JAX.
        known: shapes and types of all arguments but the last.
        changing: shape and type of the last.
    """
    flat = flatten(jax.make_jaxpr(function)(*known, changing))
    functions = [_function_of(operation.equation) for operation in flat.operations]
    calls = [
        Call(function, operation.inputs, operation.outputs)
        for function, operation in zip(functions, flat.operations, strict=True)
        if function is not None
    ]
    if len(calls) < len(functions):
        return None
    varies = {flat.arguments[-1]}
    for call in calls:
        if varies.intersection(call.inputs):
            varies.update(call.outputs)
    return Program(
        constants=flat.constants,
        known=flat.arguments[:-1],
        changing=flat.arguments[-1],
        once=tuple(call for call in calls if not varies.intersection(call.outputs)),
        each=tuple(call for call in calls if varies.intersection(call.outputs)),
        result=flat.result,
        slots=flat.slots,
    )


def _run(calls: Sequence[Call], values: list[Any]) -> None:
    with np.errstate(all="ignore"):  # as in JAX, NaN and infinity are results
        for function, inputs, outputs in calls:
            result = function(*[values[slot] for slot in inputs])
            if len(outputs) == 1:
                values[outputs[0]] = result
            else:
                for slot, value in zip(outputs, result, strict=True):
                    values[slot] = value


def _function_of(equation: JaxprEqn) -> Callable[..., Any] | None:
    """The operation in NumPy; None where it is not among those known."""
    name = equation.primitive.name
    types = [type_of(atom).dtype for atom in equation.invars]
    if name in _OF_FLOATS and all(jnp.issubdtype(t, np.floating) for t in types):
        return _OF_FLOATS[name]
    if name in _OF_ANY:
        return _OF_ANY[name]
    if name in _WITH_PARAMETERS:
        return _WITH_PARAMETERS[name](equation.params)
    if name == "dot_general":
        return _dot(equation)
    if name == "select_n" and types[0] == np.dtype(bool):
        return lambda which, no, yes: np.where(which, yes, no)
    return None


_OF_FLOATS: dict[str, Callable[..., Any]] = {
    "div": np.divide,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": lambda value: 1.0 / (1.0 + np.exp(-value)),
    "rsqrt": lambda value: 1.0 / np.sqrt(value),
    "sqrt": np.sqrt,
    "square": np.square,
    "tanh": np.tanh,
}
_OF_ANY: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "clamp": lambda low, value, high: np.clip(value, low, high),
    "copy": lambda value: value,
    "eq": np.equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "stop_gradient": lambda value: value,
    "sub": np.subtract,
}


def _dot(equation: JaxprEqn) -> Callable[..., Any] | None:
    """A product summed over some axes and batched over others, as a matrix product; of float32."""
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = (type_of(atom) for atom in equation.invars)
    if not left.dtype == right.dtype == type_of(equation.outvars[0]).dtype == np.float32:
        return None
    left_free = [i for i in range(left.ndim) if i not in (*left_sum, *left_batch)]
    right_free = [i for i in range(right.ndim) if i not in (*right_sum, *right_batch)]
    left_order = (*left_batch, *left_free, *left_sum)
    right_order = (*right_batch, *right_sum, *right_free)
    batch = [left.shape[i] for i in left_batch]
    summed = math.prod(left.shape[i] for i in left_sum)
    left_shape = (*batch, math.prod(left.shape[i] for i in left_free), summed)
    right_shape = (*batch, summed, math.prod(right.shape[i] for i in right_free))
    shape = type_of(equation.outvars[0]).shape  # batch, then left, then right
    plain = left_order == tuple(range(left.ndim)) and right_order == tuple(range(right.ndim))
    if plain and left_shape == left.shape and right_shape == right.shape:
        return np.matmul

    def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        product = a.transpose(left_order).reshape(left_shape) @ b.transpose(right_order).reshape(
            right_shape
        )
        return product.reshape(shape)

    return dot


def _broadcast(parameters: dict[str, Any]) -> Callable[..., Any]:
    shape, dimensions = parameters["shape"], parameters["broadcast_dimensions"]

    def broadcast(value: np.ndarray) -> np.ndarray:
        ones = [1] * len(shape)
        for size, dimension in zip(value.shape, dimensions, strict=True):
            ones[dimension] = size
        return np.broadcast_to(value.reshape(ones), shape)

    return broadcast


def _slice(parameters: dict[str, Any]) -> Callable[..., Any]:
    strides = parameters["strides"] or [1] * len(parameters["start_indices"])
    bounds = zip(parameters["start_indices"], parameters["limit_indices"], strides, strict=True)
    index = tuple(slice(*bound) for bound in bounds)
    return lambda value: value[index]


def _iota(parameters: dict[str, Any]) -> Callable[..., Any]:
    shape, dimension = parameters["shape"], parameters["dimension"]
    count = np.arange(shape[dimension], dtype=parameters["dtype"])
    ones = [size if i == dimension else 1 for i, size in enumerate(shape)]
    return lambda: np.broadcast_to(count.reshape(ones), shape)


def _argmax(parameters: dict[str, Any]) -> Callable[..., Any]:
    (axis,), dtype = parameters["axes"], parameters["index_dtype"]
    return lambda value: np.argmax(value, axis=axis).astype(dtype)


def _split(parameters: dict[str, Any]) -> Callable[..., Any]:
    places = np.cumsum(parameters["sizes"])[:-1].tolist()
    return partial(np.split, indices_or_sections=places, axis=parameters["axis"])


_WITH_PARAMETERS: dict[str, Callable[[dict[str, Any]], Callable[..., Any]]] = {
    "argmax": _argmax,
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda p: lambda *values: np.concatenate(values, axis=p["dimension"]),
    "convert_element_type": lambda p: lambda value: value.astype(p["new_dtype"]),
    "integer_pow": lambda p: lambda value: value ** p["y"],
    "iota": _iota,
    "reduce_max": lambda p: partial(np.max, axis=p["axes"]),
    "reduce_sum": lambda p: partial(np.sum, axis=p["axes"]),
    "reshape": lambda p: lambda value: value.reshape(p["new_sizes"]),
    "slice": _slice,
    "split": _split,
    "squeeze": lambda p: partial(np.squeeze, axis=p["dimensions"]),
    "transpose": lambda p: partial(np.transpose, axes=p["permutation"]),
}
