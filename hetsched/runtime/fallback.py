"""What a run does after a failure, where the user allows it: the ops of the failed segment go to a CPU delegate that takes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hetsched.errors import HetschedError
from hetsched.graph import Graph, Op
from hetsched.plans import Plan, PlanSegment
from hetsched.runtime.assignment import Chosen, Moved, chosen_plan
from hetsched.runtime.delegates import load_delegate
from hetsched.runtime.failures import NotFiniteError
from hetsched.runtime.support import node_names

#: Those that compute on this machine's CPU, in the order in which they are asked.
CPU_DELEGATES = ("numba", "ort", "openvino")


@dataclass(frozen=True, slots=True)
class Fallback:
    """One failure and what was done about it: ``origin`` is the delegate that failed, ``to`` what took its place."""

    segment: int
    queue: str
    reason: str
    origin: str
    to: str

    def summary(self) -> dict[str, Any]:
        """As ``run --json`` has it."""
        return {"segment": self.segment, "queue": self.queue, "reason": self.reason, "from": self.origin, "to": self.to}

    def __str__(self) -> str:
        return f"segment {self.segment} on {self.queue} went from {self.origin} to {self.to}: {self.reason}"


@dataclass(slots=True)
class CpuFallback:
    """Which ops have left the plan's delegates for one on the CPU. Nothing is tried twice, so it comes to an end.

    Args:
        graph: the model.
        plan: what was to run.
        chosen: the delegates that the user named.
    """

    graph: Graph
    plan: Plan
    chosen: Chosen
    moved: dict[str, Moved] = field(default_factory=dict)
    _tried: set[tuple[str, str, str]] = field(default_factory=set)

    def move(self, error: HetschedError) -> tuple[Fallback, ...]:
        """Move the ops that failed; what was moved.

        Args:
            error: names the segments that failed.

        Raises:
            HetschedError: no other CPU delegate takes an op; of the same kind as ``error``.
        """
        now = {p.op: Moved(p.delegate, p.precision) for p in chosen_plan(self.graph, self.plan, self.chosen).placements} | self.moved
        failed = [s for s in self.plan.segments if s.index in error.segments]
        return tuple(self._moved(segment, now, error) for segment in failed)

    def _moved(self, segment: PlanSegment, now: dict[str, Moved], error: HetschedError) -> Fallback:
        named = [op for op in segment.ops if now[op].delegate == error.delegate]
        names = named or list(segment.ops)
        for name in names:
            self._leave(name, now[name], error)
        to = {name: self._next(self.graph.ops[self.graph.op_index[name]], now[name], error) for name in names}
        self.moved.update(to)
        origin = dict.fromkeys(now[name].delegate for name in names)
        return Fallback(segment.index, segment.queue, str(error), " and ".join(origin), _said(to, now))

    def _leave(self, op: str, left: Moved, error: HetschedError) -> None:
        """Remember what an op shall not come back to: a delegate, or only its precision where that was too small."""
        both = (left.precision,) if isinstance(error, NotFiniteError) else dict.fromkeys((left.precision, "f32"))
        self._tried.update((op, left.delegate, precision) for precision in both)

    def _next(self, op: Op, left: Moved, error: HetschedError) -> Moved:
        reason = ""
        for precision in ("f32",) if isinstance(error, NotFiniteError) else dict.fromkeys((left.precision, "f32")):
            for name in CPU_DELEGATES:
                if (op.name, name, precision) in self._tried:
                    continue
                delegate = load_delegate(name)
                probe = delegate.probe()
                why = delegate.supports(op, self.graph, precision) if probe.available else probe.reason
                if why is None:
                    return Moved(name, precision)
                reason = reason or f": {name} says that {why}"
        raise type(error)(f"{error}; --fallback cpu found no CPU delegate for node {node_names(op)} ({op.type}){reason}") from error


def _said(to: dict[str, Moved], now: dict[str, Moved]) -> str:
    """The delegates of the ops, with the precision where it is another."""
    words = dict.fromkeys(m.delegate if m.precision == now[op].precision else f"{m.delegate} in {m.precision}" for op, m in to.items())
    return " and ".join(words)
