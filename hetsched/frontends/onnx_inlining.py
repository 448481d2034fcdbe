"""Local functions of an ONNX model, put in the place of their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hetsched.errors import ModelError

if TYPE_CHECKING:
    import onnx

#: Nodes after inlining: functions that call functions can stand for any number.
MAX_NODES = 1 << 20
#: Bytes of these nodes: a function repeats its own attributes, and the names and attributes that it is called with. Small models have
#: a lower limit: this many bytes, and so many for each byte of the model.
MAX_BYTES, _LEAST_BYTES, _BYTES_PER_BYTE = 1 << 28, 1 << 26, 64
#: Functions within functions.
MAX_DEPTH = 64


def without_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every call of a local function replaced by the function's nodes.

    Raises:
        ModelError: functions call themselves, are nested too deeply, or stand for too many nodes or bytes.
        RuntimeError: ONNX's own inliner gave up.
    """
    from onnx import checker, inliner

    functions: dict[tuple[str, str], list[onnx.FunctionProto]] = {}
    for f in proto.functions:
        functions.setdefault((f.domain, f.name), []).append(f)  # overloads count as one
    total = _Sizes(functions).of(proto.graph.node, Counter())
    limit = min(MAX_BYTES, _LEAST_BYTES + _BYTES_PER_BYTE * proto.ByteSize())
    for count, most, what in ((total.nodes, MAX_NODES, "nodes"), (total.bytes, limit, "bytes")):
        if count > most:
            raise ModelError(f"the functions of the graph {proto.graph.name!r} stand for {count} {what}, more than {most}: it is refused")
    try:
        return inliner.inline_local_functions(proto)
    except checker.ValidationError as error:
        said = str(error).strip().partition("\n")[0]
        raise ModelError(f"the functions of the graph {proto.graph.name!r} are not valid: {said}") from error


@dataclass
class _Size:
    """What nodes stand for.

    Attributes:
        nodes: how many.
        bytes: of these, without what a call of the function around them puts in.
        uses: of a function, how often they repeat an argument: ``i0`` and ``o0`` are its first input and output, ``@n`` its attribute.
    """

    nodes: int = 0
    bytes: int = 0
    uses: Counter[str] = field(default_factory=Counter)

    def add(self, other: _Size, times: int = 1) -> None:
        """Put ``other`` to it, so many times."""
        self.nodes += times * other.nodes
        self.bytes += times * other.bytes


class _Sizes:
    """What each function stands for."""

    def __init__(self, functions: Mapping[tuple[str, str], Sequence[onnx.FunctionProto]]) -> None:
        self._functions = functions
        self._known: dict[tuple[str, str], _Size] = {}
        self._open: dict[tuple[str, str], None] = {}

    def of(self, nodes: Sequence[onnx.NodeProto], uses: Counter[str], *, counted: bool = False) -> _Size:
        """What ``nodes`` stand for.

        Args:
            nodes: nodes of the graph, of a function or of a subgraph in them.
            uses: goes up by how often they repeat a name or an attribute (``@n``) of the function around them.
            counted: their own bytes are part of a node around them.
        """
        total = _Size()
        for node in nodes:
            called = self._function(node)
            total.add(_Size(1, 0 if counted else node.ByteSize()) if called is None else called)
            for place, name in _places(node.input, node.output):
                times = 1 if called is None else called.uses[place]
                total.bytes += 0 if called is None else times * len(name)
                uses[name] += times
            for a in node.attribute:
                times = 1 if called is None else called.uses[f"@{a.name}"]
                total.bytes += 0 if called is None else times * a.ByteSize()
                uses[f"@{a.ref_attr_name}"] += times
                for graph in (a.g, *a.graphs):
                    inside: Counter[str] = Counter(o.name for o in graph.output)
                    total.add(self.of(graph.node, inside, counted=True), max(1, times))
                    uses.update({name: count * max(1, times) for name, count in inside.items()})
        return total

    def _function(self, node: onnx.NodeProto) -> _Size | None:
        """What the function that ``node`` calls stands for; None where it calls none."""
        key = (node.domain, node.op_type)
        if key not in self._functions:
            return None
        if key not in self._known:
            if key in self._open:
                raise ModelError(f"the function {node.op_type!r} of the model calls itself, which ONNX does not allow: the file is damaged")
            if len(self._open) >= MAX_DEPTH:
                raise ModelError(f"the function {node.op_type!r} of the model is called {MAX_DEPTH} functions deep: it is refused")
            self._open[key] = None
            total = _Size()
            for function in self._functions[key]:
                uses: Counter[str] = Counter()
                total.add(self.of(function.node, uses))
                total.bytes += sum(uses[f"@{a.name}"] * a.ByteSize() for a in function.attribute_proto)
                total.uses.update({place: uses[name] for place, name in _places(function.input, function.output)})
                total.uses.update({name: count for name, count in uses.items() if name.startswith("@")})
            self._known[key] = total
            del self._open[key]
        return self._known[key]


def _places(inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every input and output that has a name, with its place."""
    yield from ((f"{kind}{k}", name) for kind, names in (("i", inputs), ("o", outputs)) for k, name in enumerate(names) if name)
