"""Dynamic quantization that is written out: range, scale, zero point, rounding, clipping and the cast to integers.

The structure only says where such a group may be. What it computes is decided by value: the group is run on samples, and
every tensor that it hands on must be, bit for bit, the integers, the scale or the zero point of a known definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError
from hetsched.graph import AttrValue, DType, Graph
from hetsched.passes.rewriting import Fusion, apply, fused, small_value

Array = npt.NDArray[Any]
_ENDS = frozenset({"Cast", "QuantizeLinear"})
_ROUNDING = frozenset({"Cast", "Clip", "Min", "Max", "Add", "Sub", "Round", "Div", "QuantizeLinear"})
_RANGES = frozenset({"ReduceMax", "ReduceMin"})
_INSIDE = _ROUNDING | _RANGES | {"Abs", "Neg", "Mul", "Reciprocal", "Reshape", "Squeeze", "Unsqueeze"}
_MOST = 24
_STORED = frozenset({DType.I8, DType.U8})


@dataclass(frozen=True)
class RecogniseDynamicQuantize:
    """``x → max, min → scale, zero point → round → clip → cast`` → DynamicQuantizeLinear with the outputs y, scale, zero point.

    Asymmetric over the whole tensor is ONNX's operator. Symmetric (``symmetric`` 1, integers from -127 to 127) and
    per-row ranges (``axes``) have its outputs and are defined by their body.
    """

    name: ClassVar[str] = "recognise-dynamic-quantize"
    requires: ClassVar[tuple[str, ...]] = ("no-dead-code",)
    ensures: ClassVar[tuple[str, ...]] = ("dynamic-quantization-named",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with dynamic quantization recognised."""
        used: set[int] = set()
        fusions = []
        for end, op in enumerate(graph.ops):
            if op.type not in _ENDS or op.domain or op.body or graph.tensors[op.outputs[0]].dtype not in _STORED:
                continue
            found = _fusion(graph, end)
            if found is not None and not used.intersection(found.members):
                used.update(found.members)
                fusions.append(found)
        return apply(graph, fusions)


def _fusion(graph: Graph, end: int) -> Fusion | None:
    x = _source(graph, end)
    members = None if x is None else _members(graph, end, x)
    if x is None or members is None or graph.tensors[x].dtype is not DType.F32:
        return None
    inside = {o for m in members for o in graph.ops[m].outputs}
    y = graph.ops[end].outputs[0]
    handed_on = [o for m in members for o in graph.ops[m].outputs if _leaves(graph, o, members) and o != y]
    matched = _match(graph, members, x, y, handed_on)
    if matched is None or x in inside:
        return None
    attrs, scale, zero_point = matched
    outputs = (y, scale, zero_point) if zero_point else (y, scale)
    op = fused([graph.ops[m] for m in members], "DynamicQuantizeLinear", (x,), attrs, outputs=outputs)
    return Fusion(members, op)


def _source(graph: Graph, end: int) -> str | None:
    """The float tensor that is quantized: up from the cast through operators of its shape, to what the scale divides.

    A product with the reciprocal would differ from the quotient in a few elements that samples miss.
    """
    name, shape = graph.ops[end].inputs[0], graph.tensors[graph.ops[end].outputs[0]].shape
    if graph.ops[end].type == "QuantizeLinear":
        return name
    for _ in range(_MOST):
        i = graph.producer.get(name)
        if i is None or graph.ops[i].type not in _ROUNDING or graph.ops[i].domain:
            return None
        op = graph.ops[i]
        wide = [n for n in op.inputs if n and graph.tensors[n].shape == shape and not graph.tensors[n].is_constant]
        if len(wide) != 1:
            return None
        name = wide[0]
        narrow = [n for n in op.inputs if n and n != name]
        if op.type == "Div" and len(narrow) == 1 and not graph.tensors[narrow[0]].is_constant:
            return name if op.inputs[0] == name else None
    return None


def _members(graph: Graph, end: int, x: str) -> tuple[int, ...] | None:
    """All operators between ``x`` and the end, and casts of the zero point.

    None if they read anything else that is computed, or there is no range among them.
    """
    found, open_ = {end}, [end]
    while open_:
        for name in graph.activations(graph.ops[open_.pop()]):
            i = graph.producer.get(name)
            if name == x or i in found:
                continue
            if i is None or graph.ops[i].type not in _INSIDE or graph.ops[i].body or graph.ops[i].domain or len(found) == _MOST:
                return None
            found.add(i)
            open_.append(i)
    stored = graph.tensors[graph.ops[end].outputs[0]].dtype
    casts = {c for m in found - {end} for o in graph.ops[m].outputs for c in graph.consumers.get(o, ()) if _casts(graph, c, stored)}
    return tuple(sorted(found | casts)) if any(graph.ops[m].type in _RANGES for m in found) else None


def _casts(graph: Graph, i: int, stored: DType) -> bool:
    op = graph.ops[i]
    return op.type == "Cast" and not op.body and graph.tensors[op.outputs[0]].dtype is stored


def _leaves(graph: Graph, name: str, members: tuple[int, ...]) -> bool:
    return name in graph.outputs or any(c not in members for c in graph.consumers.get(name, ()))


