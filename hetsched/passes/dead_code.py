"""Removing operators whose results nobody reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.graph import Graph, Op


@dataclass(frozen=True)
class DropDeadCode:
    """Operators that no output of the graph depends on are left out. Their tensors stay: bodies may name them."""

    name: ClassVar[str] = "drop-dead-code"
    requires: ClassVar[tuple[str, ...]] = ("constants-folded",)
    ensures: ClassVar[tuple[str, ...]] = ("no-dead-code",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph without dead operators; the same object if there are none."""
        ops = live(graph.ops, graph.outputs)
        return graph if len(ops) == len(graph.ops) else graph.replace(ops=tuple(ops))


def live(ops: tuple[Op, ...], outputs: tuple[str, ...]) -> list[Op]:
    """The operators that some output depends on, in the given (topological) order."""
    needed = set(outputs)
    kept: list[Op] = []
    for op in reversed(ops):
        if any(o in needed for o in op.outputs if o):
            kept.append(op)
            needed.update(op.inputs)
    return kept[::-1]
