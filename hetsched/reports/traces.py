"""Traces for the page: curves over time, and times per op beside the prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from markupsafe import Markup

from hetsched.plans import Plan
from hetsched.reports.curves import Chart, Mark, Series, by_prefix, chart_parts, span_of
from hetsched.reports.items import PlanItem, TraceItem
from hetsched.reports.lifetimes import Interval, live_bytes
from hetsched.reports.palette import colours
from hetsched.reports.runs import belongs, iterations, sustained
from hetsched.reports.scatter import Pair, Total, furthest, scatter, totals
from hetsched.reports.summary import Tile
from hetsched.reports.units import duration, interval, quantity
from hetsched.trace import Trace

TITLES = {
    "latency": "Latency per inference", "level": "Throttle level of the plan", "temperature": "Temperature", "frequency": "Frequency",
    "power": "Power", "bandwidth": "Bandwidth",
    "memory": "Memory", "utilisation": "Utilisation", "macs": "Multiply-accumulates, of the peak", "throughput": "Throughput",
    "battery": "Battery", "energy": "Energy",
    "status": "Thermal status", "headroom": "Thermal headroom", "rate": "Tokens a second",
}  # fmt: skip
EVENTS = {
    "throttle": "throttle steps", "trip": "trips", "switch": "plan switches", "fallback": "fallbacks", "status": "thermal status changes",
    "turn": "turns", "deadline": "missed deadlines",
}  # fmt: skip


@dataclass(frozen=True)
class ChartView:
    """A chart for the template: title, drawing, legend of (name, colour, last value)."""

    title: str
    svg: Markup
    legend: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class TraceView:
    """What happened in one trace."""

    id: str
    title: str
    origin: str
    lead: str
    tiles: Sequence[Tile]
    charts: Sequence[ChartView]
    notes: Sequence[str]


@dataclass(frozen=True)
class MeasuredView:
    """One trace's ops beside the prediction."""

    title: str
    origin: str
    verb: str
    svg: Markup | None
    totals: Sequence[Total]
    furthest: Sequence[Pair]


def plan_of(trace: Trace, items: Sequence[PlanItem]) -> Plan | None:
    """The plan that a trace is of: of the deployments it belongs to, the plan with most of its ops (the first of equals)."""
    names = {s.name for s in trace.spans if s.kind == "op"}
    best: tuple[int, Plan] | None = None
    for item in items:
        if belongs(trace, item):
            for entry in item.deployment.entries:
                hits = sum(p.op in names for p in entry.plan.placements)
                if best is None or hits > best[0]:
                    best = (hits, entry.plan)
    return best[1] if best else None


def trace_views(traces: Sequence[TraceItem], plans: Sequence[PlanItem]) -> list[TraceView]:
    """Views with one common value range per quantity and origin, so that two simulations can be compared by eye."""
    grouped = [_series(t, plans) for t in traces]
    ranges: dict[tuple[str, str], tuple[float, float]] = {}
    for t, groups in zip(traces, grouped, strict=True):
        for name, (unit, series) in groups.items():
            low, high = span_of(series, zero=unit != "degC")
            old = ranges.get((t.trace.origin, name))
            ranges[t.trace.origin, name] = (min(low, old[0]), max(high, old[1])) if old else (low, high)
    return [_view(f"t{k}", t, groups, ranges) for k, (t, groups) in enumerate(zip(traces, grouped, strict=True))]


