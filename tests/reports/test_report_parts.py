"""The pieces of the page: decimation, layout, numbers, arena, palette."""

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from hetsched.plans import Buffer
from hetsched.reports.decimate import decimate, means
from hetsched.reports.layers import Style, layout
from hetsched.reports.lifetimes import lifetimes, live_bytes, op_times
from hetsched.reports.palette import colours
from hetsched.reports.units import axis, digits, interval, quantity, share, ticks
from hetsched.trace import Span, Trace

series = st.lists(st.tuples(st.floats(1e-6, 10), st.floats(-1e6, 1e6)), min_size=1, max_size=400)


@given(series, st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_decimation_keeps_extremes_ends_and_order(steps: list[tuple[float, float]], buckets: int) -> None:
    times = np.cumsum([s for s, _ in steps])
    values = [v for _, v in steps]
    t, v = decimate(times, values, buckets)
    assert len(t) <= max(4 * buckets, 1) and (np.diff(t) > 0).all()
    assert (v.min(), v.max()) == (min(values), max(values))
    assert (t[0], t[-1], v[0], v[-1]) == (times[0], times[-1], values[0], values[-1])
    known = dict(zip(times.tolist(), values, strict=True))
    assert all(known[a] == b for a, b in zip(t.tolist(), v.tolist(), strict=True))


@given(series, st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_means_keep_the_integral(steps: list[tuple[float, float]], buckets: int) -> None:
    times = np.cumsum([s for s, _ in steps])
    values = np.array([v for _, v in steps])
    end = times[-1] + 1.0
    t, m = means(times, values, end, buckets)
    width = np.diff(np.append(t, end))
    exact = float(values @ np.diff(np.append(times, end)))
    assert math.isclose(float(m @ width), exact, rel_tol=1e-9, abs_tol=1e-6 * np.abs(values).max() * (end - times[0]) + 1e-9)
    assert m.min() >= values.min() - 1e-6 - 1e-9 * abs(values.min()) and m.max() <= values.max() + 1e-6 + 1e-9 * abs(values.max())


@st.composite
def dags(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    n = draw(st.integers(1, 60))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=120))
    return n, [(min(a, b), max(a, b)) for a, b in edges if a != b]


@given(dags(), st.integers(2, 12))
@settings(max_examples=80, deadline=None)
def test_layout_never_overlaps_and_draws_every_edge(dag: tuple[int, list[tuple[int, int]]], rows: int) -> None:
    n, edges = dag
    style = Style(rows=rows)
    d = layout(n, edges, style)
    assert d == layout(n, list(reversed(edges)), style)
    assert len(d.nodes) == n and {(a, b) for a, b, _ in d.edges} == set(edges)
    for i, (x, y) in enumerate(d.nodes):
        assert x >= 0 and x + style.width <= d.width + 1e-6 and y >= 0 and y + style.height <= d.height
        for u, v in d.nodes[i + 1 :]:
            assert abs(x - u) >= style.width or abs(y - v) >= style.height
    for a, b, pieces in d.edges:
        assert pieces[0][0] == pytest.approx((d.nodes[a][0] + style.width / 2, d.nodes[a][1] + style.height))
        assert pieces[-1][-1] == pytest.approx((d.nodes[b][0] + style.width / 2, d.nodes[b][1]))
        assert all(p[1] <= q[1] + 1e-9 for piece in pieces for p, q in itertools.pairwise(piece))  # always downwards


def test_a_chain_is_wrapped_into_even_columns() -> None:
    d = layout(100, [(i, i + 1) for i in range(99)], Style(rows=24))
    assert d.columns == 5 and len(d.links) == 8
    assert d.height < 24 * Style().pitch


def test_quantities_read_well() -> None:
    assert quantity(0.0123, "s") == "12.3 ms" and quantity(0.99996e-3, "s") == "1000 µs" and quantity(None, "s") == "–"
    assert quantity(34.2e6, "B") == "34.2 MB" and quantity(0, "J") == "0 J" and quantity(3.3e9, "Hz") == "3.30 GHz"
    assert interval(8.1e-3, 19.4e-3, "s") == "8.10–19.4 ms"
    assert (digits(0.99998), digits(1234.5), digits(1e-7), digits(12.345)) == ("1.00", "1230", "1.00e-07", "12.3")
    assert (share(0.009), share(0.5), share(0.0001), share(0)) == ("0.9 %", "50 %", "< 0.1 %", "0 %")
    assert axis(0.002, "s") == "2 ms" and axis(0, "s") == "0"


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 9))
def test_ticks_are_inside_and_even(low: float, width: float, count: int) -> None:
    t = ticks(low, low + width, count)
    slack = 1e-6 * width + 1e-15 * abs(low)
    assert all(low - slack <= x <= low + width + slack for x in t)
    assert len(t) <= count + 1
    if len(t) > 2:
        gaps = np.diff(t)
        assert np.allclose(gaps, gaps[0], rtol=1e-3)


