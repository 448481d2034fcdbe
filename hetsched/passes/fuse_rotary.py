"""Rotary position embedding that is written out, recognised by value.

Halves or neighbouring elements of each head are turned by an angle: ``x · cos + rotate(x) · sin``. Slices or splits,
negations and concatenations come in many orders, but all of them work on the last axis alone, so one head of sample values
decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from hetsched.graph import AttrValue, Graph, Op
from hetsched.passes.attention_layout import Rows, absorbed
from hetsched.passes.regions import grow
from hetsched.passes.rewriting import Fusion, apply, fused, small_value
from hetsched.passes.views import selection

Array = npt.NDArray[np.float64]
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Neg"})
_ALLOWED = _ARITHMETIC | {"Slice", "Split", "Concat", "Unsqueeze", "Squeeze", "Reshape", "Cast"}
_ENDS = frozenset({"Add", "Concat", "Reshape", "Cast"})


@dataclass(frozen=True)
class FuseRotary:
    """``x · cos + rotate(x) · sin`` → RotaryEmbedding, with the reshape and transposition before it, if it has them.

    ``cos`` and ``sin`` are as the file has them: half as wide as a head, or as wide, and ``broadcast`` over heads.
    """

    longest: int = 16

    name: ClassVar[str] = "fuse-rotary"
    requires: ClassVar[tuple[str, ...]] = ("no-dead-code",)
    ensures: ClassVar[tuple[str, ...]] = ("rotary-fused",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with rotary embeddings fused."""
        if not any(op.type in {"Cos", "Sin", "Neg", "Sub"} for op in graph.ops):
            return graph
        used: set[int] = set()
        fusions = []
        for end in range(len(graph.ops) - 1, -1, -1):
            if graph.ops[end].type not in _ENDS or end in used or not _is_allowed(graph.ops[end]):
                continue
            for members, outside in grow(graph, end, _is_allowed, self.longest):
                if used.intersection(members):
                    break
                op = _recognise(graph, members, outside)
                if op is not None:
                    fusions.append(op)
                    used.update(op.members)
                    break
        return apply(graph, fusions)


def _is_allowed(op: Op) -> bool:
    return op.type in _ALLOWED and not op.domain and not op.body


def _recognise(graph: Graph, members: tuple[int, ...], outside: tuple[str, ...]) -> Fusion | None:
    ops = [graph.ops[m] for m in members]
    shape = graph.tensors[ops[-1].outputs[0]].shape
    kinds = {op.type for op in ops}
    if len(shape) < 3 or len(members) < 5 or "Mul" not in kinds or "Concat" not in kinds or shape[-1] % 2:
        return None
    floats = [c for op in ops for c in graph.constants(op) if graph.tensors[c].dtype.is_float and graph.tensors[c].elements > 1]
    read = list(dict.fromkeys([*outside, *floats]))
    for x in read:
        pair = [t for t in read if t != x]
        if graph.tensors[x].shape == shape and len(pair) == 2 and all(_is_table(graph, t, shape) for t in pair):
            found = _match(graph, ops, x, pair)
            if found is not None:
                return _fusion(graph, members, x, *found)
    return None


