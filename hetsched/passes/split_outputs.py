"""Split large products and convolutions by their output channels, so that two processors can share one operator.

Every part reads the whole input and its own rows or columns of the weight; a Concat joins the parts. Weights stay where they are
in the file: a part's weight is a range of the original one where that is contiguous, else it is cut when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from hetsched.graph import Graph, Op, Role, Tensor, WeightRef
from hetsched.passes.rewriting import reading
from hetsched.tensors import DType

_CONVOLUTIONS = frozenset({"Conv", "FusedConv"})
_PRODUCTS = frozenset({"MatMul", "FusedMatMul", "Gemm", "FusedGemm"})


@dataclass(frozen=True, slots=True)
class Splitting:
    """How an operator can be split: its output's axis and length there, and the axis on which each constant is cut (None: kept whole)."""

    axis: int
    channels: int
    cuts: Mapping[str, int | None]


def splitting_of(graph: Graph, op: Op) -> Splitting | None:
    """How an operator can be split by its outputs; None where it cannot."""
    if op.domain or len(op.outputs) != 1 or len(op.inputs) < 2 or op.type not in _CONVOLUTIONS | _PRODUCTS:
        return None
    out, weight = graph.tensors[op.outputs[0]], graph.tensors[op.inputs[1]]
    grouped = op.type in _CONVOLUTIONS and op.attr_int("group", 1) != 1
    if not out.dtype.is_float or not weight.is_constant or len(weight.shape) < 2 or grouped:
        return None
    axis = 1 if op.type in _CONVOLUTIONS else len(out.shape) - 1
    channels = out.shape[axis]
    across = _weight_axis(op, len(weight.shape))
    if channels < 2 or weight.shape[across] != channels or op.inputs[0] == op.inputs[1] or graph.tensors[op.inputs[0]].is_constant:
        return None
    cuts: dict[str, int | None] = {op.inputs[1]: across}
    parts = (op, *op.body) if op.is_composite else (op,)
    made = {n for part in parts for n in part.outputs}
    for name in dict.fromkeys(n for part in parts for n in part.inputs if n):
        if name in cuts or name == op.inputs[0] or name in made:
            continue
        t = graph.tensors[name]
        cut = _vector_axis(t, channels)
        if not t.is_constant or cut == ():
            return None
        cuts[name] = cut[0] if cut else None
    inner = [graph.tensors[n] for n in made]
    if any(len(t.shape) <= axis or t.shape[axis] != channels or not t.dtype.is_float for t in inner):
        return None
    return Splitting(axis, channels, cuts) if all(_can_cut(graph.tensors[n], a) for n, a in cuts.items() if a is not None) else None


def _can_cut(t: Tensor, axis: int) -> bool:
    """Whether a part of a constant is a constant of the same kind; of packed elements only a range of the file is."""
    if t.data is None or t.quantization is not None or t.dtype is DType.STRING or t.is_sparse:
        return False
    return not t.is_packed or (t.data.path is not None and (t.data.order[axis] if t.data.order else axis) == 0)


def _weight_axis(op: Op, rank: int) -> int:
    """The axis of the weight that becomes the output's channels."""
    if op.type in _CONVOLUTIONS:
        return 0
    return 0 if op.type in ("Gemm", "FusedGemm") and op.attr_int("transB", 0) else rank - 1


def _vector_axis(t: Tensor, channels: int) -> tuple[int | None, ...]:
    """``(axis,)`` on which a further constant is cut, ``(None,)`` if every channel reads the same value, ``()`` if neither is so."""
    if t.elements == 1:
        return (None,)
    if t.shape and t.shape[-1] == channels and t.elements == channels:
        return (len(t.shape) - 1,)
    return ()


@dataclass(frozen=True)
class SplitOutputs:
    """Each named operator becomes several and a Concat; ``cuts`` maps it to the output channels at which it is cut, ascending."""

    cuts: Mapping[str, Sequence[int]]

    name: ClassVar[str] = "split-outputs"
    requires: ClassVar[tuple[str, ...]] = ()
    ensures: ClassVar[tuple[str, ...]] = ()

    def __call__(self, graph: Graph) -> Graph:
        """The graph with the operators split; those that cannot be (any more) are left as they are."""
        ops: list[Op] = []
        tensors = dict(graph.tensors)
        for op in graph.ops:
            how = splitting_of(graph, op) if op.name in self.cuts else None
            edges = (0, *self.cuts.get(op.name, ()), 0 if how is None else how.channels)
            if how is None or len(edges) < 3 or any(high <= low for low, high in pairwise(edges)):
                ops.append(op)
                continue
            suffixes = [f"/{k}of{len(edges) - 1}" for k in range(1, len(edges))]
            parts = [_part(graph, tensors, op, how, s, *span) for s, span in zip(suffixes, pairwise(edges), strict=True)]
            joined = Op(f"{op.name}/join", "Concat", tuple(p.outputs[0] for p in parts), op.outputs, {"axis": how.axis}, "", op.origin)
            ops += [*parts, joined]
        return graph if len(ops) == len(graph.ops) else graph.replace(ops=tuple(ops), tensors=tensors)


def _part(graph: Graph, tensors: dict[str, Tensor], op: Op, how: Splitting, suffix: str, low: int, high: int) -> Op:
    """One part of an operator; its tensors are added to ``tensors``."""
    new: dict[str, str] = {}
    for name, axis in how.cuts.items():
        if axis is not None:
            new[name] = name + suffix
            tensors[new[name]] = _cut(graph.tensors[name], new[name], axis, low, high)
    body = op.body if op.is_composite else ()
    for name in dict.fromkeys(n for part in (op, *body) for n in part.outputs):
        t = graph.tensors[name]
        shape = (*t.shape[: how.axis], high - low, *t.shape[how.axis + 1 :])
        new[name] = name + suffix
        tensors[new[name]] = Tensor(new[name], shape, t.dtype, Role.ACTIVATION)
    made = _writing(reading(op, new), new)
    return replace(made, name=op.name + suffix, body=tuple(replace(p, name=p.name + suffix) for p in made.body))


def _writing(op: Op, new: Mapping[str, str]) -> Op:
    """``op``, and what it is made of, writing other tensors."""
    body = tuple(_writing(part, new) for part in op.body) if op.is_composite else op.body
    return replace(op, outputs=tuple(new.get(n, n) for n in op.outputs), body=body)


def _cut(t: Tensor, name: str, axis: int, low: int, high: int) -> Tensor:
    """The part ``low:high`` of a constant along an axis."""
    shape = (*t.shape[:axis], high - low, *t.shape[axis + 1 :])
    made = Tensor(name, shape, t.dtype, t.role, None, None)
    data = t.data
    assert data is not None
    if data.array is not None and not t.is_packed:
        index = (slice(None),) * axis + (slice(low, high),)
        return replace(made, data=WeightRef(array=data.array.reshape(t.shape)[index]))
    stored = data.order[axis] if data.order else axis
    row = made.elements // (high - low) * t.dtype.bits
    if data.path is not None and stored == 0 and row % 8 == 0:
        return replace(made, data=replace(data, offset=data.offset + low * row // 8, length=(high - low) * row // 8))
    if data.path is not None and not data.is_present:
        return replace(made, data=replace(data, length=made.nbytes))  # a weightless model stays one
    return replace(made, data=WeightRef(compute=lambda: t.values()[(slice(None),) * axis + (slice(low, high),)]))
