"""Who runs what: the delegates of a plan's segments, as the plan names them or as the user does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from hetsched.errors import PlanError
from hetsched.graph import Graph
from hetsched.plan_rules import check_graph
from hetsched.plans import Placement, Plan, PlanSegment
from hetsched.runtime.delegates import load_delegate
from hetsched.runtime.delegates.base import Delegate, Probe
from hetsched.runtime.delegates.mixed import MixedDelegate
from hetsched.runtime.elsewhere import adopted, refusal_here, unused, with_delegates
from hetsched.runtime.failures import blamed
from hetsched.socs import HOST
from hetsched.trace import Instant, Trace

#: One delegate for everything (by name or as an object), some by queue or processor, or what the plan says.
Chosen: TypeAlias = "str | Delegate | Mapping[str, str] | None"


class Moved(NamedTuple):
    """Where an op went after a failure: a delegate by name, and the precision that it computes in there."""

    delegate: str
    precision: str


@dataclass(frozen=True, eq=False)
class Assignment:
    """``plan`` is the plan as it runs here; ``of_segment`` has a delegate for each segment by index, ``of_op`` names for each op.

    ``probes`` are what the delegates said of themselves, by name; ``notes`` say how the plan was changed, and
    ``is_adopted`` that it was made for another SoC: its predictions are not about runs here.
    """

    plan: Plan
    of_segment: Mapping[int, Delegate]
    of_op: Mapping[str, str]
    probes: Mapping[str, Probe]
    notes: tuple[str, ...] = ()
    is_adopted: bool = False

    @property
    def of_queue(self) -> dict[str, tuple[str, ...]]:
        """Names of the delegates of each queue's ops, in the plan's order."""
        rows: dict[str, dict[str, None]] = {}
        for placed in self.plan.placements:
            rows.setdefault(placed.queue, {})[self.of_op[placed.op]] = None
        return {queue: tuple(names) for queue, names in rows.items()}

    @property
    def emulated(self) -> dict[str, str]:
        """What stands in for the processor of a queue, by queue: their results count, their times mean nothing."""
        found = {q: next((e for n in names if (e := self.probes[n].emulated)), "") for q, names in self.of_queue.items()}
        return {queue: what for queue, what in found.items() if what}

    def label(self, trace: Trace) -> None:
        """Say in a trace who runs each queue, and which of them are emulated."""
        for queue, names in self.of_queue.items():
            said = " and ".join(f"{name} {self.probes[name].version}" for name in names)
            what = self.emulated.get(queue, "")
            trace.instants.append(Instant("delegate", queue, 0.0, f"{said}, emulated: {what}" if what else said))
        for queue, what in self.emulated.items():
            trace.notes.append(f"{queue} is emulated by {what}: its results count, its times mean nothing")
        trace.notes.extend(self.notes)


def assign(graph: Graph, plan: Plan, soc: str, chosen: Chosen, moved: Mapping[str, Moved] | None = None) -> Assignment:
    """Choose and probe the delegates of a plan.

    Args:
        graph: its model.
        plan: any plan.
        soc: id of the SoC that it was made for.
        chosen: delegates that the user names.
        moved: ops that go elsewhere, by name.

    Raises:
        PlanError: the plan is for another SoC, or a delegate is not known or not here; then the error names its segments.
        OptionError: a delegate is chosen for a queue that the plan does not use.
    """
    one = _one(chosen)
    plan = chosen_plan(graph, plan, chosen if one is None else one)
    notes = unused(plan, chosen) if isinstance(chosen, Mapping) else ()
    _check_plan(graph, plan, soc, chosen)
    if moved:
        plan = plan.model_copy(update={"placements": tuple(_moved(p, moved.get(p.op)) for p in plan.placements)})
    names = dict.fromkeys(p.delegate for p in plan.placements)
    loaded = {name: one if one is not None and name == one.name else load_delegate(name) for name in names}
    named = {p.op: p.delegate for p in plan.placements}
    probes = _available(loaded, named, plan)
    if soc != HOST and (one is None or moved):
        plan, changes = adopted(graph, plan, loaded)
        notes = (*notes, *changes)
    is_adopted = soc != HOST and one is None
    return Assignment(plan, {s.index: _of_segment(s, named, loaded) for s in plan.segments}, named, probes, notes, is_adopted)


def chosen_plan(graph: Graph, plan: Plan, chosen: Chosen) -> Plan:
    """The plan with the delegates that the user names.

    Raises:
        OptionError: one is chosen for a queue that the plan does not use.
        PlanError: there is no such delegate.
    """
    if isinstance(chosen, Mapping):
        return with_delegates(graph, plan, chosen)
    if chosen is None:
        return plan
    everything = {"delegate": chosen if isinstance(chosen, str) else chosen.name}
    return plan.model_copy(update={"placements": tuple(p.model_copy(update=everything) for p in plan.placements)})


def _one(chosen: Chosen) -> Delegate | None:
    """The delegate that everything goes to, if the user names one for all."""
    if chosen is None or isinstance(chosen, Mapping):
        return None
    return load_delegate(chosen) if isinstance(chosen, str) else chosen


def _moved(placed: Placement, to: Moved | None) -> Placement:
    return placed if to is None else placed.model_copy(update={"delegate": to.delegate, "precision": to.precision})


def _check_plan(graph: Graph, plan: Plan, soc: str, chosen: Chosen) -> None:
    if soc != HOST and chosen != "null":
        why = refusal_here(plan, chosen if isinstance(chosen, Mapping) else {}, soc)
        if why is not None:
            raise PlanError(why)
    elsewhere = next((p for p in plan.placements if not p.queue.startswith("cpu")), None)
    if elsewhere is not None and soc == HOST and chosen is None:
        raise PlanError(
            f"the plan gives ops to {elsewhere.delegate!r} on the queue {elsewhere.queue!r}, which is not a CPU of this machine: plan for "
            "host, or try --delegate null"
        )
    check_graph(plan, graph)
    foreign = next((b.tensor for b in plan.buffers if b.tensor not in graph.tensors), None)
    if foreign is not None and soc == HOST and chosen != "null":
        raise PlanError(
            f"the plan has a buffer for {foreign!r}, which graph {graph.name!r} does not have: a converted copy cannot be made here"
        )


def _of_segment(segment: PlanSegment, named: Mapping[str, str], loaded: Mapping[str, Delegate]) -> Delegate:
    """The delegate of all of a segment's ops, or one that hands each op to its own."""
    delegates = {op: loaded[named[op]] for op in segment.ops}
    names = dict.fromkeys(named[op] for op in segment.ops)
    return loaded[next(iter(names))] if len(names) == 1 else MixedDelegate(delegates)


def _available(delegates: Mapping[str, Delegate], named: Mapping[str, str], plan: Plan) -> dict[str, Probe]:
    probes = {name: delegate.probe() for name, delegate in delegates.items()}
    for name, probe in probes.items():
        if not probe.available:
            segments = (s.index for s in plan.segments if any(named[op] == name for op in s.ops))
            raise blamed(PlanError(f"the delegate {name!r} cannot run here: {probe.reason}"), name, *segments)
    return probes