def _is_table(graph: Graph, name: str, shape: tuple[int, ...]) -> bool:
    t = graph.tensors[name]
    if not t.dtype.is_float or not t.shape or t.shape[-1] not in {shape[-1], shape[-1] // 2}:
        return False
    own = (1,) * (len(shape) - len(t.shape)) + t.shape
    return len(own) == len(shape) and all(a in {1, b} for a, b in zip(own[:-1], shape[:-1], strict=True))


def _match(graph: Graph, ops: list[Op], x: str, pair: Sequence[str]) -> tuple[str, str, int] | None:
    """Which table is the cosine, which the sine, and whether neighbours are turned instead of halves."""
    rng = np.random.default_rng(0)
    widths = [graph.tensors[n].shape[-1] for n in (x, *pair)]
    values = {n: rng.standard_normal(w) for n, w in zip((x, *pair), widths, strict=True)}
    result = _evaluate(graph, ops, values)
    if result is None or result.shape != (widths[0],):
        return None
    for cos, sin in permutations(pair):
        for interleaved in (0, 1):
            if np.allclose(result, _rotated(values[x], values[cos], values[sin], interleaved)):
                return cos, sin, interleaved
    return None


def _rotated(x: Array, cos: Array, sin: Array, interleaved: int) -> Array:
    if interleaved:
        turned = np.stack([-x[1::2], x[0::2]], -1).reshape(-1)
        cos, sin = (np.repeat(t, x.size // t.size) for t in (cos, sin))
    else:
        first, second = np.split(x, 2)
        turned = np.concatenate([-second, first])
        cos, sin = (np.tile(t, x.size // t.size) for t in (cos, sin))
    return np.asarray(x * cos + turned * sin)


def _evaluate(graph: Graph, ops: list[Op], values: dict[str, Array]) -> Array | None:
    """What the group makes of one head; None where an operator touches other axes than the head's own."""
    known: dict[str, Array] = dict(values)
    for op in ops:
        inputs = [known[n] for n in op.inputs if n in known]
        outputs = _step(graph, op, inputs)
        if outputs is None:
            return None
        known.update(zip(op.outputs, outputs, strict=True))
    return known[ops[-1].outputs[0]]


def _step(graph: Graph, op: Op, inputs: list[Array]) -> list[Array] | None:
    rank = len(graph.tensors[op.inputs[0]].shape)
    a = inputs[0] if inputs else None
    if a is None:
        return None
    if op.type in _ARITHMETIC:
        if len(inputs) != len(op.inputs):
            return None
        if op.type == "Neg":
            return [-a]
        b = inputs[1]
        return [a + b if op.type == "Add" else a - b if op.type == "Sub" else a * b]
    if op.type == "Cast":
        return [a] if graph.tensors[op.outputs[0]].dtype.is_float else None
    if op.type in {"Slice", "Split"}:
        return _pieces(graph, op, a, rank)
    if op.type == "Concat":
        axis = op.attr_int("axis", 0) % rank - rank
        return [np.concatenate(inputs, axis)] if len(inputs) == len(op.inputs) and -axis <= a.ndim else None
    return _reshaped(graph, op, a)


def _pieces(graph: Graph, op: Op, a: Array, rank: int) -> list[Array] | None:
    if op.type == "Slice":
        values = [small_value(graph, n) if n else None for n in op.inputs[1:]]
        if len(values) < 3 or any(v is None or v.size != 1 for v in values):
            return None
        start, stop, axis, *step = (int(v.reshape(())) for v in values if v is not None)
        if axis % rank != rank - 1 or a.ndim != 1:
            return None
        return [a[start : min(stop, a.size) : step[0] if step else 1]]
    pieces = []
    for k in range(len(op.outputs)):
        found = selection(graph, op, k)
        if found is None or found[0] != rank - 1 or a.ndim != 1:
            return None
        pieces.append(a[found[1] : found[1] + found[2]])
    return pieces


def _reshaped(graph: Graph, op: Op, a: Array) -> list[Array] | None:
    """An axis added or removed at the end, or pairs and rows of one head joined or told apart."""
    before, after = graph.tensors[op.inputs[0]].shape, graph.tensors[op.outputs[0]].shape
    own = len(before) - a.ndim
    tail = after[own:]
    return [a.reshape(tail)] if after[:own] == before[:own] and tail and int(np.prod(tail)) == a.size else None


def _fusion(graph: Graph, members: tuple[int, ...], x: str, cos: str, sin: str, interleaved: int) -> Fusion:
    shape = graph.tensors[x].shape
    attrs: dict[str, AttrValue] = {"interleaved": interleaved, "num_heads": 0, "broadcast": 1}
    rows: Rows | None = absorbed(graph, x, members) if len(shape) == 4 else None
    if rows is not None:
        x, members = rows.source, tuple(sorted((*members, *rows.members)))
        attrs |= {"num_heads": shape[1], "heads_first": 1, "batch": shape[0]}
    return Fusion(members, fused([graph.ops[m] for m in members], "RotaryEmbedding", (x, cos, sin), attrs, nested=True))
