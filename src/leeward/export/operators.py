"""Operations of JAX as operators of the ONNX standard (opset 18), and a whole policy as a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export
from jax.extend.core import JaxprEqn

from leeward import acting
from leeward.errors import ConfigError
from leeward.export.graph import (
    INPUT,
    Builder,
    Graph,
    UntranslatableError,
    Value,
    known,
    product,
)
from leeward.flat_jaxpr import flatten, type_of
from leeward.policy import Policy
from leeward.types import Spec

Emit = Callable[[Builder, JaxprEqn, list[Value]], list[Value]]


def graph_of(policy: Policy) -> Graph:
    """What the policy computes, from observations to actions in the environment's units.

    Raises:
        ConfigError: an operation that has no counterpart here.
    """
    leaves, tree = jax.tree.flatten((policy.policy, policy.scaling))
    (batch,) = jax_export.symbolic_shape("batch")

    def call(*arrays: Any) -> Any:
        parameters, scaling = jax.tree.unflatten(tree, arrays[:-1])
        return acting.act(policy.algorithm.act, policy.spec, parameters, scaling, arrays[-1])

    weights = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    observation = observation_type(policy.spec, batch)
    closed = jax.make_jaxpr(call)(*weights, observation)
    flat = flatten(closed)
    unknown = sorted({o.equation.primitive.name for o in flat.operations} - EMIT.keys())
    if unknown:
        raise _untranslatable(policy, ", ".join(f"'{name}'" for name in unknown))
    shape, dtype = tuple(observation.shape), np.dtype(observation.dtype)
    builder = Builder(batch, Value(INPUT, shape, dtype))
    values: dict[int, Value] = {slot: known(array) for slot, array in flat.constants.items()}
    values |= {slot: known(x) for slot, x in zip(flat.arguments[:-1], leaves, strict=True)}
    values[flat.arguments[-1]] = builder.observation
    try:
        for equation, inputs, outputs in flat.operations:
            found = EMIT[equation.primitive.name](builder, equation, [values[i] for i in inputs])
            values.update(zip(outputs, found, strict=True))
        return builder.finish(values[flat.result], closed.out_avals[0].shape)
    except UntranslatableError as error:
        raise _untranslatable(policy, f"'{error}'") from error


def observation_type(spec: Spec, batch: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of what a policy is called with, the batch a symbol."""
    dtype = jnp.uint8 if spec.observation_dtype == "uint8" else jnp.float32
    return jax.ShapeDtypeStruct((batch, *spec.observation_shape), dtype)


def _untranslatable(policy: Policy, what: str) -> ConfigError:
    return ConfigError(
        f"the policy of {policy.algorithm.name} computes with operations that have no counterpart "
        f"in ONNX here ({what}): use --format stablehlo, which takes all of them"
    )


