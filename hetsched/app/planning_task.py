"""What is to be planned, and how: costs, solution and plan of one graph under the user's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.anchors import Anchor
from hetsched.app.inputs import cost_table, precision_notes, what_if_notes
from hetsched.app.planned import op_names, op_queues
from hetsched.app.static_ranges import STATIC, WITHOUT_RANGES, is_float_model
from hetsched.costs import CostTable
from hetsched.graph import Graph
from hetsched.measured import Measured
from hetsched.placement import placement_of
from hetsched.plans import Placement, Plan
from hetsched.soc_words import power_basis
from hetsched.socs import SoC

if TYPE_CHECKING:
    from hetsched.partition import Problem, Solution
    from hetsched.partition.limits import Limits
    from hetsched.step_times import StepTimes

#: Budget of the solver for one plan, unless the user says otherwise.
TIME_LIMIT_S = 5.0


@dataclass(frozen=True, eq=False)
class Costed:
    """A graph with its costs: ``plain`` by the cost model alone, ``table`` with the user's measurements and sensitivities."""

    graph: Graph
    plain: CostTable
    table: CostTable
    anchors: tuple[Anchor, ...]
    measured: Measured | None


@dataclass(frozen=True, eq=False)
class Task:
    """The options of one call of :func:`hetsched.app.planning.plan` that costs and solutions depend on.

    ``loaded`` is the graph as it was loaded, by which a known network is recognised.
    """

    chip: SoC
    loaded: Graph
    objective: str
    precision: str
    runtime: str
    solver: str
    time_limit_s: float
    memory_limit_bytes: int | None
    forced: Mapping[str, str] | None
    forbidden: Mapping[str, str] | None
    limits: Limits | None
    sensitivities: str | Path | None
    anchors: Sequence[str | Path | Anchor]
    public_anchors: bool
    measured: str | Path | Measured | None
    simulated: bool
    pareto: int
    clocks: Mapping[str, float] = field(default_factory=dict)
    """Processor -> fraction of its top clock; those not named run at the top."""
    off: tuple[str, ...] = ()
    """Queues that may not be used."""
    said: tuple[str, ...] = ()
    """Notes of every plan."""
    steps: StepTimes | None = None
    """Of a language model that is computed by a session of this machine."""
    simulations: dict[Any, float] = field(default_factory=dict)
    """What :meth:`contended` has simulated already: several solvers often find the same plan."""

    def costed(self, graph: Graph) -> Costed:
        """The costs of a graph.

        Raises:
            InputError: of the model, the anchors, the measurements or the sensitivities.
        """
        from hetsched.app.corrections import anchors_for, corrected, read_measured
        from hetsched.app.sensitivities import with_sensitivities
        from hetsched_cost_models import table_at

        plain = cost_table(graph, self.chip, self.precision, self.runtime, self.steps)
        anchored = anchors_for(self.loaded, self.chip, plain, self.precision, self.runtime, self.anchors, public=self.public_anchors)
        given = self.measured
        timed = given if given is None or isinstance(given, Measured) else read_measured(given, graph, plain)
        table = with_sensitivities(corrected(plain, anchored, timed), graph, self.sensitivities, self.limits)
        if self.clocks:
            table = table_at(table, self.chip, self.clocks)
        return Costed(graph, plain, table, anchored, timed)

    def problem(self, costed: Costed) -> Problem:
        """The problem of placing a graph.

        Raises:
            OptionError: an op that is forced or forbidden somewhere does not exist.
        """
        barred = tuple(("*", q) for q in self.off)
        found = problem_of(costed.graph, costed.table, self.chip, self.objective, self.forced, self.forbidden, self.limits)
        return replace(found, memory_limit_bytes=self.memory_limit_bytes, forbidden=(*found.forbidden, *barred))

    def contended(self, table: CostTable, order: Sequence[int], alternative: Sequence[int]) -> float:
        """Seconds of one inference with the memory bandwidth shared."""
        from hetsched_simulations import latency

        key = table, tuple(order), tuple(alternative)
        if key not in self.simulations:
            self.simulations[key] = latency(table, self.chip, *key[1:])
        return self.simulations[key]

    def solved(self, costed: Costed, time_limit_s: float | None = None) -> Solution:
        """Where every op goes; ``auto`` ranks by the simulator.

        Raises:
            InfeasibleError: no placement satisfies the constraints.
        """
        from hetsched.partition import solve

        ranked = self.simulated and self.objective == "latency"
        evaluate = (lambda s: self.contended(costed.table, s.order, s.alternative)) if ranked else None
        return solve(self.problem(costed), self.solver, time_limit_s=time_limit_s or self.time_limit_s, evaluate=evaluate)

    def built(self, costed: Costed, solution: Solution, whole: Costed | None = None) -> Plan:
        """The plan of a solution, with its baselines, its front, what it rests on, and its simulated latency.

        Args:
            costed: the graph that was solved.
            solution: of it.
            whole: the graph without splits, if ``costed`` has some: baselines and front are of that one.

        Raises:
            InfeasibleError: nothing fits into the memory limit.
        """
        from hetsched.app.corrections import honest
        from hetsched.app.fronts import front_points
        from hetsched.partition import baselines, build_plan

        chip, graph, table, problem = self.chip, costed.graph, costed.table, self.problem(costed)
        beside = problem if whole is None else self.problem(whole)
        made = honest(build_plan(graph, problem, solution, baselines=baselines(beside)), costed.plain, table, costed.anchors)
        without_ranges = (WITHOUT_RANGES,) if self.precision == STATIC and is_float_model(graph) else ()
        own = (*self.said, *precision_notes(made, chip, self.precision), *made.notes, *without_ranges)
        said = (*own, *what_if_notes(chip, set(table.alt_precision)), *filter(None, (power_basis(chip),)))
        prediction = made.prediction
        if self.simulated:
            value = self.contended(table, *placement_of(made, table))  # a memory limit may have made it another placement
            prediction = prediction.model_copy(update={"simulated_s": value})
        front = front_points(costed.graph if whole is None else whole.graph, beside, made, self.pareto, self.solver, self.time_limit_s)
        update = {"front": front, "notes": _model_first(said, chip), "prediction": prediction, "placements": _offered(made, problem)}
        return made.model_copy(update=update)


