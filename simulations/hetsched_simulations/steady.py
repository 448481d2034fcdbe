"""What a plan settles to while DVFS follows its load: means over many inferences, for the multi-rate path.

The clocks go up and down, so no single one stands for it. Under one set of thermal limits the load is periodic all the same:
inferences are simulated without heat, with the governor in the loop, and those after the first few half-lives are averaged. Inferences
that take longer than the governor's period are simulated op by op; of shorter ones only the mean matters to it, and they are a
flow at the clocks of every period.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.conditions import Conditions
from hetsched_simulations.device import Device
from hetsched_simulations.engine import EventLog
from hetsched_simulations.flow import Profile, cycle_of, periodic
from hetsched_simulations.full import run_full
from hetsched_simulations.history import Mode
from hetsched_simulations.schedutil import HALF_LIFE_S, PERIOD_S
from hetsched_simulations.workload import Command

COLD_S, WARM_S = 20 * HALF_LIFE_S, 5 * HALF_LIFE_S
"""What is left out at the start of a run (it takes some ten half-lives from the lowest clock to the highest), and after a change."""
MEASURED_S = 10 * HALF_LIFE_S
WORK_LIMIT = 5000
"""Pieces of work at most before, and again for, the average (two inferences at least)."""


@dataclass(frozen=True, eq=False, slots=True)
class Settled:
    """The mean inference, seconds from one to the next, and what holds on average."""

    profile: Profile
    cycle_s: float
    mode: Mode


class Settling:
    """Finds what a plan settles to within the present thermal limits of a device; remembers inferences at constant clocks."""

    def __init__(self, bus: Bus, log: EventLog, period_s: float | None) -> None:
        """``log`` says which spans to keep; ``period_s``: an input arrives every so often (None: back to back)."""
        self.bus, self.log, self.period_s = bus, log, period_s
        self._constant: dict[tuple[tuple[Command, ...], tuple[float, ...]], Profile] = {}

    def settled(self, device: Device, commands: tuple[Command, ...]) -> Settled:
        """As far as ``device`` is throttled and loaded now; it is left as it is."""
        scratch, cold = _scratch(device)
        guess = cycle_of(self._at(device, commands).latency_s, self.period_s)
        skipped_s = COLD_S if cold else WARM_S
        if guess < PERIOD_S:
            return self._as_flow(scratch, commands, round(skipped_s / PERIOD_S), round(MEASURED_S / PERIOD_S))
        most = max(WORK_LIMIT // sum(len(c.work) for c in commands), 2)
        skipped, measured = (min(max(math.ceil(s / guess), 2), most) for s in (skipped_s, MEASURED_S))
        return self._op_by_op(scratch, commands, skipped, measured)

    def _at(self, device: Device, commands: tuple[Command, ...]) -> Profile:
        """One inference at the device's clocks."""
        used = (device.other_bytes_s, *(device.rates[q] for q in sorted({c.queue for c in commands})))
        if (commands, used) not in self._constant:
            log = EventLog(self.log.queues, 1, self.log.op_spans)
            self._constant[commands, used] = periodic(
                self.bus, commands, device.rates, log, device.host, device.other_bytes_s, self.period_s
            )
        return self._constant[commands, used]

    def _as_flow(self, scratch: Device, commands: tuple[Command, ...], skipped: int, measured: int) -> Settled:
        """So many periods of the governor, each at its clocks."""
        count = latency = 0.0
        p = self._at(scratch, commands)
        for k in range(skipped + measured):
            scratch.scale()
            p = self._at(scratch, commands)
            cycle = cycle_of(p.latency_s, self.period_s)
            mode = scratch.mode(*p.means(cycle))
            scratch.advance(k * PERIOD_S, (k + 1) * PERIOD_S, mode)
            if k >= skipped:
                count += PERIOD_S / cycle
                latency += p.latency_s * PERIOD_S / cycle
        return Settled(replace(p, latency_s=latency / count), measured * PERIOD_S / count, scratch.history.mean(skipped))

    def _op_by_op(self, scratch: Device, commands: Sequence[Command], skipped: int, measured: int) -> Settled:
        """So many inferences, with the governor at work within them."""
        kept = EventLog(self.log.queues, skipped + measured, self.log.op_spans)
        finished = run_full(
            scratch, self.bus, commands, kept, duration_s=None, iterations=skipped + measured, period_s=self.period_s, progress=None
        )  # fmt: skip
        (end, latency), begin = finished[-1], finished[skipped - 1][0]
        mode = scratch.history.mean(bisect_left(scratch.history.start_s, begin - 1e-12))
        mean_s, cycle = float(np.mean([v for _, v in finished[skipped:]])), (end - begin) / measured
        mean = replace(
            Profile.idle(len(mode.busy)), latency_s=mean_s, busy_s=mode.busy * cycle, bytes=mode.flow_bytes_s * cycle,
            log=_last(kept, end - latency), cached_bytes=mode.cached_bytes_s * cycle,
        )  # fmt: skip
        return Settled(mean, cycle, mode)


def _scratch(device: Device) -> tuple[Device, bool]:
    """A device without heat, throttled and loaded like this one; and whether nothing has loaded it yet."""
    scratch = Device(device.soc, device.table, Conditions(thermal=False, governor="schedutil"))
    scratch.clusters, scratch.power, scratch.host = device.clusters, device.power, device.host
    scratch.share_with(device)
    scratch.governor.actors.states = list(device.governor.states)
    if scratch.schedutil is None or device.schedutil is None:
        return scratch, True
    scratch.schedutil.utilisation = device.schedutil.utilisation
    return scratch, not device.schedutil.utilisation.any()


def _last(kept: EventLog, start_s: float) -> EventLog:
    """The last inference of a log, from time 0."""
    log, last = EventLog(kept.queues, 1, kept.op_spans), kept.iterations - 1
    log.spans += [replace(s, start_s=s.start_s - start_s, end_s=s.end_s - start_s, iteration=0) for s in kept.spans if s.iteration == last]
    log.fences += [replace(f, time_s=f.time_s - start_s) for f in kept.fences if f.detail == f"iteration {last}"]
    return log
