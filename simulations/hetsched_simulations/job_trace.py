"""Jobs in a trace: the rate of tokens, turns, what was late."""

from __future__ import annotations

import numpy as np

from hetsched.trace import Counter, Instant, Trace
from hetsched.trace.turns import Turn
from hetsched_simulations.history import LIMIT, thin_rate
from hetsched_simulations.jobs import Done, JobLog, Jobs

MOST = 1000
"""Instants of one kind that a trace keeps: of more, every second, fourth, ... one."""


def write_jobs(trace: Trace, log: JobLog, jobs: Jobs, end_s: float) -> None:
    """Write what became of the jobs of a run that ended at ``end_s``."""
    if log.pieces:
        trace.counters["rate/tokens"] = _rate(log, jobs.batch, end_s)
        trace.instants += [_turn(k, d, jobs.batch) for k, d in _some(list(enumerate(log.done)))]
    if jobs.deadline_s is not None:
        late = [(k, d) for k, d in enumerate(log.done) if d.late(jobs.deadline_s)]
        trace.instants += [Instant("deadline", f"job {k} missed", d.ended_s, f"after {d.latency_s * 1e3:.4g} ms") for k, d in _some(late)]
    trace.instants.sort(key=lambda i: i.time_s)


def _some(items: list[tuple[int, Done]]) -> list[tuple[int, Done]]:
    stride = 1
    while len(items) > MOST * stride:
        stride *= 2
    return items[::stride]


def _turn(k: int, d: Done, batch: int) -> Instant:
    job, rest = d.job, d.ended_s - d.first_s
    rate = batch * job.generate / rest if rest > 0 else 0.0
    return Turn(k, d.began_s, job.past, job.prompt, job.generate, d.first_s - job.arrived_s, rate).instant()


def _rate(log: JobLog, batch: int, end_s: float) -> Counter:
    """Tokens a second over time: those of each piece evenly over it, none in between."""
    start, stop = (np.array([getattr(p, name) for p in log.pieces]) for name in ("start_s", "end_s"))
    tokens = np.array([p.tokens for p in log.pieces])
    gap = np.append(start[1:], end_s) > stop + 1e-9
    t = np.concatenate([[0.0], start, stop[gap]])
    v = np.concatenate([[0.0], batch * tokens / (stop - start), np.zeros(int(gap.sum()))])
    order = np.argsort(t, kind="stable")
    t, v = t[order], v[order]
    lasts = np.diff(np.append(t, max(end_s, float(t[-1])))) > 0
    thin_t, thin_v = thin_rate(t[lasts], v[lasts], end_s, LIMIT)
    return Counter("rate/tokens", "1/s", [*thin_t.tolist(), end_s], [*thin_v.tolist(), float(thin_v[-1])])
