"""What traces say: inferences, latency over time, time per op, and which plan a trace belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from hetsched.reports.items import PlanItem, model_name
from hetsched.reports.units import duration
from hetsched.trace import Span, Trace

WORK = ("segment", "op", "launch", "transfer")


@dataclass(frozen=True)
class Iteration:
    """One inference of a trace."""

    number: int
    start_s: float
    end_s: float
    spans: tuple[Span, ...]

    @property
    def seconds(self) -> float:
        """From the first start to the last end of its work."""
        return self.end_s - self.start_s


def iterations(trace: Trace) -> list[Iteration]:
    """Inferences in order of number; spans that only wait or idle do not stretch them. None of several models, which number them alike."""
    if len(models_of(trace)) > 1:
        return []
    groups: dict[int, list[Span]] = {}
    for s in trace.spans:
        groups.setdefault(s.iteration, []).append(s)
    out = []
    for number in sorted(groups):
        work = [s for s in groups[number] if s.kind in WORK]
        if work:
            out.append(Iteration(number, min(s.start_s for s in work), max(s.end_s for s in work), tuple(groups[number])))
    return out


def models_of(trace: Trace) -> list[str]:
    """Names of the models that ran: several where they shared the SoC."""
    return trace.model.split(" + ")


def chosen(trace: Trace) -> list[tuple[str, Iteration]]:
    """The inferences worth drawing: the median one of a measurement; the first and the slowest of a simulation."""
    runs = iterations(trace)
    if not runs:
        return []
    if len(runs) == 1:
        return [("", runs[0])]
    if trace.origin != "simulated":
        middle = sorted(runs, key=lambda r: (r.seconds, r.number))[(len(runs) - 1) // 2]
        return [(f"inference {middle.number + 1} of {len(runs)}, the median", middle)]
    slowest = max(runs, key=lambda r: (r.seconds, -r.number))
    first = [("first inference", runs[0])]
    return first if slowest.seconds <= 1.02 * runs[0].seconds else [*first, (f"slowest inference, at {duration(slowest.start_s)}", slowest)]


def op_seconds(trace: Trace) -> dict[str, float]:
    """Seconds of each op: the median over the inferences of a measurement, the first (cool) inference of a simulation.

    Parts of an op within one inference add up.
    """
    first = min((s.iteration for s in trace.spans if s.kind == "op"), default=0)
    per_op: dict[str, dict[int, float]] = {}
    for s in trace.spans:
        if s.kind == "op" and (trace.origin != "simulated" or s.iteration == first):
            runs = per_op.setdefault(s.name, {})
            runs[s.iteration] = runs.get(s.iteration, 0.0) + s.end_s - s.start_s
    return {name: median(runs.values()) for name, runs in per_op.items()}


def belongs(trace: Trace, item: PlanItem) -> bool:
    """Whether a trace is of this deployment: same SoC and model, where the trace names them."""
    same_soc = not trace.soc or trace.soc == item.deployment.soc.id or (item.soc is not None and trace.soc == item.soc.name)
    wanted = model_name(item)
    names = (wanted, item.deployment.model.path, item.graph.name if item.graph else wanted)
    return same_soc and (not trace.model or trace.model in names or model_stem(trace.model) == wanted)


def stray(trace: Trace, items: Sequence[PlanItem]) -> str:
    """Why a run is of none of the plans that are shown beside it; empty: it is of one, or there are none."""
    if not items:
        return ""
    parts = models_of(trace)
    mine = [i for i in items if any(belongs(replace(trace, model=m), i) for m in parts)]
    if not mine:
        there = " and ".join(dict.fromkeys(f"{model_name(i)} on {i.deployment.soc.id}" for i in items))
        what = " on ".join(x for x in (trace.model, trace.soc) if x) or "something unnamed"
        return f"a run of {what}, of which there is no plan here ({there}): nothing is compared with it"
    first = min((s.iteration for s in trace.spans if s.kind == "op"), default=0)
    ran = {(s.name, s.queue) for s in trace.spans if s.kind == "op" and s.iteration == first}
    if trace.origin == "imported" or len(parts) > 1 or any(i.kind == "fallback" for i in trace.instants):
        return ""
    placed = [{(p.op, p.queue) for p in e.plan.placements} for i in mine for e in i.deployment.entries]
    elsewhere = min(len(ran - known) for known in placed)
    if not elsewhere:
        return ""
    what = f"{model_name(mine[0])} on {mine[0].deployment.soc.id}"
    return f"a run of another plan of {what} ({elsewhere} of {len(ran)} operators were elsewhere): nothing is compared with it"


def model_stem(model: str) -> str:
    """A model's name without folder and ending."""
    name = model.replace("\\", "/").rsplit("/", 1)[-1]
    return name.rsplit(".", 1)[0] or name


def sustained(values: Sequence[float]) -> float:
    """What a series settles at: the median of its last tenth."""
    tail = values[-max(1, len(values) // 10) :]
    return float(median(tail))
