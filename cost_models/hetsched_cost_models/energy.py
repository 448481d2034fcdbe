"""What an operator draws: joules an operation, joules a byte, and power for as long as it runs.

    joules  = dynamic_w * (busy * seconds + (1 - busy) * work) + leakage_w * seconds + DRAM bytes * joules a byte

*busy* is the share of its dynamic power that a processor draws for as long as it has an operator, waiting or not (clocks, control).
*work* are the seconds that its units would take at full activity: of a matrix unit its operations over the peak at their
precision, and vector bytes over the vector rate; of programmable cores the seconds in which they do not wait for memory (a CPU's
threads spin between operators). So an operation at precision ``p`` takes ``(1 - busy) * dynamic_w / peak[p]`` joules and an
on-chip byte ``(1 - busy) * dynamic_w / vector rate``: the watts are the SoC file's, and at its peak every precision draws them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hetsched.costs import CostTable
from hetsched.graph import IntArray
from hetsched.socs import Cluster, SoC
from hetsched_cost_models.roofline import Rates, queue_rates
from hetsched_cost_models.work import FloatArray


def efforts(rates: Sequence[Rates], queue: IntArray, work_s: FloatArray, seconds: FloatArray) -> FloatArray:
    """[m] average share of the dynamic power of its queue that each alternative draws.

    Args:
        rates: of every queue.
        queue: [m] where each alternative runs.
        work_s: [m] seconds at full activity.
        seconds: [m] how long it takes.
    """
    busy = np.array([r.family.busy_share for r in rates])[queue]
    active = np.divide(np.minimum(work_s, seconds), seconds, out=np.ones(len(seconds)), where=seconds > 0.0)
    return np.asarray(busy + (1.0 - busy) * active)


def beside(rates: Sequence[Rates], queue: IntArray, joules: FloatArray, seconds: FloatArray) -> FloatArray:
    """[m] what a larger system cache or arithmetic in memory draws (``joules``), as a share of the queue's dynamic power."""
    dynamic = np.array([r.dynamic_w for r in rates])[queue] * seconds
    return np.divide(joules, dynamic, out=np.zeros(len(seconds)), where=dynamic > 0.0)


def watts(rates: Sequence[Rates], queue: IntArray, effort: FloatArray) -> FloatArray:
    """[m] power of the queue of each alternative at its effort, at the top operating points and 25 degrees."""
    dynamic, leakage = (np.array(w)[queue] for w in ([r.dynamic_w for r in rates], [r.active_w - r.dynamic_w for r in rates]))
    return np.asarray(dynamic * effort + leakage)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What one queue draws: watts while it is busy and leaking, joules an operation by precision at its peak, joules an on-chip byte."""

    queue: str
    busy_w: float
    leakage_w: float
    op_j: dict[str, float]
    byte_j: float


def drawn(soc: SoC) -> tuple[Drawn, ...]:
    """What the queues of a SoC draw, beside DRAM."""
    out = []
    for name, target in soc.queues.items():
        r = queue_rates(soc, target)
        active = (1.0 - r.family.busy_share) * r.dynamic_w
        per_op = {p: active / ops for p, ops in r.peak_ops_s.items()}
        out.append(Drawn(name, r.family.busy_share * r.dynamic_w, r.active_w - r.dynamic_w, per_op, active / r.vector_bytes_s))
    return tuple(out)


def in_proportion(priced: CostTable, added: CostTable, plain: CostTable, rates: Sequence[Rates], soc: SoC) -> CostTable:
    """``priced`` by other means than the roofline, times what hardware that a user has added makes of the roofline.

    Args:
        priced: the table to change.
        added: the roofline's, with the hardware.
        plain: the roofline's, without.
        rates: of every queue.
        soc: the chip.
    """
    queue, bandwidth = priced.alt_queue, priced.bandwidth_bytes_s[priced.alt_queue]
    time, moved, drawn = (_ratio(getattr(added, n), getattr(plain, n)) for n in ("time_s", "dram_bytes", "energy_j"))
    overhead = priced.overhead_s * np.minimum(time, 1.0)
    working = np.maximum(priced.time_s * time - overhead, 0.0)
    dram = np.minimum(priced.dram_bytes * moved, working * bandwidth)
    seconds = overhead + working
    in_dram = dram * soc.memory.energy_j_per_byte.value
    dynamic = np.array([r.dynamic_w for r in rates])[queue] * seconds
    switched = priced.energy_j * drawn - in_dram - watts(rates, queue, np.zeros(len(seconds))) * seconds
    effort = np.divide(np.maximum(switched, 0.0), dynamic, out=np.zeros(len(seconds)), where=dynamic > 0.0)
    joules = seconds * watts(rates, queue, effort) + in_dram
    cached = priced.dram_bytes * np.divide(added.cache_bytes, plain.dram_bytes, out=np.zeros(len(dram)), where=plain.dram_bytes > 0.0)
    return replace(priced, compute_s=working, overhead_s=overhead, dram_bytes=dram, cache_bytes=cached, energy_j=joules, effort=effort)


def _ratio(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.divide(a, b, out=np.ones(len(a)), where=b > 0.0)


def slowed_by(top: CostTable, slowed: CostTable, soc: SoC, fractions: FloatArray) -> FloatArray:
    """[m] joules that each alternative draws more (or less) than at the top clocks: ``C V^2 f`` and leakage at ``V``, for longer.

    Args:
        top: the table at the top operating points.
        slowed: the same with the times of lower clocks.
        soc: the chip, whose operating points give the voltages between which is interpolated.
        fractions: [q] clock of each queue over its top clock.
    """
    both = np.array([_watts_at(soc, target, f) for target, f in zip(soc.queues.values(), fractions.tolist(), strict=True)])
    dynamic, leakage = both[:, 0].T, both[:, 1].T
    effort = top.effort if len(top.effort) else np.ones(len(top.alt_queue))
    before, after = (dynamic[k][top.alt_queue] * effort + leakage[k][top.alt_queue] for k in (0, 1))
    return np.asarray(after * slowed.time_s - before * top.time_s)


def share_at(soc: SoC, queue: int, fraction: float) -> float:
    """Power of a busy queue at a fraction of its top clock, over that at the top."""
    top, there = _watts_at(soc, list(soc.queues.values())[queue], fraction).sum(axis=0).tolist()
    return float(there / top)


def _watts_at(soc: SoC, target: str, fraction: float) -> FloatArray:
    """[2, 2] dynamic power and leakage of a queue, each at the top clock and at a fraction of it."""
    rates = queue_rates(soc, target)
    watts = np.zeros((2, 2))
    for c in rates.processor.clusters:
        share, volts = rates.share[c.name], _volts(c, fraction)
        watts += share * np.array(
            [[c.dynamic_w.value, c.dynamic_w.value * fraction * volts**2], [c.leakage_w.value, c.leakage_w.value * volts]]
        )
    return watts


def _volts(cluster: Cluster, fraction: float) -> float:
    """Supply voltage at a fraction of the top clock, relative to the top."""
    points = cluster.operating_points
    hz, volts = [p.hz / cluster.top.hz for p in points], [p.v / cluster.top.v for p in points]
    return float(np.interp(fraction, hz, volts))
