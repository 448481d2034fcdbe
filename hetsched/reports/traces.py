"""Traces for the page: curves over time, and times per op beside the prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from markupsafe import Markup

from hetsched.plans import Plan
from hetsched.reports.curves import Chart, Mark, Series, by_prefix, chart_parts, span_of
from hetsched.reports.items import PlanItem, TraceItem, soc_name
from hetsched.reports.legends import integral, legend_of, worst_status
from hetsched.reports.lifetimes import Interval, live_bytes
from hetsched.reports.palette import colours
from hetsched.reports.runs import belongs, iterations, stray, sustained
from hetsched.reports.scatter import Pair, Total, furthest, scatter, totals
from hetsched.reports.summary import Tile
from hetsched.reports.turns import TurnsView, first_tokens, turn_tiles, turns_of, turns_view
from hetsched.reports.units import capitalized, duration, interval, quantity
from hetsched.trace import Trace
from hetsched.trace.turns import KIND as TURN

TITLES = {
    "latency": "Latency per inference", "first": "Wait for the first token, by turn",
    "level": "Throttle level of the plan", "temperature": "Temperature", "frequency": "Frequency",
    "power": "Power", "bandwidth": "Bandwidth",
    "memory": "Memory", "utilisation": "Utilisation", "macs": "Multiply-accumulates, of the peak", "throughput": "Throughput",
    "battery": "Battery", "energy": "Energy",
    "status": "Thermal status", "headroom": "Thermal headroom", "rate": "Answers",
}  # fmt: skip
#: Of a chat an inference is a step: the prefill of a prompt, or a token.
OF_CHATS = {"latency": "Time of a token"}
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
    turns: TurnsView | None
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
    """The plan that a trace is of: of the deployments it belongs to, the one with most of its ops where they ran (the first of equals)."""
    ran = {(s.name, s.queue) for s in trace.spans if s.kind == "op"}
    names = {name for name, _ in ran}
    best: tuple[tuple[int, int], Plan] | None = None
    for item in items:
        if belongs(trace, item):
            for entry in item.deployment.entries:
                there = entry.plan.placements
                hits = sum((p.op, p.queue) in ran for p in there), sum(p.op in names for p in there)
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
    return [_view(f"t{k}", t, plans, groups, ranges) for k, (t, groups) in enumerate(zip(traces, grouped, strict=True))]


def _series(item: TraceItem, plans: Sequence[PlanItem]) -> dict[str, tuple[str, list[Series]]]:
    """Curves by quantity: ``(unit, series)``; latency first."""
    trace = item.trace
    soc = next((p.soc for p in plans if belongs(trace, p)), None)
    palette = colours([*(soc.queues if soc else ()), *trace.queues], soc)
    runs, chat = iterations(trace), turns_of(trace)
    out: dict[str, tuple[str, list[Series]]] = {}
    if len(chat) > 1:
        out["first"] = ("s", [first_tokens(chat)])
    elif len(runs) > 2 and "latency" not in by_prefix(trace.counters):
        times = [r.start_s for r in runs]
        out["latency"] = ("s", [Series("latency", "c-ours", times, [r.seconds for r in runs])])
    groups = by_prefix(trace.counters)
    for group in sorted(groups, key=lambda g: (list(TITLES).index(g) if g in TITLES else len(TITLES), g)):
        extra = 0
        for name in groups[group]:
            counter = trace.counters[name]
            if len(counter.times_s) < 2:
                continue
            label = "token" if chat and group == "latency" else name.split("/", 1)[-1]
            colour = "c-ours" if group == "latency" else palette.get(label)
            if colour is None:
                colour, extra = f"c-other{extra % 4}", extra + 1
            key = group if group == "rate" or counter.unit == out.get(group, (counter.unit,))[0] else f"{group} ({counter.unit})"
            steps = group not in ("temperature", "battery", "headroom")
            unit = "tok/s" if group == "rate" else counter.unit
            series = Series(label, colour, counter.times_s, counter.values, steps, legend_of(trace, group, counter, unit))
            out.setdefault(key, (unit, []))[1].append(series)
    return out


def _view(
    id_: str, item: TraceItem, plans: Sequence[PlanItem], groups: Mapping[str, tuple[str, list[Series]]],
    ranges: Mapping[tuple[str, str], tuple[float, float]],
) -> TraceView:  # fmt: skip
    trace, why = item.trace, stray(item.trace, plans)
    end = trace.end_s or 1.0
    marks = _marks(trace, end)
    charts, found = [], turns_of(trace)
    titles = TITLES | (OF_CHATS if found else {})
    for name, (unit, series) in groups.items():
        if name == "status" and len({v for s in series for v in s.values}) < 2:
            continue  # it never changed, and nothing is to be seen
        chart = Chart(titles.get(name, name.capitalize()), unit, tuple(series), end, ranges[trace.origin, name], marks)
        title, svg, legend = chart_parts(chart)
        charts.append(ChartView(title, svg, legend))
    title = item.title or f"{trace.origin.capitalize()}" + (f" on {trace.soc}" if trace.soc else "")
    notes = [capitalized(n) for n in (*trace.notes, *([why] if why else []))]
    return TraceView(id_, title, trace.origin, _lead(item, plans), _tiles(trace), charts, turns_view(found), notes)


def _lead(item: TraceItem, plans: Sequence[PlanItem]) -> str:
    trace = item.trace
    soc = item.soc or next((soc_name(p) for p in plans if belongs(trace, p)), trace.soc)
    counts = {k: sum(i.kind == k for i in trace.instants) for k in EVENTS}
    seen = [
        f"{n} {EVENTS[k] if n != 1 else EVENTS[k].removesuffix('s').removesuffix('e') if k == 'switch' else EVENTS[k].removesuffix('s')}"
        for k, n in counts.items()
        if n
    ]
    runs = len(iterations(trace))
    parts = "steps" if turns_of(trace) else "inferences"
    what = [f"{duration(trace.end_s)} recorded", *([f"{runs} {parts} in detail"] if runs > 1 else []), *seen]
    subject = " on ".join(x for x in (trace.model, soc) if x)
    return (f"{subject}: " if subject else "") + ", ".join(what) + "."


def _tiles(trace: Trace) -> list[Tile]:
    chat = turns_of(trace)
    out = turn_tiles(chat, trace.origin) if chat else []
    values = [] if chat else latencies(trace)[1]
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
    power = trace.counters.get("power/total")
    if power is not None and len(power.times_s) > 1 and trace.origin == "simulated":
        joules = integral(power)
        out.append(Tile("Energy", quantity(joules, "J"), f"{quantity(joules / trace.end_s, 'W')} on average, whole phone", trace.origin))
    status, first_s = worst_status(trace)
    if status:
        out.append(Tile("Thermal status", status, f"at worst, from {duration(first_s)} on", trace.origin))
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
    title = OF_CHATS["latency"] if all(turns_of(t.trace) for t in runs) else TITLES["latency"]
    out = [Chart(title, "s", fast, end, span_of(fast, zero=True))]
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
    """Throttle steps, trips, switches, fallbacks, status and what was late; those that would be drawn on each other share a line."""
    found: dict[int, list[str]] = {}
    first: dict[int, float] = {}
    for i in trace.instants:
        if i.kind in EVENTS and i.kind != TURN:  # a chat's turns are in its curves already
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
