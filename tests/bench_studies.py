#!/usr/bin/env python3
"""Studies: how 1,000 scenarios scale on two processes and on a Dask cluster of two workers over TCP, and ten kills.

python tests/bench_studies.py [SCENARIOS]        (exit code 1 if something falls short)

One process, two processes and the cluster run the same scenarios, in turns of a part of them each, so that a machine that is slow for
a while is slow for all. Simulations only: the plan and the start of the processes are in every time. What two processes of nothing but
plain Python gain on this machine, in the same turns, says how much of it there is to be had.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

SCENARIOS, ROUNDS = 1000, 2
GOALS = {"2 processes": 1.8, "Dask, 2 workers over TCP": 1.7}
KILLS = 10


def model(path: Path) -> Path:
    """Three convolutions: quickly planned, and enough work to heat a phone."""
    rng = np.random.default_rng(3)
    shapes = ((64, c, 3, 3) for c in (3, 64, 64))
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32) / 30, f"w{k}") for k, s in enumerate(shapes)]
    nodes = [helper.make_node("Conv", [f"x{k}", f"w{k}"], [f"x{k + 1}"], f"c{k}", pads=[1, 1, 1, 1]) for k in range(3)]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, c, 224, 224]) for n, c in (("x0", 3), ("x3", 64))]
    graph = helper.make_graph(nodes, "convolutions", ends[:1], ends[1:], weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString())
    return path


def study(folder: Path, count: int, seed: int) -> Path:
    """A sample of warm days."""
    path = folder / f"study{seed}.yaml"
    path.write_text(
        "title: bench\ncurves: false\nbase: {model: convolutions.onnx, soc: snapdragon-8-gen-3, duration: 1min, time_limit_s: 0.3}\n"
        f"sample: {{count: {count}, seed: {seed}, over: {{ambient: {{from: 20, to: 40}}}}}}\n"
    )
    return path


def run(folder: Path, path: Path, name: str, *options: str) -> float:
    """Wall time of a whole command, in seconds."""
    out = folder / f"{path.stem}-{name}"
    began = time.perf_counter()
    subprocess.run([*command(), str(path), "-o", str(out), "--json", *options], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def command() -> list[str]:
    """``hetsched study`` of this environment."""
    return [sys.executable, "-m", "hetsched", "study"]


@contextmanager
def cluster(workers: int) -> Iterator[str]:
    """A Dask scheduler and its workers, each a process of one thread, over TCP on this machine."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    address, null = f"tcp://127.0.0.1:{port}", subprocess.DEVNULL
    scheduler = ["dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    worker = ["dask_worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
    running = [
        subprocess.Popen([sys.executable, "-m", f"distributed.cli.{name}", *options], stdout=null, stderr=null)
        for name, *options in (scheduler, *[worker] * workers)
    ]
    try:
        wait_for(address, workers)
        yield address
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait()


def wait_for(address: str, workers: int) -> None:
    """Until the scheduler has its workers."""
    from distributed import Client

    with Client(address, timeout=60, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=60)


def bare_gain() -> float:
    """What two processes of plain Python gain here over one after the other."""
    loop = [sys.executable, "-c", "s = 0\nfor i in range(60_000_000): s += i * i % 7"]
    began = time.perf_counter()
    for _ in range(2):
        subprocess.run(loop, check=True)
    apart = time.perf_counter()
    both = [subprocess.Popen(loop) for _ in range(2)]
    for process in both:
        process.wait()
    return (apart - began) / (time.perf_counter() - apart)


def killed(folder: Path, path: Path) -> str:
    """Kill a study again and again; "" or what was lost or run twice."""
    out, rng = folder / "killed", random.Random(1)
    kept: dict[str, tuple[int, int]] = {}
    for _ in range(KILLS):
        process = subprocess.Popen([*command(), str(path), "-o", str(out), "--json", "--workers", "2"], stdout=subprocess.DEVNULL)
        while len(list(out.glob("records/*.json"))) <= len(kept) and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in out.glob("records/*.json")}
        if any(now.get(n) != stamp for n, stamp in kept.items()):
            return "a finished scenario was lost or ran twice"
        kept = now
    run(folder, path, "x", "--workers", "2")
    return ""


def main() -> int:
    """Run in turns, print what | goal | measured | ok."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else SCENARIOS
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name, cluster(2) as address:
        folder = Path(name)
        model(folder / "convolutions.onnx")
        ways = {"1 process": ("--workers", "1"), "2 processes": ("--workers", "2"), "Dask, 2 workers over TCP": ("--cluster", address)}
        times = dict.fromkeys(ways, 0.0)
        warm = study(folder, 8, 99)
        for k, options in enumerate(ways.values()):
            run(folder, warm, f"warm{k}", *options)
        bare = []
        for turn in range(ROUNDS):
            bare.append(bare_gain())
            path = study(folder, count // ROUNDS, turn)
            for k, (way, options) in enumerate(ways.items()):
                took = run(folder, path, str(k), *options)
                times[way] += took
                print(f"{f'{count // ROUNDS} scenarios, {way}, round {turn + 1}':<42} {took:>17.1f} s", flush=True)
        lost = killed(folder, study(folder, count // 4, 7))
    alone, failed = times["1 process"], 0
    print(f"{'what':<42} {'goal':>8} {'measured':>10}  ok")
    print(f"{f'{count} scenarios, 1 process':<42} {'':>8} {alone:>8.1f} s")
    print(f"{'two loops of plain Python side by side':<42} {'':>8} {sum(bare) / len(bare):>9.2f}x")
    for way, goal in GOALS.items():
        gain = alone / times[way]
        failed += gain < goal
        print(f"{f'{count} scenarios, {way}':<42} {f'>= {goal}x':>8} {gain:>9.2f}x  {'yes' if gain >= goal else 'NO'}")
    failed += bool(lost)
    print(f"{f'killed {KILLS} times':<42} {'nothing':>8} {lost or 'nothing':>10}  {'NO' if lost else 'yes'}")
    print("all goals met" if not failed else f"{failed} goal(s) missed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
