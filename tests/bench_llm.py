#!/usr/bin/env python3
"""Text generation on this machine beside llama.cpp, in turns, and against measured bandwidth (``make bench-llm``).

    python tests/bench_llm.py [MODEL.gguf] [--threads 1 2] [--contexts 128 512 1024 2048 4096] [--rounds N] [--json]

A round measures how fast memory is read, then each precision of ours, then llama.cpp, one right after the other, so that a slow moment
hits all of them; ratios are medians over the rounds of one setting, of wall and of processor time (which says nothing where threads wait
by spinning, on more than one). The longest context is computed once, shorter ones are cut from it. llama.cpp has a process of its own
(``llm_peer.py``); where ``llama-cpp-python`` is not installed its columns are empty.

The roofline is how long the same cores take to read as many bytes as a step reads: every matrix once, cached keys and values. Goals are
for ``w4a8`` without protected weights, whose activations are all int8 as llama.cpp's are, the head's too; ``w4a16`` is what
``hetsched run`` does unless told otherwise. On one thread they are of processor time.

GCC 12 takes ``_tile_loadconfig`` to read 8 bytes of the tile configuration, which are 64, and leaves out what writes the others: llama.cpp
then ends at its first tile. ``make llm-peers`` builds it with ``-fno-dse``. A library that ends all the same is measured without its
repacked buffers, and its rows say so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, Protocol

import numpy as np
from llm_peer import TOKEN, Peer, installed

from hetsched.language.session import LanguageModel
from hetsched.runtime.affinity import pin_to
from hetsched_kernels import measure

MODEL = Path(__file__).parent.parent / "models" / "smollm2-135m-q4_1.gguf"
PROMPTS = (128, 512)
STEPS = 6
#: The precision that goals are for, and the others.
LIKE, OTHERS = "w4a8", ("w4a16",)
#: Decode and prefill at least so much of llama.cpp's rate; decode at least so much of what the bandwidth allows.
DECODE, PREFILL, ROOFLINE = 1.0, 0.8, 0.7
NEAR = 512
#: Threads of a run that has ended may spin for so long.
_SETTLE_S = 0.01
_COLUMNS = (("what", -13), ("threads", 7), ("precision", 9), ("tok/s", 7), ("llama.cpp", 9), ("ratio", 6), ("of CPU", 6), ("MB/token", 8),
            ("GB/s", 5), ("roofline", 8), ("ok", 3))  # fmt: skip

Took = tuple[float, float]


class Setting(NamedTuple):
    """What is measured: ``calls`` calls of ``tokens`` new tokens each, after ``before`` tokens."""

    name: str
    before: int
    tokens: int
    calls: int

    @property
    def decodes(self) -> bool:
        """Whether it is decode steps."""
        return self.tokens == 1


class Runner(Protocol):
    """Who computes it."""

    def seconds(self, before: int, tokens: int, calls: int) -> Took:
        """Wall and processor time of the calls."""


class Ours:
    """This project's programs."""

    def __init__(self, model: str, threads: int, context: int, precision: str) -> None:
        self.model = LanguageModel(model, cores=cores(threads), context=context, precision=precision, protect=())
        self.model.ready()
        self.table = self.model.sequence()

    def seconds(self, before: int, tokens: int, calls: int) -> Took:
        """Wall and processor time of the calls."""
        self.table.cut(min(before, self.table.length))
        if self.table.length < before:
            self.model.compute([TOKEN] * (before - self.table.length), self.table)
        wall, own = time.perf_counter(), time.process_time()
        for _ in range(calls):
            self.model.compute([TOKEN] * tokens, self.table)
        return time.perf_counter() - wall, time.process_time() - own


