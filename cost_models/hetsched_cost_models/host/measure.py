"""Measure this machine: bandwidth, peaks, the achieved rates of the project's kernels, overheads. A few seconds.

Importing this module imports numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from hetsched_cost_models.host.detect import Machine, detect
from hetsched_cost_models.host.measurement import GOOD_SPREAD, VERSION, HostMeasurement, write_cached
from hetsched_cost_models.host.probes import Probe, matrix_probes
from hetsched_cost_models.host.probes_i8 import integer_probes
from hetsched_cost_models.host.probes_vector import dispatches, vector_probes
from hetsched_cost_models.host.threads import SYNC_ESTIMATE_S, WAKE_UP_S, read_bandwidth, sync_s
from hetsched_cost_models.host.timing import Load, Timed, again, interleaved, pinned

#: Called with a short line on what is being done.
Progress = Callable[[str], None]

_SEED = 20240
_ROUNDS = 6
_BUSY_S = 1.5
#: A SoC file states factors as shares of a rate, of which ten times is the most.
_LEAST_FACTOR = 0.1


def measure(progress: Progress | None = None) -> HostMeasurement:
    """Measure and keep the result in the user's cache folder.

    Where the repeats disagree by more than :data:`GOOD_SPREAD`, the kernels are timed again, once, for :data:`_BUSY_S` seconds
    more: load comes and goes, and only the fastest repeats count.
    """
    say = progress or (lambda line: None)
    machine = detect()
    rng = np.random.default_rng(_SEED)
    load = Load()
    with pinned(machine.cores[:1]):
        probes = [*matrix_probes(rng), *integer_probes(rng), *vector_probes(rng)]
        for name, probe in {p.name: p for p in probes}.items():
            say(f"compiling the kernels of {name}")
            probe.call()
        say("timing the kernels")
        timed = interleaved([*(p.call for p in probes), *dispatches(rng)], _ROUNDS)
        if spread(timed) > GOOD_SPREAD:
            say("timing the kernels for longer, because the machine is busy")
            again(timed, _BUSY_S)
        say("reading memory")
        one = read_bandwidth(machine.cores[:1])
    both = read_bandwidth(machine.cores)
    say("synchronising threads")
    measured = _assemble(machine, probes, timed, one, both, sync_s(machine.cores), load.others())
    write_cached(measured)
    return measured


def spread(timed: Sequence[Timed]) -> float:
    """The typical probe's spread: how much slower than the best its typical repeat was."""
    return median(t.spread for t in timed)


def _assemble(
    machine: Machine,
    probes: Sequence[Probe],
    timed: Sequence[Timed],
    one: float,
    both: float,
    sync: float | None,
    others: float,
) -> HostMeasurement:
    best = [t.best_s for t in timed]
    overhead = median(best[len(probes) :])
    times: dict[str, list[tuple[Probe, float]]] = {}
    for probe, s in zip(probes, best, strict=False):
        times.setdefault(probe.name, []).append((probe, s))
    vector = {name.removeprefix("vector/"): rate(ps) for name, ps in times.items() if name.startswith("vector/")}
    base = vector["elementwise"]
    factors = {kind: base / r for kind, r in vector.items()}
    factors["view"] = factors["copy"]  # the runtime copies a reshaped tensor to its own buffer
    rates: dict[str, float] = {}
    for name, ps in times.items():
        if not name.startswith("vector/"):
            rates[name], per_byte = rate_and_byte_s(ps)
            factors[f"matrix/{name}"] = max(per_byte * base, _LEAST_FACTOR)
    assumed = WAKE_UP_S if len(machine.cores) < 2 else SYNC_ESTIMATE_S
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
        sync_s=assumed if sync is None else sync,
        sync_estimated=sync is None,
        spread=spread(timed),
        others=others,
    )


def rate(timed: Sequence[tuple[Probe, float]]) -> float:
    """Work per second: the geometric mean over the probes of a kind."""
    return math.exp(sum(math.log(p.work / s) for p, s in timed) / len(timed))


def rate_and_byte_s(timed: Sequence[tuple[Probe, float]]) -> tuple[float, float]:
    """``(operations per second, seconds per byte)`` such that ``work / rate + bytes * byte_s`` is nearest to the times.

    Least squares of the relative errors with neither part negative, then both scaled so that the geometric mean of predicted
    over measured is 1. The rate is at most four times the best probe's, so that
    a class whose probes are all bound by bytes does not get an infinite one.
    """
    x, y = (np.array([getattr(p, k) / s for p, s in timed]) for k in ("work", "bytes"))
    least = 1.0 / (4.0 * float(x.max()))
    most = float(np.sum(x) / np.sum(x * x))  # without bytes
    a, b = most, 0.0
    determinant = float(np.sum(x * x) * np.sum(y * y) - np.sum(x * y) ** 2)
    if determinant > 1e-9 * float(np.sum(x * x) * np.sum(y * y)):
        a = float((np.sum(y * y) * np.sum(x) - np.sum(x * y) * np.sum(y)) / determinant)
        a = min(max(a, least), most)
        b = max(float(np.sum(y * (1.0 - a * x)) / np.sum(y * y)), 0.0)
    scale = float(np.exp(-np.mean(np.log(a * x + b * y))))
    return 1.0 / (a * scale), b * scale
