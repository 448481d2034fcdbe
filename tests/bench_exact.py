#!/usr/bin/env python3
"""Solvers against every plan of small random graphs: 1,000 and more, of up to 10 ops, every cost feature on and off.

python tests/bench_exact.py [GRAPHS]        (exit code 1 if any answer is not optimal, or any bound is above the optimum)

The first 9 ops are proven by CP-SAT's slot model; graphs of 10 are searched with a bound, so for them only the bound is judged
and how often the optimum is met is reported.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "partition"))

import numpy as np
from conftest import make_table
from exhaustive import FEATURES, optima, orders_of, plans, without

from hetsched.partition import Problem, solve
from hetsched.partition.ilp import EXACT_OPS
from hetsched.partition.timing import Costs

GRAPHS = 1000
MOST_PLANS = 3e7
OBJECTIVES = ("latency", "energy", "period")
TOLERANCE = 1.01e-5


@dataclass
class Tally:
    """Answers that are optimal, proven so, of all; bounds above the optimum."""

    graphs: int = 0
    answers: int = 0
    optimal: int = 0
    proven: int = 0
    wrong_bounds: int = 0
    worst: float = 0.0


def main() -> int:
    """Draw, enumerate, compare; a line a graph size and one summary line."""
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else GRAPHS
    switched = [off for k in range(len(FEATURES) + 1) for off in combinations(FEATURES, k)]
    tallies: dict[int, Tally] = {}
    seed, began = 0, time.perf_counter()
    while sum(t.graphs for t in tallies.values()) < wanted:
        seed += 1
        r = np.random.default_rng(seed)
        n = int(r.integers(2, 11))
        table = make_table(
            seed, n, int(r.integers(2, 4)), density=float(r.choice([0.3, 0.5, 0.8])), precisions=1 + int(n <= 6 and r.random() < 0.4),
            crossing_us=int(r.choice([3, 30, 150])), chain=bool(r.random() < 0.5), shared_domains=bool(r.random() < 0.2),
            support=float(r.choice([0.5, 0.8, 1.0])),
        )  # fmt: skip
        table = without(table, switched[seed % len(switched)])
        c = Costs(table)
        orders = orders_of(c, 200_000)
        if orders is None or plans(c, orders) > MOST_PLANS:
            continue
        judge(tallies.setdefault(n, Tally()), table, optima(table, orders), OBJECTIVES[seed % 3])
        if sys.stderr.isatty():
            print(f"\r{sum(t.graphs for t in tallies.values())} graphs", end="", file=sys.stderr)
    print(f"{'ops':>4} {'graphs':>7} {'optimal':>8} {'proven':>7} {'wrong bounds':>13} {'worst':>8}")
    for n, t in sorted(tallies.items()):
        print(f"{n:>4} {t.graphs:>7} {t.optimal:>8} {t.proven:>7} {t.wrong_bounds:>13} {t.worst:>8.2%}")
    exact = [t for n, t in tallies.items() if n <= EXACT_OPS]
    failed = sum(t.answers - t.optimal for t in exact) + sum(t.wrong_bounds for t in tallies.values())
    total = sum(t.graphs for t in tallies.values())
    print(f"{total} graphs, {len(switched)} sets of features off, {time.perf_counter() - began:.0f} s: {failed} wrong")
    return 1 if failed else 0


def judge(tally: Tally, table: object, best: dict[str, float], objective: str) -> None:
    """Solve and compare with the optimum."""
    answer = solve(Problem(table, objective), "ilp", time_limit_s=20)  # type: ignore[arg-type]
    above = answer.objective / best[objective] - 1 if best[objective] > 0 else answer.objective
    tally.graphs += 1
    tally.answers += 1
    tally.optimal += above <= TOLERANCE
    tally.proven += answer.status == "optimal"
    tally.wrong_bounds += answer.bound > best[objective] * (1 + 1e-9)
    tally.worst = max(tally.worst, above)


if __name__ == "__main__":
    sys.exit(main())
