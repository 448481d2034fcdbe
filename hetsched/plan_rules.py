"""The rules that a plan must keep before anybody trusts it.

A plan file is untrusted input, and kernels write where a plan says. :func:`check_plan` looks at a plan alone (every
file that is read), :func:`check_graph` at a plan and its model, :func:`check_memory` at what is about to run: two
tensors share bytes only where every use of one has happened before the other is written. None of it uses the planner's
own code, so a fault of the planner is found too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from hetsched.errors import PlanError
from hetsched.graph import Graph
from hetsched.plans import Buffer, Plan
from hetsched.sharing import overwritable, view_of
from hetsched.states import in_place

#: Times in seconds, energies in joules and sizes in bytes beyond this are no predictions but damage.
LARGEST = 1e15
#: Buffers start on a cache line, so an arena is at most this much per buffer larger than its tensors.
_ALIGNMENT = 64
_MEASURES = ("seconds", "energy_j", "nbytes", "offset", "interval")


def check_entries(entries: Sequence[tuple[str, int, Mapping[str, Sequence[int]]]]) -> None:
    """Check phases, levels and cuts of a plan file's entries.

    Args:
        entries: (phase, level, op -> output channels at which it is cut) of each.

    Raises:
        PlanError: a stage stands twice or out of order, or cuts are not ascending.
    """
    stages = [(level, phase) for phase, level, _ in entries]
    if len(set(stages)) != len(stages):
        raise PlanError("two of its entries have the same phase and level")
    if [level for level, _ in stages] != sorted(level for level, _ in stages) or stages[0][0] != 0:
        raise PlanError("its entries must go from level 0 up")
    for _, _, splits in entries:
        for name, cuts in splits.items():
            if not cuts or list(cuts) != sorted({c for c in cuts if c > 0}):
                raise PlanError(f"the cuts of op {name!r} must ascend from 1")


def check_plan(plan: Plan) -> None:
    """What can be seen without the model: names, segments, fences and buffers fit each other.

    Raises:
        PlanError: they do not; the message names what and where.
    """
    _check_measures(plan, "plan")
    placed = {p.op: p for p in plan.placements}
    if len(placed) < len(plan.placements) or len(set(plan.order)) < len(plan.order) or set(plan.order) != set(placed):
        raise PlanError(f"its order and its placements do not name the same ops once each ({len(plan.order)} and {len(plan.placements)})")
    if [op for s in plan.segments for op in s.ops] != list(plan.order):
        raise PlanError("its segments do not run its ops in its order")
    for i, s in enumerate(plan.segments):
        if s.index != i or not s.ops:
            raise PlanError(f"its segment number {i} has the index {s.index} and {len(s.ops)} ops")
        for op in s.ops:
            if placed[op].queue != s.queue:
                raise PlanError(f"its op {op!r} is placed on {placed[op].queue!r} and runs in a segment of {s.queue!r}")
    _check_fences(plan)
    _check_buffers(plan)


def _check_measures(node: BaseModel, where: str) -> None:
    """Every time, energy and size is between 0 and :data:`LARGEST`."""
    for name in type(node).model_fields:
        value = getattr(node, name)
        at = f"{where}.{name}"
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, BaseModel):
                _check_measures(item, at)
            elif isinstance(item, int | float) and name.endswith(("_s", "_j", "_bytes", *_MEASURES)) and not 0 <= item <= LARGEST:
                raise PlanError(f"{at} is {item:.6g}, which is no time, energy or size")


def _check_fences(plan: Plan) -> None:
    seen: set[tuple[int, int]] = set()
    for f in plan.fences:
        if not 0 <= f.signal < f.wait < len(plan.segments):
            raise PlanError(f"its fence from segment {f.signal} to segment {f.wait} does not lead forward between its {len(plan.segments)}")
        if plan.segments[f.signal].queue == plan.segments[f.wait].queue or (f.signal, f.wait) in seen:
            raise PlanError(f"its fence from segment {f.signal} to segment {f.wait} is there twice or stays on one queue")
        seen.add((f.signal, f.wait))


def _check_buffers(plan: Plan) -> None:
    names = {b.tensor for b in plan.buffers}
    if len(names) < len(plan.buffers):
        raise PlanError("two of its buffers hold the same tensor")
    for b in plan.buffers:
        if b.offset + b.nbytes > plan.arena_bytes:
            raise PlanError(f"its buffer of {b.tensor!r} ends at byte {b.offset + b.nbytes}, outside its arena of {plan.arena_bytes}")
        if not 0 <= b.first <= b.last < max(1, len(plan.segments)):
            raise PlanError(f"its buffer of {b.tensor!r} lives from segment {b.first} to {b.last}, of {len(plan.segments)}")
    needed = sum(-(-b.nbytes // _ALIGNMENT) * _ALIGNMENT for b in plan.buffers)
    if plan.arena_bytes > needed:
        raise PlanError(f"its arena has {plan.arena_bytes} bytes and its buffers together {needed}")


def check_graph(plan: Plan, graph: Graph) -> None:
    """The plan runs every op of ``graph`` once, each after what it reads, and fences order what queues pass on.

    Raises:
        PlanError: it does not; the message names the op.
    """
    planned = {op for s in plan.segments for op in s.ops}
    for op in graph.ops:
        if op.name not in planned:
            raise PlanError(f"the plan does not place op {op.name!r}: it was made for another model or another set of passes")
    extra = next((o for s in plan.segments for o in s.ops if o not in graph.op_index), None)
    if extra is not None:
        raise PlanError(f"the plan places op {extra!r}, which graph {graph.name!r} does not have")
    before = _before(plan)
    place = _places(plan)
    for i, op in enumerate(graph.ops):
        segment, position = place[op.name]
        for p in graph.predecessors.row(i).tolist():
            other, at = place[graph.ops[p].name]
            if not (before[segment] >> other & 1 or (other == segment and at < position)):
                raise PlanError(
                    f"the plan lets op {op.name!r} start before {graph.ops[p].name!r}, which it reads from, has ended: make the plan again"
                )


def _places(plan: Plan) -> dict[str, tuple[int, int]]:
    """Op -> (segment, position in it)."""
    return {op: (i, k) for i, s in enumerate(plan.segments) for k, op in enumerate(s.ops)}


def _before(plan: Plan) -> list[int]:
    """Per segment a bit set of the segments that have ended when it starts, by queue order and fences."""
    signals: dict[int, list[int]] = {}
    for f in plan.fences:
        if not 0 <= f.signal < f.wait < len(plan.segments):
            raise PlanError(f"the plan has a fence from segment {f.signal} to segment {f.wait}, which does not lead forward")
        signals.setdefault(f.wait, []).append(f.signal)
    last: dict[str, int] = {}
    out: list[int] = []
    for i, s in enumerate(plan.segments):
        bits = 0
        for p in (*signals.get(i, ()), *((last[s.queue],) if s.queue in last else ())):
            bits |= out[p] | 1 << p
        out.append(bits)
        last[s.queue] = i
    return out


#: Delegates that run, or only time, plans on this machine.
_HERE = frozenset({"numba", "ort", "null"})


@dataclass(frozen=True, slots=True)
class _Life:
    """A tensor's bytes and when they hold it. ``last`` is the last position in each segment of ``uses`` (a bit set)."""

    name: str
    start: int
    end: int
    written: tuple[int, int] | None
    uses: int
    last: dict[int, int]
    kept: bool

    def is_over(self, other: _Life, before: Sequence[int], reading: bool = False) -> bool:
        """Whether every use of this tensor has happened when ``other`` is written; with ``reading``: but for its operator's own."""
        if self.kept or other.written is None:
            return False
        segment, position = other.written
        rest = self.uses & ~before[segment]
        return rest == 0 or (rest == 1 << segment and self.last[segment] < position + reading)


