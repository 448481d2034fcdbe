"""Plans for a phone that throttles: one a level, so that a policy switches between them instead of planning again.

1. The accelerator is slowed to a lower operating point; what is faster elsewhere now moves.
2. The NPU is off: GPU and CPU.
3. Least energy without the NPU, at low clocks, in 8-bit integers where the model is float and has none of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from hetsched.app.planning_task import Task
from hetsched.app.static_ranges import STATIC, is_float_model
from hetsched.errors import InfeasibleError, OptionError, UnsupportedModelError
from hetsched.graph import Graph
from hetsched.partition.switching import Placed, switch_cost
from hetsched.placement import placement_of
from hetsched.plans import Entry, Stage, Switch
from hetsched.socs import Processor, SoC

LEVELS = (1, 2, 3)
#: Most of the top frequency that a slowed accelerator keeps, and that everything keeps at the last level.
SLOWED, LOWEST = 0.75, 0.6
#: Part of the time limit for the plan of one level.
SHARE = 0.3


@dataclass(frozen=True, eq=False)
class Levels:
    """Entries for the levels that the SoC and the model have, the switches between neighbours, and why a level is missing."""

    entries: tuple[Entry, ...]
    switches: tuple[Switch, ...]
    notes: tuple[str, ...]


def plan_levels(task: Task, graph: Graph, base: Entry, placed: Placed) -> Levels:
    """Plan every level.

    Args:
        task: of the plan at level 0.
        graph: the graph, with whole operators.
        base: the entry of level 0.
        placed: what it places, perhaps with operators split.

    Raises:
        OptionError: the SoC has no accelerator to slow down.
    """
    entries, switches, notes = list[Entry](), list[Switch](), list[str]()
    last_level, last = base.level, placed
    for level in LEVELS:
        at = at_level(task, level, graph)
        try:
            costed = at.costed(graph)
            plan = at.built(costed, at.solved(costed, task.time_limit_s * SHARE))
        except (InfeasibleError, UnsupportedModelError) as e:
            notes.append(f"level {level} has no plan: {e}")
            continue
        own = "" if at.precision == task.precision else at.precision
        entries.append(Entry(phase=base.phase, level=level, plan=plan, dims=base.dims, clocks=dict(at.clocks), precision=own))
        now = Placed(costed.graph, costed.table, placement_of(plan, costed.table)[1])
        before, after = (base.phase, last_level), (base.phase, level)
        switches += [price_switch(before, after, last, now), price_switch(after, before, now, last)]
        last_level, last = level, now
    return Levels(tuple(entries), tuple(switches), tuple(notes))


def price_switch(before: Stage, after: Stage, first: Placed, second: Placed) -> Switch:
    """What going from one plan, at phase and level ``before``, to another takes."""
    return Switch(before=before, after=after, **asdict(switch_cost(first, second)))


def at_level(task: Task, level: int, graph: Graph) -> Task:
    """The task at a level.

    Raises:
        OptionError: the SoC has no accelerator.
    """
    accelerator = accelerator_of(task.chip)
    if level == 1:
        return replace(task, clocks=dict(_slowed((accelerator,), SLOWED)), pareto=0)
    off = off_at(task.chip, level)
    if level == 2:
        return replace(task, off=off, pareto=0)
    rest = tuple(p for p in task.chip.processors if p is not accelerator)
    integers = task.precision in ("auto", "float") and is_float_model(graph) and not _has_blocks(graph)
    return replace(
        task, off=off, clocks=dict(_slowed(rest, LOWEST)), objective="energy", precision=STATIC if integers else task.precision, pareto=0
    )


def off_at(chip: SoC, level: int) -> tuple[str, ...]:
    """Names of the queues that a level does without.

    Raises:
        OptionError: the SoC has no accelerator.
    """
    if level < 2:
        return ()
    accelerator = accelerator_of(chip)
    return tuple(name for name, target in chip.queues.items() if target.split(":")[0] == accelerator.name)


def accelerator_of(chip: SoC) -> Processor:
    """The processor that the levels slow down and switch off: the NPU, or the GPU of a SoC without one.

    Raises:
        OptionError: there is neither.
    """
    for kind in ("npu", "gpu"):
        for p in chip.processors:
            if p.kind == kind and any(target.split(":")[0] == p.name for target in chip.queues.values()):
                return p
    raise OptionError(f"{chip.id} has no accelerator, so there are no levels to plan: leave --levels out")


def _slowed(processors: tuple[Processor, ...], most: float) -> Iterator[tuple[str, float]]:
    """Per processor the fraction of its top clock: its highest operating point below ``most``, or ``most`` if none is listed there."""
    for p in processors:
        top = max(c.top.hz for c in p.clusters)
        listed = [point.hz / top for c in p.clusters for point in c.operating_points if 0.2 <= point.hz / top <= most]
        yield p.name, max(listed, default=most)


def _has_blocks(graph: Graph) -> bool:
    """Whether any weight is stored in blocks of few bits, which are their own precision."""
    return any(t.quantization is not None and t.is_constant for t in graph.tensors.values())
