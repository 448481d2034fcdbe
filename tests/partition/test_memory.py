"""Buffers never overlap while both are live, whatever the timing; fences are enough and none is spare."""

from __future__ import annotations

from itertools import combinations, pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.partition.fences import fences_of, happens_before, minimal_waits, needed_waits
from hetsched.partition.memory import ALIGNMENT, Lifetime, lifetimes_of, place_buffers
from hetsched.partition.orders import by_priority
from hetsched.partition.timing import Costs
from hetsched.segments import Segment, schedule, segments_of


def random_plan(table, seed):
    c, r = Costs(table), np.random.default_rng(seed)
    alternative = [int(r.choice(list(row))) for row in c.alts]
    return by_priority(c, r.random(c.n).tolist()), alternative


def clash(lifetimes, buffers, segments, waits, seed) -> tuple[str, str] | None:
    """Run the segments with random durations under the given fences; two tensors that hold the same bytes at once."""
    r = np.random.default_rng(seed)
    free: dict[int, float] = {}
    when: dict[tuple[int, int], tuple[float, float]] = {}
    ends: list[float] = []
    for s in segments:
        t = max([free.get(s.queue, 0.0), *(ends[p] for p, w in waits if w == s.index)])
        for k in range(-1, len(s.ops)):
            when[s.index, k] = (t, t + float(r.exponential()))
            t = when[s.index, k][1]
        free[s.queue] = t
        ends.append(t)
    held = []
    for x in lifetimes:
        begin = 0.0 if x.written is None else when[x.written][0]
        end = max([when[p][1] for p in x.uses] + ([when[x.written][1]] if x.written else [0.0]))
        held.append((begin, float("inf") if x.kept else end))
    for i, j in combinations(range(len(lifetimes)), 2):
        a, b = buffers[i], buffers[j]
        if a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes and held[i][0] < held[j][1] and held[j][0] < held[i][1]:
            return a.tensor, b.tensor
    return None


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 18))
def test_no_two_live_tensors_share_bytes_whatever_the_timing(random_table, seed, n):
    table = random_table(seed, n)
    order, alternative = random_plan(table, seed)
    segments = segments_of(table, order, alternative)
    lifetimes = lifetimes_of(None, table, segments, alternative)
    buffers, arena = place_buffers(lifetimes, segments)
    assert [b.tensor for b in buffers][: len(table.tensor_names)] == list(table.tensor_names)
    for b in buffers:
        assert b.offset % ALIGNMENT == 0 and b.offset + b.nbytes <= arena and 0 <= b.first <= b.last < len(segments)
    waits = minimal_waits(segments)
    for k in range(6):
        assert clash(lifetimes, buffers, segments, waits, seed + k) is None


def test_memory_is_reused_along_a_chain(random_table):
    table = random_table(4, 20, 1, density=0.0, chain=True)
    order, alternative = list(range(20)), [r[0] for r in Costs(table).alts]
    segments = segments_of(table, order, alternative)
    buffers, arena = place_buffers(lifetimes_of(None, table, segments, alternative), segments)
    assert arena < 0.5 * sum(b.nbytes for b in buffers)


def two_branches() -> tuple[tuple[Segment, ...], list[Lifetime]]:
    """Queue 0 runs a -> b -> c, queue 1 runs d -> e -> f at the same time; the plan lists queue 0's ops first."""
    segments = tuple(Segment(k, k, (3 * k, 3 * k + 1, 3 * k + 2), (), (), 0.0, 0.0, 1.0, 0.0) for k in range(2))
    lifetimes = []
    for k in range(2):
        names = ("a", "b", "c") if k == 0 else ("d", "e", "f")
        lifetimes += [Lifetime(n, 1000, (k, i), ((k, min(i + 1, 2)),), kept=i == 2) for i, n in enumerate(names)]
    return segments, lifetimes


def test_a_planner_that_trusts_the_topological_order_corrupts_overlapping_queues():
    segments, lifetimes = two_branches()
    one = (Segment(0, 0, tuple(range(6)), (), (), 0.0, 0.0, 2.0, 0.0),)
    listed = [
        Lifetime(x.name, x.nbytes, (0, 3 * s + i), ((0, 3 * x.uses[0][0] + x.uses[0][1]),), x.kept)
        for x in lifetimes
        for s, i in [x.written]
    ]
    naive, small = place_buffers(listed, one)
    ours, arena = place_buffers(lifetimes, segments)
    assert any(clash(lifetimes, naive, segments, [], seed) for seed in range(5))
    assert not any(clash(lifetimes, ours, segments, [], seed) for seed in range(200))
    apart = {b.tensor: b for b in ours}
    for x in "abc":
        for y in "def":
            a, b = apart[x], apart[y]
            assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
    assert small < arena


def test_a_fence_lets_the_second_queue_reuse_the_firsts_memory():
    segments, lifetimes = two_branches()
    first, second = segments
    waiting = (first, Segment(1, 1, second.ops, (), (0,), 0.0, 0.0, 1.0, 0.0))
    assert place_buffers(lifetimes, waiting)[1] < place_buffers(lifetimes, segments)[1]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 22))
def test_fences_are_enough_and_none_is_spare(random_table, seed, n):
    table = random_table(seed, n)
    segments = segments_of(table, *random_plan(table, seed))
    required, kept = happens_before(segments, needed_waits(segments)), minimal_waits(segments)
    assert happens_before(segments, kept) == required
    for fence in kept:
        assert happens_before(segments, [w for w in kept if w != fence]) != required
    oracle = nx.DiGraph()
    oracle.add_nodes_from(range(len(segments)))
    oracle.add_edges_from(needed_waits(segments))
    for q in range(3):
        own = [s.index for s in segments if s.queue == q]
        oracle.add_edges_from(pairwise(own))
    for s in segments:
        assert {k for k in range(len(segments)) if required[s.index] >> k & 1} == nx.ancestors(oracle, s.index)


def test_a_short_wait_spins_and_a_long_one_blocks(random_table):
    modes = set()
    for seed in range(40):
        table = random_table(seed, 12, crossing_us=40)
        timed = schedule(table, *random_plan(table, seed))
        for f in fences_of(table, timed):
            own = [s.index for s in timed.segments if s.queue == timed.segments[f.wait].queue and s.index < f.wait]
            idle = timed.end_s[own[-1]] if own else 0.0
            assert (timed.end_s[f.signal] + f.sync_s - idle < 50e-6) == (f.mode == "spin")
            modes.add(f.mode)
    assert modes == {"spin", "block"}


@pytest.mark.parametrize("n", [1200])
def test_a_thousand_segments_are_no_trouble(random_table, n):
    table = random_table(1, n, density=0.3)
    order, alternative = random_plan(table, 1)
    segments = segments_of(table, order, alternative)
    assert len(segments) > 600
    buffers, arena = place_buffers(lifetimes_of(None, table, segments, alternative), segments)
    assert arena < sum(b.nbytes for b in buffers)
