"""The machine: pieces of work that run side by side, slowed by their clocks and by each other's traffic.

A queue runs one list of pieces at a time. Between two *changes* (a list starts, or a clock changes) all that happens follows from
what is in flight, so the machine runs ahead (:mod:`hetsched_simulations.fluid`) to the next end of a list and sleeps until then. A change
before that goes back to the state at its start and on to the time of the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
from simpy import Environment
from simpy.events import Event, Timeout

from hetsched.costs import FloatArray
from hetsched.socs import IdleState
from hetsched_simulations import fluid
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.fences import happen
from hetsched_simulations.workload import Work

IntArray = npt.NDArray[np.int64]
NEAR, HORIZON = 128, 1024
"""Intervals to look ahead after a change, and at most: twice as far every time that nothing has come in between."""
ROOM = 8 * HORIZON
"""Intervals after which the observer is told in any case."""


@dataclass(frozen=True, slots=True)
class Host:
    """The queue whose cores submit and wait, and its power at work at the top clocks and 25 degrees; infinite: that is free."""

    queue: int = 0
    active_w: float = inf


@dataclass(frozen=True, eq=False, slots=True)
class Intervals:
    """Intervals of constant rates one after another, from ``start_s``: when each ends ([k]), and what holds per queue ([k, q])."""

    start_s: float
    end_s: FloatArray
    activity: FloatArray
    effort: FloatArray
    busy: FloatArray
    flow_bytes_s: FloatArray  # [k] of all queues, from and to the DRAM
    cached_bytes_s: FloatArray  # [k] the same of the system cache

    @property
    def seconds(self) -> FloatArray:
        """[k] how long each lasts."""
        return np.diff(self.end_s, prepend=self.start_s)


#: Called with what has happened since it was last called, before anything changes.
Observer = Callable[[Intervals], None]


class _Rows:
    """All pieces of work that were ever started, as rows of a table; row 0 is nothing."""

    def __init__(self, flat: Callable[[Sequence[Any]], Any]) -> None:
        self._flat = flat
        self._known: dict[tuple[int, int], tuple[Sequence[Work], Sequence[Work], int]] = {}
        self._work: list[Work] = [Work("op", "nothing", 0.0, activity=0.0)]
        self._table = [0.0] * 5
        self._shown: FloatArray | None = None
        self.table: Any = flat(self._table)
        self.ends: Any = flat([0.0])

    def first(self, works: Sequence[Work], waking: Sequence[Work] = ()) -> int:
        """The row of the first piece of a list with what comes before it. Both are kept and must not change."""
        known = self._known.get((id(works), id(waking)))
        if known is not None:
            return known[2]
        row, every = len(self._work), [*waking, *works]
        self._known[id(works), id(waking)] = (works, waking, row)
        self._work += every
        for w in every:
            self._table += [w.fixed_s, w.compute_s, w.traffic_s, w.demand_bytes_s, w.hits]
        self.table, self.ends = self._flat(self._table), self._flat([*self.ends, *[0.0] * len(every)])
        self._shown = None
        return row

    @property
    def shown(self) -> FloatArray:
        """[rows, 5] what each row makes while it runs: activity, effort, 1 for busy, bytes a second alone, watts of the host."""
        if self._shown is None or len(self._shown) < len(self._work):
            rows = [
                (w.activity, w.activity * w.effort, float(k > 0), w.bytes / w.traffic_s if w.traffic_s > 0 else 0.0, w.host_w)
                for k, w in enumerate(self._work)
            ]
            self._shown = np.array(rows)
        return self._shown


class Machine:
    """Runs one list of pieces per queue at a time."""

    def __init__(
        self, env: Environment, bus: Bus, rates: Sequence[float], observer: Observer, host: Host, compiled: bool = False,
        idle_s: Sequence[float] = (),
    ) -> None:  # fmt: skip
        """A machine at rest.

        Args:
            env: the simulation.
            bus: the memory system, and the idle states of the queues' processors.
            rates: of computation, by queue.
            observer: told what happens.
            host: who submits and waits.
            compiled: worth it where many thousands of pieces are run; the results are the same.
            idle_s: by queue, since when it has had nothing to do; empty: it was at work until now.
        """
        self.env, self.host, self.observer = env, host, observer
        self._n, self._compiled = len(rates), compiled
        self._rows = _Rows(self._flat)
        self._advance: Any = _compiled() if compiled else fluid.run
        self.rates: Any = self._flat([float(r) for r in rates])
        self._now, self._then, self._spare = (self._flat([0.0] * (5 * self._n)) for _ in range(3))
        """What is in flight at ``_since_s``, and what will be where the log ends (``fluid.run``)."""
        self._since_s = self._told_s = float(env.now)
        self._log = self._flat([0.0] * ((self._n + 2) * ROOM)), self._flat([0] * (self._n * ROOM))
        limits = tuple(self._flat(v) for v in bus.limits())
        n = self._n + 1
        room = self._flat([0.0] * n), self._flat([1.0] * n), self._flat([0.0] * (2 * n + 2 * len(limits[1])))
        self._fixed = (*limits, bus.cache_bytes_s, 0.0, *room, *self._log)
        """What ``fluid.run`` is told every time, the demand of what is not simulated in the middle."""
        self._passed, self._ahead, self._horizon = 0, 0, NEAR
        """Intervals of the log until ``_since_s``, and all of it."""
        self._sleeps = tuple(tuple((s.after_s.value, (_waking(s),)) for s in states) for states in bus.idle) if any(bus.idle) else ()
        self._idle_since_s = [self._since_s - k for k in idle_s] or [self._since_s] * self._n
        self.woken_s = [0.0] * self._n
        """What each queue's last list waited until the processor was awake."""
        self._starts = self._flat([0] * (2 * self._n))
        self._done: list[tuple[Event, int, int] | None] = [None] * self._n
        self._flying = 0
        """Lists in flight."""
        self._looking = False
        self._armed: Event | None = None

    def _flat(self, values: Sequence[Any]) -> Any:
        return np.array(values) if self._compiled else list(values)

    def run(self, queue: int, works: Sequence[Work]) -> Event:
        """Start a list of pieces on an idle queue; the event fires when all are done, with the times at which each of them was ([k])."""
        done, count = Event(self.env), len(works)
        if not count:
            return done.succeed([])
        waking = self._waking(queue) if self._sleeps else ()
        first = self._rows.first(works, waking) + len(waking)
        self._starts[queue], self._starts[self._n + queue] = first - len(waking), first + count - 1
        self._done[queue] = (done, first, first + count)
        self._flying += 1
        if not self._looking:
            self._go()
        return done

    def _waking(self, queue: int) -> Sequence[Work]:
        """What a queue's processor does first: come back from the deepest state in which it is by now."""
        rested_s = self.env.now - self._idle_since_s[queue]
        works: Sequence[Work] = ()
        for after_s, waking in self._sleeps[queue]:
            if rested_s >= after_s:
                works = waking
        self.woken_s[queue] = works[0].fixed_s if works else 0.0
        return works

    def rest(self, queues: Iterable[int], seconds: float) -> None:
        """Let queues that have nothing to do have had nothing for so long."""
        for q in queues:
            self._idle_since_s[q] = min(self._idle_since_s[q], self.env.now - seconds)

    def set_rates(self, rates: Sequence[float]) -> None:
        """Change the queues' rates of computation; work in flight goes on at the new ones."""
        self._go()
        self.rates = self._flat([float(r) for r in rates])
        self._go()

    def set_other(self, bytes_s: float) -> None:
        """Change what something that is not simulated asks of the memory."""
        self._go()
        self._fixed = (*self._fixed[:5], bytes_s, *self._fixed[6:])
        self._go()

    def settle(self) -> None:
        """Tell the observer what has happened until now."""
        if self.env.now > self._since_s:
            self._go()
        self._tell()

    def _tell(self) -> None:
        k, n, start = self._passed, self._n, self._told_s
        if k:
            log, rows = (np.array(v[: m * k]).reshape(k, m) for v, m in zip(self._log, (n + 2, n), strict=True))
            for v, m in zip(self._log, (n + 2, n), strict=True):
                v[: (self._ahead - k) * m] = v[k * m : self._ahead * m]
            self._passed, self._ahead, self._told_s = 0, self._ahead - k, self._since_s
            self.observer(self._intervals(start, log[:, 0], rows, log[:, 1:-1], log[:, -1]))

    def _go(self) -> None:
        """Go on to now, start what starts, look ahead to the next end of a list or for some way, and sleep until then."""
        now, horizon = self.env._now, self._horizon  # what env.now returns: this runs at every turn
        if self._passed + 3 * HORIZON > ROOM:
            self._tell()
        reach_s, self._passed, self._ahead = self._advance(
            self._since_s, now, inf if self._flying else now, self._now, self._spare, self._then, self._starts, self._passed, horizon,
            self.rates, self._rows.table, *self._fixed, self._rows.ends,
        )  # fmt: skip
        self._now, self._spare, self._since_s, self._horizon, self._armed = self._spare, self._now, now, NEAR, None
        if self._flying:
            self._armed = armed = Timeout(self.env, reach_s - now)
            armed.callbacks.append(self._wake)

    def _wake(self, event: Event) -> None:
        if event is not self._armed:
            return
        self._now, self._then, self._armed = self._then, self._now, None
        self._since_s, self._passed = self.env._now, self._ahead
        self._looking, ended = True, False
        for q, waiting in enumerate(self._done):
            if waiting is not None and self._now[q] < 0:
                done, first, end = waiting
                self._done[q], self._now[q], self._idle_since_s[q] = None, 0, self._since_s
                self._flying, ended = self._flying - 1, True
                happen(done, self._rows.ends[first:end])
        self._looking = False
        if self._flying:
            if not ended:
                self._horizon = min(2 * self._horizon, HORIZON)
            self._go()

    def _intervals(self, start_s: float, end_s: FloatArray, rows: IntArray, factors: FloatArray, cached: FloatArray) -> Intervals:
        shown = self._rows.shown[rows]
        activity, effort = shown[:, :, 0].copy(), shown[:, :, 1].copy()
        # A thread beside the host queue's own workers: together they may draw more than the queue alone.
        beside = shown[:, :, 4].sum(axis=1) / self.host.active_w
        activity[:, self.host.queue] += beside
        effort[:, self.host.queue] += beside
        moved = (shown[:, :, 3] * factors).sum(axis=1)
        return Intervals(start_s, end_s, activity, effort, shown[:, :, 2], moved - cached, cached)


def _waking(state: IdleState) -> Work:
    return Work("launch", f"wake from {state.name}", state.exit_s.value, effort=0.0)


def _compiled() -> Any:
    from hetsched_simulations import fluid_core

    return fluid_core.run
