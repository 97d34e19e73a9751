"""A graph of ONNX operators in the making: what is known is computed at once, broadcasts wait.

Operators on elements broadcast by themselves, so a broadcast of JAX costs nothing until another
operator needs it: a value's stored shape has 1 wherever the shape that it stands for is larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import export as jax_export

from leeward.export import runner

INPUT, OUTPUT = "observation", "action"
Shape = tuple[Any, ...]
"""Sizes; one that depends on the batch is an expression of `jax.export`."""


class Node(NamedTuple):
    """One operator of the ONNX standard, its values by name."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


class Graph(NamedTuple):
    """Operators in order, from `INPUT` to `OUTPUT`, and the arrays that they use."""

    nodes: tuple[Node, ...]
    constants: dict[str, np.ndarray]


class Value(NamedTuple):
    """A value in a graph: an array that is known, or the name of one that will be computed."""

    content: np.ndarray | str
    shape: Shape
    """As it is stored."""
    dtype: np.dtype

    @property
    def is_known(self) -> bool:
        """Whether it does not depend on the observation."""
        return isinstance(self.content, np.ndarray)


class UntranslatableError(Exception):
    """An operation that has no counterpart here; its text names it."""


def known(array: Any, dtype: Any = None) -> Value:
    """A value of an array."""
    array = np.asarray(array, dtype)
    return Value(array, array.shape, array.dtype)


class Builder:
    """Collects the operators of one graph."""

    def __init__(self, batch: Any, observation: Value) -> None:
        """Starts with the input alone.

        Args:
            batch: the size of the batch, a symbol of `jax.export`.
            observation: the input.
        """
        self.batch, self.observation = batch, observation
        self._nodes: list[Node] = []
        self._count = 0
        self._constants: dict[str, np.ndarray] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._batch_size: Value | None = None

    def add(
        self,
        operator: str,
        inputs: Sequence[Value],
        *results: tuple[Shape, Any],
        **attributes: Any,
    ) -> list[Value]:
        """The results of an operator, each given by its shape and type.

        Computed here and now where all inputs are known.
        """
        if all(value.is_known for value in inputs):
            with np.errstate(all="ignore"):
                found = runner.OPERATORS[operator](*[v.content for v in inputs], **attributes)
            return [known(array) for array in (found if len(results) > 1 else [found])]
        names = tuple(f"value_{self._count + i}" for i in range(len(results)))
        self._count += len(names)
        inside = tuple(self._name(value) for value in inputs)
        self._nodes.append(Node(operator, inside, names, attributes))
        return [
            Value(name, tuple(shape), np.dtype(dtype))
            for name, (shape, dtype) in zip(names, results, strict=True)
        ]

    def elementwise(self, operator: str, values: Sequence[Value], dtype: Any = None) -> Value:
        """An operator on elements, which broadcasts."""
        shape = broadcast_shapes([value.shape for value in values])
        return self.add(operator, values, (shape, dtype or values[0].dtype))[0]

    def cast(self, value: Value, dtype: Any) -> Value:
        """The value as another type."""
        dtype = np.dtype(dtype)
        if value.dtype == dtype:
            return value
        return self.add("Cast", [value], (value.shape, dtype), to=dtype.name)[0]

    def whole(self, value: Value, shape: Shape) -> Value:
        """The value with its broadcast done: stored as the shape that it stands for."""
        if value.shape == tuple(shape):
            return value
        unlike = [i for i, size in enumerate(value.shape) if not _same(size, shape[i])]
        if not any(_symbolic(shape[i]) for i in unlike):
            # The other sizes are left as they are.
            target = known([size if i in unlike else 1 for i, size in enumerate(shape)], np.int64)
        else:
            sizes = [self._size(size) for size in shape]
            (target,) = self.add("Concat", sizes, ((len(shape),), np.int64), axis=0)
        return self.add("Expand", [value, target], (shape, value.dtype))[0]

    def reshape(self, value: Value, shape: Shape) -> Value:
        """The same numbers, in order, in another shape."""
        if value.shape == tuple(shape):
            return value
        unknown = [i for i, size in enumerate(shape) if _symbolic(size)]
        if len(unknown) > 1:
            raise UntranslatableError(f"reshape to {tuple(map(str, shape))}")
        target = known([-1 if i in unknown else int(s) for i, s in enumerate(shape)], np.int64)
        return self.add("Reshape", [value, target], (shape, value.dtype))[0]

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        """The axes in another order."""
        if list(order) == list(range(len(order))):
            return value
        shape = tuple(value.shape[axis] for axis in order)
        return self.add("Transpose", [value], (shape, value.dtype), perm=list(order))[0]

    def finish(self, result: Value, shape: Shape) -> Graph:
        """The graph whose output is `result`."""
        final = self.whole(result, shape)
        if final.content == INPUT:
            (final,) = self.add("Identity", [final], (final.shape, final.dtype))
        name = str(final.content)
        needed, live = {name}, []
        for node in reversed(self._nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
                live.append(_renamed(node, name, OUTPUT))
        constants = {name: a for name, a in self._constants.items() if name in needed}
        return Graph(tuple(reversed(live)), constants)

    def _name(self, value: Value) -> str:
        """The name of a value; a known one gets one, the same as an equal one before it."""
        if isinstance(value.content, str):
            return value.content
        array = np.ascontiguousarray(value.content).reshape(value.shape)
        key = (array.shape, array.dtype, array.tobytes())
        if key not in self._names:
            self._names[key] = f"constant_{len(self._names)}"
            self._constants[self._names[key]] = array
        return self._names[key]

    def _size(self, size: Any) -> Value:
        """A size as an array of one integer, computed from the observation's where it must be."""
        if not _symbolic(size):
            return known([int(size)], np.int64)
        factor = size // self.batch
        if _symbolic(factor) or not _same(factor * self.batch, size):
            raise UntranslatableError(f"a size of {size}")
        if self._batch_size is None:
            rank = len(self.observation.shape)
            (shape,) = self.add("Shape", [self.observation], ((rank,), np.int64))
            limits = [known([i], np.int64) for i in (0, 1, 0, 1)]
            (self._batch_size,) = self.add("Slice", [shape, *limits], ((1,), np.int64))
        if factor == 1:
            return self._batch_size
        return self.elementwise("Mul", [self._batch_size, known([factor], np.int64)])


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """The shape that arrays of these shapes have together; symbols stay symbols."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(
        next((size for size in sizes if not _same(size, 1)), 1)
        for sizes in zip(*padded, strict=True)
    )


def product(sizes: Sequence[Any]) -> Any:
    """How many elements there are."""
    return math.prod(sizes)


def _symbolic(size: Any) -> bool:
    return jax_export.is_symbolic_dim(size)


def _same(one: Any, other: Any) -> bool:
    """Whether two sizes are known to be equal."""
    return bool(one == other)


def _renamed(node: Node, old: str, new: str) -> Node:
    inputs, outputs = (
        tuple(new if name == old else name for name in names)
        for names in (node.inputs, node.outputs)
    )
    return node._replace(inputs=inputs, outputs=outputs)
