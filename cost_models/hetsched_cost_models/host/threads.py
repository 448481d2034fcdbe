"""What two or more threads of this machine do together: read memory, and wake each other.

Importing this module imports numba.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from hetsched_cost_models.host.timing import pinned
from hetsched_kernels import codes, fence, reduce

#: What a signal between two spinning threads cannot be: beyond, somebody else had the core.
SYNC_LIMIT_S = 200e-6
#: What is assumed then: a few dispatches and two transfers of a cache line.
SYNC_ESTIMATE_S = 5e-6
#: What is assumed on one core, where the two take turns: a typical wake-up by the scheduler.
WAKE_UP_S = 30e-6

_READ_BYTES = 128 << 20
_SPINS = 1 << 17
_LAPS = 60
_BATCHES = 8
_TRIES = 3


def read_bandwidth(cores: Sequence[int], repeats: int = 12) -> float:
    """Bytes per second that the cores read together, each from its own large array; the fastest repeat."""
    per_core = _READ_BYTES // len(cores) // 4
    arrays = [np.ones(per_core, np.float32) for _ in cores]
    kernel = reduce.reduce_f32.compile()
    kernel(arrays[0], np.empty(1, np.float32), codes.SUM, 1, per_core, 1)
    best = float("inf")
    for _ in range(repeats):
        start, stamps = threading.Barrier(len(cores)), list[tuple[float, float]]()
        threads = [
            threading.Thread(target=_read, args=(core, array, kernel, start, stamps)) for core, array in zip(cores, arrays, strict=True)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        best = min(best, elapsed_s(stamps))
    return 4.0 * per_core * len(cores) / best


def elapsed_s(stamps: Sequence[tuple[float, float]]) -> float:
    """Seconds from when the first worker began until the last ended, by their own clocks: who waits for them may get a core late."""
    return max(end for _, end in stamps) - min(begin for begin, _ in stamps)


def _read(core: int, array: Any, kernel: Callable[..., None], start: threading.Barrier, stamps: list[tuple[float, float]]) -> None:
    with pinned((core,)):
        out = np.empty(1, np.float32)
        start.wait()
        begin = time.perf_counter()
        kernel(array, out, codes.SUM, 1, array.size, 1)
        stamps.append((begin, time.perf_counter()))


def sync_s(cores: Sequence[int]) -> float | None:
    """Seconds from one pinned worker's signal until another one runs on, both through the kernels' flags.

    The typical lap of the fastest of a few short batches; a batch in which a wait gave up does not count. None: there are
    fewer than two cores, or no batch of three tries was undisturbed (the caller then assumes something, and says so).
    """
    if len(cores) < 2:
        return None
    pair = (cores[0], cores[len(cores) // 2])
    for _ in range(_TRIES):
        laps = [lap for lap in (_batch(*pair) for _ in range(_BATCHES)) if lap is not None]
        if laps and min(laps) <= SYNC_LIMIT_S:
            return min(laps)
    return None


def _batch(first: int, second: int) -> float | None:
    """The median half lap of a short ping-pong; None if either side waited in vain."""
    flags = np.zeros(16, np.int64)
    signal, wait = fence.signal.compile(), fence.wait_ge.compile()
    failed = threading.Event()

    def partner() -> None:
        with pinned((second,)):
            for i in range(1, _LAPS + 1):
                if not _patient(wait, flags, 0, i):
                    failed.set()
                    return
                signal(flags, 8, i)

    thread = threading.Thread(target=partner)
    thread.start()
    laps: list[float] = []
    with pinned((first,)):
        for i in range(1, _LAPS + 1):
            begin = time.perf_counter()
            signal(flags, 0, i)
            if not _patient(wait, flags, 8, i):
                failed.set()
                break
            laps.append(time.perf_counter() - begin)
    thread.join()
    return None if failed.is_set() else median(laps) / 2.0


def _patient(wait: Callable[..., Any], flags: Any, index: int, value: int) -> bool:
    """Wait for a flag: spin, and let others run between a few spells; whether it was set in the end."""
    for _ in range(20):
        if wait(flags, index, value, _SPINS):
            return True
        time.sleep(1e-4)
    return False
