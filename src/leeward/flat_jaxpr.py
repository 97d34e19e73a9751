"""A traced function as one flat list of operations, without what its result does not need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal


class Operation(NamedTuple):
    """One operation: values from slots, results into slots."""

    equation: JaxprEqn
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Flat(NamedTuple):
    """The operations in order; functions within functions are written out."""

    arguments: tuple[int, ...]
    """Slots of the function's arguments."""
    constants: dict[int, Any]
    """By slot; keys of random numbers are left as they are, all else is an array of NumPy."""
    operations: tuple[Operation, ...]
    result: int
    slots: int


def flatten(closed: ClosedJaxpr) -> Flat:
    """The operations that the function's only result needs."""
    walk = _Walk()
    arguments = [walk.slot() for _ in closed.jaxpr.invars]
    (result,) = walk.inline(closed.jaxpr, closed.consts, arguments)
    needed = {result}
    live: list[Operation] = []
    for operation in reversed(walk.operations):
        if needed.intersection(operation.outputs):
            needed.update(operation.inputs)
            live.append(operation)
    constants = {slot: value for slot, value in walk.constants.items() if slot in needed}
    return Flat(tuple(arguments), constants, tuple(reversed(live)), result, walk.slots)


def type_of(atom: Any) -> Any:
    """Shape and type of a variable or literal."""
    return atom.aval


class _Walk:
    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.constants: dict[int, Any] = {}
        self.slots = 0

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def constant(self, value: Any, dtype: Any) -> int:
        slot = self.slot()
        random = jnp.issubdtype(dtype, jax.dtypes.extended)
        self.constants[slot] = value if random else np.asarray(value, dtype)
        return slot

    def inline(self, jaxpr: Jaxpr, constants: Sequence[Any], arguments: list[int]) -> list[int]:
        """The slots of the results."""
        place = dict(zip(jaxpr.invars, arguments, strict=True))
        for variable, value in zip(jaxpr.constvars, constants, strict=True):
            place[variable] = self.constant(value, type_of(variable).dtype)

        def find(atom: Any) -> int:
            if isinstance(atom, Literal):
                return self.constant(atom.val, type_of(atom).dtype)
            return place[atom]

        for equation in jaxpr.eqns:
            inputs = [find(atom) for atom in equation.invars]
            inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
            if equation.primitive.name in _CALLS and inner is not None:
                outputs = self.inline(inner.jaxpr, inner.consts, inputs)
                place.update(zip(equation.outvars, outputs, strict=True))
                continue
            outputs = [self.slot() for _ in equation.outvars]
            place.update(zip(equation.outvars, outputs, strict=True))
            self.operations.append(Operation(equation, tuple(inputs), tuple(outputs)))
        return [find(atom) for atom in jaxpr.outvars]


_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")