class Reading:
    """Reads as many bytes as the steps do, on the same cores."""

    def __init__(self, model: LanguageModel, threads: int, context: int) -> None:
        self.model, self.cores = model, cores(threads)
        self.data = np.ones(bytes_of_step(model, context) // 4, np.float32)

    def seconds(self, before: int, tokens: int, calls: int) -> Took:
        """Wall and processor time of reading for ``calls`` steps."""
        parts = np.array_split(self.data[: bytes_of_step(self.model, before) // 4], len(self.cores))
        workers = [Thread(target=self._read, args=(*each, calls)) for each in zip(self.cores, parts, strict=True)]
        wall, own = time.perf_counter(), time.process_time()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return time.perf_counter() - wall, time.process_time() - own

    @staticmethod
    def _read(core: int, part: Any, calls: int) -> None:
        pin_to((core,))
        for _ in range(calls):
            measure.read_bandwidth(part)


def cores(threads: int) -> tuple[int, ...]:
    """The cores that so many threads run on."""
    return tuple(sorted(_USABLE))[:threads]


_USABLE = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset(range(os.cpu_count() or 1))


def bytes_of_step(model: LanguageModel, context: int) -> int:
    """Bytes that a decode step reads: the matrices (rows of an embedding alone are nothing), and keys and values of the context."""
    cache = model.pool.shape
    return int(model.weight_bytes + model.pool.page_bytes * cache.layers * context // cache.page)


def settings(contexts: list[int]) -> list[Setting]:
    """Prompts, then contexts from the longest to the shortest."""
    prompts = [Setting(f"prefill {n}", 0, n, 1) for n in PROMPTS]
    return prompts + [Setting(f"decode {n}", n, 1, STEPS) for n in sorted(contexts, reverse=True)]


def measured(args: argparse.Namespace, threads: int) -> Iterator[dict[str, Any]]:
    """Rows of one number of threads."""
    most, path = max(*args.contexts, *PROMPTS) + STEPS + 1, str(args.model)
    with ExitStack() as stack:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, _USABLE)  # ours pins this thread, and a process that it starts would inherit that
        peer = stack.enter_context(Peer(path, threads, most)) if installed() else None
        ours = {precision: Ours(path, threads, most, precision) for precision in (LIKE, *OTHERS)}
        for one in ours.values():
            stack.callback(one.model.close)
        reading = Reading(ours[LIKE].model, threads, most)
        for setting in settings(args.contexts):
            runners: dict[str, Runner] = {"reading": reading} if setting.decodes else {}
            runners |= {**ours, **({"llama.cpp": peer} if peer is not None else {})}
            times = rounds(runners, setting, args.rounds)
            for precision, one in ours.items():
                about = {"threads": threads, "precision": precision, "plain": peer is not None and peer.plain}
                found = about | row(setting, precision, times, bytes_of_step(one.model, setting.before))
                yield found | {"ok": verdict(found)}


def rounds(runners: dict[str, Runner], setting: Setting, count: int) -> dict[str, list[Took]]:
    """Times of all runners, in turns."""
    before, tokens, calls = setting[1:]
    times: dict[str, list[Took]] = {who: [] for who in runners}
    for turn in range(count + 1):
        for who, runner in runners.items():
            if turn == 0:  # a context that lacks is computed, code and pages are touched
                runner.seconds(before, 1, 1)
                continue
            time.sleep(_SETTLE_S)
            times[who].append(runner.seconds(before, tokens, calls))
    return times


def row(setting: Setting, precision: str, times: dict[str, list[Took]], nbytes: int) -> dict[str, Any]:
    """What the times of a setting say of a precision."""
    tokens, own = setting.tokens * setting.calls, times[precision]

    def rate(who: str) -> float:
        return tokens / statistics.median(wall for wall, _ in times[who])

    def share(who: str, which: int) -> float:
        return statistics.median(theirs[which] / ours[which] for theirs, ours in zip(times[who], own, strict=True))

    found: dict[str, Any] = {"what": setting.name, "tok_s": rate(precision)}
    if "llama.cpp" in times:
        found |= {"peer_tok_s": rate("llama.cpp"), "of_peer": share("llama.cpp", 0), "of_peer_processor_time": share("llama.cpp", 1)}
    if setting.decodes:
        found |= {"mb_per_token": nbytes / 1e6, "read_gb_s": nbytes * rate("reading") / 1e9, "of_roofline": share("reading", 0)}
    return found


def verdict(found: dict[str, Any]) -> bool | None:
    """Whether a row reaches its goals; None where it has none."""
    if found["precision"] != LIKE:
        return None
    decodes = "of_roofline" in found
    ratio = found.get("of_peer_processor_time" if found["threads"] == 1 else "of_peer")
    beside = ratio is None or ratio >= (DECODE if decodes else PREFILL)
    near = decodes and int(found["what"].split()[1]) <= NEAR
    return beside and (not near or found["of_roofline"] >= ROOFLINE)


def line(cells: Sequence[str]) -> str:
    """A row of the table."""
    return "  ".join(cell.ljust(-width) if width < 0 else cell.rjust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True))


def cells(found: dict[str, Any]) -> list[str]:
    """What a row shows; a dash where nothing was measured."""
    shown = {
        "tok_s": "{:.1f}", "peer_tok_s": "{:.1f}", "of_peer": "{:.2f}x", "of_peer_processor_time": "{:.2f}x", "mb_per_token": "{:.1f}",
        "read_gb_s": "{:.1f}", "of_roofline": "{:.0%}",
    }  # fmt: skip
    figures = [form.format(found[key]) if key in found else "-" for key, form in shown.items()]
    return [found["what"], str(found["threads"]), found["precision"], *figures, {True: "yes", False: "NO", None: ""}[found["ok"]]]


def main() -> int:
    """Print a table and one summary line; 1 if something falls short."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", type=Path, default=MODEL)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--contexts", nargs="+", type=int, default=[128, 512, 1024, 2048, 4096])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    print(end="" if args.json else line([name for name, _ in _COLUMNS]) + "\n")
    for threads in args.threads:
        for found in measured(args, threads):
            rows.append(found)
            said = line(cells(found)) + ("  llama.cpp without repacked buffers" if found["plain"] else "")
            print(end="" if args.json else f"{said}\n", flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))
    judged = [r for r in rows if r["ok"] is not None]
    short = [f"{r['what']} on {r['threads']}" for r in judged if not r["ok"]]
    said = f"; short: {', '.join(short)}" if short else ""
    print(f"{len(judged) - len(short)} of {len(judged)} reach their goals{said}", file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
