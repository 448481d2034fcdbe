"""Counters of every trace: how much of their peak the processors compute, and how much of its bandwidth the memory moves.

``macs/QUEUE`` is the rate of multiply-accumulates as a share of the queue's peak at the precisions of the plan; ``utilisation/dram`` the
traffic as a share of what the memory can sustain. MACs and bytes are those of the cost table, times those of the trace: of a run and of
an imported profile too, where nothing counts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetsched.app.language import PlannedLanguage
from hetsched.app.pace import computed_times
from hetsched.app.planned import Planned
from hetsched.costs import CostTable, FloatArray
from hetsched.socs import SoC
from hetsched.trace import Counter, Span, Trace

if TYPE_CHECKING:
    from hetsched_simulations import Simulation

#: Samples of a counter of a long run.
SAMPLES = 600
DRAM = "utilisation/dram"


@dataclass(frozen=True, slots=True)
class Ideal:
    """What an op asks for: its queue, seconds of it at the queue's peak, and bytes that cross the memory bus."""

    queue: str
    seconds: float
    bytes: float


def ideals(table: CostTable, soc: SoC, alternatives: Sequence[int]) -> dict[str, Ideal]:
    """By op of the table, each with the alternative that it runs as."""
    from hetsched_cost_models.roofline import PEAK_OF, queue_rates

    peaks = [queue_rates(soc, soc.queues[q.name]).peak_ops_s for q in table.queues]
    out = {}
    for name, a in zip(table.op_names, alternatives, strict=True):
        q = int(table.alt_queue[a])
        peak = peaks[q].get(PEAK_OF.get(table.alt_precision[a], "f32")) or max(peaks[q].values())
        out[name] = Ideal(table.queues[q].name, 2.0 * float(table.macs[a]) / peak, float(table.dram_bytes[a]))
    return out


def write_from_spans(trace: Trace, planned: Planned) -> None:
    """Add the counters to a trace that holds every op (or segment) with its times: a run, a profile, a single simulated inference."""
    known = ideals(planned.table, planned.soc, planned.placement[1])
    whole = {s.index: [known[o] for o in s.ops if o in known] for s in planned.plan.segments}
    _from_spans(trace, planned.soc, known, whole)


def write_from_profile(trace: Trace, table: CostTable, soc: SoC) -> None:
    """Add the counters to the trace of a profile: each op as the table has it where the profile ran."""
    ran = {s.name: s.queue for s in trace.spans}

    def at(op: int, name: str) -> int:
        own = table.alternatives(op)
        queues = [table.queues[int(table.alt_queue[a])] for a in own]
        return next((a for a, q in zip(own, queues, strict=True) if ran.get(name) in (q.name, q.kind)), own[0])

    _from_spans(trace, soc, ideals(table, soc, [at(k, n) for k, n in enumerate(table.op_names)]), {})


def _from_spans(trace: Trace, soc: SoC, known: Mapping[str, Ideal], whole: Mapping[int, list[Ideal]]) -> None:
    """``known`` by op and ``whole`` by segment; the ops' own times count where a trace has them."""
    spans = [(s, [known[s.name]]) for s in trace.spans if s.kind == "op" and s.name in known]
    spans = spans or [(s, whole.get(s.segment, [])) for s in trace.spans if s.kind == "segment"]
    spans = [(s, own) for s, own in spans if s.end_s > s.start_s and own]
    for queue in sorted({s.queue for s, _ in spans}):
        on = [(s, sum(i.seconds for i in own)) for s, own in spans if s.queue == queue]
        _write(trace, f"macs/{queue}", *_stacked(on))
    if DRAM not in trace.counters and "bandwidth/dram" not in trace.counters and spans:
        times, rate = _stacked([(s, sum(i.bytes for i in own)) for s, own in spans])
        _write(trace, DRAM, times, rate / float(soc.memory.reachable_bytes_s))
    write_bandwidth(trace, soc)


def write_from_run(outcome: Simulation, planned: Planned, others: Mapping[int, Planned], period_s: float | None) -> None:
    """Add the counters to the trace of a simulated run of any length.

    Args:
        outcome: the run.
        planned: the plan that it began with.
        others: plans of other throttle levels that a policy could switch to.
        period_s: distance of arrivals, if inferences came one a period.
    """
    trace, edges = outcome.trace, np.linspace(0.0, outcome.duration_s, SAMPLES + 1)
    if outcome.jobs is None and not others and len(outcome.latencies_s) <= len({s.iteration for s in trace.spans}):
        write_from_spans(trace, planned)
        return
    level = planned.deployment.entries[planned.entry].level
    plans = {level: planned, **others}
    at = trace.counters.get("level/plan")
    levels = np.full(SAMPLES, level) if at is None else _held(at, edges[:-1])
    for phase, (times, done) in computed_times(outcome, period_s).items():
        rate = np.diff(np.interp(edges, times, done)) / np.diff(edges)
        for n in sorted(set(levels.tolist()) & plans.keys()):
            for queue, seconds in _per_unit(plans[n], phase).items():
                share = np.where(levels == n, rate * seconds, 0.0)
                counter = trace.counters.get(f"macs/{queue}")
                _write(trace, f"macs/{queue}", edges[:-1], share if counter is None else share + np.asarray(counter.values[:-1]))
    write_bandwidth(trace, planned.soc)


def write_bandwidth(trace: Trace, soc: SoC) -> None:
    """Add the share of the memory's bandwidth, where a trace has the traffic."""
    flow = trace.counters.get("bandwidth/dram")
    if flow is not None:
        reach = float(soc.memory.reachable_bytes_s)
        trace.counters[DRAM] = Counter(DRAM, "1", list(flow.times_s), [v / reach for v in flow.values])


def _per_unit(planned: Planned, phase: str) -> dict[str, float]:
    """Seconds at the peak of each queue for one inference, one token of a prompt or one of an answer."""
    of, tokens = planned, 1
    if isinstance(planned, PlannedLanguage):
        if phase == "draft" and phase not in planned.phases:
            return {}
        guessed = planned.asked.speculation
        of = planned.phases[phase]
        tokens = {"prefill": planned.asked.prompt, "verify": 1 if guessed is None else guessed.length + 1}.get(phase, 1)
    out: dict[str, float] = {}
    for ideal in ideals(of.table, of.soc, of.placement[1]).values():
        out[ideal.queue] = out.get(ideal.queue, 0.0) + ideal.seconds / tokens
    return out


def _stacked(spans: list[tuple[Span, float]]) -> tuple[FloatArray, FloatArray]:
    """Each span's amount spread evenly over it, all added: times and the rate from each on, the last one's rate being zero."""
    start, end, amount = (np.array(v) for v in zip(*((s.start_s, s.end_s, a) for s, a in spans), strict=True))
    rate = amount / (end - start)
    times, at = np.unique(np.concatenate([start, end]), return_inverse=True)
    change = np.bincount(at, np.concatenate([rate, -rate]), len(times))
    return times, np.maximum(np.cumsum(change), 0.0)


def _held(counter: Counter, times: FloatArray) -> FloatArray:
    """Values of a counter at some times."""
    index = np.searchsorted(counter.times_s, times, side="right") - 1
    return np.asarray(counter.values)[np.maximum(index, 0)].astype(int)


def _write(trace: Trace, name: str, times: FloatArray, values: FloatArray) -> None:
    """Write a rate; its last value ends with the trace."""
    end = max(trace.end_s, float(times[-1]))
    trace.counters[name] = Counter(name, "1", [*times.tolist(), end], [*values.tolist(), float(values[-1])])
