"""The machine: pieces of work that run side by side, slowed by their clocks and by each other's traffic.

At most one piece runs on a queue. Between two *changes* (a piece starts, ends its fixed part, its computation, its
traffic, or a clock changes) everything proceeds at constant rates, so the machine sleeps until the next of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simpy import Environment
from simpy.events import Event

from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.workload import Work

#: Called with ``(from_s, to_s)`` for every interval of constant rates, before anything changes.
Observer = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class Host:
    """The queue whose cores submit and wait, and its power at work at the top clocks and 25 degrees; infinite: that is free."""

    queue: int = 0
    active_w: float = float("inf")


class _Progress:
    """Something that is done when ``left`` has been worked off at ``rate``; ``end`` is when that will be."""

    __slots__ = ("end", "left", "rate", "since")

    def __init__(self, left: float, rate: float, now: float) -> None:
        self.left, self.rate, self.since = left, rate, now
        self.end = now + left / rate if left > 0 else now

    def set_rate(self, rate: float, now: float) -> None:
        """Go on at another rate from now."""
        if rate != self.rate:
            self.left = max(self.left - self.rate * (now - self.since), 0.0)
            self.rate, self.since = rate, now
            self.end = now + self.left / rate


class _Running:
    """A piece of work in flight: first ``fixed``, then ``compute`` and ``traffic`` together."""

    __slots__ = ("compute", "done", "fixed", "traffic", "work")

    def __init__(self, work: Work, done: Event, now: float) -> None:
        self.work, self.done = work, done
        self.fixed: _Progress | None = _Progress(work.fixed_s, 1.0, now)
        self.compute: _Progress | None = None
        self.traffic: _Progress | None = None

    def advance(self, now: float, rate: float) -> bool:
        """Leave the stages that have ended; True if all have."""
        if self.fixed is not None:
            if self.fixed.end > now:
                return False
            self.fixed = None
            self.compute = _Progress(self.work.compute_s, rate, now)
            self.traffic = _Progress(self.work.traffic_s, 1.0, now)
        if self.compute is not None and self.compute.end <= now:
            self.compute = None
        if self.traffic is not None and self.traffic.end <= now:
            self.traffic = None
        return self.compute is None and self.traffic is None

    def next_end(self) -> float:
        """When its next stage ends."""
        if self.fixed is not None:
            return self.fixed.end
        return min(p.end for p in (self.compute, self.traffic) if p is not None)


class Machine:
    """Runs one piece of work per queue at a time.

    ``activity[q]``, ``effort[q]``, ``busy[q]`` and ``flow_bytes_s[q]`` hold until the next change.
    """

    def __init__(self, env: Environment, bus: Bus, rates: Sequence[float], observer: Observer, host: Host) -> None:
        n = len(rates)
        self.host = host
        self.env, self.bus, self.observer = env, bus, observer
        self.rates = list(rates)
        self.activity = [0.0] * n
        self.effort = [0.0] * n
        self.busy = [0.0] * n
        self.flow_bytes_s = [0.0] * n
        self._running: dict[int, _Running] = {}
        self._last_s = float(env.now)
        self._armed: Event | None = None
        self._armed_s = 0.0

    def run(self, queue: int, work: Work) -> Event:
        """Start a piece of work on an idle queue; the event fires when it is done."""
        self.settle()
        now = float(self.env.now)
        running = _Running(work, self.env.event(), now)
        if running.advance(now, self.rates[queue]):
            running.done.succeed()
        else:
            self._running[queue] = running
            self._change(now)
        return running.done

    def set_rates(self, rates: Sequence[float]) -> None:
        """Change the queues' rates of computation; work in flight goes on at the new ones."""
        self.settle()
        now = float(self.env.now)
        self.rates = list(rates)
        for q, r in self._running.items():
            if r.compute is not None:
                r.compute.set_rate(rates[q], now)
        self._change(now)

    def settle(self) -> None:
        """Report the interval since the last change to the observer."""
        now = float(self.env.now)
        if now > self._last_s:
            last, self._last_s = self._last_s, now
            self.observer(last, now)

    def _wake(self, event: Event) -> None:
        if event is not self._armed:
            return
        self._armed = None
        self.settle()
        now = float(self.env.now)
        for q in sorted(self._running):
            running = self._running[q]
            if running.advance(now, self.rates[q]):
                del self._running[q]
                running.done.succeed()
        self._change(now)

    def _change(self, now: float) -> None:
        """Share the bandwidth anew and sleep until the next end."""
        flows = tuple((q, r.work.demand_bytes_s) for q, r in sorted(self._running.items()) if r.traffic is not None)
        granted = dict(zip((q for q, _ in flows), self.bus.share(flows), strict=True))
        n = len(self.rates)
        self.activity, self.effort, self.busy, self.flow_bytes_s = [0.0] * n, [0.0] * n, [0.0] * n, [0.0] * n
        soonest, host_w = float("inf"), 0.0
        for q, r in self._running.items():
            self.busy[q] = 1.0
            self.activity[q] += r.work.activity
            self.effort[q] += r.work.activity * r.work.effort
            host_w += r.work.host_w
            if r.traffic is not None:
                rate = granted[q] / r.work.demand_bytes_s if r.work.demand_bytes_s > 0 else 1.0
                r.traffic.set_rate(rate, now)
                self.flow_bytes_s[q] = r.work.bytes / r.work.traffic_s * rate
            soonest = min(soonest, r.next_end())
        if host_w > 0:
            # A thread beside the queue's own workers: together they may draw more than the queue alone.
            self.activity[self.host.queue] += host_w / self.host.active_w
            self.effort[self.host.queue] += host_w / self.host.active_w
        self._arm(soonest, now)

    def _arm(self, soonest: float, now: float) -> None:
        if soonest == float("inf"):
            self._armed = None
        elif self._armed is None or self._armed_s != soonest:
            self._armed_s = soonest
            self._armed = self.env.timeout(max(soonest - now, 0.0))
            self._armed.callbacks.append(self._wake)
