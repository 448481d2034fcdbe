"""Integers that end up as indices: whether those of seeded noise are within what they index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from hetsched.errors import HetschedError
from hetsched.graph import DType, Graph, Op
from hetsched.passes.unfuse import parts

Array = npt.NDArray[Any]
#: Axis by axis, and by the last axis of the indices.
ALONG_AXIS = frozenset({"Gather", "GatherElements", "ScatterElements"})
BY_TUPLES = frozenset({"GatherND", "ScatterND"})
#: Chains of larger tensors are not evaluated: they hold data, not indices.
_MAX_ELEMENTS = 1 << 22
#: Nor are those of more operators.
_LONGEST = 64


@dataclass(frozen=True, slots=True)
class Misfit:
    """An index that is outside: the node that uses it, the value, and the number of places; ``inputs`` are what it comes from."""

    node: str
    type: str
    value: int
    size: int
    inputs: tuple[str, ...]


def first_misfit(graph: Graph, feeds: Mapping[str, Array]) -> Misfit | None:
    """The first index, computed from integer inputs alone, that is not within what it indexes; None if all are.

    Indices that depend on floats, or on operators without a reference function, are not judged.

    Args:
        graph: any graph; composites are looked into.
        feeds: a value for every input.
    """
    ops = list({part.outputs: part for op in graph.ops for part in parts(op)}.values())
    producer = {o: (i, op) for i, op in enumerate(ops) for o in op.outputs if o}
    values = {n: feeds[n] for n in graph.inputs if _whole(graph, n)}
    unknown: set[str] = set()
    for op in ops:
        if op.domain or op.type not in ALONG_AXIS | BY_TUPLES:
            continue
        chain = _chain(graph, producer, op.inputs[1])
        used = tuple(n for n in graph.inputs if n in chain.inputs)
        if not used or not all(_evaluated(graph, part, values, unknown) for part in chain.ops) or op.inputs[1] not in values:
            continue
        found = _outside(op, graph.tensors[op.inputs[0]].shape, values[op.inputs[1]])
        if found is not None:
            return Misfit(op.origin[0] if op.origin else op.name, op.type, *found, used)
    return None


@dataclass(frozen=True, slots=True)
class _Chain:
    """The operators between graph inputs and a tensor, in execution order, and those inputs."""

    ops: list[Op]
    inputs: frozenset[str]


def _chain(graph: Graph, producer: Mapping[str, tuple[int, Op]], name: str) -> _Chain:
    order: dict[int, Op] = {}
    inputs: set[str] = set()
    open_ = [name]
    while open_ and len(order) <= _LONGEST:
        tensor = open_.pop()
        if tensor in graph.inputs:
            inputs.add(tensor)
        i, op = producer.get(tensor, (-1, None))
        if op is not None and i not in order:
            order[i] = op
            open_ += [n for n in op.inputs if n]
    if len(order) > _LONGEST:
        return _Chain([], frozenset())
    return _Chain([order[i] for i in sorted(order)], frozenset(inputs))


def _whole(graph: Graph, name: str) -> bool:
    t = graph.tensors[name]
    return not t.dtype.is_float and t.dtype is not DType.STRING and t.quantization is None


def _evaluated(graph: Graph, op: Op, values: dict[str, Array], unknown: set[str]) -> bool:
    """Whether the outputs of ``op`` are among ``values``, where they are put if they can be computed."""
    from hetsched.reference import run_op

    if all(o in values for o in op.outputs if o):
        return True
    if op.name in unknown:
        return False
    given: list[Array | None] = []
    for name in op.inputs:
        tensor = graph.tensors[name] if name else None
        known = tensor is None or name in values or (tensor.data is not None and tensor.data.is_present)
        if not known or (tensor is not None and tensor.elements > _MAX_ELEMENTS):
            unknown.add(op.name)
            return False
        given.append(None if tensor is None else values[name] if name in values else tensor.values())
    try:
        values.update(zip(op.outputs, run_op(op, given), strict=False))
    except HetschedError:
        unknown.add(op.name)
        return False
    return True


def _outside(op: Op, shape: tuple[int, ...], indices: Array) -> tuple[int, int] | None:
    """The first index that is outside, and the number of places."""
    for column, size in _columns(op, shape, indices):
        bad = column[(column < -size) | (column >= size)]
        if bad.size:
            return int(bad.reshape(-1)[0]), size
    return None


def _columns(op: Op, shape: tuple[int, ...], indices: Array) -> Iterator[tuple[Array, int]]:
    """Indices and how many places they index."""
    if op.type in ALONG_AXIS:
        if shape:
            yield indices, shape[op.attr_int("axis", 0) % len(shape)]
        return
    first = op.attr_int("batch_dims", 0)
    for k in range(indices.shape[-1] if indices.ndim else 0):
        if first + k < len(shape):
            yield indices[..., k], shape[first + k]
