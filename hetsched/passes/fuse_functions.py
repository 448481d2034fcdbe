"""Gelu, QuickGelu, Silu, HardSwish and HardSigmoid that are written out as elementwise operators.

Exporters write these in many ways (``x * 0.5 * (1 + erf(x / √2))`` has a dozen orders), so they are recognised by value:
a group of elementwise operators with one input and constants of one element is run on sample points and compared with
the known functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hetsched.graph import AttrValue, Graph, Op
from hetsched.passes.rewriting import Fusion, apply, fused, scalar

Array = npt.NDArray[Any]
_ENDS = frozenset({"Mul", "Div"})
_ELEMENTWISE = frozenset(
    {
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Sqrt",
        "Exp",
        "Erf",
        "Tanh",
        "Sigmoid",
        "Relu",
        "Clip",
        "HardSigmoid",
        "Reciprocal",
        "Neg",
        "Min",
        "Max",
    }
)
_LONGEST = 10
_POINTS = np.concatenate([np.linspace(-12, 12, 193), np.linspace(-3.5, 3.5, 57)]).astype(np.float32)
#: Relative difference that still counts as the same function; float16 constants are themselves off by up to 5e-4.
_TOLERANCE = {"f32": 2e-6, "f16": 2e-3}


@dataclass(frozen=True, slots=True)
class _Known:
    kind: str
    attrs: dict[str, AttrValue]
    values: Array


def _known() -> tuple[_Known, ...]:
    x = _POINTS.astype(np.float64)
    ramp = np.clip(x / 6 + 0.5, 0, 1)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    erf = np.array([math.erf(v / math.sqrt(2)) for v in x])
    return (
        _Known("HardSwish", {}, x * ramp),
        _Known("Gelu", {"approximate": "none"}, 0.5 * x * (1 + erf)),
        _Known("Gelu", {"approximate": "tanh"}, 0.5 * x * (1 + np.tanh(inner))),
        _Known("Silu", {}, x / (1 + np.exp(-x))),
        _Known("QuickGelu", {"alpha": 1.702}, x / (1 + np.exp(-1.702 * x))),
        _Known("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, ramp),
    )


@dataclass(frozen=True)
class FuseFunctions:
    """Groups of elementwise operators that are a known function of one input → that function as one operator."""

    longest: int = _LONGEST

    name: ClassVar[str] = "fuse-functions"
    requires: ClassVar[tuple[str, ...]] = ("no-dead-code", "transposes-cancelled")
    ensures: ClassVar[tuple[str, ...]] = ("functions-named",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with the functions recognised."""
        known: tuple[_Known, ...] = ()
        used: set[int] = set()
        fusions = []
        for end in range(len(graph.ops) - 1, -1, -1):
            if graph.ops[end].type not in _ENDS or end in used or not _allowed(graph, end):
                continue
            for members, source in self._groups(graph, end):
                if used.intersection(members):
                    break
                known = known or _known()
                match = _recognise(graph, members, source, known)
                if match is not None:
                    ops = [graph.ops[m] for m in members]
                    fusions.append(Fusion(members, fused(ops, match.kind, (source,), match.attrs)))
                    used.update(members)
                    break
        return apply(graph, fusions)

    def _groups(self, graph: Graph, end: int) -> Iterator[tuple[tuple[int, ...], str]]:
        """Groups that end at ``end``, smallest first, with the one tensor that each reads."""
        members = [end]
        while True:
            open_ = {i for m in members for i in graph.activations(graph.ops[m])} - {graph.ops[m].outputs[0] for m in members}
            if len(open_) == 1 and len(members) > 1:
                source = next(iter(open_))
                if graph.tensors[source].shape == graph.tensors[graph.ops[end].outputs[0]].shape:
                    yield tuple(sorted(members)), source
            if len(members) == self.longest:
                return
            producers = [graph.producer[i] for i in sorted(open_) if i in graph.producer]
            inner = [p for p in producers if _allowed(graph, p) and _is_inside(graph, p, members)]
            if not inner:
                return
            members.append(max(inner))


def _allowed(graph: Graph, i: int) -> bool:
    """Whether an operator is elementwise in one or two tensors, its constants being single elements."""
    op = graph.ops[i]
    if op.type not in _ELEMENTWISE or op.domain or op.body or len(op.outputs) != 1:
        return False
    return graph.tensors[op.outputs[0]].dtype.value in _TOLERANCE and all(graph.tensors[c].elements == 1 for c in graph.constants(op))


def _is_inside(graph: Graph, i: int, members: list[int]) -> bool:
    out = graph.ops[i].outputs[0]
    return out not in graph.outputs and all(c in members for c in graph.consumers[out])


def _recognise(graph: Graph, members: tuple[int, ...], source: str, known: tuple[_Known, ...]) -> _Known | None:
    values: dict[str, Array] = {source: _POINTS}
    for m in members:
        value = _evaluate(graph, graph.ops[m], values)
        if value is None:
            return None
        values[graph.ops[m].outputs[0]] = value
    result = values[graph.ops[members[-1]].outputs[0]]
    if result.shape != _POINTS.shape:
        return None
    tolerance = _TOLERANCE[graph.tensors[source].dtype.value]
    for function in known:
        error = np.abs(result - function.values)
        if bool((error <= tolerance * (1 + np.abs(function.values))).all()):
            return function
    return None


def _evaluate(graph: Graph, op: Op, values: dict[str, Array]) -> Array | None:
    from hetsched.reference import run_op

    inputs: list[Array | None] = []
    for name in op.inputs:
        if not name or name in values:
            inputs.append(values.get(name))
            continue
        value = scalar(graph, name)
        if value is None:
            return None
        inputs.append(np.array(value, np.float32))
    with np.errstate(all="ignore"):
        return run_op(op, inputs)[0]
