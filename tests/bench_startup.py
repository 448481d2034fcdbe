#!/usr/bin/env python3
"""From the start of a process to its first result, for plans that ran before on this machine.

python tests/bench_startup.py        (exit code 1 if a goal is missed)

A time is that of the whole process, until it has ended: interpreter, imports, executable, two inferences (the first one warms up) and
its output; of a language model one token after a prompt of 16. Processor time is printed beside it, which other work on the machine
changes less.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MODELS = Path(__file__).parent.parent / "models"
CASES = (("MobileNetV2 float32", "mobilenet_v2.onnx", "float"), ("MobileNetV2 INT8", "mobilenet_v2_qdq.onnx", "auto"))
GOAL_S = 0.5
LANGUAGE = MODELS / "smollm2-135m-q4_1.gguf"
#: 16 tokens as they are.
PROMPT = "The capital of France is the city of Paris, and the capital of Spain is"
#: From the start of the process to its end after the first token; from the prompt to the first token.
LANGUAGE_S, FIRST_TOKEN_S = 2.0, 0.5
REPEATS = 9
API = "import sys, hetsched; print(next(iter(hetsched.run(sys.argv[1], repeat=1).outputs.values())).shape)"
#: Python compiles the modules once, as it does unless it is told not to.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def measured(command: list[str]) -> tuple[float, float, str]:
    """Seconds of a fresh process, its processor time, and its output."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, env=ENVIRONMENT)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout.decode()


def cases(folder: Path) -> Iterator[tuple[str, float | None, list[str]]]:
    """What is measured, its goal, and the command; the plans are made here."""
    for name, model, precision in CASES:
        plan = folder / f"{Path(model).stem}.json"
        subprocess.run(
            [sys.executable, "-m", "hetsched", "plan", str(MODELS / model), "--soc", "host", "--precision", precision, "-o", str(plan)],
            check=True, capture_output=True, env=ENVIRONMENT,
        )  # fmt: skip
        yield f"hetsched run, {name}", GOAL_S, ["-m", "hetsched", "run", str(plan), "--repeat", "1", "--json"]
        yield f"hetsched.run(), {name}", GOAL_S, ["-c", API, str(plan)]
        yield f"the same plan, never run before, {name}", None, ["-m", "hetsched", "run", f"{plan}.NEW", "--repeat", "1", "--json"]
    if LANGUAGE.exists():
        asked = ["--prompt", PROMPT, "--raw", "--generate", "1", "--json"]
        yield "hetsched run --prompt, SmolLM2-135M Q4_1, 16 tokens", LANGUAGE_S, ["-m", "hetsched", "run", str(LANGUAGE), *asked]


def main() -> int:
    """Measure every case, interleaved; print a table and one summary line."""
    with tempfile.TemporaryDirectory() as folder:
        known = list(cases(Path(folder)))
        times: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in known}
        first: list[tuple[float, float]] = []
        for repeat in range(REPEATS + 2):
            for name, goal, command in known:
                if goal is None:
                    if repeat % 4:
                        continue
                    plan = command[3].replace("NEW", f"{repeat}.json")  # another file: nothing is stored for it
                    shutil.copy(command[3].removesuffix(".NEW"), plan)
                    command = [*command[:3], plan, *command[4:]]
                *took, output = measured(command)
                if repeat >= 2 or goal is None:
                    times[name].append((took[0], took[1]))
                    if "--prompt" in command:
                        first.append((json.loads(output)["ttft_ms"] / 1e3, math.nan))
    rows = [(name, goal, times[name]) for name, goal, _ in known] + [("its first token, from the prompt's tokens on", FIRST_TOKEN_S, first)]
    print(f"{'what':<58} {'goal':>8} {'median':>8} {'best':>8} {'processor':>10}  ok")
    good = [row(*each) for each in rows if each[2]]
    judged = [ok for ok in good if ok is not None]
    print(f"{sum(judged)} of {len(judged)} goals met")
    return 0 if all(judged) else 1


def row(name: str, goal: float | None, times: list[tuple[float, float]]) -> bool | None:
    """Print a row of the table; whether its goal is met, None where it has none."""
    walls, own = zip(*times, strict=True)
    median, processor = statistics.median(walls), statistics.median(own)
    ok = None if goal is None else median <= goal
    wanted, said = "" if goal is None else f"{goal * 1e3:.0f} ms", {None: "", True: "yes", False: "NO"}[ok]
    used = f"{'':>7}   " if math.isnan(processor) else f"{processor * 1e3:>7.0f} ms"
    print(f"{name:<58} {wanted:>8} {median * 1e3:>5.0f} ms {min(walls) * 1e3:>5.0f} ms {used}  {said}")
    return ok


if __name__ == "__main__":
    sys.exit(main())
