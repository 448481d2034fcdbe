"""``vendor``: greedy maximal off-load with CPU fallback, what ONNX Runtime, TFLite and Core ML do by default."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.costs import CostTable
from hetsched.partition.orders import file_order
from hetsched.partition.problem import Budget, Problem, Solution
from hetsched.partition.search import best_on_queue, settle
from hetsched.partition.timing import Costs


@dataclass(frozen=True)
class Vendor:
    """One accelerator takes every op it supports; the CPU takes the rest.

    The accelerator is the one that supports most of the multiply-accumulates, an NPU before a GPU on a tie. The CPU is
    the host's queue; an op that neither supports goes to the first queue that has it.
    """

    def solve(self, problem: Problem, budget: Budget) -> Solution:
        """Place every op."""
        table = problem.table
        c = Costs(table)
        wanted = [preferred(c, table), c.host, *range(c.queues)]
        chosen = [next(q for q in wanted if any(c.queue[a] == q for a in row)) for row in c.alts]
        return settle(problem, c, "vendor", [(file_order(c), best_on_queue(problem, c, chosen))])


def preferred(c: Costs, table: CostTable) -> int:
    """The queue that a vendor's runtime gives all that it supports; the host's where there is no accelerator."""
    macs: list[float] = table.macs.tolist()
    rank = {"npu": 0, "gpu": 1}

    def supported(queue: int) -> float:
        return sum(max((macs[a] for a in row if c.queue[a] == queue), default=0.0) for row in c.alts)

    accelerators = [q for q in range(c.queues) if table.queues[q].kind in rank and q in set(c.queue)]
    return min(accelerators, key=lambda q: (-supported(q), rank[table.queues[q].kind], q), default=c.host)
