"""Gated linear units: an activation of the gate times the other half."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.graph import AttrValue, Graph
from hetsched.passes.rewriting import Fusion, apply, fused, is_float, other_input, sole_reader

_KINDS = {"Silu": "SwiGLU", "Gelu": "GeGLU"}


@dataclass(frozen=True)
class FuseGated:
    """``silu(gate) · up`` → SwiGLU, ``gelu(gate) · up`` → GeGLU."""

    name: ClassVar[str] = "fuse-gated"
    requires: ClassVar[tuple[str, ...]] = ("functions-named",)
    ensures: ClassVar[tuple[str, ...]] = ("gates-fused",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with gated units fused."""
        found = (self._fusion(graph, i) for i, op in enumerate(graph.ops) if op.type in _KINDS and not op.domain)
        return apply(graph, [f for f in found if f is not None])

    def _fusion(self, graph: Graph, i: int) -> Fusion | None:
        act = graph.ops[i]
        j = sole_reader(graph, act.outputs[0])
        if j is None or graph.ops[j].type != "Mul" or graph.ops[j].domain or graph.ops[j].body:
            return None
        up = other_input(graph.ops[j], act.outputs[0])
        gate = act.inputs[0]
        if up is None or up == gate or not is_float(graph, gate, up) or graph.tensors[up].is_constant:
            return None
        if graph.tensors[up].shape != graph.tensors[gate].shape:
            return None
        attrs: dict[str, AttrValue] = {"approximate": act.attr_str("approximate", "none")} if act.type == "Gelu" else {}
        return Fusion((i, j), fused([act, graph.ops[j]], _KINDS[act.type], (gate, up), attrs, nested=True))
