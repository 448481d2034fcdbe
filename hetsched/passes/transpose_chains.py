"""Transposes one by one: what they come from, those that cancel, and those that are reshapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hetsched.graph import Graph, Op
from hetsched.passes.dead_code import live
from hetsched.passes.permuted_ops import Perm, compose, is_trivial, perm_of
from hetsched.passes.rewriting import inline, sole_reader

_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})


def origin(graph: Graph, name: str) -> tuple[str, Perm]:
    """What a tensor is a transposition of (through several), and the whole permutation; of itself if of nothing."""
    perm: Perm = tuple(range(len(graph.tensors[name].shape)))
    for _ in range(len(graph.ops)):
        i = graph.producer.get(name)
        if i is None or graph.ops[i].type != "Transpose":
            break
        perm = compose(perm_of(graph.ops[i], len(perm)), perm)
        name = graph.ops[i].inputs[0]
    return name, perm


def without_pairs(graph: Graph) -> Graph:
    """Transposes of transposes as one, or none where they cancel; equal ones once."""
    same: dict[str, str] = {}
    first: dict[tuple[str, Perm], str] = {}
    ops = []
    for op in graph.ops:
        if not op.body and not op.is_control_flow:
            op = replace(op, inputs=tuple(same.get(n, n) for n in op.inputs))
        if op.type == "Transpose" and not op.domain:
            source, perm = origin(graph, op.outputs[0])
            source = same.get(source, source)
            readers = [graph.ops[i] for i in graph.consumers.get(op.outputs[0], ())]
            plain = op.outputs[0] not in graph.outputs and not any(r.body or r.is_control_flow for r in readers)
            twin = source if perm == tuple(range(len(perm))) else first.get((source, perm))
            if twin is not None and plain:
                same[op.outputs[0]] = twin
                continue
            first.setdefault((source, perm), op.outputs[0])
            if source != op.inputs[0] and sole_reader(graph, op.inputs[0]) is not None:
                op = replace(op, inputs=(source,), attrs={**op.attrs, "perm": perm})
        ops.append(op)
    return graph.replace(ops=tuple(live(tuple(ops), graph.outputs)))


def as_transposes(graph: Graph) -> Graph:
    """A Reshape (or two in turn) that only moves axes of 1 is a Transpose, which others can cancel or cross."""
    ops = []
    for op in graph.ops:
        for source in _sources(graph, op) if _is_view(op) else ():
            perm = _unit_moves(graph, source, op.outputs[0])
            if perm is not None:
                op = replace(op, type="Transpose", inputs=(source,), attrs={"perm": perm})
                break
        ops.append(op)
    return graph.replace(ops=tuple(live(tuple(ops), graph.outputs)))


def _is_view(op: Op) -> bool:
    return op.type in _VIEWS and not op.body and not op.domain


def _sources(graph: Graph, op: Op) -> tuple[str, ...]:
    """What a view reads, and what a view before it reads that nobody else sees."""
    i = graph.producer.get(op.inputs[0])
    if i is None or not _is_view(graph.ops[i]) or sole_reader(graph, op.inputs[0]) is None:
        return op.inputs[:1]
    return op.inputs[0], graph.ops[i].inputs[0]


def _unit_moves(graph: Graph, name: str, result: str) -> Perm | None:
    """The permutation that a view from ``name`` to ``result`` is, if it only moves axes of 1."""
    source, target = graph.tensors[name].shape, graph.tensors[result].shape
    long = [i for i, n in enumerate(source) if n != 1]
    if len(source) != len(target) or [source[i] for i in long] != [n for n in target if n != 1]:
        return None
    ones = iter([i for i, n in enumerate(source) if n == 1])
    rest = iter(long)
    return tuple(next(ones) if n == 1 else next(rest) for n in target)


def as_reshapes(graph: Graph, before: Mapping[str, Op]) -> Graph:
    """A Transpose that moves no element is a Reshape, which costs nothing; those of ``before`` as they were."""
    tensors, ops = dict(graph.tensors), []
    for op in graph.ops:
        was = before.get(op.name)
        if op.type == "Transpose" and was is not None and (was.inputs[0], was.outputs) == (op.inputs[0], op.outputs):
            ops.append(was)
            continue
        shape = graph.tensors[op.inputs[0]].shape if op.type == "Transpose" else ()
        target = f"{op.name}/shape"
        if op.type == "Transpose" and not op.domain and is_trivial(shape, perm_of(op, len(shape))) and target not in tensors:
            tensors[target] = inline(target, np.array(graph.tensors[op.outputs[0]].shape, np.int64))
            op = Op(op.name, "Reshape", (op.inputs[0], target), op.outputs, {}, "", op.origin)
        ops.append(op)
    return graph.replace(ops=tuple(ops), tensors=tensors)
