"""States between inferences: what an operator keeps in place, and what therefore never moves.

A KV cache or the state of a scan belongs to the operator that updates it. Runtimes append to it where it lies, on the
processor that the operator is placed on, so past and present are one stretch of memory and nothing is copied between two
steps. Where a file writes the update out (a ``Concat``), it is an ordinary operator with tensors of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.graph import Graph, Op, Role

#: Operators that update states in place: (input slot of the past, output slot of the present) of each state.
IN_PLACE: Mapping[str, tuple[tuple[int, int], ...]] = {
    "GroupQueryAttention": ((3, 1), (4, 2)),
    "Attention": ((4, 1), (5, 2)),
    "CausalConv": ((3, 1),),
    "SelectiveScan": ((6, 1),),
}


def in_place(graph: Graph) -> dict[str, str]:
    """Present -> past of every state that lies in the same memory before and after its operator.

    The operator must be the only reader of the past.
    """
    pairs = [pair for op in graph.ops for pair in _pairs(op)]
    return {
        present: past for past, present in pairs if past and graph.states.get(present) == past and len(graph.consumers.get(past, ())) == 1
    }


def resident(graph: Graph) -> frozenset[str]:
    """States that stay on the processor of the operator that uses them, so that no step moves or converts them.

    These are inputs with one reader that writes their next value or that nothing ever changes (the keys and values of an
    encoder), and outputs that no operator reads.
    """
    nexts = {past: present for present, past in graph.states.items()}
    found = []
    for name in graph.inputs:
        readers = graph.consumers.get(name, ())
        if graph.tensors[name].role is Role.STATE and len(readers) == 1:
            following = nexts.get(name)
            if following is None or graph.producer.get(following) == readers[0]:
                found.append(name)
    found += [n for n in graph.outputs if graph.tensors[n].role is Role.STATE and n not in graph.consumers]
    return frozenset(found)


def cache_bytes(graph: Graph) -> int:
    """Bytes of the caches and states after the graph has run, with their scales."""
    return sum(graph.tensors[n].nbytes for n in graph.outputs if graph.tensors[n].role is Role.STATE)


def kv_bytes_per_token(graph: Graph) -> int:
    """Bytes that one more token of one sequence adds to the caches: ``2 · layers · kv_heads · head_dim · bytes``, with scales.

    Layers with a sliding window count as long as it is not full; a state of a fixed size (a scan's) adds nothing.
    """
    total = 0
    for name in graph.outputs:
        tensor = graph.tensors[name]
        axis = _growing(graph, name) if tensor.role is Role.STATE else None
        if axis is not None and tensor.elements:
            total += tensor.nbytes // tensor.shape[axis] // tensor.shape[0]
    return total


def _growing(graph: Graph, present: str) -> int | None:
    """The axis of a state with a position a token: an attention's third, or the one along which it is longer than before."""
    after = graph.tensors[present].shape
    writer = graph.producer.get(present)
    if writer is not None and graph.ops[writer].type in ("GroupQueryAttention", "Attention") and len(after) == 4:
        return 2
    before = graph.tensors[graph.states[present]].shape if present in graph.states else after
    return next((k for k, (a, b) in enumerate(zip(before, after, strict=False)) if b > a), None)


def _pairs(op: Op) -> list[tuple[str, str]]:
    """(past, present) tensors of an operator that updates states in place; ``""`` where one is left out."""
    slots = IN_PLACE.get(op.type, ())
    return [(_at(op.inputs, i), _at(op.outputs, o)) for i, o in slots]


def _at(names: tuple[str, ...], slot: int) -> str:
    return names[slot] if slot < len(names) else ""
