"""Where keys and values of a written-out attention come from: rows, or a cache and the rows of new tokens behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hetsched.graph import Graph
from hetsched.passes.attention_core import Core
from hetsched.passes.attention_layout import Rows, Sizes, heads_of, step_back, trace

_LONGEST = 8


@dataclass(frozen=True, slots=True)
class Memory:
    """Keys and values: their sources, the caches before (``past``) and after (``present``), and the operators up to the products."""

    key: Rows
    value: Rows
    past: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    members: tuple[int, ...] = ()


def memory(graph: Graph, core: Core, k: Sizes, v: Sizes) -> Memory | None:
    """Keys and values of an attention; None where the operands of its products are neither rows nor heads."""
    keys, values = graph.ops[core.scores].inputs[1], core.values(graph)
    found = [_joined(graph, n, r, s, w) for n, r, s, w in ((keys, core.scores, k, True), (values, core.mixed, v, core.swapped))]
    if found[0] is not None and found[1] is not None:
        return _cached(graph, core, found[0], found[1])
    key = trace(graph, keys, {core.scores}, k, swapped=True)
    value = trace(graph, values, {core.mixed}, v, swapped=core.swapped, scaled=False)
    return None if key is None or value is None else Memory(key, value, (), (), (*key.members, *value.members))


@dataclass(frozen=True, slots=True)
class _Joined:
    """Rows of new tokens, the cache before them and with them, and all operators from the rows to the product."""

    rows: Rows
    past: str
    present: str
    members: tuple[int, ...]


def _cached(graph: Graph, core: Core, key: _Joined, value: _Joined) -> Memory:
    members = (*key.members, *value.members)
    inside = {*members, *core.members}
    presents = (key.present, value.present)
    kept = any(n in graph.outputs or any(c not in inside for c in graph.consumers[n]) for n in presents)
    return Memory(key.rows, value.rows, (key.past, value.past), presents if kept else (), members)


def _joined(graph: Graph, name: str, reader: int, sizes: Sizes, swapped: bool) -> _Joined | None:
    chain: list[int] = []
    scale = 1.0
    while (i := _joint(graph, name)) is None:
        step = step_back(graph, name, {reader, *chain}, swapped)
        if step is None or len(chain) == _LONGEST:
            return None
        chain.insert(0, step[0])
        name, scale = step[1], scale * step[2]
    whole = heads_of(graph, name, chain, sizes, swapped)
    if whole is None or whole[1] or len(graph.tensors[name].shape) != 4:
        return None
    past, new = graph.ops[i].inputs
    b, _, t, d = sizes
    rows = trace(graph, new, {i}, (b, whole[0], t - graph.tensors[past].shape[2], d), scaled=False)
    if rows is None or rows.heads != whole[0]:
        return None
    return _Joined(replace(rows, scale=scale), past, name, (i, *chain, *rows.members))


def _joint(graph: Graph, name: str) -> int | None:
    """The concatenation along the tokens of an input of the graph and something new."""
    i = graph.producer.get(name)
    op = None if i is None else graph.ops[i]
    if op is None or op.type != "Concat" or op.domain or len(op.inputs) != 2 or op.inputs[0] not in graph.inputs:
        return None
    rank = len(graph.tensors[name].shape)
    return i if op.attr_int("axis", 0) % rank == 2 else None
