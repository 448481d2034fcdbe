"""MAC and memory-bandwidth utilisation: in every trace, and with the cost table's own totals as their integrals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.app.planned import Planned
from hetsched.app.simulating import Simulated
from hetsched.app.utilisation import ideals, write_from_profile
from hetsched.trace import Counter, Span, Trace

PHONE = "snapdragon-8-gen-3"
DIMS = {"width": 96}


def integral(counter: Counter) -> float:
    return float(np.asarray(counter.values[:-1]) @ np.diff(counter.times_s))


def at_peak(planned: Planned) -> Mapping[str, float]:
    """Seconds at the peak by queue, of one inference."""
    out: dict[str, float] = {}
    for i in ideals(planned.table, planned.soc, planned.placement[1]).values():
        out[i.queue] = out.get(i.queue, 0.0) + i.seconds
    return out


@pytest.fixture
def planned(two_branch_heavy: Path) -> Planned:
    return hetsched.plan(two_branch_heavy, PHONE, dims=DIMS, time_limit_s=0.5)


def simulated(planned: Planned, **options: object) -> Simulated:
    run = hetsched.simulate(planned, **options)
    assert isinstance(run, Simulated)
    return run


def test_one_inference_integrates_to_the_seconds_at_the_peak(planned: Planned) -> None:
    trace = simulated(planned).trace
    for queue, seconds in at_peak(planned).items():
        counter = trace.counters[f"macs/{queue}"]
        assert integral(counter) == pytest.approx(seconds, rel=1e-9)
        assert min(counter.values) >= 0 and max(counter.values) <= 1


def test_minutes_integrate_to_all_inferences(planned: Planned) -> None:
    run = simulated(planned, duration_s=120.0, ambient_c=35.0)
    for queue, seconds in at_peak(planned).items():
        assert integral(run.trace.counters[f"macs/{queue}"]) == pytest.approx(seconds * run.outcome.inferences, rel=1e-3)
    dram, reach = run.trace.counters["utilisation/dram"], float(planned.soc.memory.reachable_bytes_s)
    assert integral(dram) * reach == pytest.approx(run.outcome.bytes_moved, rel=1e-6)


def test_arrivals_leave_room(planned: Planned) -> None:
    period = 4 * planned.plan.prediction.latency_s
    run = simulated(planned, duration_s=20.0, period_s=period)
    for queue, seconds in at_peak(planned).items():
        assert integral(run.trace.counters[f"macs/{queue}"]) == pytest.approx(20.0 / period * seconds, rel=2e-2)


def test_a_real_run_has_them(two_branch_heavy: Path) -> None:
    planned = hetsched.plan(two_branch_heavy, "host", dims=DIMS, time_limit_s=0.5)
    trace = hetsched.run(planned, repeat=3).trace
    for queue, seconds in at_peak(planned).items():
        if seconds:
            assert integral(trace.counters[f"macs/{queue}"]) == pytest.approx(3 * seconds, rel=1e-6)
    assert max(trace.counters["utilisation/dram"].values) > 0


def test_a_profile_gets_them_where_it_ran(planned: Planned) -> None:
    table, soc = planned.table, planned.soc
    trace = Trace("imported", planned.graph.name, soc.id, ("gpu",))
    trace.spans = [Span("gpu", "op", name, 0.001 * k, 0.001 * (k + 1)) for k, name in enumerate(table.op_names)]
    write_from_profile(trace, table, soc)
    assert [n for n in trace.counters if n.startswith("macs/")] == ["macs/gpu"]
    assert len(trace.counters["macs/gpu"].times_s) == len(table.op_names) + 2
    assert 0 < integral(trace.counters["macs/gpu"]) < 1e-3 * len(table.op_names)


def test_segments_stand_for_ops_where_a_trace_has_no_ops(planned: Planned) -> None:
    from hetsched.app.utilisation import write_from_spans

    whole = Trace("measured", planned.graph.name, PHONE, tuple(q.name for q in planned.table.queues))
    whole.spans = [Span(s.queue, "segment", f"segment {s.index}", s.start_s, s.end_s, s.index) for s in planned.plan.segments]
    write_from_spans(whole, planned)
    assert sum(integral(c) for n, c in whole.counters.items() if n.startswith("macs/")) == pytest.approx(sum(at_peak(planned).values()))
