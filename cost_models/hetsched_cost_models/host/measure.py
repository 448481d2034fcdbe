"""Measure this machine: bandwidth, peaks, the achieved rates of the project's kernels, overheads. A few seconds.

Importing this module imports numba.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from hetsched_cost_models.host.detect import Machine, detect
from hetsched_cost_models.host.measurement import VERSION, HostMeasurement, write_cached
from hetsched_cost_models.host.probes import Probe, matrix_probes, vector_probes
from hetsched_cost_models.host.probes_i8 import integer_probes
from hetsched_kernels import codes, elementwise, fence, reduce

#: Called with a short line on what is being done.
Progress = Callable[[str], None]

_SEED = 20240
_READ_BYTES = 128 << 20
_REPEATS = 9
_MIN_S = 2e-3


def measure(progress: Progress | None = None) -> HostMeasurement:
    """Measure and keep the result in the user's cache folder."""
    say = progress or (lambda line: None)
    machine = detect()
    rng = np.random.default_rng(_SEED)
    with _pinned(machine.cores[:1]):
        matrix, vector = [*matrix_probes(rng), *integer_probes(rng)], list(vector_probes(rng))
        for probe in (*matrix, *vector):
            say(f"compiling the kernels of {probe.name}")
            probe.call()
        rates, factors = _rates(matrix, say), _rates(vector, say)
        say("reading memory")
        one = read_bandwidth(machine.cores[:1])
        overhead = dispatch_s()
    both = read_bandwidth(machine.cores)
    say("synchronising threads")
    sync = sync_s(machine.cores)
    measured = _assemble(machine, rates, factors, one, both, overhead, sync)
    write_cached(measured)
    return measured


def _assemble(
    machine: Machine, rates: dict[str, float], vector: dict[str, float], one: float, both: float, overhead: float, sync: float
) -> HostMeasurement:
    base = vector["vector/elementwise"]
    factors = {name.removeprefix("vector/"): base / rate for name, rate in vector.items()}
    factors["view"] = factors["copy"]  # the runtime copies a reshaped tensor to its own buffer
    return HostMeasurement(
        version=VERSION,
        fingerprint=machine.fingerprint,
        model=machine.model,
        cores=machine.cores,
        read_one_bytes_s=one,
        read_all_bytes_s=max(one, both),
        peak_f32_ops_s=max(r for name, r in rates.items() if name.endswith("/f32")),
        peak_i8_ops_s=max(r for name, r in rates.items() if name.endswith("/i8")),
        rates=rates,
        vector_bytes_s=base,
        vector=factors,
        op_overhead_s=overhead,
        launch_s=4.0 * overhead,
        sync_s=sync,
    )


def _rates(probes: Sequence[Probe], say: Progress) -> dict[str, float]:
    """Work per second by name: the geometric mean over the shapes of a class."""
    logs: dict[str, list[float]] = {}
    for probe in probes:
        say(f"timing {probe.name}")
        logs.setdefault(probe.name, []).append(math.log(probe.work / best_s(probe.call)))
    return {name: math.exp(sum(values) / len(values)) for name, values in logs.items()}


def best_s(call: Callable[[], Any]) -> float:
    """Seconds of one call: the best of a few batches that each last about two milliseconds or more."""
    begin = time.perf_counter()
    call()
    once = max(time.perf_counter() - begin, 1e-7)
    count = max(1, int(_MIN_S / once))
    best = float("inf")
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - begin) / count)
    return best


def dispatch_s() -> float:
    """Seconds of one small kernel call with its time stamp, as a worker makes it."""
    x, out = np.zeros(16, np.float32), np.zeros(16, np.float32)
    function = elementwise.unary_f32.compile()
    args = (x, out, codes.RELU, 0.0, 0.0)
    stamps: list[int] = []

    def step() -> None:
        function(*args)
        stamps.append(time.perf_counter_ns())

    return best_s(step)


def read_bandwidth(cores: Sequence[int]) -> float:
    """Bytes per second that the cores read together, each from its own large array."""
    per_core = _READ_BYTES // len(cores) // 4
    arrays = [np.ones(per_core, np.float32) for _ in cores]
    kernel = reduce.reduce_f32.compile()
    kernel(arrays[0], np.empty(1, np.float32), codes.SUM, 1, per_core, 1)
    best = float("inf")
    for _ in range(_REPEATS):
        start = threading.Barrier(len(cores) + 1)
        threads = [threading.Thread(target=_read, args=(core, array, kernel, start)) for core, array in zip(cores, arrays, strict=True)]
        for t in threads:
            t.start()
        start.wait()
        begin = time.perf_counter()
        for t in threads:
            t.join()
        best = min(best, time.perf_counter() - begin)
    return 4.0 * per_core * len(cores) / best


def _read(core: int, array: Any, kernel: Callable[..., None], start: threading.Barrier) -> None:
    with _pinned((core,)):
        out = np.empty(1, np.float32)
        start.wait()
        kernel(array, out, codes.SUM, 1, array.size, 1)


def sync_s(cores: Sequence[int], rounds: int = 400) -> float:
    """Seconds from one pinned worker's signal until another one runs on, both through the kernels' flags.

    On one core the two would take turns at the scheduler's mercy: there a typical wake-up of 30 us is assumed.
    """
    if len(cores) < 2:
        return 30e-6
    flags = np.zeros(16, np.int64)
    signal, wait = fence.signal.compile(), fence.wait_ge.compile()
    spins = 1 << 22

    def partner() -> None:
        with _pinned(cores[len(cores) // 2 : len(cores) // 2 + 1]):
            for i in range(1, rounds + 1):
                wait(flags, 0, i, spins)
                signal(flags, 8, i)

    thread = threading.Thread(target=partner)
    thread.start()
    laps: list[float] = []
    with _pinned(cores[:1]):
        for i in range(1, rounds + 1):
            begin = time.perf_counter()
            signal(flags, 0, i)
            wait(flags, 8, i, spins)
            laps.append(time.perf_counter() - begin)
    thread.join()
    return float(np.median(laps)) / 2.0


@contextmanager
def _pinned(cores: Sequence[int]) -> Any:
    """Pin the calling thread for a while, where the system allows it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    with suppress(OSError):
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)
