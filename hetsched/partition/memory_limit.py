"""The best plan that fits into a memory limit, and into what each processor can address.

Bytes get a price, so that what is left is additive again: the frontier DP pays for the weights that an alternative holds and for
what it writes. The price is raised until plans fit and bisected afterwards. Beside these stand the placements at hand, each in several
orders; the best that fits is then given back what it has room for, one op at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hetsched.costs import CostTable
from hetsched.errors import InfeasibleError
from hetsched.graph import Graph
from hetsched.partition.frontier import Additive, frontier_optimum
from hetsched.partition.frontier_dp import FrontierDP
from hetsched.partition.ilp import cheap_solutions
from hetsched.partition.memory import Layout, alternative_bytes, held_bytes, place_buffers
from hetsched.partition.orders import affinity, depth_first, file_order, smallest_arena
from hetsched.partition.pricing import Price
from hetsched.partition.problem import Budget, Evaluate, Problem, Solution, objective_of
from hetsched.partition.solving import Part, parts_of
from hetsched.partition.timing import Costs, figures, value
from hetsched.partition.workspace import alternative_workspace, workspace_bytes
from hetsched.plans import Status
from hetsched.segments import Schedule, schedule
from hetsched.sizes import size

UNITS = 2.0
"""Work for the fast solvers, which are asked again for their placements."""
FIRST, RAISES, HALVINGS = 0.01, 12, 5
"""The first price of all bytes together, as a share of the objective; how often it is raised at most, and how often it is bisected."""
CAP = 100
"""States of the DP."""
RETURNS = 60
"""Most plans that are placed in memory while single ops are given faster places."""


@dataclass(frozen=True)
class Stored:
    """A solution, timed, with its arena, and the bytes of its weights and of its kernels' workspace."""

    solution: Solution
    timed: Schedule
    layout: Layout
    held: Mapping[str, int]
    """Processor -> bytes of the weights that it holds."""
    workspace: int

    @property
    def weights(self) -> int:
        """Bytes of all weights."""
        return sum(self.held.values())

    @property
    def nbytes(self) -> int:
        """Weights, arena and workspace together."""
        return self.layout.nbytes + self.weights + self.workspace


@dataclass(frozen=True)
class Room:
    """The bytes that there are for everything together (None: enough), and those that a processor addresses: weights and arena."""

    total: int | None
    addressed: Mapping[str, int]

    @classmethod
    def of(cls, problem: Problem) -> Room:
        """The room of a problem."""
        return cls(problem.memory_limit_bytes, problem.processor_limits)

    @property
    def limited(self) -> bool:
        """Whether anything is limited."""
        return self.total is not None or bool(self.addressed)

    def holds(self, held: Mapping[str, int], arena: int = 0, workspace: int = 0) -> bool:
        """Whether weights by processor, the arena and the workspace fit."""
        if self.total is not None and sum(held.values()) + arena + workspace > self.total:
            return False
        return all(held[p] + arena <= self.addressed[p] for p in held if p in self.addressed)

    def fits(self, made: Stored) -> bool:
        """Whether a plan fits."""
        return self.holds(made.held, made.layout.nbytes, made.workspace)

    def priced(self, made: Stored, table: CostTable) -> npt.NDArray[np.bool_]:
        """[m] the alternatives whose bytes are too many where they are."""
        if self.total is not None and made.nbytes > self.total:
            return np.ones(len(table.alt_queue), np.bool_)
        over = {p for p, n in made.held.items() if n + made.layout.nbytes > self.addressed.get(p, 1 << 62)}
        return np.array([q.processor in over for q in table.queues], np.bool_)[table.alt_queue]


def stored(graph: Graph, problem: Problem, solution: Solution) -> Stored:
    """Time a solution and place its buffers."""
    table = problem.table
    timed = schedule(table, solution.order, solution.alternative)
    layout = place_buffers(graph, table, timed.segments, solution.alternative)
    return Stored(
        solution, timed, layout, held_bytes(graph, table, solution.alternative), workspace_bytes(graph, table, solution.alternative)
    )


