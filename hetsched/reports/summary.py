"""The answer in one line, the tiles below it, and the baselines beside the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetsched.plans import Entry, Plan, Prediction
from hetsched.reports.items import PlanItem, entry_name, model_name, soc_name
from hetsched.reports.palette import queues_of
from hetsched.reports.units import interval, quantity, share

STATUS = {
    "optimal": "proven optimal within the solver's tolerance",
    "feasible": "a solution with a proven bound: the gap says how much better another one could be at most",
    "heuristic": "found by a heuristic; not proven",
    "clock": "found by a search that the clock stopped, so another run may differ",
}
_OBJECTIVE_UNIT = {"latency": "s", "period": "s", "energy": "J", "edp": "J s"}
_NAMES = {"vendor": "vendor default"}


@dataclass(frozen=True)
class Tile:
    """A figure with what it is and where it comes from (``predicted``, ``simulated`` or ``measured``)."""

    name: str
    value: str
    note: str
    origin: str


@dataclass(frozen=True)
class Share:
    """A queue's part of the work."""

    queue: str
    colour: str
    ops: int
    seconds: float
    portion: float


@dataclass(frozen=True)
class Bar:
    """A row of the baseline chart; portions are of the longest bar."""

    name: str
    colour: str
    latency: str
    portion: float
    energy: str
    segments: str
    ratio: str
    reason: str
    low: float | None = None
    high: float | None = None
    ours: bool = False


def short(entry: Entry) -> str:
    """The three figures of a plan, for a list of several."""
    p = entry.plan.prediction
    spread = interval(*p.latency_interval_s, "s")
    return f"{quantity(p.latency_s, 's')} ({spread}), {quantity(p.energy_j, 'J')}, {quantity(p.peak_memory_bytes, 'B')}"


def headline(item: PlanItem, entry: Entry) -> str:
    """One sentence: how fast, with what certainty, how much energy and memory, how good."""
    plan, p = entry.plan, entry.plan.prediction
    unit = {"prefill": "prompt", "decode": "token"}.get(entry.phase, "inference")
    certainty = f"80 % interval {interval(*p.latency_interval_s, 's')}"
    price = f"{quantity(p.energy_j, 'J')}, {quantity(p.peak_memory_bytes, 'B')} of memory"
    parts = [f"{quantity(p.latency_s, 's')} per {unit} predicted ({certainty}), {price}"]
    if plan.status == "optimal" and plan.gap <= 1e-9:
        parts.append("proven optimal for the cost model")
    elif plan.bound_s > 0 and plan.gap < 10:
        parts.append(f"no placement can be more than {'0.1 %' if plan.gap < 1e-3 else share(plan.gap)} better")
    faster = best_other(plan)
    if faster is not None and p.latency_s > 0 and faster[1] / p.latency_s >= 1.005:
        parts.append(f"{faster[1] / p.latency_s:.2f}× as fast as the {readable(faster[0])}")
    return "; ".join(parts) + "."


def best_other(plan: Plan) -> tuple[str, float] | None:
    """The vendor's default if it has a figure, else the fastest single processor."""
    known = {b.solver: b.latency_s for b in plan.baselines if b.latency_s is not None and b.solver != plan.solver}
    if "vendor" in known:
        return "vendor", known["vendor"]
    single = {k: v for k, v in known.items() if k.startswith("single:")}
    return min(single.items(), key=lambda kv: (kv[1], kv[0])) if single else None


def readable(solver: str) -> str:
    """``single:gpu`` -> ``all on gpu``."""
    return f"all on {solver.removeprefix('single:')}" if solver.startswith("single:") else _NAMES.get(solver, solver)


def _arena(p: Prediction) -> str:
    """How near the arena is to the least that its order needs, and what sharing bytes saves; nothing where a plan does not say."""
    if p.arena_bound_bytes <= 0:
        return ""
    least = "the least" if p.arena_bytes <= p.arena_bound_bytes else f"at least {quantity(p.arena_bound_bytes, 'B')}"
    workspace = f", workspace {quantity(p.workspace_bytes, 'B')}" if p.workspace_bytes else ""
    return f" ({least} for its order, {share(p.saved)} saved by sharing){workspace}"


def tiles(item: PlanItem, entry: Entry) -> list[Tile]:
    """The plan's own figures."""
    plan, p = entry.plan, entry.plan.prediction
    out = [
        Tile("Latency", quantity(p.latency_s, "s"), f"80 %: {interval(*p.latency_interval_s, 's')}", "predicted"),
        Tile(
            "Energy",
            quantity(p.energy_j, "J"),
            f"{quantity(p.energy_j / p.latency_s, 'W')} while running" if p.latency_s > 0 else "",
            "predicted",
        ),
        Tile(
            "Memory",
            quantity(p.peak_memory_bytes, "B"),
            f"weights {quantity(p.weight_bytes, 'B')}, arena {quantity(p.arena_bytes, 'B')}{_arena(p)}",
            "predicted",
        ),
        Tile(
            "Segments",
            str(len(plan.segments)),
            f"{len(plan.fences)} fence{'s' if len(plan.fences) != 1 else ''}, {len(plan.placements)} ops",
            "predicted",
        ),
    ]
    unit = _OBJECTIVE_UNIT[plan.objective]
    bound = f"bound {quantity(plan.bound_s, unit)}" if plan.bound_s > 0 else "no bound"
    out.append(Tile("Gap", share(plan.gap) if plan.bound_s > 0 else "unknown", f"{bound}, {plan.status}, {plan.solver}", "proven"))
    if p.simulated_s is not None:
        out.insert(1, Tile("Contended", quantity(p.simulated_s, "s"), "shared bandwidth, one inference", "simulated"))
    return [*out, *_language_tiles(item, entry)]


