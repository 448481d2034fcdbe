"""Measure this machine: bandwidth, peaks, the achieved rates of the project's kernels, overheads. Seconds, more on a busy machine.

Everything is timed in spells that are spread over the whole measurement, so that a slow moment (a neighbour on the same
caches, a low clock) hits some repeats of everything, not all repeats of something. The fastest repeat of each probe counts,
over all measurements of the same machine and the same kernels unless a fresh one is asked for: load only makes things slower.

Importing this module imports numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from hetsched_cost_models.host.chip import team_of
from hetsched_cost_models.host.detect import Machine, detect
from hetsched_cost_models.host.measurement import VERSION, HostMeasurement, read_cached, write_cached
from hetsched_cost_models.host.probes import Probe, matrix_probes
from hetsched_cost_models.host.probes_i8 import integer_probes
from hetsched_cost_models.host.probes_shared import Shared
from hetsched_cost_models.host.probes_vector import dispatches, vector_probes
from hetsched_cost_models.host.threads import SYNC_ESTIMATE_S, WAKE_UP_S, read_bandwidth, sync_s
from hetsched_cost_models.host.timing import Load, Patience, Timed, pinned, until_settled

#: Called with a short line on what is being done.
Progress = Callable[[str], None]

_SEED = 20240
_READS = 3  # of memory, in each spell
#: A SoC file states factors as shares of a rate, of which ten times is the most.
_LEAST_FACTOR = 0.1


@dataclass(slots=True)
class _Together:
    """What several cores do together; the best of all spells."""

    cores: tuple[int, ...]
    one: float = 0.0
    both: float = 0.0
    syncs: list[float] = field(default_factory=list)
    alone_s: float = math.inf
    team_s: float = math.inf
    team: Shared | None = None
    known_share: float = 1.0

    @property
    def serial_share(self) -> float:
        """What more cores do not speed up of the work of one (:attr:`HostMeasurement.serial_share`); 1 where there is one core."""
        if self.team is None:
            return self.known_share
        n = len(self.team.cores)
        return min(max((n * self.team_s / self.alone_s - 1.0) / (n - 1), 0.0), self.known_share)

    def spell(self) -> None:
        """Read memory with one core and with all, let two cores signal each other, and share work."""
        self.one = max(self.one, read_bandwidth(self.cores[:1], _READS))
        self.both = max(self.both, read_bandwidth(self.cores, _READS))
        sync = sync_s(self.cores)
        if sync is not None:
            self.syncs.append(sync)
        if len(team_of(self.cores)) > 1:
            self.team = self.team or Shared(team_of(self.cores))
            self.alone_s, self.team_s = min(self.alone_s, self.team.alone_s()), min(self.team_s, self.team.together_s())


def measure(progress: Progress | None = None, *, fresh: bool = False, patience: Patience | None = None) -> HostMeasurement:
    """Measure and keep the result in the user's cache folder.

    Args:
        progress: called with a short line on what is being done.
        fresh: forget what was measured before; otherwise the faster of both counts, probe by probe.
        patience: how long repeats go on.
    """
    say = progress or (lambda line: None)
    machine = detect()
    rng = np.random.default_rng(_SEED)
    load, together = Load(), _Together(machine.cores)
    with pinned(machine.cores[:1]):
        probes = [*matrix_probes(rng), *integer_probes(rng), *vector_probes(rng)]
        for name, probe in {p.name: p for p in probes}.items():
            say(f"compiling the kernels of {name}")
            probe.call()
        timed = [Timed(call) for call in (*(p.call for p in probes), *dispatches(rng))]

        def between(spell: int) -> None:
            say(f"timing the kernels, spell {spell}")
            together.spell()

        until_settled(timed, patience or Patience(), between)
    found = _assemble(machine, probes, [t.best_s for t in timed], together, spread(timed), load.others())
    kept = None if fresh else read_cached(machine.fingerprint)
    if kept is not None and len(kept.probe_s) == len(timed):
        found = _merged(machine, probes, found, kept)
    write_cached(found)
    return found


def _merged(machine: Machine, probes: Sequence[Probe], new: HostMeasurement, old: HostMeasurement) -> HostMeasurement:
    """The faster of two measurements of the same machine and the same code, probe by probe, and the better one's quality."""
    best = [min(pair) for pair in zip(new.probe_s, old.probe_s, strict=True)]
    together = _Together(
        machine.cores,
        max(new.read_one_bytes_s, old.read_one_bytes_s),
        max(new.read_all_bytes_s, old.read_all_bytes_s),
        [m.sync_s for m in (new, old) if not m.sync_estimated],
        known_share=min(new.serial_share, old.serial_share),
    )
    better = min((new, old), key=lambda m: (m.poor, m.spread, m.others))
    return _assemble(machine, probes, best, together, better.spread, better.others)


