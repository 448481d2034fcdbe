"""``single:<queue>``: everything on one queue. The baseline of "just run it on the GPU"."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.errors import InfeasibleError, OptionError
from hetsched.partition.orders import file_order
from hetsched.partition.problem import Budget, Problem, Solution
from hetsched.partition.search import best_on_queue, settle
from hetsched.partition.timing import Costs


@dataclass(frozen=True)
class SingleQueue:
    """Every op on ``queue``, each with the precision and kernel that cost least there."""

    queue: str

    def __post_init__(self) -> None:
        if not self.queue:
            raise OptionError("the solver 'single' needs a queue: write single:cpu, single:gpu or single:npu")

    def solve(self, problem: Problem, budget: Budget) -> Solution:
        """Place every op on the queue.

        Raises:
            InfeasibleError: some op is refused there; the message gives the reason.
        """
        table = problem.table
        queue, c = table.queue_index(self.queue), Costs(table)
        name = table.queues[queue].name
        for op in range(c.n):
            if all(c.queue[a] != queue for a in c.alts[op]):
                # The last refusal is of the last precision that was tried (float, where the integers were refused first).
                said = [r.reason for r in table.refusals[op] if r.queue == queue]
                offered = any(table.alt_queue[a] == queue for a in range(table.alt_start[op], table.alt_start[op + 1]))
                why = "the constraints forbid it" if offered or not said else said[-1]
                raise InfeasibleError(f"{table.op_names[op]} cannot run on {name}: {why}")
        alternative = best_on_queue(problem, c, [queue] * c.n)
        return settle(problem, c, f"single:{self.queue}", [(file_order(c), alternative)])
