"""Layer normalisation that is written out: mean, difference, variance, root, scale and shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.graph import Graph, Op
from hetsched.passes.rewriting import Fusion, apply, fused, scalar, small_value


@dataclass(frozen=True)
class FuseLayerNorm:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over the last axes → LayerNormalization."""

    name: ClassVar[str] = "fuse-layer-norm"
    requires: ClassVar[tuple[str, ...]] = ("no-dead-code",)
    ensures: ClassVar[tuple[str, ...]] = ("norms-named",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with layer normalisation fused."""
        found = (self._fusion(graph, i) for i, op in enumerate(graph.ops) if op.type == "Sqrt" and not op.body)
        return apply(graph, [f for f in found if f is not None])

    def _fusion(self, graph: Graph, root: int) -> Fusion | None:
        before = _variance(graph, root)
        if before is None:
            return None
        members, x, difference, axis, epsilon = before
        after = _scaled(graph, root, difference)
        if after is None:
            return None
        tail, scale, bias = after
        group = sorted({*members, root, *tail})
        if not _closed(graph, group) or graph.tensors[scale].shape != graph.tensors[x].shape[axis:]:
            return None
        op = fused(
            [graph.ops[m] for m in group],
            "LayerNormalization",
            (x, scale, bias) if bias else (x, scale),
            {"axis": axis, "epsilon": epsilon},
        )
        return Fusion(tuple(group), op)


def _producer(graph: Graph, name: str, *kinds: str) -> tuple[int, Op] | None:
    i = graph.producer.get(name)
    return None if i is None or graph.ops[i].type not in kinds or graph.ops[i].body else (i, graph.ops[i])


def _mean_axis(graph: Graph, op: Op) -> int | None:
    """The first of the last axes over which a ReduceMean with kept dims goes, counted from the end."""
    if not op.attr_int("keepdims", 1) or len(op.inputs) < 2:
        return None
    axes, rank = small_value(graph, op.inputs[1]), len(graph.tensors[op.inputs[0]].shape)
    if axes is None or not axes.size:
        return None
    over = sorted(int(a) % rank for a in axes.reshape(-1))
    return over[0] - rank if over == list(range(over[0], rank)) else None


def _variance(graph: Graph, root: int) -> tuple[list[int], str, str, int, float] | None:
    """What leads to the root: its operators, x, x - mean, the axis and epsilon."""
    added = _producer(graph, graph.ops[root].inputs[0], "Add")
    if added is None:
        return None
    for name, other in (added[1].inputs, added[1].inputs[::-1]):
        epsilon, mean = scalar(graph, other), _producer(graph, name, "ReduceMean")
        if epsilon is None or mean is None:
            continue
        axis, square = _mean_axis(graph, mean[1]), _producer(graph, mean[1].inputs[0], "Pow", "Mul")
        if axis is None or square is None or not _is_square(graph, square[1]):
            continue
        difference = square[1].inputs[0]
        centred = _centred(graph, difference, axis)
        if centred is not None:
            return [added[0], mean[0], square[0], *centred[0]], centred[1], difference, axis, epsilon
    return None


def _is_square(graph: Graph, op: Op) -> bool:
    if op.type == "Mul":
        return op.inputs[0] == op.inputs[1]
    value = small_value(graph, op.inputs[1])
    return value is not None and value.size == 1 and float(value.reshape(())) == 2.0


def _centred(graph: Graph, name: str, axis: int) -> tuple[list[int], str] | None:
    """``x - mean(x)``: the two operators and x."""
    sub = _producer(graph, name, "Sub")
    mean = None if sub is None else _producer(graph, sub[1].inputs[1], "ReduceMean")
    if sub is None or mean is None or mean[1].inputs[0] != sub[1].inputs[0] or _mean_axis(graph, mean[1]) != axis:
        return None
    return [sub[0], mean[0]], sub[1].inputs[0]


def _scaled(graph: Graph, root: int, difference: str) -> tuple[list[int], str, str] | None:
    """What follows the root: its operators, the scale and the bias (``""`` if there is none)."""
    step = _reader(graph, graph.ops[root].outputs[0], "Div", "Reciprocal")
    if step is None:
        return None
    members = [step[0]]
    if step[1].type == "Reciprocal":
        step = _reader(graph, step[1].outputs[0], "Mul")
        if step is None:
            return None
        members.append(step[0])
    if sorted(step[1].inputs)[0] == sorted(step[1].inputs)[1] or not _reads_difference(graph, step[1], difference, members):
        return None
    by, scale = _constant_step(graph, step[1].outputs[0], "Mul")
    if by is None:
        return None
    members.append(by)
    plus, bias = _constant_step(graph, graph.ops[by].outputs[0], "Add")
    if plus is not None and graph.tensors[bias].shape == graph.tensors[scale].shape:
        return [*members, plus], scale, bias
    return members, scale, ""


def _reads_difference(graph: Graph, op: Op, difference: str, members: list[int]) -> bool:
    """Whether ``op`` divides ``x - mean``; some exporters compute the difference twice."""
    names = op.inputs[:1] if op.type == "Div" else op.inputs
    if difference in names:
        return True
    original = graph.ops[graph.producer[difference]]
    for name in names:
        twin = _producer(graph, name, "Sub")
        if twin is not None and twin[1].inputs == original.inputs:
            members.append(twin[0])
            return True
    return False


def _reader(graph: Graph, name: str, *kinds: str) -> tuple[int, Op] | None:
    readers = graph.consumers.get(name, ())
    if len(readers) != 1 or graph.ops[readers[0]].type not in kinds or graph.ops[readers[0]].body:
        return None
    return readers[0], graph.ops[readers[0]]


def _constant_step(graph: Graph, name: str, kind: str) -> tuple[int | None, str]:
    step = _reader(graph, name, kind)
    if step is None or len(step[1].inputs) != 2 or name in graph.outputs:
        return None, ""
    other = [i for i in step[1].inputs if i != name]
    return (step[0], other[0]) if len(other) == 1 and graph.tensors[other[0]].is_constant else (None, "")


def _closed(graph: Graph, group: list[int]) -> bool:
    """Whether only the last operator's output is read outside the group."""
    inner = [o for m in group[:-1] for o in graph.ops[m].outputs if o]
    return all(o not in graph.outputs and all(c in group for c in graph.consumers.get(o, ())) for o in inner)