def _series(item: TraceItem, plans: Sequence[PlanItem]) -> dict[str, tuple[str, list[Series]]]:
    """Curves by quantity: ``(unit, series)``; latency first."""
    trace = item.trace
    soc = next((p.soc for p in plans if belongs(trace, p)), None)
    palette = colours([*(soc.queues if soc else ()), *trace.queues], soc)
    runs = iterations(trace)
    out: dict[str, tuple[str, list[Series]]] = {}
    if len(runs) > 2 and "latency" not in by_prefix(trace.counters):
        times = [r.start_s for r in runs]
        out["latency"] = ("s", [Series("latency", "c-ours", times, [r.seconds for r in runs])])
    groups = by_prefix(trace.counters)
    for group in sorted(groups, key=lambda g: (list(TITLES).index(g) if g in TITLES else len(TITLES), g)):
        extra = 0
        for name in groups[group]:
            counter = trace.counters[name]
            if len(counter.times_s) < 2:
                continue
            label = name.split("/", 1)[-1]
            colour = "c-ours" if group == "latency" else palette.get(label)
            if colour is None:
                colour, extra = f"c-other{extra % 4}", extra + 1
            key = group if counter.unit == out.get(group, (counter.unit,))[0] else f"{group} ({counter.unit})"
            steps = group not in ("temperature", "battery", "headroom")
            out.setdefault(key, (counter.unit, []))[1].append(Series(label, colour, counter.times_s, counter.values, steps))
    return out


def _view(
    id_: str, item: TraceItem, groups: Mapping[str, tuple[str, list[Series]]], ranges: Mapping[tuple[str, str], tuple[float, float]]
) -> TraceView:
    trace = item.trace
    end = trace.end_s or 1.0
    marks = _marks(trace, end)
    charts = []
    for name, (unit, series) in groups.items():
        chart = Chart(TITLES.get(name, name.capitalize()), unit, tuple(series), end, ranges[trace.origin, name], marks)
        title, svg, legend = chart_parts(chart)
        charts.append(ChartView(title, svg, legend))
    title = item.title or f"{trace.origin.capitalize()}" + (f" on {trace.soc}" if trace.soc else "")
    return TraceView(id_, title, trace.origin, _lead(trace), _tiles(trace), charts, trace.notes)


def _lead(trace: Trace) -> str:
    counts = {k: sum(i.kind == k for i in trace.instants) for k in EVENTS}
    seen = [
        f"{n} {EVENTS[k] if n != 1 else EVENTS[k].removesuffix('s').removesuffix('e') if k == 'switch' else EVENTS[k].removesuffix('s')}"
        for k, n in counts.items()
        if n
    ]
    runs = len({s.iteration for s in trace.spans})
    what = [f"{duration(trace.end_s)} recorded", *([f"{runs} inferences in detail"] if runs > 1 else []), *seen]
    return ", ".join(what) + "."


def _tiles(trace: Trace) -> list[Tile]:
    out = []
    values = latencies(trace)[1]
    if trace.origin != "simulated" and values:
        spread = f"{interval(min(values), max(values), 's')} in {len(values)} inferences" if len(values) > 1 else "one inference"
        out.append(Tile("Median", quantity(float(median(values)), "s"), spread, trace.origin))
    elif len(values) > 2:
        settled = sustained(values)
        ratio = f"{settled / values[0]:.2f}× the first" if values[0] > 0 else ""
        out += [Tile("First inference", quantity(values[0], "s"), "cool", trace.origin)]
        out += [Tile("Sustained", quantity(settled, "s"), f"{ratio}, median of the last tenth", trace.origin)]
    heat = {n.split("/", 1)[-1]: max(c.values) for n, c in trace.counters.items() if n.startswith("temperature/") and c.values}
    if heat:
        hottest = max(sorted(heat), key=lambda n: heat[n])
        out.append(Tile("Hottest", quantity(heat[hottest], "degC"), hottest, trace.origin))
    steps = sum(i.kind == "throttle" for i in trace.instants)
    if steps:
        first = min(i.time_s for i in trace.instants if i.kind == "throttle")
        out.append(Tile("Throttle steps", str(steps), f"the first after {duration(first)}", trace.origin))
    return out


