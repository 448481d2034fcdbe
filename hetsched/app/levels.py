"""Plans for a phone that throttles: one a level, so that a policy switches between them instead of planning again.

1. The accelerator is slowed to a lower operating point; what is faster elsewhere now moves.
2. The NPU is off: GPU and CPU.
3. Least energy without the NPU, at low clocks. A float model computes in 8-bit integers: with the ranges of its file, else with
   activations that are quantized when they arrive, where kernels do that.
4. The battery is nearly empty, or the phone critically hot (the policy ``battery-saver`` goes there; others where it is thriftier and
   delivers as much): two cores of the CPU, those with the least energy, at the clocks of level 3. Weights stay in their 4 bits where
   the file has them; a float model is quantized when it arrives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hetsched.app.planning_task import Task
from hetsched.app.saver import narrowed_task
from hetsched.app.static_ranges import DYNAMIC, NO_RANGES, STATIC, UsedRanges, is_float_model, with_static_ranges
from hetsched.errors import InfeasibleError, OptionError, UnsupportedModelError
from hetsched.graph import Graph
from hetsched.partition.switching import Placed, switch_cost
from hetsched.placement import placement_of
from hetsched.plans import Entry, Plan, Stage, Switch
from hetsched.policies import SAVER
from hetsched.socs import Processor, SoC

LEVELS = (1, 2, 3, SAVER)
#: Most of the top frequency that a slowed accelerator keeps, and that everything keeps from level 3 on.
SLOWED, LOWEST = 0.75, 0.6
#: The level of least energy, in integers by the ranges of the model.
LEAST = 3
#: Tokens that a conversation may have from that level on.
SHORT_CONTEXT = 512
#: Part of the time limit for the plan of one level.
SHARE = 0.3


@dataclass(frozen=True, eq=False)
class Levels:
    """Entries for the levels that the SoC and the model have, the switches between neighbours, and what is to be said of them."""

    entries: tuple[Entry, ...]
    switches: tuple[Switch, ...]
    notes: tuple[str, ...]
    ranges: UsedRanges | None = None
    """Those of level 3."""


def plan_levels(
    task: Task, graph: Graph, base: Entry, placed: Placed, ranges: str | Path | None, saver: str | None = None
) -> Levels:  # fmt: skip
    """Plan every level.

    Args:
        task: of the plan at level 0.
        graph: the graph, with whole operators.
        base: the entry of level 0.
        placed: what it places, perhaps with operators split.
        ranges: of the activations of a float model; None: those beside it.
        saver: cores of the last level, ``processor:cores``; None: those that take the least energy.

    Raises:
        OptionError: the SoC has no accelerator to slow down.
        RangesError: the ranges are of no use.
    """
    entries, switches, notes, used = list[Entry](), list[Switch](), list[str](), None
    last_level, last = base.level, placed
    for level in LEVELS:
        try:
            at, whole, found = _prepared(task, graph, level, ranges, saver)
            costed = at.costed(whole)
            plan = at.built(costed, at.solved(costed, task.time_limit_s * SHARE))
        except (InfeasibleError, UnsupportedModelError) as e:
            notes.append(f"level {level} has no plan: {e}")
            continue
        own = "" if at.precision == task.precision else at.precision
        used = used or found
        notes += [f"level {level} {_basis(plan, found, level == LEAST and ranges != NO_RANGES)}"] if own else []
        cores = {q: t for q, t in at.chip.queues.items() if q not in at.off} if level == SAVER else {}
        notes += [f"level {level} {_cost(cores, plan, [base, *entries])}"] if cores else []
        entries.append(Entry(
            phase=base.phase, level=level, plan=plan, dims=base.dims, clocks=dict(at.clocks), queues=cores, precision=own,
        ))  # fmt: skip
        now = Placed(costed.graph, costed.table, placement_of(plan, costed.table)[1])
        before, after = (base.phase, last_level), (base.phase, level)
        switches += [price_switch(before, after, last, now), price_switch(after, before, now, last)]
        last_level, last = level, now
    return Levels(tuple(entries), tuple(switches), tuple(notes), used)


def price_switch(before: Stage, after: Stage, first: Placed, second: Placed) -> Switch:
    """What going from one plan, at phase and level ``before``, to another takes."""
    return Switch(before=before, after=after, **asdict(switch_cost(first, second)))


def at_level(task: Task, level: int) -> Task:
    """The task at a level, in its own precision.

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
    return replace(task, off=off, clocks=dict(_slowed(rest, LOWEST)), objective="energy", pareto=0)


def _prepared(
    task: Task, graph: Graph, level: int, ranges: str | Path | None, saver: str | None
) -> tuple[Task, Graph, UsedRanges | None]:  # fmt: skip
    """The task and the graph of a level, and the ranges used; arguments as for :func:`plan_levels`."""
    at = at_level(task, level)
    if level == LEAST:
        return _in_integers(at, graph, ranges)
    if level == SAVER:
        return narrowed_task(_in_integers(at, graph, NO_RANGES)[0], graph, saver), graph, None
    return at, graph, None


def _in_integers(task: Task, graph: Graph, ranges: str | Path | None) -> tuple[Task, Graph, UsedRanges | None]:
    """The task and the graph in 8-bit integers, and the ranges used, where the model is float and the user has asked for nothing else."""
    if task.precision not in ("auto", "float") or not is_float_model(graph) or _has_blocks(graph):
        return task, graph, None
    made, used = with_static_ranges(graph, STATIC, ranges, [])
    return replace(task, precision=DYNAMIC if used is None else STATIC), made, used


def _cost(cores: Mapping[str, str], plan: Plan, others: Sequence[Entry]) -> str:
    """On which cores a plan is, and what it takes beside the thriftiest of the others: cores that draw less work for longer."""
    joules, least = plan.prediction.energy_j, min(others, key=lambda e: e.plan.prediction.energy_j)
    return (
        f"is on {', '.join(cores.values())}, the two cores with the least energy: {1e3 * joules:.3g} mJ at"
        f" {joules / plan.prediction.latency_s:.3g} W (level {least.level}: {1e3 * least.plan.prediction.energy_j:.3g} mJ at"
        f" {least.plan.prediction.energy_j / least.plan.prediction.latency_s:.3g} W)"
    )


def _basis(plan: Plan, used: UsedRanges | None, could: bool) -> str:
    """In what a plan of a float model computes that was offered integers, and whether it ``could`` have had ranges."""
    count = sum(p.precision == STATIC for p in plan.placements)
    if used is not None:
        return f"computes in {STATIC}, by the ranges of {used.path.name}: {count} of {len(plan.placements)} ops"
    some = f"computes {count} of {len(plan.placements)} ops in {DYNAMIC}, which CPUs have"
    how = some if count else f"stays in float, as {DYNAMIC} on the CPU saves nothing"
    return f"{how}; with ranges ('hetsched calibrate-ranges') it would be {STATIC}" if could else how


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
