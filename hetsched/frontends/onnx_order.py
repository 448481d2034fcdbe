"""The order of an ONNX graph's nodes, and what they read (names used inside subgraphs included)."""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from hetsched.errors import ModelError

if TYPE_CHECKING:
    import onnx


def reads(node: onnx.NodeProto) -> list[str]:
    """Names that a node reads, each once: its inputs, and what its subgraphs take from outside."""
    names = dict.fromkeys(i for i in node.input if i)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names.update(dict.fromkeys(_captured(attribute.g)))
    return list(names)


def _captured(graph: onnx.GraphProto) -> list[str]:
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer} | {o for n in graph.node for o in n.output}
    used = [i for n in graph.node for i in reads(n)] + [o.name for o in graph.output]
    return [name for name in used if name not in own]


def topological(nodes: Sequence[onnx.NodeProto], names: Sequence[str], known: Container[str]) -> list[int]:
    """Indices of ``nodes`` so that each comes after what it reads; the file's order wherever that is valid.

    Args:
        nodes: the nodes.
        names: a name for each, for messages.
        known: tensors that exist before any node runs.

    Raises:
        ModelError: two nodes write one tensor, a tensor is written by none, or the nodes form a cycle.
    """
    producer = _producers(nodes, names, known)
    waits: list[int] = []
    feeds: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        before = set()
        for name in reads(node):
            if name in producer:
                before.add(producer[name])
            elif name not in known:
                raise ModelError(f"node {names[i]!r} ({node.op_type}) reads {name!r}, which nothing in the model writes")
        waits.append(len(before))
        for p in sorted(before):
            feeds[p].append(i)
    ready = [i for i, n in enumerate(waits) if n == 0]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in feeds[i]:
            waits[j] -= 1
            if waits[j] == 0:
                heapq.heappush(ready, j)
    if len(order) < len(nodes):
        stuck = next(i for i, n in enumerate(waits) if n > 0)
        raise ModelError(f"node {names[stuck]!r} ({nodes[stuck].op_type}) waits for its own result: the graph has a cycle")
    return order


def _producers(nodes: Sequence[onnx.NodeProto], names: Sequence[str], known: Container[str]) -> Mapping[str, int]:
    producer: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for o in node.output:
            if not o:
                continue
            if o in producer:
                raise ModelError(f"nodes {names[producer[o]]!r} and {names[i]!r} both write {o!r}: the model file is damaged")
            if o in known:
                raise ModelError(f"node {names[i]!r} writes {o!r}, which is an input or a constant: the model file is damaged")
            producer[o] = i
    return producer
