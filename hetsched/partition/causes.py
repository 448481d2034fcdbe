"""Why each op is where it is, in one short sentence."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.partition.problem import Problem, Solution
from hetsched.partition.retiming import Retiming
from hetsched.partition.timing import Costs


def duration(seconds: float) -> str:
    """A duration for a human: ``180 µs``, ``2.4 ms``, ``19.1 s``."""
    if seconds < 1e-6:
        return f"{seconds * 1e9:.0f} ns"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def joules(value: float) -> str:
    """An energy for a human: ``36.1 µJ``, ``1.49 mJ``."""
    return f"{value * 1e6:.3g} µJ" if value < 1e-3 else f"{value * 1e3:.3g} mJ" if value < 1 else f"{value:.3g} J"


def amount(value: float, objective: str) -> str:
    """A difference of the objective for a human, in its unit."""
    if objective == "edp":
        return f"{value * 1e9:.3g} nJ s"
    return joules(value) if objective == "energy" else duration(value)


def causes_of(problem: Problem, solution: Solution) -> tuple[str, ...]:
    """One sentence per op of a finished placement."""
    c = Costs(problem.table)
    keep = problem.keep.tolist()
    cause = _Cause(problem, c, keep, solution)
    return tuple(cause.of(op) for op in range(c.n))


class _Cause:
    """The cause of one op's place, given everyone else's."""

    def __init__(self, problem: Problem, c: Costs, keep: Sequence[bool], solution: Solution) -> None:
        self.problem, self.c, self.keep, self.solution = problem, c, keep, solution
        self.retiming = Retiming(problem, c, solution)
        self.own = c.energy if problem.objective == "energy" else c.time
        self.names = [q.name for q in problem.table.queues]

    def of(self, op: int) -> str:
        """The sentence for ``op``."""
        c, here = self.c, self.solution.alternative[op]
        queue = c.queue[here]
        name = self.names[queue]
        if self.problem.table.op_names[op] in self.problem.forced:
            return f"placed on {name} by request"
        everywhere = {c.queue[a] for a in c.alts[op]}
        if everywhere == {queue}:
            return self._precision(op, here, f"only {name} supports it")
        others = [a for a in c.alts[op] if self.keep[a] and c.queue[a] != queue]
        if not others:
            return f"the constraints leave only {name}"
        cheapest = min(others, key=lambda a: (self.own[a], a))
        other = self.names[c.queue[cheapest]]
        if self.own[here] <= 0:
            there = amount(self.own[cheapest], "energy" if self.problem.objective == "energy" else "latency")
            return f"costs nothing here, {there} on {other}" if self.own[cheapest] > 0 else f"costs nothing here, nor on {other}"
        ratio = self.own[cheapest] / self.own[here]
        if ratio >= 1.0:
            text = f"cheapest here: {ratio:.1f}x {'less energy' if self.problem.objective == 'energy' else 'faster'} than {other}"
            return self._precision(op, here, text if ratio >= 1.05 else f"as cheap here as on {other}")
        return self._kept(op, here, cheapest)

    def _precision(self, op: int, here: int, text: str) -> str:
        """Add why this precision, where the queue offers several."""
        c, precisions = self.c, self.problem.table.alt_precision
        same = [a for a in c.alts[op] if self.keep[a] and c.queue[a] == c.queue[here] and precisions[a] != precisions[here]]
        faster = [a for a in same if self.own[a] < self.own[here]]
        if faster:
            text += (
                f"; {precisions[here]} although {precisions[min(faster, key=lambda a: self.own[a])]} is faster alone: its neighbours use it"
            )
        return text

    def _kept(self, op: int, here: int, cheapest: int) -> str:
        """It would be cheaper elsewhere on its own: say what moving it would do to the whole plan."""
        c, objective = self.c, self.problem.objective
        name, other = self.names[c.queue[here]], self.names[c.queue[cheapest]]
        saved = amount(self.own[here] - self.own[cheapest], "energy" if objective == "energy" else "latency")
        worse = self.retiming.added(op, cheapest)
        if worse < 0:
            gain = amount(-worse, objective)
            return f"left on {name} by {self.solution.solver}, although moving it to {other} would improve the plan by {gain}"
        around = [v for v in (*c.preds[op], *c.succs[op]) if c.queue[self.solution.alternative[v]] == c.queue[here]]
        why = "with its neighbours" if around else f"so that {other} is free for other ops"
        if worse == float("inf"):
            return f"kept on {name} {why}: moving it would make more segments than allowed"
        cost = f"cost the whole plan {amount(worse, objective)}" if worse > 0 else "not improve the whole plan"
        return f"kept on {name} {why}: it alone would save {saved} on {other}, but moving it would {cost}"
