#!/usr/bin/env python3
"""Predicted against measured rates of a language model on this machine: prompts and decode steps at several lengths.

    python tests/bench_host_language.py [MODEL.gguf] [--precision auto w4a8] [--prompts 64 256 512] [--contexts 128 512 1024] [--json]

Sessions are opened from plan files, as 'hetsched run PLAN --prompt' opens them, on the cores and at the precision that the plan says. They
and the probes that plans are priced by are timed in turns, so that both see the same moments of a machine that others use, too; then plans
are made as 'hetsched plan MODEL --soc host --prompt N --generate M' makes them. The fastest run counts, because load only makes things
slower; the median is shown beside it. Exit status 1 where a prediction is off by more than 10 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hetsched
from hetsched.app.generating import assistant
from hetsched.app.language import PlannedLanguage
from hetsched.app.step_costs import keep_step_times, teams_of
from hetsched.language.generation import Answer, generate
from hetsched.language.step_timing import StepTiming

MODEL = Path(__file__).parent.parent / "models" / "smollm2-135m-q4_1.gguf"
#: A prediction may be off by so much.
WITHIN = 0.1
#: Tokens of an answer.
ANSWER = 24
_TOKEN = 504


def planned(model: Path, precision: str, prompt: int) -> PlannedLanguage:
    """A prompt and its answer for this machine."""
    found = hetsched.plan(model, "host", prompt=prompt, generate=ANSWER, precision=precision, simulated=False)
    assert isinstance(found, PlannedLanguage)
    return found


class Measured:
    """A session of one precision, and the rates that it had, by phase and tokens."""

    def __init__(self, stack: ExitStack, args: argparse.Namespace, precision: str, folder: Path) -> None:
        self.args, self.precision, self.chip = args, precision, hetsched.soc("host")
        plan = planned(args.model, precision, max(*args.prompts, *args.contexts))
        assert plan.asked.steps is not None
        self.queue = plan.plan.placements[0].queue
        self.timing = stack.enter_context(StepTiming(args.model, teams_of(self.chip), plan.asked.steps.precision))
        self.opened = stack.enter_context(assistant(plan.save(folder / f"{precision}.json")))
        self.opened.model.ready()
        self.sequences = {tokens: self.opened.model.sequence() for tokens in args.contexts}
        self.rates: dict[tuple[str, int], list[float]] = {}

    def turn(self) -> None:
        """Time the probes, the prompts, and some steps of every context, once more each."""
        self.timing.turn()
        for tokens in self.args.prompts:
            table = self.opened.model.sequence()
            self._add("prefill", tokens, self._answer(tokens, table, 1).prefill_rate)
            table.cut(0)
        for tokens, table in self.sequences.items():
            self._add("decode", tokens, self._answer(tokens, table, ANSWER).decode_rate)
            table.cut(tokens - 1)

    def _answer(self, tokens: int, table: Any, most: int) -> Answer:
        answer = Answer()
        for _ in generate(self.opened.model, self.opened.vocabulary, [_TOKEN] * tokens, table, most=most, answer=answer):
            pass
        return answer

    def _add(self, phase: str, tokens: int, rate: float) -> None:
        if rate:  # of an answer of one token there is none
            self.rates.setdefault((phase, tokens), []).append(rate)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Predicted and measured tokens a second."""
        keep_step_times(self.args.model, self.chip, "", self.timing.times())
        for (phase, tokens), rates in self.rates.items():
            plan = planned(self.args.model, self.precision, tokens)
            assert {p.queue for p in plan.plan.placements} == {self.queue}
            predicted = plan.prediction.prefill_rate if phase == "prefill" else plan.prediction.decode_rate
            error = predicted / max(rates) - 1.0
            yield {
                "phase": phase, "tokens": tokens, "precision": self.opened.model.precision, "queue": self.queue,
                "threads": self.opened.model.threads, "predicted": predicted, "fastest": max(rates), "median": statistics.median(rates),
                "error": error, "ok": abs(error) <= WITHIN,
            }  # fmt: skip


def show(rows: Sequence[dict[str, Any]]) -> None:
    """A table and a summary line."""
    head = f"{'phase':<8} {'tokens':>6} {'precision':<9} {'queue':<8} {'threads':>7}"
    print(f"{head} {'predicted':>10} {'fastest':>9} {'median':>9} {'error':>8}  ok")
    for r in rows:
        where = f"{r['phase']:<8} {r['tokens']:>6} {r['precision']:<9} {r['queue']:<8} {r['threads']:>7}"
        rates = f"{r['predicted']:>10.1f} {r['fastest']:>9.1f} {r['median']:>9.1f} {100 * r['error']:>6.1f} %"
        print(f"{where} {rates}  {'yes' if r['ok'] else 'NO'}")
    worst = max(abs(r["error"]) for r in rows)
    print(
        f"tokens a second: {sum(r['ok'] for r in rows)} of {len(rows)} predictions within {100 * WITHIN:.0f} % (worst {100 * worst:.1f} %)"
    )


def main() -> int:
    """Plan, measure, print; 1 if a prediction is off."""
    parser = argparse.ArgumentParser(description="Predicted against measured rates of a language model on this machine.")
    parser.add_argument("model", nargs="?", type=Path, default=MODEL)
    parser.add_argument("--precision", nargs="+", default=["auto", "w4a8"])
    parser.add_argument("--prompts", nargs="+", type=int, default=[64, 256, 512])
    parser.add_argument("--contexts", nargs="+", type=int, default=[128, 512, 1024])
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.model.is_file():
        print(f"there is no model at {args.model}: run 'make models'", file=sys.stderr)
        return 1
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        measured = [Measured(stack, args, precision, folder) for precision in args.precision]
        for _ in range(args.turns):
            for one in measured:
                one.turn()
        if cores:
            os.sched_setaffinity(0, cores)  # sessions pin the thread that computes
        rows = [row for one in measured for row in one.rows()]
    print(json.dumps({"rows": rows, "notes": hetsched.soc("host").notes}, indent=1)) if args.json else show(rows)
    return 0 if all(r["ok"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
