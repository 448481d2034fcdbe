#!/usr/bin/env python3
"""Arenas over the corpus of models: ``python tests/bench_memory.py [CORPUS]``.

Every model is placed for one SoC by two solvers: queues take turns in the one's plans and overlap in the other's. Prints what |
goal | measured | ok, the arenas that are neither near their bound nor proven optimal, and one summary line; the exit code is 1 if a goal
is missed, 2 without a corpus. It takes some ten minutes.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_checks.corpus import CORPUS, Refusal, files, load_any, name_of

from hetsched.app.inputs import cost_table, targeted
from hetsched.partition import Problem, solve
from hetsched.partition.lifetimes import Holding, lifetimes_of
from hetsched.partition.liveness import Liveness, ended_before
from hetsched.partition.memory import Layout, place_buffers
from hetsched.partition.offsets import Fit, as_written
from hetsched.partition.stretches import Stretch
from hetsched.segments import segments_of
from hetsched.soc_files import load_soc

SOC = "snapdragon-8-gen-3"
SOLVERS = ("frontier-dp", "heft")
SMALL = 300
NEAR = 1.05


@dataclass(frozen=True)
class Placed:
    """The arena of one plan, that of a greedy allocator (both in bytes, without states), and what it took to find."""

    name: str
    tensors: int
    layout: Layout
    greedy: int
    seconds: float

    @property
    def ratio(self) -> float:
        """Arena to bound."""
        return self.layout.nbytes / max(1, self.layout.bound_bytes)

    @property
    def arena(self) -> int:
        """Bytes without states."""
        return self.layout.nbytes - self.layout.pool_bytes


def placed(root: Path) -> Iterator[Placed]:
    """Every model of the corpus that loads, by every solver."""
    chip = load_soc(SOC)
    for path in files(root):
        graph = load_any(path)
        if isinstance(graph, Refusal):
            continue
        graph = targeted(graph, chip, [])
        table = cost_table(graph, chip, "auto", "default")
        for solver in SOLVERS:
            found = solve(Problem.of(graph, table), solver, time_limit_s=1)
            segments = segments_of(table, found.order, found.alternative)
            began = time.process_time()
            layout = place_buffers(graph, table, segments, found.alternative)
            seconds = time.process_time() - began
            lifetimes = [x for x in lifetimes_of(graph, Holding(table, segments, found.alternative)) if not x.pooled]
            apart = Liveness([Stretch.of(x) for x in lifetimes], ended_before(segments))
            greedy = Fit.of(apart).first(as_written(apart)).nbytes
            yield Placed(f"{name_of(path, root)} ({solver})", len(lifetimes), layout, greedy, seconds)


def line(what: str, goal: str, measured: str, ok: bool) -> bool:
    """Print a row of the table; whether the goal is met."""
    print(f"{what:<62} {goal:>7} {measured:>12}  {'yes' if ok else 'NO'}")
    return ok


def main() -> int:
    """Place every model; print the table and one summary line."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else CORPUS
    if not root.is_dir():
        print(f"there is no corpus at {root}")
        return 2
    every = list(placed(root))
    small = [p for p in every if p.tensors <= SMALL]
    far = [p for p in every if p.ratio > NEAR]
    near = [len([p for p in some if p.ratio <= NEAR]) for some in (small, every)]
    saved = statistics.median(1 - p.layout.nbytes / p.layout.unshared_bytes for p in every if p.layout.unshared_bytes)
    larger = sum(p.arena > p.greedy for p in every)
    less = statistics.median(1 - p.arena / p.greedy for p in every if p.greedy)
    optimal = sum(p.ratio <= 1 for p in every)
    slowest = max(every, key=lambda p: p.seconds)
    rows = [
        line(f"arenas within 5 % of the bound or optimal, <= {SMALL} tensors", f"{len(small)}", f"{near[0]}", near[0] == len(small)),
        line("arenas within 5 % of the bound or optimal, all", "95 %", f"{near[1]} of {len(every)}", near[1] >= 0.95 * len(every)),
        line("arenas proven optimal for their order", "-", f"{optimal}", True),
        line("saved against bytes of its own for every tensor, median", "30 %", f"{saved:.0%}", saved >= 0.3),
        line("larger than a greedy arena (first fit, as written)", "0", f"{larger}", larger == 0),
        line("saved against the greedy arena, median", "-", f"{less:.1%}", True),
        line(
            "median seconds to place the tensors of a plan",
            "0.1 s",
            f"{(m := statistics.median(p.seconds for p in every)):.3f} s",
            m <= 0.1,
        ),
    ]
    print(f"slowest: {slowest.name}, {slowest.tensors} tensors, {slowest.seconds:.1f} s")
    for p in far:
        print(f"    {p.name}: {p.ratio:.3f} times the bound, {p.tensors} tensors")
    print(f"{sum(rows)} of {len(rows)} goals met")
    return 0 if all(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