def within_limit(graph: Graph, problem: Problem, first: Stored) -> Stored:
    """``first`` if it fits into the problem's memory limits, else the best-ranked plan found that does.

    The rank is that of the solution's evaluator, if it has one, else the objective.

    Raises:
        InfeasibleError: nothing that was found fits.
    """
    room = Room.of(problem)
    if room.fits(first):
        return first
    costly = room.priced(first, problem.table)
    nbytes = np.where(costly, alternative_bytes(graph, problem.table), 0.0)
    pooled = np.where(costly, nbytes + alternative_workspace(graph, problem.table), 0.0)
    parts = parts_of(problem, (nbytes,))[0]
    search = _Search(graph, problem, room, first.solution.evaluate or (lambda s: s.objective), parts)
    for part in parts:
        for priced in (nbytes, pooled) if (pooled > nbytes).any() else (nbytes,):
            search.priced(part, priced[list(part.original)])
    search.at_hand(first.solution)
    if search.best is None:
        raise InfeasibleError(_too_much(graph, room, first, search))
    search.give_back()
    made = search.best
    note = f"the plan ranked first would need {_need(room, first)}: this one fits"
    bound = min(first.solution.bound, made.solution.objective)
    status: Status = "optimal" if bound >= made.solution.objective * (1 - 1e-9) else "heuristic"
    return replace(made, solution=replace(made.solution, bound=bound, status=status, causes=(), notes=(*made.solution.notes, note)))


def _need(room: Room, made: Stored) -> str:
    """What a plan needs beyond the limit that it breaks."""
    if room.total is not None and made.nbytes > room.total:
        return f"{size(made.nbytes, 6)}, more than the limit of {size(room.total, 6)}"
    over = [(p, n + made.layout.nbytes) for p, n in sorted(made.held.items()) if n + made.layout.nbytes > room.addressed.get(p, 1 << 62)]
    return " and ".join(f"{size(n, 6)} on {p}, which addresses {size(room.addressed[p], 6)}" for p, n in over)


def _too_much(graph: Graph, room: Room, first: Stored, search: _Search) -> str:
    if room.total is None:
        return f"no plan of {graph.name!r} was found that fits: the fastest needs {_need(room, first)}; use a smaller model or precision"
    return (
        f"no plan of {graph.name!r} found fits into {size(room.total, 6)}: the fastest needs {size(first.nbytes, 6)}, the thriftiest"
        f" {size(search.thriftiest(), 6)}; raise the memory limit or use a smaller model or precision"
    )


Key = tuple[tuple[int, ...], tuple[int, ...]]
"""Order and alternatives."""


