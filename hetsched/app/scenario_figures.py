"""The figures and curves of a simulated scenario: the columns of a study's table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.app.chatting import SimulatedChat
from hetsched.app.language_simulating import SimulatedLanguage
from hetsched.app.pace import work_times
from hetsched.app.sharing import SimulatedTogether
from hetsched.app.simulating import Simulated
from hetsched.costs import FloatArray
from hetsched.scenarios import Curve, Findings, Scalar
from hetsched.socs import SoC
from hetsched.trace import Counter

if TYPE_CHECKING:
    from hetsched_simulations import Simulation

MINUTE_S = 60.0
#: Samples of a curve that is kept.
SAMPLES = 120
#: Digits that curves keep: far more than can be drawn.
DIGITS = 6
#: Counters that are kept as curves -> their names in a trace.
KEPT = {"power": "power/total", "level": "level/plan", "battery": "battery/charge"}


def findings(run: Simulated | SimulatedLanguage | SimulatedChat, period_s: float | None, curves: bool) -> Findings:
    """What a study keeps of a run.

    Args:
        run: of :func:`hetsched.simulate`.
        period_s: distance of arrivals, if there is one.
        curves: keep curves over time.
    """
    if isinstance(run, SimulatedLanguage):
        return Findings(_of_answer(run.summary()))
    summary = run.summary()
    pace = _chat_pace(run.outcome, summary) if isinstance(run, SimulatedChat) else _pace(run, summary, period_s)
    figures = {**pace.figures(run.outcome.duration_s), **_of_phone(run.outcome, run.planned.soc, summary)}
    return Findings(figures, _curves(run.outcome, run.planned.soc, pace) if curves else {})


def findings_together(run: SimulatedTogether, curves: bool) -> Findings:
    """The same of plans that ran at once. Rates are those of the chat, if there was one; ``MODEL.p99_ms`` and such are of one model."""
    summary, outcome, soc = run.summary(), run.outcome.device, run.planned[0].soc
    streams, chats = ([m for m in summary["models"] if (m["rate"] is None) is talks] for talks in (False, True))
    pace = _chat_pace(outcome, chats[0]) if chats and outcome.jobs is not None and outcome.jobs.pieces else None
    figures: dict[str, Scalar] = {} if pace is None else pace.figures(outcome.duration_s)
    if streams:
        arrived = {k: sum(m[k] for m in streams) for k in ("arrived", "dropped", "late", "done")}
        lost = (arrived["dropped"] + arrived["late"]) / max(arrived["arrived"], 1)
        figures |= {"inferences": arrived["done"], "dropped": arrived["dropped"], "late": arrived["late"], "missed": lost}
    for m in streams:
        figures |= {f"{m['model']}.{k}": v for k, v in _latencies(m["latency_ms"] or {}).items()} | {f"{m['model']}.missed": m["missed"]}
    figures |= _of_phone(outcome, soc, summary)
    return Findings(figures, _curves(outcome, soc, pace) if curves else {})


def _of_answer(s: Mapping[str, Any]) -> dict[str, Scalar]:
    """One prompt and its answer."""
    return {
        "tokens": s["generate"], "rate": s["decode_tok_s"], "ttft_ms": s["ttft_ms"], "prefill_tok_s": s["prefill_tok_s"],
        "energy_j": sum(s["energy_j"].values()), "energy_per_token_j": s["energy_per_token_j"],
    }  # fmt: skip


class Pace:
    """Work done over time: ``done`` of it by each of ``times_s``, in ``busy_s`` of the time; all ascending, linear in between."""

    def __init__(self, times_s: FloatArray, done: FloatArray, busy_s: FloatArray, counts: Mapping[str, Scalar]) -> None:
        self.times_s, self.done, self.busy_s, self.counts = times_s, done, busy_s, counts

    def rate(self, edges: FloatArray) -> FloatArray:
        """Work a second of the time that was spent on it, between edges [n + 1]; where there was none, as before."""
        work, spent = (np.diff(np.interp(edges, self.times_s, v)) for v in (self.done, self.busy_s))
        known = spent > 1e-12
        last = np.maximum.accumulate(np.where(known, np.arange(len(work)), 0))
        return np.asarray(np.where(known[last], work[last] / np.where(known, spent, 1.0)[last], 0.0))

    def figures(self, end_s: float) -> dict[str, Scalar]:
        """How much, how fast, and how fast in the first and the last minute."""
        spans = ((0.0, end_s), (0.0, min(MINUTE_S, end_s)), (max(0.0, end_s - MINUTE_S), end_s))
        mean, first, last = (float(self.rate(np.array(span))[0]) for span in spans)
        rates = {"rate": mean, "rate_first_minute": first, "rate_last_minute": last, "held": last / first if first else None}
        return {**self.counts, **rates}


def _pace(run: Simulated, s: Mapping[str, Any], period_s: float | None) -> Pace:
    """Inferences: one after another, one a period, or those of the jobs that arrived."""
    times, done = work_times(run.outcome, period_s)["inference"]
    counts = {"inferences": s["inferences"], **_latencies(s["latency_ms"]), "predicted_ms": s["predicted_ms"]}
    if s.get("arrivals"):
        counts |= {"dropped": s["arrivals"]["dropped"], "late": s["arrivals"]["late"], "missed": s["arrivals"]["missed"]}
    return Pace(times, done, times, counts)


def _latencies(found: Mapping[str, float]) -> dict[str, Scalar]:
    return {"p50_ms": found.get("median"), "p90_ms": found.get("p90"), "p99_ms": found.get("p99")}


def _chat_pace(outcome: Simulation, s: Mapping[str, Any]) -> Pace:
    """Tokens, by the time in which they were made: thinking and reading prompts do not slow an answer."""
    assert outcome.jobs is not None
    pieces = outcome.jobs.pieces
    times, done = work_times(outcome, None)["decode"]
    seconds, tokens = np.array([p.end_s - p.start_s for p in pieces]), np.array([p.tokens for p in pieces])
    busy = np.repeat(np.concatenate([[0.0], np.cumsum(seconds)]), 2)[1:-1]
    middle, most, nearly = (np.percentile(np.repeat(seconds / tokens, tokens), [50, 90, 99]) * 1e3).tolist()
    first = s["ttft_ms"] or {}
    counts = {
        "tokens": s["tokens"], "turns": s["turns"], "p50_ms": middle, "p90_ms": most, "p99_ms": nearly,
        "ttft_ms": first.get("median"), "ttft_p90_ms": first.get("p90"), "energy_per_token_j": s.get("energy_per_token_j"),
    }  # fmt: skip
    return Pace(times, done * (s["tokens"] / done[-1]), busy, counts)


def _of_phone(outcome: Simulation, soc: SoC, s: Mapping[str, Any]) -> dict[str, Scalar]:
    """What a run of minutes does to the phone."""
    peak, status, slowed = s["peak_temperatures_c"], s["thermal_status"], s["throttled"]
    skin, energy = _skin(soc), sum(s["energy_j"].values())
    battery = outcome.battery
    return {
        "battery_used": None if battery is None else battery.start - battery.end,
        "battery_left_s": None if battery is None else battery.to_empty_s,
        "energy_j": energy, "power_w": s["average_power_w"],
        "hottest_c": max(peak.values(), default=None),
        "skin_c": status["skin_c"]["max"] if status else max((v for k, v in peak.items() if k in skin), default=None),
        "status": status["worst"] if status else None,
        "throttled_s": slowed["seconds"], "throttled_from_s": slowed["first_s"],
        "switches": s["levels"]["switches"] if s["levels"] else 0,
    }  # fmt: skip


def _skin(soc: SoC) -> set[str]:
    """The nodes or sensors that are the skin to apps and policies."""
    return {soc.thermal.points[i] for i in soc.thermal.skin}


def _curves(outcome: Simulation, soc: SoC, pace: Pace | None) -> dict[str, Curve]:
    """Rate, temperatures, power, level and battery over time."""
    counters, edges = outcome.trace.counters, np.linspace(0.0, outcome.duration_s, SAMPLES + 1)
    out = {} if pace is None else {"rate": _curve("1/s", edges[:-1], pace.rate(edges))}
    heat = {n.split("/", 1)[1]: c for n, c in counters.items() if n.startswith("temperature/") and c.values}
    skin = _skin(soc)
    for name, own in (("skin", {k: c for k, c in heat.items() if k in skin}), ("hottest", heat)):
        if own:
            at = np.array([np.interp(edges, c.times_s, c.values) for c in own.values()])
            out[name] = _curve("degC", edges, at.max(axis=0))
    kept = {name: counters[of] for name, of in KEPT.items() if of in counters}
    return out | {name: _curve(c.unit, edges[:-1], _means(c, edges)) for name, c in kept.items()}


def _means(counter: Counter, edges: FloatArray) -> FloatArray:
    """Time-weighted means of a counter between edges [n + 1]; values hold until the next sample."""
    t, v = np.asarray(counter.times_s), np.asarray(counter.values)
    integral = np.concatenate([[0.0], np.cumsum(v[:-1] * np.diff(t))])
    return np.asarray(np.diff(np.interp(edges, t, integral)) / np.diff(edges))


def _curve(unit: str, times: FloatArray, values: FloatArray) -> Curve:
    return Curve(unit, *(tuple(float(f"{x:.{DIGITS}g}") for x in np.asarray(a).tolist()) for a in (times, values)))
