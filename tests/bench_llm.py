#!/usr/bin/env python3
"""Text generation on this machine beside llama.cpp, in turns, and against measured bandwidth (``make bench-llm``).

    python tests/bench_llm.py [MODEL.gguf] [--threads 1 2] [--contexts 128 512 1024 2048 4096] [--rounds N] [--json]

Every round measures all settings of both, so that a slow moment hits some rounds of each; medians of wall time are compared, and of
processor time on one thread. The roofline is how long the same threads take to read as many bytes as a step reads (matrices once, cached
keys and values), right before it.

llama.cpp is what ``llama-cpp-python`` built; where it is not installed its columns are empty. GCC 12 leaves out the rows of the tile
configuration that its AMX code loads (it is told of 8 bytes that are read, not of 64), which ends the process at the first tile: build
it with ``-fno-dse`` in ``CMAKE_CXX_FLAGS``. Where that was not done, its repacked buffers are left out, and a line says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from hetsched.language.session import LanguageModel
from hetsched_kernels import measure

MODEL = Path(__file__).parent.parent / "models" / "smollm2-135m-q4_1.gguf"
PROMPTS = (128, 512)
STEPS = 6
#: Decode and prefill at least so much of llama.cpp's rate; decode at least so much of what the bandwidth allows.
DECODE, PREFILL, ROOFLINE = 1.0, 0.8, 0.7
NEAR = 512
_PROBE = "import sys; sys.path[:0] = {path!r}; import bench_llm as b; b.Peer({model!r}, 1, 64, False).decode(4, 1)"


class Peer:
    """llama.cpp on the same file."""

    def __init__(self, model: str, threads: int, context: int, plain: bool) -> None:
        import llama_cpp

        module: Any = llama_cpp.llama_cpp
        defaults = module.llama_model_default_params

        def without_extra() -> Any:
            params = defaults()
            params.use_extra_bufts = False
            return params

        module.llama_model_default_params = without_extra if plain else defaults
        try:
            self.llama = llama_cpp.Llama(model, n_ctx=context, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)
        finally:
            module.llama_model_default_params = defaults

    def prefill(self, tokens: int) -> Callable[[], None]:
        """A run of a prompt."""
        self.llama.reset()
        return lambda: self.llama.eval([504] * tokens)

    def decode(self, context: int, steps: int) -> Callable[[], None]:
        """A run of decode steps after a context."""
        self.llama.reset()
        self.llama.eval([504] * context)

        def run() -> None:
            for _ in range(steps):
                self.llama.eval([504])

        return run


class Ours:
    """This project's programs."""

    def __init__(self, model: str, threads: int, context: int) -> None:
        self.model = LanguageModel(model, cores=tuple(range(threads)), context=context)
        self.model.ready()
        self.table = self.model.sequence()

    def prefill(self, tokens: int) -> Callable[[], None]:
        """A run of a prompt."""
        self.table.cut(0)
        return lambda: self._compute([504] * tokens)

    def decode(self, context: int, steps: int) -> Callable[[], None]:
        """A run of decode steps after a context."""
        self.table.cut(0)
        self._compute([504] * context)

        def run() -> None:
            for _ in range(steps):
                self._compute([504])

        return run

    def _compute(self, tokens: list[int]) -> None:
        self.model.compute(tokens, self.table)


def reading(threads: int, data: Any) -> Callable[[], None]:
    """A run in which so many threads read all of the data together."""
    workers = [Thread(target=measure.read_bandwidth, args=(part,)) for part in np.array_split(data, threads)]

    def run() -> None:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    return run


