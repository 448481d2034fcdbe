"""Local functions of an ONNX model, put in the place of their calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hetsched.errors import ModelError

if TYPE_CHECKING:
    import onnx

#: Nodes after inlining: functions that call functions can stand for any number.
MAX_NODES = 1 << 20
#: Functions within functions.
MAX_DEPTH = 64


def without_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every call of a local function replaced by the function's nodes.

    Raises:
        ModelError: functions call themselves, are nested too deeply, or stand for too many nodes.
        RuntimeError: ONNX's own inliner gave up.
    """
    from onnx import checker, inliner

    functions: dict[tuple[str, str], list[onnx.NodeProto]] = {}
    for f in proto.functions:
        functions.setdefault((f.domain, f.name), []).extend(f.node)  # overloads count as one
    sizes = _Sizes(functions)
    total = sum(sizes.nodes(node) for node in _all(proto.graph.node))
    if total > MAX_NODES:
        raise ModelError(f"the functions of the graph {proto.graph.name!r} stand for {total} nodes, more than {MAX_NODES}: it is refused")
    try:
        return inliner.inline_local_functions(proto)
    except checker.ValidationError as error:
        said = str(error).strip().partition("\n")[0]
        raise ModelError(f"the functions of the graph {proto.graph.name!r} are not valid: {said}") from error


class _Sizes:
    """How many nodes each function stands for."""

    def __init__(self, functions: Mapping[tuple[str, str], Sequence[onnx.NodeProto]]) -> None:
        self._functions = functions
        self._known: dict[tuple[str, str], int] = {}
        self._open: dict[tuple[str, str], None] = {}

    def nodes(self, node: onnx.NodeProto) -> int:
        """Nodes that ``node`` stands for."""
        key = (node.domain, node.op_type)
        if key not in self._functions:
            return 1
        if key not in self._known:
            if key in self._open:
                raise ModelError(f"the function {node.op_type!r} of the model calls itself, which ONNX does not allow: the file is damaged")
            if len(self._open) >= MAX_DEPTH:
                raise ModelError(f"the function {node.op_type!r} of the model is called {MAX_DEPTH} functions deep: it is refused")
            self._open[key] = None
            self._known[key] = min(sum(self.nodes(n) for n in _all(self._functions[key])), 1 << 62)
            del self._open[key]
        return self._known[key]


def _all(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of their subgraphs; protobuf itself limits how deeply these are nested."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _all(graph.node)
