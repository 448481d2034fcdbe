"""Chains of elementwise operators: one pass over memory instead of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.graph import Graph
from hetsched.passes.rewriting import Fusion, apply, fused, sole_reader

CHAINABLE = frozenset(
    {
        "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Abs", "Neg", "Sqrt", "Exp", "Log", "Erf", "Tanh", "Sigmoid", "Reciprocal",
        "Relu", "Clip", "HardSwish", "HardSigmoid", "LeakyRelu", "Silu", "Gelu",
    }
)  # fmt: skip


@dataclass(frozen=True)
class FuseElementwise:
    """Elementwise operators of one shape, each the only reader of the one before → FusedElementwise.

    ``longest`` limits the operators in a chain, ``most_inputs`` the tensors that it reads.
    """

    longest: int = 16
    most_inputs: int = 8

    name: ClassVar[str] = "fuse-elementwise"
    requires: ClassVar[tuple[str, ...]] = ("integers-absorbed",)
    ensures: ClassVar[tuple[str, ...]] = ("chains-fused",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with chains fused."""
        used: set[int] = set()
        fusions = []
        for i in range(len(graph.ops)):
            if i in used or not _is_link(graph, i):
                continue
            members = self._chain(graph, i, used)
            if len(members) > 1:
                used.update(members)
                ops = [graph.ops[m] for m in members]
                fusions.append(Fusion(tuple(members), fused(ops, "FusedElementwise", _external(graph, members), {}, nested=True)))
        return apply(graph, fusions)

    def _chain(self, graph: Graph, start: int, used: set[int]) -> list[int]:
        members = [start]
        while len(members) < self.longest:
            out = graph.ops[members[-1]].outputs[0]
            j = sole_reader(graph, out)
            if j is None or j in used or not _is_link(graph, j):
                break
            if graph.tensors[graph.ops[j].outputs[0]].shape != graph.tensors[out].shape:
                break
            if len(_external(graph, [*members, j])) > self.most_inputs:
                break
            members.append(j)
        return members


def _is_link(graph: Graph, i: int) -> bool:
    """Whether an operator may be part of a chain: elementwise, on float32 only."""
    op = graph.ops[i]
    if op.type not in CHAINABLE or op.domain or len(op.outputs) != 1:
        return False
    return all(graph.tensors[n].dtype.value == "f32" for n in (*op.inputs, *op.outputs) if n)


def _external(graph: Graph, members: list[int]) -> list[str]:
    inner = {graph.ops[m].outputs[0] for m in members}
    return list(dict.fromkeys(i for m in members for i in graph.ops[m].inputs if i and i not in inner))