def free_to_move(cores: frozenset[int]) -> None:
    """Let this thread run on ``cores``: ours pins it to one, and llama.cpp's threads would inherit that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def seconds(run: Callable[[], None]) -> tuple[float, float]:
    """Wall and processor time of a run."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def peer_of(model: str, threads: int, context: int) -> Peer | None:
    """llama.cpp, if it is installed."""
    try:
        import llama_cpp  # noqa: F401
    except ImportError:
        return None
    probe = _PROBE.format(path=[str(Path(__file__).parent), *sys.path], model=model)
    plain = subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode < 0
    if plain:
        print("llama.cpp's repacked buffers end the process: it is measured without them", file=sys.stderr)
    return Peer(model, threads, context, plain)


def measured(args: argparse.Namespace, threads: int) -> list[dict[str, Any]]:
    """Rows of one number of threads."""
    cores = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
    most = max(*args.contexts, *PROMPTS) + STEPS + 1
    both: dict[str, Any] = {"ours": Ours(str(args.model), threads, most), "peer": peer_of(str(args.model), threads, most)}
    model: LanguageModel = both["ours"].model
    data = np.ones(bytes_of_step(model, most) // 4, np.float32)
    jobs = [("prefill", n) for n in PROMPTS] + [("decode", n) for n in args.contexts]
    times: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for _ in range(args.rounds):
        for kind, size in jobs:
            free_to_move(cores)
            if kind == "decode":
                read = reading(threads, data[: bytes_of_step(model, size) // 4])
                times.setdefault(("reading", kind, size), []).append(seconds(read))
            for who, runner in both.items():
                if runner is not None:
                    free_to_move(cores)
                    run = runner.prefill(size) if kind == "prefill" else runner.decode(size, STEPS)
                    times.setdefault((who, kind, size), []).append(seconds(run))
    rows = [_row(kind, size, threads, times, bytes_of_step(model, size)) for kind, size in jobs]
    model.close()
    return rows


def bytes_of_step(model: LanguageModel, context: int) -> int:
    """Bytes that a decode step reads: the matrices, and keys and values of the context."""
    cache = model.pool.shape
    return int(model.weight_bytes + model.pool.page_bytes * cache.layers * context // cache.page)


def _row(kind: str, size: int, threads: int, times: Any, nbytes: int) -> dict[str, Any]:
    tokens, which = (size if kind == "prefill" else STEPS), 1 if threads == 1 else 0
    found = {who: statistics.median(t[which] for t in all_) for (who, *what), all_ in times.items() if what == [kind, size]}
    row: dict[str, Any] = {"what": f"{kind} {size}", "threads": threads, "tok_s": tokens / found["ours"]}
    row |= {"peer_tok_s": tokens / found["peer"], "of_peer": found["peer"] / found["ours"]} if "peer" in found else {}
    goal = PREFILL if kind == "prefill" else DECODE
    row["ok"] = row.get("of_peer", goal) >= goal
    if kind == "decode":
        row |= {"bytes_per_token": nbytes, "read_gb_s": nbytes / found["reading"] / 1e9}
        row["of_roofline"] = found["reading"] / (found["ours"] / STEPS)
        row["ok"] = row["ok"] and (size > NEAR or row["of_roofline"] >= ROOFLINE)
    return row


def main() -> int:
    """Print a table and one summary line; 1 if something falls short."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", type=Path, default=MODEL)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--contexts", nargs="+", type=int, default=[128, 512, 1024, 2048, 4096])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [row for threads in args.threads for row in measured(args, threads)]
    if args.json:
        print(json.dumps(rows, indent=1))
    for row in rows if not args.json else ():
        peer = f"{row['peer_tok_s']:8.1f} {row['of_peer']:6.2f}x" if "peer_tok_s" in row else f"{'-':>8} {'-':>7}"
        roof = f"{row['of_roofline']:6.0%}" if "of_roofline" in row else "     -"
        print(f"{row['what']:14} {row['threads']} thread(s) {row['tok_s']:8.1f} tok/s  llama.cpp {peer}  roofline {roof}  {row['ok']}")
    short = [r["what"] for r in rows if not r["ok"]]
    print(f"{len(rows) - len(short)} of {len(rows)} reach their goals{': short are ' + ', '.join(short) if short else ''}", file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