def _language_tiles(item: PlanItem, entry: Entry) -> list[Tile]:
    """The figures of a prompt and its answer that belong to a phase."""
    asked = item.deployment.language
    if asked is None or asked.prediction is None:
        return []
    p = asked.prediction
    if entry.phase == "prefill":
        spread = f"80 %: {interval(*p.ttft_interval_s, 's')}"
        return [
            Tile("First token", quantity(p.ttft_s, "s"), f"prompt of {asked.prompt} tokens, {spread}", "predicted"),
            Tile("Prefill", quantity(p.prefill_rate, "tok/s"), f"80 %: {interval(*p.prefill_rate_interval, 'tok/s')}", "predicted"),
        ]
    growth = f"{quantity(p.kv_bytes_per_token, 'B')} a token{f', {asked.kv}' if asked.kv else ''}"
    context = f"context of {asked.prompt} to {asked.prompt + asked.generate} tokens"
    return [
        Tile(
            "Decode",
            quantity(p.decode_rate, "tok/s"),
            f"averaged over a {context}, 80 %: {interval(*p.decode_rate_interval, 'tok/s')}",
            "predicted",
        ),
        Tile("Energy per token", quantity(p.energy_per_token_j, "J"), "of the decode steps", "predicted"),
        Tile("KV cache", quantity(p.kv_cache_bytes, "B"), growth, "predicted"),
    ]


def shares(plan: Plan, item: PlanItem, colours: Mapping[str, str]) -> list[Share]:
    """Work by queue, in the queues' own order."""
    total = sum(p.seconds for p in plan.placements) or 1.0
    out = []
    for q in queues_of(plan, item.soc):
        mine = [p.seconds for p in plan.placements if p.queue == q]
        out.append(Share(q, colours[q], len(mine), sum(mine), sum(mine) / total))
    return out


def bars(plan: Plan, colours: Mapping[str, str]) -> list[Bar]:
    """The plan and its baselines, fastest first; those without a figure last."""
    p = plan.prediction
    known = [b.latency_s for b in plan.baselines if b.latency_s is not None]
    longest = max([p.latency_s, *known, min(p.latency_interval_s[1], 1.5 * max([p.latency_s, *known]))]) or 1.0
    rows: list[tuple[float, Bar]] = []
    low, high = p.latency_interval_s
    ours = Bar(
        f"hetsched ({plan.solver})", "c-ours", quantity(p.latency_s, "s"), p.latency_s / longest, quantity(p.energy_j, "J"),
        str(len(plan.segments)), "", "", low / longest, min(1.0, high / longest), True,
    )  # fmt: skip
    rows.append((p.latency_s, ours))
    for b in plan.baselines:
        colour = colours.get(b.solver.removeprefix("single:"), "c-base") if b.solver.startswith("single:") else "c-base"
        if b.latency_s is None:
            rows.append((float("inf"), Bar(readable(b.solver), colour, "–", 0.0, "–", "–", "", b.reason or "no figure")))
            continue
        ratio = f"{b.latency_s / p.latency_s:.2f}×" if p.latency_s > 0 else ""
        segments = str(b.segments) if b.segments is not None else "–"
        rows.append(
            (
                b.latency_s,
                Bar(
                    readable(b.solver),
                    colour,
                    quantity(b.latency_s, "s"),
                    b.latency_s / longest,
                    quantity(b.energy_j, "J"),
                    segments,
                    ratio,
                    b.reason,
                ),
            )
        )
    return [bar for _, bar in sorted(rows, key=lambda r: (r[0], not r[1].ours, r[1].name))]


@dataclass(frozen=True)
class ComparisonRow:
    """One plan in the table of several."""

    model: str
    soc: str
    phase: str
    latency: str
    interval: str
    portion: float
    energy: str
    memory: str
    segments: int
    gap: str
    faster: str
    shares: Sequence[Share]


def comparison(plans: Sequence[tuple[PlanItem, Entry, Mapping[str, str]]]) -> list[ComparisonRow]:
    """Rows in the given order; bars relative to the slowest."""
    slowest = max((e.plan.prediction.latency_s for _, e, _ in plans), default=0.0) or 1.0
    out = []
    for item, entry, colours in plans:
        plan, p = entry.plan, entry.plan.prediction
        other = best_other(plan)
        faster = f"{other[1] / p.latency_s:.2f}× {readable(other[0])}" if other and p.latency_s > 0 else "–"
        out.append(
            ComparisonRow(
                model_name(item), soc_name(item), entry_name(entry, item), quantity(p.latency_s, "s"), interval(*p.latency_interval_s, "s"),
                p.latency_s / slowest, quantity(p.energy_j, "J"), quantity(p.peak_memory_bytes, "B"), len(plan.segments),
                share(plan.gap) if plan.bound_s > 0 else "–", faster, shares(plan, item, colours),
            )
        )  # fmt: skip
    return out
