"""Composites on processors that do not fuse them: they pay for the parts, one after another.

A composite stays in the graph as long as some processor of the SoC has it (``hetsched.passes.for_soc``). On the others it is
what its body says: every part reads and writes its own tensors, and composites among the parts that the processor does
have stay whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from hetsched.fusions import Fusions
from hetsched.graph import Graph, IntArray, Op
from hetsched_cost_models.alike import Alike, alike, names_of
from hetsched_cost_models.roofline import Cost
from hetsched_cost_models.work import Work, work_of


@dataclass(frozen=True, eq=False)
class Apart:
    """A graph with some composites taken apart: one entry a part in ``work`` and ``parts``; ``start``: where each op's begin.

    Where nothing is taken apart ``start`` is None and the parts are the ops. ``reads``: of each class of ops, the tensors that each of
    its parts reads, as places in the list of an op's names (:func:`hetsched_cost_models.alike.names_of`).
    """

    work: Work
    parts: Alike
    start: IntArray | None = None
    reads: tuple[tuple[tuple[int, ...], ...], ...] = ()

    def together(self, cost: Cost) -> Cost:
        """The cost of the parts as that of the ops that they belong to."""
        if self.start is None:
            return cost
        return replace(cost, **{f.name: np.add.reduceat(getattr(cost, f.name), self.start) for f in fields(Cost)})

    def inputs(self, graph: Graph, groups: Alike) -> Iterator[Sequence[str]]:
        """Names of the tensors that each part reads, part after part; ``groups`` are those of the ops."""
        for op, kind in zip(graph.ops, groups.kind.tolist(), strict=True):
            if self.start is None or len(self.reads[kind]) == 1:
                yield op.inputs
                continue
            names = names_of(op)
            for places in self.reads[kind]:
                yield [names[i] for i in places]


def taken_apart(graph: Graph, fusions: Fusions, work: Work, groups: Alike | None = None) -> Apart:
    """The work of ``graph`` on a processor that has these ``fusions``; ``work`` is that of the graph as it is, ``groups`` its ops alike.

    Composites of other types count as their parts, as deep as needed. The quantization that an operator absorbed is no part.
    """
    groups = groups or alike(graph, graph.ops)
    rows = [parts_on([op], fusions) for op in groups.example]
    if all(len(row) == 1 and row[0] is op for row, op in zip(rows, groups.example, strict=True)):
        return Apart(work, groups)
    bounds, item = groups.expand([len(row) for row in rows])
    parts = Alike(item, tuple(part for row in rows for part in row))
    reads = tuple(_places(op, row) for op, row in zip(groups.example, rows, strict=True))
    return Apart(work_of(graph, groups=parts), parts, bounds[:-1], reads)


def _places(op: Op, parts: Sequence[Op]) -> tuple[tuple[int, ...], ...]:
    places = {name: i for i, name in enumerate(names_of(op))}
    return tuple(tuple(places[n] for n in part.inputs) for part in parts)


def parts_on(ops: Sequence[Op], fusions: Fusions) -> list[Op]:
    """What a processor that has these ``fusions`` runs for ``ops``."""
    return [part for op in ops for part in _parts(op, lambda part: _fuses(fusions, part))]


def _fuses(fusions: Fusions, op: Op) -> bool:
    return fusions.fuses(op.type, op.attr_str("activation", "") if op.type.startswith("Fused") else "")


def _parts(op: Op, fuses: Callable[[Op], bool]) -> Iterator[Op]:
    if not op.is_fusion or fuses(op):
        yield op
        return
    plain = replace(op, attrs={**op.attrs, "activation": ""})
    if op.attr_str("activation", "") and fuses(plain):  # only the activation is apart; what it reads has the size of what it writes
        yield plain
        yield Op(op.name, op.attr_str("activation", ""), op.outputs[:1], op.outputs[:1])
        return
    stored = _stored(op.body)
    for part in op.fused_parts:
        inputs, outputs = (tuple(stored.get(n, n) for n in names) for names in (part.inputs, part.outputs))
        yield from _parts(replace(part, inputs=inputs, outputs=outputs), fuses)


def _stored(body: Sequence[Op]) -> dict[str, str]:
    """Real-valued tensor -> the integers that stand for it, where the body converts between them."""
    before = {p.outputs[0]: p.inputs[0] for p in body if p.type == "DequantizeLinear"}
    after = {p.inputs[0]: p.outputs[0] for p in body if p.type == "QuantizeLinear"}
    return before | after