def test_queues_of_one_kind_have_different_shades() -> None:
    palette = colours(["cpu:0-1", "cpu:2-3", "npu", "gpu", "dsp"])
    assert len(set(palette.values())) == 5
    assert palette["npu"] == "c-npu0" and palette["dsp"] == "c-other0"


def test_live_bytes_add_up(graph, deployment) -> None:
    plan = deployment.entries[0].plan
    by_segment, by_op = lifetimes(plan, None), lifetimes(plan, graph)
    for (a, b), (c, d), buffer in zip(by_segment, by_op, plan.buffers, strict=True):
        assert a <= c <= d <= b + 1e-12, buffer  # ops lie within their segments
    times, values = live_bytes(plan, by_op)
    assert times == sorted(set(times)) and values[-1] == 0 and min(values) >= 0
    assert 0 < max(values) <= max(live_bytes(plan, by_segment)[1]) <= plan.arena_bytes
    middle = sum(times[3:5]) / 2
    held = sum(b.nbytes for b, (start, end) in zip(plan.buffers, by_op, strict=True) if start <= middle < end)
    assert values[3] == held


def test_a_converted_copy_is_held_from_its_making_to_its_last_reader(graph, deployment) -> None:
    plan = deployment.entries[0].plan
    out = graph.ops[2].outputs[0]  # written on the npu in segment 0, read by the cpu in segment 1
    original = next(b for b in plan.buffers if b.tensor == out)
    copy = Buffer(tensor=f"{out}@cpu:0-3:f32", offset=0, nbytes=64, first=1, last=1)
    held = lifetimes(plan.model_copy(update={"buffers": (original, copy)}), graph)
    ops = op_times(plan)
    assert held[1] == (plan.segments[1].start_s, ops[graph.ops[3].name][1])
    assert held[0] == (ops[graph.ops[2].name][0], plan.segments[1].start_s + plan.segments[1].transfer_s)


def test_waiting_does_not_stretch_an_inference() -> None:
    from hetsched.reports.runs import chosen, iterations, op_seconds

    trace = Trace("measured", queues=("cpu",))
    for k, took in enumerate((3.0, 1.0, 2.0)):
        trace.spans += [Span("cpu", "wait", "w", 10.0 * k, 10.0 * k + 5), Span("cpu", "op", "a", 10.0 * k + 5, 10.0 * k + 5 + took, 0, k)]
    trace.spans[0::2] = [Span("cpu", "wait", "w", s.start_s, s.end_s, 0, k) for k, s in enumerate(trace.spans[0::2])]
    assert [r.seconds for r in iterations(trace)] == [3.0, 1.0, 2.0]
    assert [r.number for _, r in chosen(trace)] == [2]  # the median
    assert op_seconds(trace) == {"a": 2.0}
    trace.origin = "simulated"
    assert op_seconds(trace) == {"a": 3.0}  # the first, cool one
