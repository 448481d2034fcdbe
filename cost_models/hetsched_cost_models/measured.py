"""A cost table with measured times in the place of the model's."""

from __future__ import annotations

from dataclasses import replace

from hetsched.costs import CostTable
from hetsched.measured import Measured, MeasuredOp
from hetsched_cost_models.anchoring import queues_of_kind


def with_measured(table: CostTable, measured: Measured) -> CostTable:
    """The table where measured operators take what was measured on their queue.

    An alternative's whole time becomes the measured one: its compute; no overhead; traffic as before, but at most what its
    queue moves in that time. Energy changes in proportion to the time. Launches, signals and transfers stay the model's, and so
    do operators and queues that were not measured. Rows for ops or queues that the table does not have are passed over.
    """
    compute, overhead = table.compute_s.copy(), table.overhead_s.copy()
    traffic, energy = table.dram_bytes.copy(), table.energy_j.copy()
    index = {name: i for i, name in enumerate(table.op_names)}
    before = table.time_s
    for row in measured.ops:
        queues = _queues(table, row)
        for a in table.alternatives(index[row.op]) if row.op in index else ():
            if int(table.alt_queue[a]) not in queues or row.precision not in ("", table.alt_precision[a]):
                continue
            compute[a], overhead[a] = row.seconds, 0.0
            traffic[a] = min(traffic[a], row.seconds * table.bandwidth_bytes_s[table.alt_queue[a]])
            energy[a] *= row.seconds / before[a] if before[a] > 0 else 1.0
    return replace(table, compute_s=compute, overhead_s=overhead, dram_bytes=traffic, energy_j=energy)


def applies(table: CostTable, row: MeasuredOp) -> bool:
    """Whether the table has the op of a row on its queue, at its precision."""
    queues = _queues(table, row)
    if not queues or row.op not in table.op_names:
        return False
    own = table.alternatives(table.op_names.index(row.op))
    return any(int(table.alt_queue[a]) in queues and row.precision in ("", table.alt_precision[a]) for a in own)


def _queues(table: CostTable, row: MeasuredOp) -> tuple[int, ...]:
    """The queue that a row names, or of the kind that it names those with most cores; none if there is no such queue."""
    if any(q.kind == row.queue for q in table.queues):
        return queues_of_kind(table, row.queue)
    return tuple(i for i, q in enumerate(table.queues) if q.name == row.queue)