def check_memory(plan: Plan, graph: Graph) -> None:
    """No op writes over bytes that another still needs, whatever the timing of the queues.

    Args:
        plan: one that passed :func:`check_graph`.
        graph: its model.

    Raises:
        PlanError: two tensors that are needed at once share bytes.
    """
    before = _before(plan)
    shared = _Shared(plan, graph)
    for a, b in _overlapping(list(_lives(plan, graph))):
        if not (a.is_over(b, before) or b.is_over(a, before) or shared.allows(a, b, before) or shared.allows(b, a, before)):
            raise PlanError(
                f"the plan puts the tensors {a.name!r} and {b.name!r} over each other while both are needed: make the plan again"
            )


class _Shared:
    """Pairs of tensors that may lie in the same bytes although one is needed when the other is written."""

    def __init__(self, plan: Plan, graph: Graph) -> None:
        cpu = {p.op for p in plan.placements if p.queue.startswith("cpu")}
        self.pasts = in_place(graph)
        self.root: dict[str, str] = {}
        self.over: dict[str, tuple[str, ...]] = {}
        for op in graph.ops:
            source = view_of(graph, op) if op.name in cpu else ""
            if source:
                self.root[op.outputs[0]] = self.root.get(source, source)
            elif op.outputs:
                self.over[op.outputs[0]] = overwritable(graph, op, op.name in cpu)

    def allows(self, a: _Life, b: _Life, before: Sequence[int]) -> bool:
        """Whether ``b`` is ``a`` in another shape, its next state, or written over it by the last operator that reads it."""
        if self.pasts.get(b.name) == a.name:
            return True
        if a.start != b.start:
            return False
        if self.root.get(a.name, a.name) == self.root.get(b.name, b.name):
            return True
        return a.name in self.over.get(b.name, ()) and a.is_over(b, before, reading=True)


