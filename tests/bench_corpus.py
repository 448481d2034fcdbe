#!/usr/bin/env python3
"""Proofs on the corpus of models: ``python tests/bench_corpus.py [--every K] [--quick] [--results FILE] [--corpus FOLDER]``.

Plans every graph of ``graphs``, ``aihub`` and ``real`` on three chips for latency and for energy; prints what | goal | measured
| ok, then every case whose gap stays open, and one summary line. The exit code is 1 if a goal is missed, 2 without a corpus.
Seconds are CPU seconds of one core. ``--every 20 --quick`` takes a few minutes, the whole corpus hours of a slow machine; with
``--results`` what was measured is kept, one JSON line a case, and a later run goes on from there (after a change: another file).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

from model_checks.corpus import CORPUS, Refusal, files, load_any, name_of

from hetsched import passes
from hetsched.app.inputs import cost_table, soc, targeted
from hetsched.errors import InfeasibleError
from hetsched.graph import Graph
from hetsched.partition import Budget, Problem, Solution, solve, solver_named
from hetsched.partition.solving import parts_of

FOLDERS = ("graphs", "aihub", "real")
CHIPS = ("snapdragon-8-gen-3", "dimensity-9300", "apple-a17-pro")
OBJECTIVES = ("latency", "energy")
BASELINES = ("vendor", "rules", "heft", "peft", "cpop", "frontier-dp")
"""Besides every single queue."""
GAP = 0.01
LIMITS_S = (10.0, 40.0)
SMALL_OPS, DP_OPS = 200, 2000
LANGUAGE, LANGUAGE_S = ("graphs/llama32_1b_prefill128.onnx", "graphs/llama32_1b_decode_p512.onnx"), 5.0
MEDIAN_S, DP_S = 0.2, 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """One graph, chip and objective: ``auto`` at the smallest limit that proves it, or at the largest."""

    model: str
    chip: str
    objective: str
    ops: int
    value: float
    gap: float
    gap_first: float
    seconds: float
    seconds_first: float
    beaten_by: tuple[str, ...]
    dp_s: float

    def proven(self, within_s: float) -> bool:
        """Whether the gap was closed in so many seconds."""
        first = self.gap_first <= GAP and self.seconds_first <= within_s
        return first or (self.gap <= GAP and self.seconds <= within_s)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    goal: str
    measured: str
    ok: bool


def timed(problem: Problem, solver: str, limit_s: float = LIMITS_S[0]) -> tuple[Solution, float]:
    """A solver's answer and the CPU seconds it took."""
    began = process_time()
    return solve(problem, solver, time_limit_s=limit_s), process_time() - began


def alone(problem: Problem, solver: str) -> float:
    """CPU seconds of a solver itself, without the general bound and the causes; its compiled code loaded before."""
    part = parts_of(problem)[0][0].small
    named = solver_named(solver)
    named.solve(part, Budget())
    began = process_time()
    named.solve(part, Budget())
    return process_time() - began


def measure(model: str, chip: str, problem: Problem, quick: bool) -> Case:
    """Plan one case with ``auto`` and with every baseline."""
    best, took = timed(problem, "auto")
    again, longer = (best, took) if quick or best.gap <= GAP else timed(problem, "auto", LIMITS_S[1])
    beaten = []
    for name in (*(f"single:{q.name}" for q in problem.table.queues), *BASELINES):
        try:
            other, _ = timed(problem, name)
        except InfeasibleError:
            continue
        if other.objective < best.objective * (1 - 1e-12):
            beaten.append(name)
    figures = again.objective, again.gap, best.gap, longer, took
    return Case(model, chip, problem.objective, len(problem.table.op_names), *figures, tuple(beaten), alone(problem, "frontier-dp"))


def problems(graph: Graph) -> Iterator[tuple[str, Problem]]:
    """The planning problems of a graph, chip by chip."""
    for chip in CHIPS:
        found = soc(chip)
        made = targeted(graph, found)
        table = cost_table(made, found, "auto", "default")
        for objective in OBJECTIVES:
            yield chip, Problem.of(made, table, objective)


