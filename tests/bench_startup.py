#!/usr/bin/env python3
"""From the start of a process to its first result, for plans that ran before on this machine.

python tests/bench_startup.py        (exit code 1 if a goal is missed)

A time is that of the whole process, until it has ended: interpreter, imports, executable, two inferences (the first one warms up) and
its output. Processor time is printed beside it, which other work on the machine changes less.
"""

from __future__ import annotations

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
REPEATS = 9
API = "import sys, hetsched; print(next(iter(hetsched.run(sys.argv[1], repeat=1).outputs.values())).shape)"
#: Python compiles the modules once, as it does unless it is told not to.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def measured(command: list[str]) -> tuple[float, float]:
    """Seconds of a fresh process, and its processor time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, capture_output=True, env=ENVIRONMENT)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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


def main() -> int:
    """Measure every case, interleaved; print a table and one summary line."""
    with tempfile.TemporaryDirectory() as folder:
        known = list(cases(Path(folder)))
        times: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in known}
        for repeat in range(REPEATS + 2):
            for name, goal, command in known:
                if goal is None:
                    if repeat % 4:
                        continue
                    plan = command[3].replace("NEW", f"{repeat}.json")  # another file: nothing is stored for it
                    shutil.copy(command[3].removesuffix(".NEW"), plan)
                    command = [*command[:3], plan, *command[4:]]
                took = measured(command)
                if repeat >= 2 or goal is None:
                    times[name].append(took)
    missed = 0
    print(f"{'what':<58} {'goal':>8} {'median':>8} {'best':>8} {'processor':>10}  ok")
    for name, goal, _ in known:
        walls, own = zip(*times[name], strict=True)
        median = statistics.median(walls)
        missed += goal is not None and median > goal
        said = "" if goal is None else "yes" if median <= goal else "NO"
        wanted = "" if goal is None else f"{goal * 1e3:.0f} ms"
        print(f"{name:<58} {wanted:>8} {median * 1e3:>5.0f} ms {min(walls) * 1e3:>5.0f} ms {statistics.median(own) * 1e3:>7.0f} ms  {said}")
    total = sum(goal is not None for _, goal, _ in known)
    print(f"{total - missed} of {total} goals met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
