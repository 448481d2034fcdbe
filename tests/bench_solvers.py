#!/usr/bin/env python3
"""Task graphs: tasks a second and proofs (CPU time), makespans against anrg-saga: ``python tests/bench_solvers.py [PEERS]``.

PEERS is a folder that holds the package ``saga``; without it, and without the package, the comparison is left out and said so.
Prints what | goal | measured | ok and one summary line; the exit code is 1 if a goal is missed. It takes about two minutes.
The model corpus has its own: ``bench_corpus.py``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from time import process_time, thread_time
from typing import NamedTuple

from task_graphs.checking import faults
from task_graphs.generated import KINDS, tasks_of

from hetsched.partition.list_scheduling import Tasks, best, cpop, heft, peft
from hetsched.partition.task_graphs import ilp

LARGE = 100_000
GOALS = {"dnn": 5e6, "layered": 0.8e6}
"""Tasks a second of ``heft``."""
SPEEDUP = 1000.0
SEEDS = 12
"""Instances of each of saga's seven families."""
SAME = 1 + 1e-9
PROOFS = (("dnn", 100, 5.0, 0.0, 49.801), ("dnn", 1000, 40.0, 0.0, 0.0), ("layered", 100, 10.0, 0.002, 0.0))
"""Kind, tasks, CPU seconds, gap asked for (0: a proof of optimality), and the optimum where the study gives one (0: it does not)."""
PROOF_SHARE = 0.8
"""Of those seconds, what ``ilp`` is told."""
ROUNDED = 1e-4


class Row(NamedTuple):
    """One line of the table."""

    what: str
    goal: str
    measured: str
    ok: bool


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """Least thread CPU seconds of a call."""
    call()
    times = []
    for _ in range(repeats):
        began = thread_time()
        call()
        times.append(thread_time() - began)
    return min(times)


def fresh(tasks: Tasks) -> Tasks:
    """The same packed graph without what a former call kept."""
    return Tasks(**{name: getattr(tasks, name) for name in Tasks.__dataclass_fields__})


def rates() -> Iterator[Row]:
    """Tasks a second at 100,000 tasks, ranks included, the graph packed before."""
    for kind, draw in KINDS.items():
        tasks = tasks_of(draw(LARGE))
        for scheduler in (heft, peft, cpop):
            rate = LARGE / seconds(lambda s=scheduler, t=tasks: s(fresh(t)))
            goal = GOALS[kind] if scheduler is heft else 0.0
            asked = f"{goal / 1e6:.1f} M/s" if goal else "-"
            yield Row(f"{scheduler.__name__}, {kind}, {LARGE:,} tasks", asked, f"{rate / 1e6:.2f} M/s", rate >= goal)


def proofs() -> Iterator[Row]:
    """``ilp``: schedules and bounds; the study's reference optimum has costs rounded to 0.001, up to ``ROUNDED`` of the makespan in all."""
    for kind, n, limit, goal, known in PROOFS:
        tasks = tasks_of(KINDS[kind](n))
        began = process_time()
        proven = ilp(tasks, limit * PROOF_SHARE)
        took, right = process_time() - began, not faults(tasks, proven.placed)
        asked = "optimal" if goal == 0 else f"gap {goal:.1%}"
        ok = right and took <= limit and (proven.status == "optimal" or proven.gap <= goal)
        found = f"{proven.placed.makespan:.3f} >= {proven.bound:.3f}, gap {proven.gap:.4%}, {proven.status}, {took:.1f} s"
        yield Row(f"ilp, {kind}-{n}", f"{asked}, {limit:.0f} s", found, ok)
        if known:
            near = abs(proven.placed.makespan / known - 1) <= ROUNDED
            yield Row(f"ilp, {kind}-{n}, makespan", f"{known:.3f}", f"{proven.placed.makespan:.3f}", near)


def against_saga() -> Iterator[Row]:
    """saga's HEFT on the same graphs: makespan and time."""
    from task_graphs.saga_instances import HeftScheduler, drawn_instance

    for kind, draw in KINDS.items():
        for n in (100, 1000, 5000):
            drawn = draw(n)
            tasks, (graph, network) = tasks_of(drawn), drawn_instance(drawn)
            began = thread_time()
            theirs = float(HeftScheduler().schedule(network, graph).makespan)
            slow = thread_time() - began
            placed, quick = heft(tasks), seconds(lambda t=tasks: heft(fresh(t)))
            ok = placed.makespan <= theirs * SAME and not faults(tasks, placed)
            yield Row(f"heft, {kind}, {n} tasks, makespan", f"{theirs:.2f}", f"{placed.makespan:.2f}", ok)
            goal = SPEEDUP if n == 5000 else 0.0
            asked = f"{goal:,.0f} x" if goal else "-"
            yield Row(f"heft, {kind}, {n} tasks, faster than saga", asked, f"{slow / quick:,.0f} x ({slow:.2f} s)", slow >= goal * quick)


def on_sagas_instances() -> Iterator[Row]:
    """Never worse than the best valid one of saga's HEFT and CPoP (it has no PEFT)."""
    from task_graphs.saga_instances import FAMILIES, as_tasks, best_of_saga, instances

    ratios: dict[str, list[float]] = {family: [] for family in FAMILIES}
    invalid = 0
    for name, graph, network in instances(SEEDS):
        tasks = as_tasks(graph, network)[0]
        found = [heft(tasks), peft(tasks), cpop(tasks), best(tasks)]
        invalid += sum(bool(faults(tasks, p)) for p in found)
        ratios[name.rpartition("-")[0]].append(found[-1].makespan / best_of_saga(graph, network))
    for family, row in ratios.items():
        measured = f"{max(row):.4f} at most, {sum(row) / len(row):.4f} on average"
        yield Row(f"best / best of saga's, {len(row)} {family}", "1", measured, max(row) <= SAME)
    yield Row("invalid schedules of ours there", "0", str(invalid), invalid == 0)


def main(peers: str = "") -> int:
    """Measure everything; print a table and one summary line."""
    if peers:
        sys.path.append(peers)
    logging.disable(logging.WARNING)
    parts = [rates, proofs]
    if find_spec("saga"):
        parts += [against_saga, on_sagas_instances]
    rows = []
    print(f"{'what':<48} {'goal':>10}  {'measured':<34} ok")
    for part in parts:
        for row in part():
            rows.append(row)
            print(f"{row.what:<48} {row.goal:>10}  {row.measured:<34} {'yes' if row.ok else 'NO'}", flush=True)
    left_out = "" if find_spec("saga") else "; anrg-saga is not installed: the comparison with it is left out"
    print(f"{sum(r.ok for r in rows)} of {len(rows)} goals met{left_out}")
    return 0 if all(r.ok for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