@dataclass
class _Search:
    """Plans tried so far: the best-ranked that fits, and the bytes of the thriftiest."""

    graph: Graph
    problem: Problem
    room: Room
    rank: Evaluate
    parts: Sequence[Part]
    best: Stored | None = None
    best_rank: float = float("inf")
    least: int = 1 << 62
    fits: dict[Key, bool] = field(default_factory=dict)
    held: dict[tuple[int, ...], dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.costs = Costs(self.problem.table)
        most = self.problem.table.tensor_bytes.max(axis=1).tolist()
        self.leanest: tuple[int, Solution] = (1 << 62, Solution("", (), (), 0.0))
        self.orders = [tuple(f) for f in (file_order(self.costs), depth_first(self.costs), smallest_arena(self.costs, most))]

    def take(self, s: Solution) -> bool:
        """Whether a plan fits; it is kept if it also ranks better than what fitted before."""
        key = s.order, s.alternative
        if key in self.fits:
            return self.fits[key]
        held = self.held.get(s.alternative)
        if held is None:
            held = self.held[s.alternative] = held_bytes(self.graph, self.problem.table, s.alternative)
        if not self.room.holds(held):
            self.leanest = min(self.leanest, (sum(held.values()), s), key=lambda x: x[0])
            self.fits[key] = False
            return False
        made = stored(self.graph, self.problem, s)
        self.least = min(self.least, made.nbytes)
        self.fits[key] = self.room.fits(made)
        if self.fits[key] and (found := self.rank(s)) < self.best_rank:
            self.best, self.best_rank = made, found
        return self.fits[key]

    def thriftiest(self) -> int:
        """Bytes of the thriftiest plan; those whose weights alone do not fit have not been placed in memory yet."""
        weights, s = self.leanest
        return min(self.least, stored(self.graph, self.problem, s).nbytes) if weights < self.least else self.least

    def candidates(self, s: Solution) -> Iterator[Solution]:
        """A placement in its own order and in orders that may keep fewer bytes alive, those within the problem's limits."""
        queues = [self.costs.queue[a] for a in s.alternative]
        for order in dict.fromkeys((s.order, *self.orders, tuple(affinity(self.costs, queues)))):
            if value(self.problem, figures(self.costs, order, s.alternative)) < float("inf"):
                yield replace(s, order=order, objective=objective_of(self.problem, order, s.alternative))

    def priced(self, part: Part, nbytes: npt.NDArray[np.float64]) -> None:
        """Placements by the frontier DP while the price of a byte is raised until plans fit, then bisected."""
        c = Costs(part.small.table)
        for add in FrontierDP().weightings(part.small, c):
            own = add.op
            cheapest = [min(row, key=lambda a: own[a]) for row in c.alts]
            first = FIRST * sum(own[a] for a in cheapest) / max(1.0, float(nbytes[cheapest].sum()))

            def fits(price: float, add: Additive = add, own: Sequence[float] = own) -> bool:
                dear = add.with_ops([o + price * b for o, b in zip(own, nbytes.tolist(), strict=True)])
                got = frontier_optimum(c, file_order(c), dear, CAP)
                placed = part.translated(Solution("frontier-dp", self.orders[0], got.alternative, float("inf")))
                found = [self.take(s) for s in self.candidates(placed)]
                return any(found)

            price, halvings = Price(first, first), HALVINGS
            for _ in range(RAISES + HALVINGS):
                left = price.kept() if fits(price.value) else price.broken()
                halvings -= price.enough
                if not left or halvings < 0:
                    break

    def at_hand(self, solution: Solution) -> None:
        """The solution, what it was chosen from, and what every fast solver says (``frontier-dp``: for all its orders)."""
        found = {(s.order, s.alternative): s for placed in self._placements(solution) for s in self.candidates(placed)}
        for s in sorted(found.values(), key=self.rank):
            if self.rank(s) >= self.best_rank or self.take(s):
                return

    def _placements(self, solution: Solution) -> Iterator[Solution]:
        yield solution
        yield from solution.finalists
        for part in parts_of(self.problem)[0]:
            budget = Budget(UNITS)
            yield from (part.translated(s) for s in cheap_solutions(part.small, budget))
            for order, alternative in FrontierDP().candidates(part.small, Costs(part.small.table), budget).placed:
                yield part.translated(Solution("frontier-dp", tuple(order), tuple(alternative), float("inf")))

    def give_back(self) -> None:
        """Move single ops of the best plan, those first that would gain most, as long as the plan gets better and still fits."""
        assert self.best is not None
        c, left, start = self.costs, RETURNS, self.best.solution
        allowed = next((set(p.original) for p in self.parts if {*start.alternative} <= {*p.original}), set[int]())
        moves = [(c.time[start.alternative[i]] - c.time[a], i, a) for i, row in enumerate(c.alts) for a in row if a in allowed]
        for gain, i, a in sorted(moves, key=lambda m: (-m[0], *m[1:])):
            if gain <= 0 or left <= 0:
                return
            s = self.best.solution
            moved = (*s.alternative[:i], a, *s.alternative[i + 1 :])
            if value(self.problem, figures(c, s.order, moved)) < s.objective:
                left -= 1
                self.take(replace(s, alternative=moved, objective=objective_of(self.problem, s.order, moved)))
