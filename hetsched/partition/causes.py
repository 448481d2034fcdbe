"""Why each op is where it is, in one short sentence."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.partition.problem import Problem, Solution
from hetsched.partition.timing import Costs


def duration(seconds: float) -> str:
    """A duration for a human: ``180 µs``, ``2.40 ms``."""
    if seconds < 1e-6:
        return f"{seconds * 1e9:.0f} ns"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms"


def joules(value: float) -> str:
    """An energy for a human: ``36.1 µJ``, ``1.49 mJ``."""
    return f"{value * 1e6:.3g} µJ" if value < 1e-3 else f"{value * 1e3:.3g} mJ" if value < 1 else f"{value:.3g} J"


def amount(value: float, objective: str) -> str:
    """A value of an alternative's own cost for a human: seconds, or joules where energy is the objective."""
    return joules(value) if objective == "energy" else duration(value)


def causes_of(problem: Problem, solution: Solution) -> tuple[str, ...]:
    """One sentence per op of a finished placement."""
    c = Costs(problem.table)
    keep = problem.keep.tolist()
    return tuple(_Cause(problem, c, keep, solution.alternative).of(op) for op in range(c.n))


class _Cause:
    """The cause of one op's place, given everyone else's."""

    def __init__(self, problem: Problem, c: Costs, keep: Sequence[bool], alternative: Sequence[int]) -> None:
        self.problem, self.c, self.keep, self.alternative = problem, c, keep, alternative
        self.own = c.energy if problem.objective == "energy" else c.time
        self.names = [q.name for q in problem.table.queues]

    def of(self, op: int) -> str:
        """The sentence for ``op``."""
        c, here = self.c, self.alternative[op]
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
        ratio = self.own[cheapest] / max(self.own[here], 1e-30)
        other = self.names[c.queue[cheapest]]
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
        """It would be cheaper elsewhere on its own: say what moving it would cost."""
        c, queue = self.c, self.c.queue[here]
        target = c.queue[cheapest]
        saved = self.own[here] - self.own[cheapest]
        neighbours = [*c.preds[op], *c.succs[op]]
        same = [v for v in neighbours if c.queue[self.alternative[v]] == queue]
        name, other = self.names[queue], self.names[target]
        alone = f"it alone would save {amount(saved, self.problem.objective)} on {other}"
        if not same:
            return f"on {name} so that {other} stays free; {alone}"
        crossings = (1 if any(v in same for v in c.preds[op]) else 0) + (1 if any(v in same for v in c.succs[op]) else 0)
        price = self._move(op, here, cheapest)
        word = "two crossings" if crossings == 2 else "a crossing"
        cost = amount(price, self.problem.objective)
        return f"kept on {name} with its neighbours: {alone}, but moving it would cost {word} of {cost} in all"

    def _move(self, op: int, here: int, there: int) -> float:
        """Launches, syncs and transfers on the edges to neighbours that stay behind."""
        c, joules = self.c, self.problem.objective == "energy"
        sync, launch, moved = (c.sync_j, c.launch_j, c.transfer_j) if joules else (c.sync, c.launch, c.transfer)
        queue, target, d, e = c.queue[here], c.queue[there], c.domain[here], c.domain[there]
        price = 0.0
        if any(c.queue[self.alternative[v]] == queue for v in c.preds[op]):
            price += sync[queue][target] + launch[target]
            price += sum(moved[t][c.source(t, self.alternative)][e] for t in c.inputs[op] if c.source(t, self.alternative) != e)
        if any(c.queue[self.alternative[v]] == queue for v in c.succs[op]):
            price += sync[target][queue] + launch[queue] + sum(moved[t][e][d] for t in c.outputs[op])
        return price