def cases(paths: list[Path], root: Path, results: Path | None, quick: bool) -> Iterator[Case]:
    """Every case, from ``results`` where it is there already; new ones are added to it."""
    known: dict[tuple[str, str, str], Case] = {}
    for line in results.read_text().splitlines() if results is not None and results.is_file() else ():
        row = json.loads(line)
        known[row["model"], row["chip"], row["objective"]] = Case(**row | {"beaten_by": tuple(row["beaten_by"])})
    for k, path in enumerate(paths):
        model = name_of(path, root)
        have = [known[key] for key in known if key[0] == model]
        if len(have) < len(CHIPS) * len(OBJECTIVES):
            loaded = load_any(path)
            if isinstance(loaded, Refusal):
                continue
            have = [measure(model, chip, problem, quick) for chip, problem in problems(passes.standard(loaded))]
            if results is not None:
                with results.open("a") as file:
                    file.writelines(json.dumps(asdict(case)) + "\n" for case in have)
        worst = max(case.gap for case in have)
        print(f"{k + 1}/{len(paths)} {model}: {have[0].ops} operators, widest gap {worst:.2%}", file=sys.stderr, flush=True)
        yield from have


def rows(found: list[Case]) -> Iterator[Row]:
    """What is asked of the planner."""
    beaten = [c for c in found if c.beaten_by]
    yield Row("auto is no worse than every baseline", "all", f"{len(found) - len(beaten)} of {len(found)}", not beaten)
    shares = [("", found, 0.90, 0.95), (f", at most {SMALL_OPS} operators", [c for c in found if c.ops <= SMALL_OPS], 0.0, 0.98)]
    for which, some, *goals in shares:
        for limit, goal in zip(LIMITS_S, goals, strict=True):
            yield share(f"gap of 1 % proven in {limit:.0f} s{which}", some, goal, limit)
    for objective in OBJECTIVES:
        yield share(
            f"gap of 1 % proven in {LIMITS_S[0]:.0f} s, {objective}", [c for c in found if c.objective == objective], 0.0, LIMITS_S[0]
        )
    language = [c for c in found if c.model in LANGUAGE]
    if language:
        yield share(f"Llama-3.2-1B, both phases, proven in {LANGUAGE_S:.0f} s", language, 1.0, LANGUAGE_S)
    proofs = [c.seconds for c in found if c.gap <= GAP]
    median = statistics.median(proofs) if proofs else float("inf")
    yield Row("median time to a proof", f"{MEDIAN_S} s", f"{median:.3f} s", median <= MEDIAN_S)
    slow = [c for c in found if c.ops <= DP_OPS]
    worst = max(slow, key=lambda c: c.dp_s)
    measured = f"{worst.dp_s * 1e3:.0f} ms at most ({worst.ops}), {statistics.median(c.dp_s for c in slow) * 1e3:.1f} ms median"
    yield Row(f"frontier-dp, graphs of at most {DP_OPS:,} operators", f"{DP_S * 1e3:.0f} ms", measured, worst.dp_s <= DP_S)


def share(what: str, some: list[Case], goal: float, limit: float) -> Row:
    """How many are proven within a limit."""
    proven = sum(c.proven(limit) for c in some)
    part = proven / max(1, len(some))
    return Row(what, f"{goal:.0%}" if goal else "-", f"{part:.1%} ({proven} of {len(some)})", part >= goal)


def main(arguments: list[str] | None = None) -> int:
    """Measure; print a table, the open cases and one summary line."""
    parser = argparse.ArgumentParser(description="Proven gaps on the corpus of models.")
    parser.add_argument("--every", type=int, default=1, help="only every K-th graph")
    parser.add_argument("--quick", action="store_true", help=f"no second try with {LIMITS_S[1]:.0f} s where a gap stays open")
    parser.add_argument("--results", type=Path, help="keep what was measured in this file and go on from it")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder of models")
    asked = parser.parse_args(arguments)
    paths = [p for p in files(asked.corpus) if name_of(p, asked.corpus).split("/")[0] in FOLDERS]
    if not paths:
        print(f"no corpus of models in {asked.corpus}: the proofs are left out")
        return 2
    kept = [p for k, p in enumerate(paths) if k % asked.every == 0 or name_of(p, asked.corpus) in LANGUAGE]
    found = list(cases(kept, asked.corpus, asked.results, asked.quick))
    table = list(rows(found))
    print(f"{'what':<52} {'goal':>7}  {'measured':<44} ok")
    for row in table:
        print(f"{row.what:<52} {row.goal:>7}  {row.measured:<44} {'yes' if row.ok else 'NO'}")
    for c in sorted((c for c in found if c.gap > GAP), key=lambda c: -c.gap):
        print(f"    open: {c.model} on {c.chip}, {c.objective}: {c.ops} operators, gap {c.gap:.2%} after {c.seconds:.1f} s")
    for c in (c for c in found if c.beaten_by):
        print(f"    beaten: {c.model} on {c.chip}, {c.objective}, by {', '.join(c.beaten_by)}")
    print(f"{sum(r.ok for r in table)} of {len(table)} goals met on {len(kept)} graphs")
    return 0 if all(r.ok for r in table) else 1


if __name__ == "__main__":
    sys.exit(main())
