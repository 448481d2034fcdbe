"""Layout conversions as operators of the graph, where a processor wants images in another order of axes.

While planning, the cost table charges a conversion per tensor and consuming domain. For an export the conversions must be
there: around each operator that is defined on NCHW images and whose processor keeps NHWC, images are transposed to NHWC for
everything outside. Neighbours in the same layout need none between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from hetsched.graph import Graph, Op, Role, Tensor
from hetsched.passes.permuted_ops import Perm, inverse, shape_of

_SUFFIX = "/nhwc"


@dataclass(frozen=True)
class InsertLayout:
    """Image tensors (rank 4) that cross between operators of different ``layouts`` are transposed on the way.

    ``layouts`` maps operator names to ``nhwc`` or ``nchw`` (also ``native``: as in the file; the default). An ``nhwc`` tensor is called
    ``<name>/nhwc``. Operators stay as they are defined, on NCHW: the compiler of an NHWC processor takes the Transposes at the
    borders of what it runs as its layout, so inside they cancel. Outputs of the graph stay as their operators write them.
    """

    layouts: Mapping[str, str] = field(default_factory=dict)

    name: ClassVar[str] = "insert-layout"
    requires: ClassVar[tuple[str, ...]] = ()
    ensures: ClassVar[tuple[str, ...]] = ("layouts-explicit",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with explicit conversions; ``RemoveLayout`` undoes it."""
        tensors = dict(graph.tensors)
        ops: list[Op] = []
        back: dict[str, str] = {}
        crossing = {n for n in (*graph.inputs, *graph.producer) if self._crosses(graph, n)}
        for op in graph.ops:
            reads = {n: self._read(graph, op, n, tensors, ops, back) for n in dict.fromkeys(op.inputs) if n in crossing}
            ops.append(replace(op, inputs=tuple(reads.get(n, n) for n in op.inputs)))
            for o in op.outputs:
                if o in crossing and self._is_nhwc(op.name):
                    ops.append(_transpose(f"{o}{_SUFFIX}", o, f"{o}{_SUFFIX}", _to_nhwc(graph, o), tensors))
        return graph.replace(ops=tuple(ops), tensors=tensors)

    def _is_nhwc(self, op: str) -> bool:
        return self.layouts.get(op, "native") == "nhwc"

    def _written_in_nhwc(self, graph: Graph, name: str) -> bool:
        i = graph.producer.get(name)
        return i is not None and self._is_nhwc(graph.ops[i].name)

    def _crosses(self, graph: Graph, name: str) -> bool:
        """Whether an image goes from one layout to another."""
        if len(graph.tensors[name].shape) != 4 or f"{name}{_SUFFIX}" in graph.tensors:
            return False
        mine = self._written_in_nhwc(graph, name)
        readers = [graph.ops[i] for i in graph.consumers.get(name, ())]
        return not any(r.body for r in readers) and any(self._is_nhwc(r.name) != mine for r in readers)

    def _read(self, graph: Graph, op: Op, name: str, tensors: dict[str, Tensor], ops: list[Op], back: dict[str, str]) -> str:
        """The tensor that ``op`` reads in place of ``name``: across layouts, what comes back from the other order."""
        mine, theirs = self._is_nhwc(op.name), self._written_in_nhwc(graph, name)
        if mine == theirs:
            return name
        made = f"{name}/nchw"
        if name not in back:
            if not theirs:
                ops.append(_transpose(f"{name}{_SUFFIX}", name, f"{name}{_SUFFIX}", _to_nhwc(graph, name), tensors))
            ops.append(_transpose(made, f"{name}{_SUFFIX}", made, inverse(_to_nhwc(graph, name)), tensors))
            back[name] = made
        return back[name]


@dataclass(frozen=True)
class RemoveLayout:
    """Undoes :class:`InsertLayout`: pairs of Transposes that only pass an image from one layout to another go."""

    name: ClassVar[str] = "remove-layout"
    requires: ClassVar[tuple[str, ...]] = ("layouts-explicit",)
    ensures: ClassVar[tuple[str, ...]] = ()

    def __call__(self, graph: Graph) -> Graph:
        """The graph without the conversions that ``InsertLayout`` put in."""
        made = {op.outputs[0]: op.inputs[0] for op in graph.ops if op.type == "Transpose" and op.name == op.outputs[0]}
        same = {o: made[s] for o, s in made.items() if o.endswith("/nchw") and s.endswith(_SUFFIX) and s in made}
        kept = [op for op in graph.ops if op.outputs[0] not in same and not (op.outputs[0] in made and op.outputs[0].endswith(_SUFFIX))]
        gone = {*same, *(s for s in made if s.endswith(_SUFFIX))}
        tensors = {n: t for n, t in graph.tensors.items() if n not in gone}
        return graph.replace(ops=tuple(replace(op, inputs=tuple(same.get(n, n) for n in op.inputs)) for op in kept), tensors=tensors)


def _to_nhwc(graph: Graph, name: str) -> Perm:
    rank = len(graph.tensors[name].shape)
    return (0, *range(2, rank), 1)


def _transpose(called: str, source: str, result: str, perm: Perm, tensors: dict[str, Tensor]) -> Op:
    t = tensors[source]
    tensors[result] = replace(t, name=result, shape=shape_of(t.shape, perm), role=Role.ACTIVATION)
    return Op(called, "Transpose", (source,), (result,), {"perm": perm}, "")
