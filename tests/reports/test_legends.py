"""What stands beside a curve's name, and what is not drawn."""

from __future__ import annotations

import pytest

from hetsched.reports import PlanItem, TraceItem, html
from hetsched.reports.legends import integral, legend_of, worst_status
from hetsched.reports.runs import iterations
from hetsched.trace import Counter, Instant, Span, Trace


def spiky() -> Trace:
    trace = Trace("simulated", "m", "snapdragon-8-gen-3", ("npu",))
    trace.counters["power/total"] = Counter("power/total", "W", [0.0, 1.0, 2.0, 10.0], [6.0, 1.0, 1.0, 0.0])
    trace.counters["temperature/npu"] = Counter("temperature/npu", "degC", [0.0, 2.0, 10.0], [25.0, 61.0, 30.0])
    trace.counters["frequency/npu"] = Counter("frequency/npu", "Hz", [0.0, 10.0], [2e9, 1e9])
    return trace


def told(trace: Trace, *levels: tuple[float, float, str]) -> Trace:
    times, values = [0.0, *(t for t, _, _ in levels), 10.0], [0.0, *(v for _, v, _ in levels)]
    trace.counters["status/android"] = Counter("status/android", "level", times, [*values, values[-1]])
    trace.instants = [Instant("status", name, t) for t, _, name in levels]
    return trace


@pytest.mark.parametrize(("name", "text"), [("power/total", "1.50 W"), ("temperature/npu", "61.0 °C"), ("frequency/npu", "")])
def test_means_of_what_comes_and_goes_and_peaks_of_heat(name: str, text: str) -> None:
    trace = spiky()
    counter = trace.counters[name]
    assert legend_of(trace, name.split("/")[0], counter, counter.unit) == text


def test_energy_is_the_integral_of_the_power() -> None:
    trace = spiky()
    assert integral(trace.counters["power/total"]) == pytest.approx(15.0)
    page = html([TraceItem(trace)])
    assert "15.0 J" in page and "1.50 W on average" in page


def test_the_worst_status_has_its_name() -> None:
    trace = told(spiky(), (2.0, 1.0, "LIGHT"), (4.0, 2.0, "MODERATE"), (6.0, 1.0, "LIGHT"))
    assert worst_status(trace) == ("MODERATE", 4.0)
    page = html([TraceItem(trace)])
    assert "Thermal status" in page and "at worst, from 4 s on" in page


def test_a_status_that_never_changed_is_not_drawn() -> None:
    trace = told(spiky())
    assert worst_status(trace)[0] == ""
    assert "Thermal status" not in html([TraceItem(trace)])


def test_models_that_share_a_phone_are_no_inferences_of_one(sample, deployment) -> None:
    trace = Trace("simulated", "det + voice", "snapdragon-8-gen-3", ("npu",))
    trace.spans = [Span("npu", "op", f"{m}: conv", t, t + 0.01, 0, k) for k in range(5) for m, t in (("det", k / 30), ("voice", k / 5))]
    assert iterations(trace) == []
    page = html([PlanItem(deployment), TraceItem(trace, "both")])
    assert "Latency per inference" not in page and "Sustained" not in page and "nothing is compared" not in page


def test_levels_of_one_plan_are_compared(sample, graph, deployment) -> None:
    (entry,) = deployment.entries
    two = deployment.model_copy(update={"entries": (entry, entry.model_copy(update={"level": 1}))})
    page = html([PlanItem(two, graph)])
    assert 'id="compare0"' in page
    assert '<a href="#p0">level 0</a>' in page and '<a href="#p1">level 1</a>' in page
    assert 'id="compare0"' not in html([PlanItem(deployment, graph)])
