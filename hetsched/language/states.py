"""States of a fixed size (convolutions over the last tokens, selective scans): a sequence holds them beside its pages."""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.graph import Graph


def state_places(graph: Graph) -> Mapping[str, slice]:
    """Where each state, by its name after a step, lies among all of a sequence's, in float32 elements."""
    places, at = {}, 0
    for op in graph.ops:
        if op.type in ("CausalConv", "SelectiveScan"):
            size = graph.tensors[op.outputs[1]].elements
            places[op.outputs[1]] = slice(at, at + size)
            at += size
    return places


def state_elements(graph: Graph) -> int:
    """Elements of all of them."""
    return max((place.stop for place in state_places(graph).values()), default=0)