def _same(operator: str, *, floats: bool = False, boolean: bool = False) -> Emit:
    """An operator on elements.

    Args:
        operator: its name.
        floats: only of floats, since integers would come out otherwise than in JAX.
        boolean: it gives truth values.
    """

    def emit(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
        if floats:
            _need_floats(equation, values)
        return [builder.elementwise(operator, values, bool if boolean else None)]

    return emit


def _need_floats(equation: JaxprEqn, values: Sequence[Value]) -> None:
    for value in values:
        if value.dtype != np.float32:
            raise UntranslatableError(f"{equation.primitive.name} of {value.dtype}")


def _logical(operator: str) -> Emit:
    """An operator on truth values; JAX has the same on the bits of integers."""

    def emit(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
        if values[0].dtype != np.bool_:
            raise UntranslatableError(f"{equation.primitive.name} of {values[0].dtype}")
        return [builder.elementwise(operator, values)]

    return emit


def _identity(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    return values


def _not_equal(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    return [builder.elementwise("Not", [builder.elementwise("Equal", values, bool)])]


def _clamp(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    low, value, high = values
    return [builder.elementwise("Min", [builder.elementwise("Max", [value, low]), high])]


def _select(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    if len(values) != 3 or values[0].dtype != np.bool_:
        raise UntranslatableError("select_n by integers")
    which, no, yes = values
    return [builder.elementwise("Where", [which, yes, no], no.dtype)]


def _square(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    return [builder.elementwise("Mul", [values[0], values[0]])]


def _integer_power(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    _need_floats(equation, values)
    return [builder.elementwise("Pow", [values[0], known(equation.params["y"], np.float32)])]


def _reciprocal_root(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    root = builder.elementwise("Sqrt", values)
    return [builder.elementwise("Div", [known(1.0, np.float32), root])]


def _log_plus_one(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    more = builder.elementwise("Add", [values[0], known(1.0, np.float32)])
    return [builder.elementwise("Log", [more])]


def _convert(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    return [builder.cast(values[0], equation.params["new_dtype"])]


def _broadcast(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    """Only new axes of size 1; the rest waits until it is needed."""
    (value, *_), dimensions = values, equation.params["broadcast_dimensions"]
    shape: list[Any] = [1] * len(equation.params["shape"])
    for size, dimension in zip(value.shape, dimensions, strict=True):
        shape[dimension] = size
    new = [axis for axis in range(len(shape)) if axis not in dimensions]
    if not new:
        return [value]
    axes = known(new, np.int64)
    return builder.add("Unsqueeze", [value, axes], (tuple(shape), value.dtype))


def _squeeze(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    (value,), dropped = values, equation.params["dimensions"]
    shape = tuple(size for axis, size in enumerate(value.shape) if axis not in dropped)
    axes = known(dropped, np.int64)
    return builder.add("Squeeze", [value, axes], (shape, value.dtype))


def _wholes(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    """The operands, as large as they are meant to be."""
    return [
        builder.whole(value, type_of(atom).shape)
        for value, atom in zip(values, equation.invars, strict=True)
    ]


def _reshape(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    (value,) = _wholes(builder, equation, values)
    return [builder.reshape(value, tuple(equation.params["new_sizes"]))]


def _transpose(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    return [builder.transpose(values[0], equation.params["permutation"])]


def _concatenate(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    whole = _wholes(builder, equation, values)
    result = type_of(equation.outvars[0])
    axis = int(equation.params["dimension"])
    return builder.add("Concat", whole, (result.shape, result.dtype), axis=axis)


def _slice(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    (value,) = _wholes(builder, equation, values)
    starts, ends = equation.params["start_indices"], equation.params["limit_indices"]
    steps = equation.params["strides"] or (1,) * len(starts)
    axes = [
        axis
        for axis, (start, end, step) in enumerate(zip(starts, ends, steps, strict=True))
        if not (start == 0 and step == 1 and end == value.shape[axis])
    ]
    chosen = [[part[axis] for axis in axes] for part in (starts, ends, steps)]
    if any(jax_export.is_symbolic_dim(number) for part in chosen for number in part):
        raise UntranslatableError("slice of the batch")
    limits = [known(numbers, np.int64) for numbers in (*chosen[:2], axes, chosen[2])]
    result = type_of(equation.outvars[0])
    return builder.add("Slice", [value, *limits], (result.shape, result.dtype))


def _split(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    whole, sizes = _wholes(builder, equation, values), known(equation.params["sizes"], np.int64)
    results = [(type_of(atom).shape, type_of(atom).dtype) for atom in equation.outvars]
    axis = int(equation.params["axis"])
    return builder.add("Split", [*whole, sizes], *results, axis=axis)


def _iota(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    shape, dimension = equation.params["shape"], equation.params["dimension"]
    if jax_export.is_symbolic_dim(shape[dimension]):
        raise UntranslatableError("iota over the batch")
    ones = [size if axis == dimension else 1 for axis, size in enumerate(shape)]
    count = np.arange(shape[dimension], dtype=equation.params["dtype"])
    return [known(count.reshape(ones))]


def _reduce(operator: str) -> Emit:
    def emit(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
        whole, axes = _wholes(builder, equation, values), known(equation.params["axes"], np.int64)
        result = type_of(equation.outvars[0])
        return builder.add(operator, [*whole, axes], (result.shape, result.dtype), keepdims=0)

    return emit


def _best(operator: str) -> Emit:
    def emit(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
        whole, (axis,) = _wholes(builder, equation, values), equation.params["axes"]
        shape = type_of(equation.outvars[0]).shape
        (index,) = builder.add(operator, whole, (shape, np.int64), axis=int(axis), keepdims=0)
        return [builder.cast(index, equation.params["index_dtype"])]

    return emit


def _dot(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    """A product summed over some axes and batched over others, as a matrix product."""
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = _wholes(builder, equation, values)
    result = type_of(equation.outvars[0])
    _need_floats(equation, [left, right, Value("", result.shape, result.dtype)])
    left_free = [i for i in range(len(left.shape)) if i not in (*left_sum, *left_batch)]
    right_free = [i for i in range(len(right.shape)) if i not in (*right_sum, *right_batch)]
    batch = [left.shape[i] for i in left_batch]
    rows, columns = [left.shape[i] for i in left_free], [right.shape[i] for i in right_free]
    summed = product([left.shape[i] for i in left_sum])
    left = builder.transpose(left, (*left_batch, *left_free, *left_sum))
    right = builder.transpose(right, (*right_batch, *right_sum, *right_free))
    if not batch and len(left_sum) == 1 and len(right_free) == 1:
        return builder.add("MatMul", [left, right], (result.shape, result.dtype))
    left = builder.reshape(left, (*batch, product(rows), summed))
    right = builder.reshape(right, (*batch, summed, product(columns)))
    shape = (*batch, product(rows), product(columns))
    (found,) = builder.add("MatMul", [left, right], (shape, result.dtype))
    return [builder.reshape(found, result.shape)]


def _gather(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    """One of three forms: a slice at a known place, places along an axis, places behind a batch.

    An index outside is an error when the file runs (in JAX it gives NaN); none that an argmax
    found is.
    """
    value, index = _wholes(builder, equation, values)
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    result = type_of(equation.outvars[0])
    found = (result.shape, result.dtype)
    batch, places = tuple(numbers.operand_batching_dims), tuple(numbers.start_index_map)
    dropped, offset = tuple(numbers.collapsed_slice_dims), tuple(numbers.offset_dims)
    rank, kept = len(index.shape) - 1, len(offset)
    whole = [axis for axis in range(len(sizes)) if sizes[axis] == value.shape[axis]]
    others = [axis for axis in range(len(sizes)) if axis not in (*batch, *places)]
    if any(axis not in whole for axis in others):
        raise UntranslatableError("gather")
    if isinstance(index.content, np.ndarray) and index.content.ndim == 1:
        if any(jax_export.is_symbolic_dim(sizes[axis]) for axis in places):
            raise UntranslatableError("slice of the batch")
        starts = index.content.astype(np.int64)
        ends = starts + np.array([sizes[axis] for axis in places], np.int64)
        limits = [known(n, np.int64) for n in (starts, ends, places, np.ones(len(places)))]
        (part,) = builder.add("Slice", [value, *limits], (tuple(sizes), value.dtype))
        if not dropped:
            return [part]
        return builder.add("Squeeze", [part, known(dropped, np.int64)], found)
    if dropped != places or tuple(numbers.start_indices_batching_dims) != batch:
        raise UntranslatableError("gather")
    index = builder.cast(index, np.int64)
    if not batch and len(places) == 1:
        (axis,) = places
        if offset == (*range(axis), *range(axis + rank, rank + kept)):
            index = builder.reshape(index, index.shape[:-1])
            return builder.add("Gather", [value, index], found, axis=int(axis))
    if (*batch, *places) == tuple(range(len(batch) + len(places))) and offset == tuple(
        range(rank, rank + kept)
    ):
        return builder.add("GatherND", [value, index], found, batch_dims=len(batch))
    raise UntranslatableError("gather")


def _stack(builder: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    axis, parts = int(equation.params["axis"]), []
    for value in _wholes(builder, equation, values):
        shape = (*value.shape[:axis], 1, *value.shape[axis:])
        axes = known([axis], np.int64)
        parts += builder.add("Unsqueeze", [value, axes], (shape, value.dtype))
    result = type_of(equation.outvars[0])
    return builder.add("Concat", parts, (result.shape, result.dtype), axis=axis)


EMIT: dict[str, Emit] = {
    "abs": _same("Abs"),
    "add": _same("Add"),
    "and": _logical("And"),
    "argmax": _best("ArgMax"),
    "argmin": _best("ArgMin"),
    "broadcast_in_dim": _broadcast,
    "clamp": _clamp,
    "concatenate": _concatenate,
    "convert_element_type": _convert,
    "copy": _identity,
    "div": _same("Div", floats=True),
    "dot_general": _dot,
    "eq": _same("Equal", boolean=True),
    "exp": _same("Exp", floats=True),
    "gather": _gather,
    "ge": _same("GreaterOrEqual", boolean=True),
    "gt": _same("Greater", boolean=True),
    "integer_pow": _integer_power,
    "iota": _iota,
    "le": _same("LessOrEqual", boolean=True),
    "log": _same("Log", floats=True),
    "log1p": _log_plus_one,
    "logistic": _same("Sigmoid", floats=True),
    "lt": _same("Less", boolean=True),
    "max": _same("Max"),
    "min": _same("Min"),
    "mul": _same("Mul"),
    "ne": _not_equal,
    "neg": _same("Neg"),
    "not": _logical("Not"),
    "optimization_barrier": _identity,
    "or": _logical("Or"),
    "reduce_max": _reduce("ReduceMax"),
    "reduce_min": _reduce("ReduceMin"),
    "reduce_sum": _reduce("ReduceSum"),
    "reshape": _reshape,
    "rsqrt": _reciprocal_root,
    "select_n": _select,
    "sign": _same("Sign"),
    "slice": _slice,
    "split": _split,
    "sqrt": _same("Sqrt", floats=True),
    "square": _square,
    "squeeze": _squeeze,
    "stack": _stack,
    "stop_gradient": _identity,
    "sub": _same("Sub"),
    "tanh": _same("Tanh", floats=True),
    "transpose": _transpose,
}
