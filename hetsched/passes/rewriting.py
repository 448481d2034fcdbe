"""What all passes share: finding neighbours that may be joined, and putting the joined operator in their place.

A set of operators may become one only if nothing outside reads what passes between them. The new operator then takes
the place of the last of them: all its inputs exist there, and its outputs are read only later, so the graph stays
acyclic whatever lies between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import AttrValue, Graph, Op, Role, Tensor, WeightRef, dtype_of
from hetsched.passes.unfuse import in_order, parts

#: Constants up to this size may be read by a pass.
SMALL_ELEMENTS = 1 << 16


@dataclass(frozen=True, slots=True)
class Fusion:
    """Operators (indices, ascending) and the operator that takes their place; ``tensors`` are new or changed ones."""

    members: tuple[int, ...]
    op: Op
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


def sole_reader(graph: Graph, tensor: str) -> int | None:
    """The index of the only operator that reads ``tensor``; None if there are several or it is a graph output."""
    readers = graph.consumers.get(tensor, ())
    return readers[0] if len(readers) == 1 and tensor not in graph.output_set else None


def fused(
    members: Sequence[Op], kind: str, inputs: Iterable[str], attrs: Mapping[str, AttrValue], *, nested: bool = False,
    outputs: Iterable[str] | None = None,
) -> Op:  # fmt: skip
    """The operator that does what ``members`` do in turn; it has the name and (unless given) the outputs of the last.

    ``nested`` keeps composites among the members whole in ``body``; else their own parts are listed.
    """
    body = list(members) if nested else [part for m in members for part in parts(m)]
    origin = tuple(dict.fromkeys(o for m in members for o in m.origin))
    last = members[-1]
    unique = tuple({part.name: part for part in body}.values())
    return Op(last.name, kind, tuple(inputs), last.outputs if outputs is None else tuple(outputs), dict(attrs), "", origin, unique)


def reading(op: Op, new: Mapping[str, str]) -> Op:
    """``op``, and what it is made of, reading other tensors: ``new`` gives the names that change."""
    if not new:
        return op
    body = tuple(reading(part, new) for part in op.body) if op.is_composite else op.body
    return replace(op, inputs=tuple(new.get(n, n) for n in op.inputs), body=body)


def apply(graph: Graph, fusions: Sequence[Fusion]) -> Graph:
    """The graph with each fusion's operator in the place of its last member.

    The tensors between the members stay in ``graph.tensors``: the bodies name them, and undoing needs them. An operator
    whose further outputs are read before the last member moves up.
    """
    if not fusions:
        return graph
    gone = {i for f in fusions for i in f.members}
    new = {f.members[-1]: f.op for f in fusions}
    ops = [new.get(i, op) for i, op in enumerate(graph.ops) if i in new or i not in gone]
    tensors = dict(graph.tensors)
    for f in fusions:
        tensors.update(f.tensors)
    early = any(f.op.outputs != graph.ops[f.members[-1]].outputs for f in fusions)
    return graph.replace(ops=tuple(in_order(ops) if early else ops), tensors=tensors)


def small_value(graph: Graph, name: str) -> npt.NDArray[Any] | None:
    """The value of a small constant that is there to be read, else None."""
    t = graph.tensors.get(name)
    if t is None or t.data is None or t.elements > SMALL_ELEMENTS or not t.data.is_present:
        return None
    return None if t.quantization is not None and t.quantization.block_bytes else t.values()


def scalar(graph: Graph, name: str) -> float | None:
    """The value of a one-element constant, else None."""
    t = graph.tensors.get(name)
    if t is None or t.elements != 1 or not t.dtype.is_float:
        return None
    value = small_value(graph, name)
    return None if value is None else float(value.reshape(()))


def is_float(graph: Graph, *names: str) -> bool:
    """Whether the named tensors all hold floats."""
    return all(graph.tensors[n].dtype.is_float for n in names)


def other_input(op: Op, name: str) -> str | None:
    """The other input of a two-input operator that reads ``name`` once, else None."""
    if len(op.inputs) != 2 or op.inputs.count(name) != 1:
        return None
    return op.inputs[1 - op.inputs.index(name)]


def vector(graph: Graph, name: str, axis: int, out: tuple[int, ...], called: str) -> Tensor | None:
    """A constant that varies at most along ``axis`` of a tensor of shape ``out``, as a 1-D constant of that length.

    A constant with one value per position keeps its bytes where they are; a scalar is repeated.

    Returns:
        The constant under the name ``called``, or None where ``name`` is no such constant or cannot be read.
    """
    t = graph.tensors[name]
    if t.data is None or len(t.shape) > len(out) or not t.dtype.is_float:
        return None
    full = (1,) * (len(out) - len(t.shape)) + t.shape
    length = out[axis]
    if any(n != 1 for i, n in enumerate(full) if i != axis % len(out)) or full[axis] not in {1, length}:
        return None
    if t.elements == length:
        array = t.data.array
        data = replace(t.data, order=()) if array is None or t.is_packed else WeightRef(array=array.reshape(length))
        return Tensor(called, (length,), t.dtype, Role.WEIGHT, None, data)
    value = small_value(graph, name)
    if value is None or length > SMALL_ELEMENTS or t.is_packed:
        return None
    return inline(called, np.full(length, value.reshape(()), value.dtype))


def inline(name: str, array: npt.NDArray[Any]) -> Tensor:
    """A constant that a pass made."""
    return Tensor(name, array.shape, dtype_of(array), Role.WEIGHT, None, WeightRef(array=array))


def is_free(graph: Graph, made: Tensor) -> bool:
    """Whether a constant that a pass made can have its name: nothing has it, or the same constant from a fusion that was undone."""
    known = graph.tensors.get(made.name)
    if known is None:
        return True
    if known.data is None or made.data is None or (known.shape, known.dtype, known.data) != (made.shape, made.dtype, made.data):
        return False
    a, b = known.data.array, made.data.array
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def renamed(tensor: Tensor, name: str) -> Tensor:
    """The same constant under another name."""
    return replace(tensor, name=name)
