"""Normalisations that are written out, recognised by value: RMSNorm, and LayerNormalization in unusual spellings.

Exporters write ``x / sqrt(mean(x²) + ε) · w`` with Pow or Mul, Div or Reciprocal, in float32 between casts, or, as TFLite
does, with the scale folded into the root; so a group of elementwise operators and means around a root is run on a few
sample rows and compared with the known functions. Weights that are absent are given sample values too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hetsched.graph import Graph, Op
from hetsched.passes.regions import grow, is_inside, producer_of, reachable
from hetsched.passes.rewriting import Fusion, apply, fused, is_float, scalar, small_value

Array = npt.NDArray[np.float64]
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Reciprocal", "Neg"})
_ALLOWED = _ELEMENTWISE | {"ReduceMean", "Cast"}
_ROWS = 3
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class _Match:
    kind: str
    inputs: tuple[str, ...]
    epsilon: float
    offset: float


@dataclass(frozen=True)
class FuseNorms:
    """Mean of squares, root, division and weights → RMSNorm; with the mean subtracted first → LayerNormalization."""

    longest: int = 14

    name: ClassVar[str] = "fuse-norms"
    requires: ClassVar[tuple[str, ...]] = ("no-dead-code",)
    ensures: ClassVar[tuple[str, ...]] = ("norms-fused",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with normalisations fused."""
        roots = [i for i, op in enumerate(graph.ops) if op.type in {"Sqrt", "Pow"} and not op.body]
        used: set[int] = set()
        fusions = []
        for end in reachable(graph, roots, _is_allowed, self.longest // 2):
            if end in used:
                continue
            for members, outside in grow(graph, end, _is_allowed, self.longest):
                if used.intersection(members):
                    break
                match = _recognise(graph, members, outside)
                if match is not None:
                    members, match = _with_cast(graph, members, match)
                    used.update(members)
                    ops = [graph.ops[m] for m in members]
                    attrs = {"axis": -1, "epsilon": match.epsilon} if match.kind == "LayerNormalization" else _rms(match)
                    fusions.append(Fusion(members, fused(ops, match.kind, match.inputs, attrs)))
                    break
        return apply(graph, fusions)


def _with_cast(graph: Graph, members: tuple[int, ...], match: _Match) -> tuple[tuple[int, ...], _Match]:
    """The group with the cast to float32 before it, if there is one for it alone."""
    i = producer_of(graph, match.inputs[0], {"Cast"})
    if i is None or not is_inside(graph, i, members) or not is_float(graph, graph.ops[i].inputs[0]):
        return members, match
    return (i, *members), replace(match, inputs=(graph.ops[i].inputs[0], *match.inputs[1:]))


def _rms(match: _Match) -> dict[str, Any]:
    return {"epsilon": match.epsilon, "offset": match.offset}


def _is_allowed(op: Op) -> bool:
    return op.type in _ALLOWED and not op.domain and not op.body


def _recognise(graph: Graph, members: tuple[int, ...], outside: tuple[str, ...]) -> _Match | None:
    ops = [graph.ops[m] for m in members]
    means = sum(op.type == "ReduceMean" for op in ops)
    out = graph.tensors[ops[-1].outputs[0]]
    source = [x for x in outside if graph.tensors[x].shape == out.shape]
    if not means or len(source) != 1 or len(out.shape) < 2 or not out.dtype.is_float:
        return None
    weights, epsilons = _constants(graph, ops, outside, source[0], out.shape[-1])
    if not 1 <= len(weights) <= 2 or not epsilons:
        return None
    values = _samples(out.shape, source[0], weights)
    result = _evaluate(graph, ops, values)
    if result is None:
        return None
    for match, expected in _candidates(values, source[0], weights, epsilons):
        if np.allclose(result, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
            return match
    return None


def _constants(graph: Graph, ops: list[Op], outside: tuple[str, ...], source: str, width: int) -> tuple[list[str], list[float]]:
    """The rows of weights that the group reads, and the small numbers (one of them is ε)."""
    weights: list[str] = [x for x in outside if x != source]
    epsilons: list[float] = []
    for name in dict.fromkeys(c for op in ops for c in graph.constants(op)):
        t = graph.tensors[name]
        if t.dtype.is_float and t.elements == 1:
            value = scalar(graph, name)
            if value is not None and 0 < value < 0.1:
                epsilons.append(value)
        elif t.dtype.is_float:
            weights.append(name)
    if any(graph.tensors[w].elements != width or graph.tensors[w].shape[-1:] != (width,) for w in weights):
        return [], []
    return weights, epsilons


def _samples(shape: tuple[int, ...], source: str, weights: list[str]) -> dict[str, Array]:
    """A few rows of small numbers, so that ε matters, and weights."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((*(1,) * (len(shape) - 2), _ROWS, shape[-1])) * np.array([[1.0], [0.03], [4.0]])
    values = {source: rows + 0.1}
    values.update((w, rng.uniform(0.5, 1.5, shape[-1])) for w in weights)
    return values


def _evaluate(graph: Graph, ops: list[Op], values: dict[str, Array]) -> Array | None:
    """What the group makes of the samples in float64, casts left out; None where that cannot be said."""
    known = dict(values)
    last = len(values[next(iter(values))].shape) - 1
    for op in ops:
        if op.type == "ReduceMean":
            axes = small_value(graph, op.inputs[1]) if len(op.inputs) > 1 and op.inputs[1] else None
            if axes is None or axes.size != 1 or int(axes.reshape(())) % (last + 1) != last or not op.attr_int("keepdims", 1):
                return None
            known[op.outputs[0]] = known[op.inputs[0]].mean(-1, keepdims=True)
            continue
        inputs = []
        for name in op.inputs:
            value = known[name] if name in known else scalar(graph, name)
            if value is None:
                return None
            inputs.append(np.asarray(value, np.float64))
        if op.type == "Cast":
            if not graph.tensors[op.outputs[0]].dtype.is_float:
                return None
            known[op.outputs[0]] = inputs[0]
            continue
        known[op.outputs[0]] = _apply(op, inputs)
    result = known[ops[-1].outputs[0]]
    return result if np.isfinite(result).all() else None


def _apply(op: Op, inputs: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        match op.type:
            case "Add":
                return np.asarray(inputs[0] + inputs[1])
            case "Sub":
                return np.asarray(inputs[0] - inputs[1])
            case "Mul":
                return np.asarray(inputs[0] * inputs[1])
            case "Div":
                return np.asarray(inputs[0] / inputs[1])
            case "Pow":
                return np.asarray(inputs[0] ** inputs[1])
            case "Sqrt":
                return np.sqrt(inputs[0])
            case "Reciprocal":
                return np.asarray(1 / inputs[0])
            case _:
                return -inputs[0]


def _candidates(values: dict[str, Array], source: str, weights: list[str], epsilons: list[float]) -> Iterator[tuple[_Match, Array]]:
    x = values[source]
    centred = x - x.mean(-1, keepdims=True)
    for epsilon in dict.fromkeys(epsilons):
        root = np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
        if len(weights) == 1:
            for offset in (0.0, 1.0):
                yield _Match("RMSNorm", (source, weights[0]), epsilon, offset), x / root * (values[weights[0]] + offset)
        normal = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + epsilon)
        for order in permutations(weights):
            shift = values[order[1]] if len(order) > 1 else 0.0
            yield _Match("LayerNormalization", (source, *order), epsilon, 0.0), normal * values[order[0]] + shift