@dataclass(frozen=True, slots=True)
class _Known:
    """A definition and what it gives for the samples: integers, scales, zero points."""

    attrs: dict[str, AttrValue]
    y: Array
    scale: Array
    zero_point: Array


def _match(graph: Graph, members: tuple[int, ...], x: str, y: str, handed_on: list[str]) -> tuple[dict[str, AttrValue], str, str] | None:
    """The definition's attributes and the names of scale and zero point (``""``: not handed on); None if none fits."""
    axes = _axes(graph, members)
    if axes is None:
        return None
    runs = [_run(graph, members, x, sample) for sample in _samples(graph.tensors[x].shape)]
    for k in range(2):
        known = [list(_definitions(sample, axes))[k] for sample in _samples(graph.tensors[x].shape)]
        named = _names(graph, runs, known, y, handed_on)
        if named is not None:
            return known[0].attrs, *named
    return None


def _names(graph: Graph, runs: list[dict[str, Array]], known: list[_Known], y: str, handed_on: list[str]) -> tuple[str, str] | None:
    def is_(name: str, what: str) -> bool:
        return all(_equal(run.get(name), getattr(k, what)) for run, k in zip(runs, known, strict=True))

    if not is_(y, "y"):
        return None
    scales = [n for n in handed_on if is_(n, "scale")]
    points = [n for n in handed_on if n not in scales and is_(n, "zero_point") and graph.tensors[n].dtype is graph.tensors[y].dtype]
    if len(scales) > 1 or len(points) > 1 or len(scales) + len(points) != len(handed_on):
        return None
    inside = [n for run in runs[:1] for n in run if is_(n, "scale")]
    scale = scales[0] if scales else next(iter(inside), "")
    return (scale, points[0] if points else "") if scale else None


def _equal(a: Array | None, b: Array) -> bool:
    return a is not None and a.size == b.size and bool(np.array_equal(a.reshape(-1), b.reshape(-1)))


def _axes(graph: Graph, members: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of all reductions, empty for all axes; None if they differ."""
    found: set[tuple[int, ...]] = set()
    for op in (graph.ops[m] for m in members if graph.ops[m].type in _RANGES):
        rank = len(graph.tensors[op.inputs[0]].shape)
        value = small_value(graph, op.inputs[1]) if len(op.inputs) > 1 and op.inputs[1] else np.arange(rank)
        if value is None:
            return None
        axes = tuple(sorted(int(a) % max(rank, 1) for a in value.reshape(-1))) or tuple(range(rank))
        found.add(() if len(axes) == rank else axes)
    return found.pop() if len(found) == 1 else None


def _samples(shape: tuple[int, ...]) -> Iterator[Array]:
    """Tensors of the rank of ``shape``, a few elements along each axis: of both signs, positive, negative, small, large."""
    small = tuple(min(n, 5 if len(shape) <= 4 else 2) for n in shape)
    rng = np.random.default_rng(7)
    for low, high in ((-3.0, 5.0), (0.5, 9.0), (-7.0, -0.25), (-1e-3, 2e-3), (-4e4, 3e4)) * 6:
        yield rng.uniform(low, high, small).astype(np.float32)


def _run(graph: Graph, members: tuple[int, ...], x: str, sample: Array) -> dict[str, Array]:
    """What each tensor of the group is for a sample; a tensor that cannot be computed on the small shape is absent."""
    from hetsched.reference import run_op

    values: dict[str, Array] = {x: sample}
    for op in (graph.ops[m] for m in members):
        inputs = [_value(graph, n, values) if n else None for n in op.inputs]
        if any(v is None for n, v in zip(op.inputs, inputs, strict=True) if n):
            continue
        try:
            with np.errstate(all="ignore"):
                values.update(zip(op.outputs, run_op(op, inputs), strict=False))
        except ExecutionError:
            continue
    del values[x]
    return values


def _value(graph: Graph, name: str, values: dict[str, Array]) -> Array | None:
    if name in values:
        return values[name]
    return small_value(graph, name)


def _definitions(x: Array, axes: tuple[int, ...]) -> Iterator[_Known]:
    """Asymmetric unsigned (ONNX's DynamicQuantizeLinear) and symmetric (from -127 to 127); all in float32."""
    over = axes or tuple(range(x.ndim))
    zero = np.float32(0)
    low, high = np.minimum(x.min(over, keepdims=True), zero), np.maximum(x.max(over, keepdims=True), zero)
    scale = ((high - low) / np.float32(255)).astype(np.float32)
    point = np.clip(np.rint((zero - low) / scale), 0, 255)
    y = np.clip(np.rint(x / scale) + point, 0, 255).astype(np.uint8)
    attrs: dict[str, AttrValue] = {"axes": axes} if axes else {}
    yield _Known(attrs, y, scale, point.astype(np.uint8))
    size = (np.abs(x).max(over, keepdims=True) / np.float32(127)).astype(np.float32)
    yield _Known({**attrs, "symmetric": 1}, np.rint(x / size).astype(np.int8), size, np.zeros(size.shape, np.int8))
