"""Groups of operators around an anchor, for passes that recognise what a group computes whatever way it is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from hetsched.graph import Graph, Op


def producer_of(graph: Graph, tensor: str, types: Collection[str]) -> int | None:
    """The index of the operator that writes ``tensor`` if it has one of these ONNX ``types`` and was not fused."""
    i = graph.producer.get(tensor)
    if i is None or graph.ops[i].type not in types or graph.ops[i].domain or graph.ops[i].body:
        return None
    return i


def grow(graph: Graph, end: int, allowed: Callable[[Op], bool], longest: int) -> Iterator[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Groups of operators that end at ``end``, smallest first, with the activations that each reads from outside.

    An operator joins if it is ``allowed`` and the group alone reads what it writes, the latest first; a group has at most
    ``longest``.
    """
    members = [end]
    while True:
        outside = _read(graph, members)
        yield tuple(sorted(members)), outside
        inner = [p for p in _producers(graph, outside) if allowed(graph.ops[p]) and is_inside(graph, p, members)]
        if not inner or len(members) == longest:
            return
        members.append(max(inner))


def _read(graph: Graph, members: Sequence[int]) -> tuple[str, ...]:
    written = {o for m in members for o in graph.ops[m].outputs}
    return tuple(dict.fromkeys(i for m in members for i in graph.activations(graph.ops[m]) if i not in written))


def _producers(graph: Graph, tensors: Sequence[str]) -> list[int]:
    return [graph.producer[t] for t in tensors if t in graph.producer]


def is_inside(graph: Graph, i: int, members: Collection[int]) -> bool:
    """Whether only ``members`` read what operator ``i`` writes."""
    return all(o not in graph.outputs and all(c in members for c in graph.consumers.get(o, ())) for o in graph.ops[i].outputs if o)


def reachable(graph: Graph, starts: Sequence[int], allowed: Callable[[Op], bool], steps: int) -> list[int]:
    """Operators that the ``starts`` lead to within so many ``steps`` through ``allowed`` ones, latest first."""
    found: dict[int, None] = {}
    wave = list(starts)
    for _ in range(steps):
        wave = [c for i in wave for o in graph.ops[i].outputs for c in graph.consumers.get(o, ()) if allowed(graph.ops[c])]
        wave = [c for c in dict.fromkeys(wave) if c not in found]
        found.update(dict.fromkeys(wave))
    return sorted(found, reverse=True)


def is_convex(graph: Graph, members: Sequence[int]) -> bool:
    """Whether no path between members leaves the group (else making them one operator closes a cycle)."""
    group, tainted = set(members), set[str]()
    for i in range(min(members), max(members) + 1):
        op = graph.ops[i]
        if i in group:
            if any(n in tainted for n in op.inputs):
                return False
        elif any(n in tainted or graph.producer.get(n, -1) in group for n in op.inputs if n):
            tainted.update(op.outputs)
    return True
