"""Assembles the page: one HTML file with its style, its script and nothing to fetch."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from hetsched.passes import PassReport
from hetsched.plans import Entry, Plan
from hetsched.reports import graph_view, losses, memory, provenance, summary, timeline, why
from hetsched.reports.checks import check_view
from hetsched.reports.front import FrontView, front_view
from hetsched.reports.items import CheckItem, ComparisonItem, PlanItem, ReportItem, TraceItem, entry_name, model_name, soc_name
from hetsched.reports.lifetimes import lifetimes
from hetsched.reports.palette import colours, lanes_of
from hetsched.reports.runs import belongs, chosen, op_seconds, stray
from hetsched.reports.traces import measured_views, memory_chart, plan_of, side_by_side, trace_views
from hetsched.reports.units import capitalized, digits, quantity


def html(items: Sequence[ReportItem]) -> str:
    """The page as text."""
    return rendered("report.html.jinja", page(items))


def rendered(template: str, context: Mapping[str, Any]) -> str:
    """A template of this package with the style, the script and its hash filled in."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"seconds": lambda v: quantity(v, "s"), "digits": digits}
    script, style = _asset("report.js"), _asset("report.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assets = {"script": Markup(script), "style": Markup(style), "script_hash": digest}  # noqa: S704 - package files
    return environment.get_template(template).render(**assets, **context)


@cache
def _asset(name: str) -> str:
    return (files("hetsched.reports") / "templates" / name).read_text("utf-8")


@dataclass(frozen=True)
class PlanView:
    """What the template shows of one plan."""

    id: str
    title: str
    name: str
    headline: str
    short: str
    solver_note: str
    tiles: Sequence[summary.Tile]
    shares: Sequence[summary.Share]
    bars: Sequence[summary.Bar]
    losses: losses.LossView | None
    front: FrontView | None
    operators: Markup | None
    operators_why_not: str
    segments: Markup
    queues: Sequence[tuple[str, str]]
    timelines: Sequence[tuple[str, str, Sequence[tuple[str, str]], Markup]]
    arena: Markup | None
    arena_note: str
    live: Any
    columns: Sequence[str]
    rows: Sequence[why.Row]
    facts: Sequence[tuple[str, str]]
    estimates: Sequence[provenance.Estimate]
    passes: Sequence[PassReport]
    notes: Sequence[str]
    measured: Sequence[Any]
    agreed: Sequence[str]


def page(items: Sequence[ReportItem]) -> dict[str, Any]:
    """The template's context."""
    plans = [i for i in items if isinstance(i, PlanItem)]
    traces = [i for i in items if isinstance(i, TraceItem)]
    mine = [t for t in traces if not stray(t.trace, plans)]
    compared = [i for i in items if isinstance(i, ComparisonItem)]
    entries = [(i, e) for i in plans for e in i.deployment.entries]
    if not compared and len(entries) > 1:
        compared = [ComparisonItem(plans)]
    views = [
        _plan_view(f"p{k}", name, item, entry, mine) for k, (name, (item, entry)) in enumerate(zip(_names(entries), entries, strict=True))
    ]
    tables = [(c.title, summary.comparison([(i, e, palette_of(i)) for i in c.plans for e in i.deployment.entries])) for c in compared]
    return {
        "title": _title(plans, traces, compared),
        "plans": views,
        "comparisons": tables,
        "traces": trace_views(traces, plans),
        "side_by_side": side_by_side(traces),
        "checks": [check_view(c) for c in items if isinstance(c, CheckItem)],
    }


def _title(plans: Sequence[PlanItem], traces: Sequence[TraceItem], compared: Sequence[ComparisonItem]) -> str:
    known = [*plans, *(p for c in compared for p in c.plans)]
    if known:
        models = list(dict.fromkeys(model_name(p) for p in known))
        socs = list(dict.fromkeys(soc_name(p) for p in known))
        return f"{_list(models, 'models')} on {_list(socs, 'SoCs')}"
    models = list(dict.fromkeys(t.trace.model for t in traces if t.trace.model))
    socs = list(dict.fromkeys(t.soc or t.trace.soc for t in traces if t.trace.soc))
    return " on ".join(_list(names, what) for names, what in ((models, "models"), (socs, "SoCs")) if names) or "Report"


def _names(entries: Sequence[tuple[PlanItem, Entry]]) -> list[str]:
    """A short name for each plan of a page: what tells it from the others, numbered where nothing does."""
    models, socs = ({name(i) for i, _ in entries} for name in (model_name, soc_name))
    out: list[str] = []
    for item, entry in entries:
        model = model_name(item) if len(models) > 1 else ""
        which = entry_name(entry, item)
        soc = soc_name(item) if len(socs) > 1 or not (model or which) else ""
        name = " · ".join(x for x in (model, soc, which) if x)
        twins = sum(1 for other in out if other.rpartition(" (")[0] == name or other == name)
        out.append(f"{name} ({twins + 1})" if twins else name)
    return out


def _list(names: Sequence[str], what: str) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if 1 < len(names) <= 3 else names[0] if len(names) == 1 else f"{len(names)} {what}"


def palette_of(item: PlanItem) -> dict[str, str]:
    """Colour class of every queue of a deployment, the SoC's unused ones included."""
    used = [q for e in item.deployment.entries for q in lanes_of(e.plan, item.soc)]
    every = list(item.soc.queues) if item.soc else []
    return colours([*sorted(set(used) & set(every), key=every.index), *used, *every], item.soc)


def _plan_view(id_: str, name: str, item: PlanItem, entry: Entry, traces: Sequence[TraceItem]) -> PlanView:
    plan, palette = entry.plan, palette_of(item)
    mine = [t for t in traces if belongs(t.trace, item) and plan_of(t.trace, [item]) is plan]
    names = [t.title or t.trace.origin for t in mine]
    timings = [(n, t, op_seconds(t.trace)) for n, t in zip(names, mine, strict=True)]
    seen = [s for _, _, s in timings]
    timed = [x for k, x in enumerate(timings) if x[2] not in seen[:k] and any(p.op in x[2] for p in plan.placements)]
    agreed = [x for x in timed if x[1].trace.origin == "simulated" and _as_predicted(plan, x[2])]
    timed = [x for x in timed if x not in agreed]
    operators, segments = graph_view.both(plan, item.graph, palette)
    queues = lanes_of(plan, item.soc)
    phase = entry_name(entry, item)
    held = lifetimes(plan, item.graph)
    arena = memory.arena_map(plan, item.graph, held, palette)
    return PlanView(
        id=id_,
        title=item.title or f"{model_name(item)} on {soc_name(item)}" + (f" ({phase})" if phase else ""),
        name=name,
        headline=summary.headline(item, entry),
        short=summary.short(entry),
        solver_note=summary.STATUS[plan.status],
        tiles=[*summary.tiles(item, entry)],
        shares=summary.shares(plan, item, palette),
        bars=summary.bars(plan, palette),
        losses=losses.loss_view(plan),
        front=front_view(plan),
        operators=operators,
        operators_why_not=_why_not(item, operators),
        segments=segments,
        queues=[(q, palette[q]) for q in queues],
        timelines=_timelines(item, entry, mine, names, palette, queues),
        arena=arena,
        arena_note=_arena_note(item, arena),
        live=memory_chart(plan, held) if item.graph is not None else None,
        columns=[n for n, _, _ in timed],
        rows=why.rows(plan, palette, [s for _, _, s in timed], item.changes.get((entry.phase, entry.level), why.NOTHING)),
        facts=provenance.facts(item),
        estimates=provenance.estimates(item.soc),
        passes=[p for p in item.passes if p.changed],
        notes=[capitalized(n) for n in plan.notes],
        agreed=[n for n, _, _ in agreed],
        measured=measured_views(plan, timed, palette),
    )


def _as_predicted(plan: Plan, seconds: Mapping[str, float]) -> bool:
    """Whether every op took what the plan predicts, within 0.1 % and the whole nanoseconds that traces have."""
    return all(abs(seconds[p.op] - p.seconds) <= 1e-3 * p.seconds + 1e-9 for p in plan.placements if p.op in seconds)


def _arena_note(item: PlanItem, arena: Markup | None) -> str:
    if arena is None:
        return "This plan names no buffers."
    if item.graph is not None:
        return ""
    return "Buffers are drawn for whole segments; within one, they take turns. With the model file they are drawn op by op."


def _why_not(item: PlanItem, operators: Markup | None) -> str:
    if operators is not None:
        return ""
    if item.graph is None:
        return "The operator graph is drawn when the model file is at hand; here are the segments."
    if len(item.graph.ops) > graph_view.MAX_OPS:
        return f"The graph has {len(item.graph.ops)} operators, too many to draw one by one; here are the segments."
    return "The model at hand has operators that this plan does not name; here are the segments."


def _visible(lanes: timeline.Lanes) -> list[str]:
    """Queues that work for at least a five-hundredth of the time."""
    busy: dict[str, float] = {}
    for b in lanes.bars:
        busy[b.queue] = busy.get(b.queue, 0.0) + b.end_s - b.start_s
    return [q for q, seconds in busy.items() if seconds >= lanes.end_s / 500]


def _timelines(
    item: PlanItem, entry: Entry, traces: Sequence[TraceItem], names: Sequence[str], palette: Mapping[str, str], queues: Sequence[str]
) -> list[tuple[str, str, list[tuple[str, str]], Markup]]:
    lanes = [timeline.predicted(entry.plan)]
    cool: set[str] = set()
    for name, t in zip(names, traces, strict=True):
        runs = chosen(t.trace)
        if t.trace.origin in cool and len(runs) > 1:
            runs = runs[1:]  # the first, cool inference of another simulation says nothing new
        cool |= {t.trace.origin} & {"simulated"}
        for which, run in runs:
            lanes.append(timeline.recorded(run, f"{name}: {which}" if which else name, t.trace.origin, entry.plan))
    span = max((x.end_s for x in lanes), default=0.0) or 1.0
    out = []
    for x in lanes:
        more = sorted(set(_visible(x)) - set(queues))
        rows = [*queues, *more]
        shades = dict.fromkeys(more, "c-other1") | dict(palette)
        out.append((x.title, x.origin, [(q, shades[q]) for q in rows], timeline.draw(x, rows, shades, span)))
    return out
