#!/usr/bin/env python3
"""Wall time of the command line in a fresh process, caches warm: medians of several runs against their goals.

python tests/bench_plan.py        (exit code 1 if a goal is missed)
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

MODELS = Path(__file__).parent.parent / "models"
SHARED = Path(__file__).parents[2] / "shared" / "models"
REPEATS = 7
PROMPT = ["--prompt", "512", "--generate", "128"]
CASES: tuple[tuple[str, float, list[str]], ...] = (
    ("hetsched --help", 0.3, ["--help"]),
    ("plan MobileNetV2, Snapdragon 8 Gen 3", 1.5, ["plan", str(MODELS / "mobilenet_v2.onnx"), "--soc", "snapdragon-8-gen-3"]),
    ("plan MobileNetV2, Dimensity 9300", 1.5, ["plan", str(MODELS / "mobilenet_v2.onnx"), "--soc", "dimensity-9300"]),
    ("plan MobileNetV2, Apple A17 Pro", 1.5, ["plan", str(MODELS / "mobilenet_v2.onnx"), "--soc", "apple-a17-pro"]),
    ("plan MobileNetV2, host", 1.5, ["plan", str(MODELS / "mobilenet_v2.onnx"), "--soc", "host"]),
)
#: Over the shared models, where they are.
MORE: tuple[tuple[str, float, list[str]], ...] = (
    ("plan ResNet-50, Snapdragon 8 Gen 3", 2.0, ["plan", str(SHARED / "graphs" / "resnet50.onnx"), "--soc", "snapdragon-8-gen-3"]),
    ("plan Llama-3.2-1B, both phases", 4.0, ["plan", str(SHARED / "hf" / "llama-3.2-1b"), "--soc", "snapdragon-8-gen-3", *PROMPT]),
)


def wall_s(args: list[str]) -> float:
    """Seconds of one fresh process, whose modules Python has compiled before, as it does unless it is told not to."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "hetsched", *args], check=True, capture_output=True, env=environment)
    return time.perf_counter() - began


def main() -> int:
    """Measure every case, interleaved; print a table and one summary line."""
    cases = CASES + tuple(c for c in MORE if SHARED.is_dir())
    for _, _, args in cases:
        wall_s(args)  # warm the caches
    times: dict[str, list[float]] = {name: [] for name, _, _ in cases}
    for _ in range(REPEATS):
        for name, _, args in cases:
            times[name].append(wall_s(args))
    missed = 0
    print(f"{'what':<40} {'goal':>8} {'measured':>9}  ok")
    for name, goal, _ in cases:
        median = statistics.median(times[name])
        missed += median > goal
        print(f"{name:<40} {goal:>6.2f} s {median:>7.2f} s  {'yes' if median <= goal else 'NO'}")
    print(f"{len(cases) - missed} of {len(cases)} goals met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