def spread(timed: Sequence[Timed]) -> float:
    """The typical probe's spread: how much slower than the best its typical repeat was."""
    return median(t.spread for t in timed)


def _assemble(
    machine: Machine, probes: Sequence[Probe], best: Sequence[float], together: _Together, disagree: float, others: float
) -> HostMeasurement:
    overhead = median(best[len(probes) :])
    times: dict[str, list[tuple[Probe, float]]] = {}
    for probe, s in zip(probes, best, strict=False):
        times.setdefault(probe.name, []).append((probe, s))
    vector = {name.removeprefix("vector/"): rate(ps) for name, ps in times.items() if name.startswith("vector/")}
    base = vector["elementwise"]
    factors = {kind: max(base / r, _LEAST_FACTOR) for kind, r in vector.items()}  # memory may be slow, and a cache is not
    factors["view"] = factors["copy"]  # the runtime copies a reshaped tensor to its own buffer
    rates: dict[str, float] = {}
    for name, ps in times.items():
        if not name.startswith("vector/"):
            rates[name], per_byte, per_result = fitted(ps)
            factors[f"matrix/{name}"] = max(per_byte * base, _LEAST_FACTOR)
            factors[f"result/{name}"] = max(per_result * base, _LEAST_FACTOR)
    assumed = WAKE_UP_S if len(machine.cores) < 2 else SYNC_ESTIMATE_S
    return HostMeasurement(
        version=VERSION,
        fingerprint=machine.fingerprint,
        model=machine.model,
        cores=machine.cores,
        read_one_bytes_s=together.one,
        read_all_bytes_s=max(together.one, together.both),
        peak_f32_ops_s=max(r for name, r in rates.items() if name.endswith("/f32")),
        peak_i8_ops_s=max(r for name, r in rates.items() if "/i8" in name),
        rates=rates,
        vector_bytes_s=base,
        vector=factors,
        op_overhead_s=overhead,
        launch_s=4.0 * overhead,
        sync_s=min(together.syncs, default=assumed),
        sync_estimated=not together.syncs,
        serial_share=together.serial_share,
        spread=disagree,
        others=others,
        probe_s=tuple(best),
    )


def rate(timed: Sequence[tuple[Probe, float]]) -> float:
    """Work per second: the geometric mean over the probes of a kind."""
    return math.exp(sum(math.log(p.work / s) for p, s in timed) / len(timed))


def fitted(timed: Sequence[tuple[Probe, float]]) -> tuple[float, float, float]:
    """``(operations per second, seconds per byte, seconds per result)`` whose sum is nearest to the times of a class.

    Least squares of the relative errors, no part negative, and fewer parts than probes; then all are scaled so that the geometric
    mean of predicted over measured is 1. The rate is, before that, at most four times the best probe's, so that a class whose
    probes are all bound by something else does not get an infinite one.
    """
    columns = np.array([[p.work / s, p.bytes / s, p.results / s] for p, s in timed])
    least = 1.0 / (4.0 * float(columns[:, 0].max()))
    best = np.array([float(columns[:, 0].sum() / (columns[:, 0] @ columns[:, 0])), 0.0, 0.0])
    for used in ((0,), (0, 1), (0, 2), (0, 1, 2)):
        if len(used) >= len(timed) or not columns[:, used].any(axis=0).all():
            continue
        found = np.zeros(3)
        found[list(used)] = np.linalg.lstsq(columns[:, used], np.ones(len(timed)), rcond=None)[0]
        found[0] = max(found[0], least)
        if found.min() >= 0.0 and _error(columns, found) < _error(columns, best):
            best = found
    best = best * float(np.exp(-np.mean(np.log(columns @ best))))
    return 1.0 / float(best[0]), float(best[1]), float(best[2])


def _error(columns: Any, parts: Any) -> float:
    return float(np.sum((columns @ parts - 1.0) ** 2))
