"""Rows of ops on another queue: every candidate is a plan, and local search with them finds more."""

from __future__ import annotations

from random_costs import budget

from hetsched.partition.offloads import Offloads
from hetsched.partition.problem import Problem
from hetsched.partition.search import LocalSearch
from hetsched.partition.timing import Costs, figures
from hetsched.segments import schedule

N = 14


def test_starts_are_plans_best_first_and_few(random_table):
    for seed in range(5):
        raw = random_table(seed, N, 3, precisions=1, density=0.3)
        c = Costs(raw)
        search = Offloads(Problem(raw), c, budget())
        order, alternative = list(range(N)), [row.start for row in c.alts]
        starts = search.starts(order, alternative, range(2, N - 2), 400, 5)
        assert starts
        seconds = [schedule(raw, *start).latency_s for start in starts]  # raises on a broken order
        assert seconds == sorted(seconds)
        assert search.evaluations <= 400
        moved = [{v for v in range(N) if a[v] != alternative[v]} for _, a in starts]
        assert all(moved)
        assert all(min(ops) >= 2 for ops in moved)
        assert len(search.starts(order, alternative, range(N), 400, 2)) == 2


def test_the_rest_of_the_segment_need_not_wait_for_a_row(random_table):
    raw = random_table(1, N, 3, precisions=1, density=0.3)
    c = Costs(raw)
    search = Offloads(Problem(raw), c, budget())
    order = list(range(N))
    for v in order:
        early, late = search._early(order, [v]), search._late(order, [v])
        assert sorted(early) == sorted(late) == order
        assert early.index(v) == search.before[v].bit_count()
        assert late.index(v) == N - 1 - search.after[v].bit_count()


def test_search_with_rows_finds_faster_plans(random_table):
    faster = 0
    for seed in range(12):
        raw = random_table(seed, N, 3, precisions=1, density=0.25, crossing_us=80)
        problem, c = Problem(raw), Costs(raw)
        plain = LocalSearch(problem, c, budget()).improve(list(range(N)), [row.start for row in c.alts], 2_000)
        search = Offloads(problem, c, budget())
        found = min(search.improve(*start, 2_000)[2] for start in (plain[:2], *search.starts(*plain[:2], range(N), 500, 2)))
        assert found <= plain[2] == figures(c, *plain[:2]).latency_s
        faster += found < plain[2] * (1 - 1e-6)
    assert faster > 1