def latencies(trace: Trace) -> tuple[list[float], list[float]]:
    """``(times_s, seconds)`` of inferences: the latency counter where there is one, else from the spans."""
    counter = next((c for n, c in trace.counters.items() if n.split("/")[0] == "latency" and len(c.values) > 2), None)
    if counter is not None:
        return counter.times_s, counter.values
    runs = iterations(trace)
    return [r.start_s for r in runs], [r.seconds for r in runs]


def side_by_side(traces: Sequence[TraceItem]) -> list[ChartView]:
    """Latency and the hottest temperature of all simulated runs in one chart each; empty for fewer than two runs."""
    runs = [t for t in traces if t.trace.origin == "simulated" and len(latencies(t.trace)[0]) > 2]
    if len(runs) < 2:
        return []
    end = max(t.trace.end_s for t in runs)
    names = [t.title or f"run {k + 1}" for k, t in enumerate(runs)]
    colour = [f"c-run{k % 6}" for k in range(len(runs))]
    fast = tuple(Series(n, c, *latencies(t.trace)) for n, c, t in zip(names, colour, runs, strict=True))
    out = [Chart("Latency per inference", "s", fast, end, span_of(fast, zero=True))]
    hot = []
    for n, c, t in zip(names, colour, runs, strict=True):
        heat = [x for k, x in t.trace.counters.items() if k.startswith("temperature/") and len(x.values) > 1]
        if heat:
            hottest = max(heat, key=lambda x: (max(x.values), x.name))
            hot.append(Series(f"{n}: {hottest.name.split('/', 1)[-1]}", c, hottest.times_s, hottest.values, steps=False))
    if hot:
        out.append(Chart("Hottest part", "degC", tuple(hot), end, span_of(hot, zero=False)))
    return [ChartView(*chart_parts(c)) for c in out]


def _marks(trace: Trace, end_s: float, slots: int = 300) -> tuple[Mark, ...]:
    """Throttle steps, trips, switches and fallbacks; those that would be drawn on each other share a line."""
    found: dict[int, list[str]] = {}
    first: dict[int, float] = {}
    for i in trace.instants:
        if i.kind in EVENTS:
            slot = int(i.time_s / end_s * slots)
            found.setdefault(slot, []).append(f"{i.kind}: {i.name}" + (f" ({i.detail})" if i.detail else ""))
            first.setdefault(slot, i.time_s)
    out = []
    for slot, texts in found.items():
        more = f"\nand {len(texts) - 5} more" if len(texts) > 5 else ""
        out.append(Mark(first[slot], f"at {duration(first[slot])}\n" + "\n".join(texts[:5]) + more))
    return tuple(out)


def memory_chart(plan: Plan, held: Sequence[Interval]) -> ChartView | None:
    """Bytes of the arena in use over the predicted inference; ``held`` are the lifetimes of its buffers."""
    times, values = live_bytes(plan, held)
    end = max([plan.prediction.latency_s, *(s.end_s for s in plan.segments)])
    if len(times) < 2 or end <= 0:
        return None
    series = (Series("in use", "c-ours", times, values, summary=f"at most {quantity(max(values), 'B')}"),)
    chart = Chart(
        "Arena bytes in use", "B", series, end, (0.0, 1.15 * max(plan.arena_bytes, *values)), limit=("arena", float(plan.arena_bytes))
    )
    title, svg, legend = chart_parts(chart)
    return ChartView(title, svg, legend)


def measured_views(
    plan: Plan, timed: Sequence[tuple[str, TraceItem, Mapping[str, float]]], palette: Mapping[str, str]
) -> list[MeasuredView]:
    """One view per trace that timed ops of this plan."""
    out = []
    for name, item, seconds in timed:
        pairs = [Pair(p.op, p.type, p.queue, p.seconds, seconds[p.op]) for p in plan.placements if p.op in seconds]
        verb: Any = "simulated" if item.trace.origin == "simulated" else "measured"
        out.append(MeasuredView(name, item.trace.origin, verb, scatter(pairs, palette, verb), totals(pairs), furthest(pairs)))
    return out
