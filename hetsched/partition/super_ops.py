"""Super-ops: several ops that stay together, next to one another and on one queue, as one op of a smaller problem.

A plan of the smaller problem is a plan of the whole one, with the same segments, the same figures and every op named: each
super-op is put back as its ops, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.costs import CostTable
from hetsched.graph import Csr, IntArray
from hetsched.partition.problem import Problem
from hetsched.partition.timing import Costs


@dataclass(frozen=True, eq=False)
class SuperOps:
    """A problem whose ops are groups of another problem's ops.

    ``groups`` are the ops of every super-op in order; ``members`` are, per alternative of ``problem``, the alternatives of its
    ops in the larger problem.
    """

    problem: Problem
    groups: tuple[tuple[int, ...], ...]
    members: tuple[tuple[int, ...], ...]

    def expanded(self, order: Sequence[int], alternative: Sequence[int]) -> tuple[list[int], list[int]]:
        """The same plan, op by op."""
        chosen = [-1] * sum(len(group) for group in self.groups)
        for group, way in zip(self.groups, alternative, strict=True):
            for op, a in zip(group, self.members[way], strict=True):
                chosen[op] = a
        return [op for v in order for op in self.groups[v]], chosen


def grouped(problem: Problem, c: Costs, groups: Sequence[Sequence[int]], ways: Sequence[Sequence[Sequence[int]]]) -> SuperOps:
    """The problem with every group of ops as one op.

    Args:
        problem: the problem. What it forces or forbids is not carried over: alternatives that may not be used are not to be among ``ways``.
        c: its costs.
        groups: every op in one group, the groups and the ops in them in topological order.
        ways: per group its alternatives: one alternative for each of its ops, all of one queue and one domain.
    """
    members = tuple(tuple(way) for row in ways for way in row)
    start = np.cumsum([0, *(len(row) for row in ways)]).astype(np.int32)
    table = _with_ops(problem.table, _rows(c, problem.table, groups), members)
    table = replace(table, alt_start=start, op_names=tuple(table.op_names[group[-1]] for group in groups), refusals=((),) * len(groups))
    return SuperOps(replace(problem, table=table, op_types=(), forced={}, forbidden=()), tuple(tuple(g) for g in groups), members)


def _with_ops(table: CostTable, rows: _Rows, members: Sequence[Sequence[int]]) -> CostTable:
    """The cost table with alternatives that are several alternatives at once; all of their time is in ``overhead_s``."""
    flat = np.array([a for way in members for a in way], np.int64)
    first = np.cumsum([0, *(len(way) for way in members)])[:-1]

    def total(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.add.reduceat(values[flat], first) if len(values) else values

    heads, nothing, kept = flat[first], np.zeros(len(members)), rows.kept
    return replace(
        table, tensor_names=tuple(table.tensor_names[t] for t in kept),
        alt_queue=table.alt_queue[heads], alt_domain=table.alt_domain[heads], alt_precision=tuple(table.alt_precision[a] for a in heads),
        compute_s=nothing, overhead_s=total(table.time_s), dram_bytes=nothing, weight_bytes=total(table.weight_bytes),
        macs=total(table.macs), energy_j=total(table.energy_j), loss=total(table.loss), effort=np.zeros(0), cache_bytes=np.zeros(0),
        alt_delegate=(), op_inputs=rows.inputs, op_outputs=rows.outputs, predecessors=rows.preds, successors=rows.succs,
        tensor_producer=rows.producer, graph_outputs=rows.results, tensor_bytes=table.tensor_bytes[kept],
        conversion_s=table.conversion_s[kept], maintenance_s=table.maintenance_s[kept],
        transfer_energy_j=table.transfer_energy_j[kept], transfer_bytes=table.transfer_bytes[kept],
        copy_bytes=table.copy_bytes if table.dma is None else table.copy_bytes[kept],
    )  # fmt: skip


class _Rows(NamedTuple):
    """What super-ops read, write, follow and precede; ``kept`` are the tensors that more than one of them sees, or the host."""

    kept: list[int]
    inputs: Csr
    outputs: Csr
    preds: Csr
    succs: Csr
    producer: IntArray
    results: IntArray


def _rows(c: Costs, table: CostTable, groups: Sequence[Sequence[int]]) -> _Rows:
    owner = [-1] * c.n
    for g, group in enumerate(groups):
        for op in group:
            owner[op] = g
    maker = [owner[p] if p >= 0 else -1 for p in c.producer]
    reads = [list(dict.fromkeys(t for op in group for t in c.inputs[op] if maker[t] != g)) for g, group in enumerate(groups)]
    results: list[int] = table.graph_outputs.tolist()
    kept = sorted({t for row in reads for t in row}.union(results))
    place = {t: k for k, t in enumerate(kept)}
    writes = [[place[t] for op in group for t in c.outputs[op] if t in place] for group in groups]
    preds = [sorted({owner[p] for op in group for p in c.preds[op]} - {g}) for g, group in enumerate(groups)]
    succs: list[list[int]] = [[] for _ in groups]
    for g, row in enumerate(preds):
        for p in row:
            succs[p].append(g)
    return _Rows(
        kept, Csr.from_rows([[place[t] for t in row] for row in reads]), Csr.from_rows(writes), Csr.from_rows(preds), Csr.from_rows(succs),
        np.array([maker[t] for t in kept], np.int32), np.array([place[t] for t in results], np.int32),
    )  # fmt: skip