def problem_of(
    graph: Graph, table: CostTable, chip: SoC, objective: str, forced: Mapping[str, str] | None, forbidden: Mapping[str, str] | None,
    limits: Limits | None,
) -> Problem:  # fmt: skip
    """The problem of placing a graph under the user's options.

    Raises:
        OptionError: an op that is forced or forbidden somewhere does not exist.
    """
    from hetsched.partition import Problem
    from hetsched.partition.limits import UNLIMITED

    return Problem(
        table=table, objective=objective,  # type: ignore[arg-type]
        processor_limits=address_limits(chip), forced=op_names(graph, forced), forbidden=op_queues(graph, forbidden),
        limits=limits or UNLIMITED, op_types=tuple(op.type for op in graph.ops),
    )  # fmt: skip


def address_limits(chip: SoC) -> dict[str, int]:
    """Processor -> the bytes that it can address, of those that cannot address everything."""
    return {p.name: int(p.address_bytes.value) for p in chip.processors if p.address_bytes is not None}


def _offered(plan: Plan, problem: Problem) -> tuple[Placement, ...]:
    """The placements without alternatives on queues that are closed to every op: off, or forbidden."""
    table = problem.table
    open_to = {table.queues[q].name for q in table.alt_queue[problem.keep].tolist()}
    return tuple(
        p.model_copy(update={"alternatives": tuple(a for a in p.alternatives if a.queue in open_to)})
        if any(a.queue not in open_to for a in p.alternatives)
        else p
        for p in plan.placements
    )


def _model_first(notes: Sequence[str], chip: SoC) -> tuple[str, ...]:
    """The notes with those that every plan for the SoC has last."""
    return tuple(sorted(dict.fromkeys(notes), key=lambda n: n in chip.notes))
