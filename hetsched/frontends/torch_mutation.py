"""Operators of an exported program that write into a tensor (``relu_``, ``copy_``, ``index_put_``), and the buffers that change so.

A value that is written is replaced by the result. If it is a slice of another value, that one is put together again; every other
value that shares its memory becomes unusable, and a program that reads one is refused.
"""

from __future__ import annotations

from collections.abc import Container

from hetsched.frontends.torch_builder import Builder
from hetsched.frontends.torch_indexing import write_slice
from hetsched.frontends.torch_movement import SHARING
from hetsched.frontends.torch_program import Node, Program


def in_place_target(kind: str, node: Node, known: Container[str]) -> str:
    """The operator that computes what ``kind`` writes in place; ``""`` if it writes nothing."""
    name = kind.removesuffix("_")
    return name if kind.endswith("_") and not kind.endswith("__") and name in known and "self" in node.args else ""


def states_of(program: Program) -> dict[str, None]:
    """The inputs of the program's graph that it changes: buffers, and inputs that are written in place."""
    buffers = {s.name: s.target for s in program.sources if s.kind in {"buffer", "user_input"}}
    changed = {target for _, kind, target in program.outputs if kind.endswith("_mutation")}
    roots = {n: n for n in buffers}
    written = {n for n, target in buffers.items() if target in changed}
    for node in program.nodes:
        name = node.target.removeprefix("aten.").partition(".")[0]
        source = _source(node)
        if source not in roots:
            continue
        if name in SHARING:
            roots.update((o, roots[source]) for o in node.outputs if o)
        elif name.endswith("_") and not name.startswith("_"):
            written.add(roots[source])
            roots.update((o, roots[source]) for o in node.outputs if o)
    return dict.fromkeys(n for n in buffers if n in written)


def _source(node: Node) -> str:
    """The value that the first argument is."""
    arg = node.args.get("self", node.args.get("input", {}))
    inner = arg.get("as_tensor")
    return str(inner.get("name")) if isinstance(inner, dict) else ""


def finish_mutation(b: Builder, kind: str, in_place: bool) -> None:
    """After a node: remember whose memory its results share, and after an in-place one whose values changed."""
    source, outputs = _source(b.current), [o for o in b.current.outputs if o]
    if in_place:
        _write(b, source, b.values[b.result_name()])
        for o in outputs:
            b.owners[o] = b.owners.get(source, source)
    elif kind in SHARING:
        for o in outputs:
            b.owners[o] = b.owners.get(source, source)


def _write(b: Builder, name: str, value: str) -> None:
    """The value ``name`` becomes the tensor ``value``; so do the values that it is a slice of."""
    owner = b.owners.get(name, name)
    stale = [n for n, o in b.owners.items() if o == owner]
    fresh = {name: value}
    while name in b.views:
        view = b.views[name]
        base = b.resolve(view.base)
        part = b.emit("Unsqueeze", (value, b.ints("axis", [view.axis])), what="row") if view.selects else value
        value = write_slice(b, base, view.axis, view.start, view.stop, part)
        name = view.base
        fresh[name] = value
    for n in (*stale, owner):
        b.values.pop(n, None)
    b.values.update(fresh)