def _lives(plan: Plan, graph: Graph) -> Iterator[_Life]:
    place = _places(plan)
    buffers: dict[str, Buffer] = {b.tensor: b for b in plan.buffers}
    producer = {o: place[op.name] for op in graph.ops for o in op.outputs if o}
    copies = _copied(plan, buffers)
    uses: dict[str, dict[int, int]] = {}
    for op in graph.ops:
        segment, position = place[op.name]
        for name in (*op.inputs, *op.outputs):
            if name in buffers:
                at = uses.setdefault(name, {})
                on_entry = (name, plan.segments[segment].queue) in copies and producer.get(name, (-1, 0))[0] != segment
                at[segment] = max(at.get(segment, -1), -1 if on_entry else position)
    for name, b in buffers.items():
        if name in graph.tensors and b.nbytes:
            last = uses.get(name, {})
            yield _Life(name, b.offset, b.offset + b.nbytes, producer.get(name), sum(1 << s for s in last), last, name in graph.outputs)


def _copied(plan: Plan, buffers: Mapping[str, Buffer]) -> set[tuple[str, str]]:
    """(tensor, queue) where the queue's operators read a converted copy, made when their segment is entered.

    Only in plans that need a processor other than this machine's: the kernels here read the tensor itself, whatever a plan
    file says.
    """
    if all(x.delegate in _HERE for x in plan.placements):
        return set()
    found = [(name, queue.rpartition(":")[0]) for name, _, queue in (b.rpartition("@") for b in buffers)]
    return {(name, queue) for name, queue in found if name in buffers}


def _overlapping(lives: Sequence[_Life]) -> Iterator[tuple[_Life, _Life]]:
    """Pairs that share a byte."""
    active: list[_Life] = []
    for life in sorted(lives, key=lambda x: x.start):
        active = [x for x in active if x.end > life.start]
        yield from ((x, life) for x in active)
        active.append(life)
