"""Plans that take turns: what a policy is shown, when it is asked, and what a switch costs.

A policy is asked at the end of an inference, at most once every period of its own. A switch takes place there: the host
packs the weights that only the new plan holds and copies the states that move, which takes it its time, bytes and power.
Until it is done the clocks of the old level hold; no inference runs meanwhile.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hetsched.costs import CostTable, FloatArray
from hetsched.errors import OptionError
from hetsched.plans import Switch
from hetsched.policies import Level, Load, Observation, Policy, Trip
from hetsched.socs import SoC
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.device import Device
from hetsched_simulations.engine import EventLog
from hetsched_simulations.flow import cycle_of, profile
from hetsched_simulations.result import Levelled, Switched
from hetsched_simulations.status import Thresholds
from hetsched_simulations.workload import Command, Work, commands_of

REMEMBERED_S = 60.0
"""How much of the load history a policy sees."""
FORGOTTEN_S = 5.0
"""Time constant of what a level is seen to deliver (estimated: some polls of a governor)."""
WORKING = 0.1
"""Share of an inference that a queue works from which on its clocks count for whether a level is throttled."""


@dataclass(frozen=True, eq=False)
class LevelPlan:
    """A placement and the clocks that it was priced for: ``clocks`` are fractions of processors' top clocks, as in ``table``."""

    table: CostTable
    order: Sequence[int]
    alternative: Sequence[int]
    clocks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Levels:
    """The plans of the other levels, and who chooses."""

    policy: Policy
    others: Mapping[int, LevelPlan]
    switch: Callable[[int, int], Switch]
    """What going from one level to another takes."""
    level: int = 0
    """Of the plan that the run begins with."""
    battery: float = 1.0
    """State of charge, 0 to 1, where the run has no battery: it stays."""


class Switching:
    """Which plan runs, and when that changes."""

    def __init__(self, levels: Levels, first: LevelPlan, device: Device, bus: Bus, period_s: float | None) -> None:
        """Raises :class:`OptionError` if a level's table has other queues."""
        self.levels, self.device = levels, device
        self.plans = dict(sorted({**levels.others, levels.level: first}.items()))
        if len({tuple((q.name, q.processor) for q in p.table.lanes) for p in self.plans.values()}) > 1:
            raise OptionError("the plans of the levels are for different queues: make them with one call of 'hetsched plan --levels'")
        self.commands = {n: commands_of(p.table, p.order, p.alternative) for n, p in self.plans.items()}
        self._used: dict[int, npt.NDArray[np.bool_]] = {}
        self.level, self._since_s = levels.level, 0.0
        self.next_ask_s = self._next_ask(0.0)
        self.switches: list[Switched] = []
        self.target = self.level
        self._loads: deque[Load] = deque()
        self._intervals = 0
        self._asked_at_s = -math.inf
        thermal = device.soc.thermal
        self._nodes = thermal.points if device.thermal else ()
        self._skin = thermal.skin if device.thermal else ()
        self._trips = _staged_trips(device.soc, self._nodes)
        self._critical_c = Thresholds.of(device.soc).critical_c if device.thermal else None
        self._bus, self._asked_s = bus, period_s
        self._known = {n: self._known_level(n, bus, period_s) for n in self.plans}
        self._alone_s: dict[Hashable, float] = {}
        self.hold(levels.level)

    def _known_level(self, number: int, bus: Bus, period_s: float | None) -> Level:
        """What the plan of a level does while nothing is throttled, at the temperatures of the beginning."""
        device = self.device
        self.hold(number)
        p = profile(bus, self.commands[number], device.rates, EventLog((), 0), device.host, device.other_bytes_s)
        working = np.flatnonzero(p.busy_s >= WORKING * p.latency_s)
        self._used[number] = np.asarray((device.clusters.share[working] > 0).any(axis=0))
        mode = device.mode(*p.means(cycle_of(p.latency_s, period_s)))
        return Level(number, p.latency_s, tuple(device.heat_w(mode).tolist()) if device.thermal else ())

    def _next_ask(self, now_s: float) -> float:
        period = self.levels.policy.period_s
        return period if math.isinf(period) else (math.floor(now_s / period + 1e-6) + 1) * period

    def slowed(self, latency_s: float, doing: Hashable = None, commands: Sequence[Command] | None = None) -> float:
        """By how much what is done (an inference, or ``commands`` by the name of ``doing``) took longer than at the level's clocks."""
        if commands is None:
            return latency_s / self._known[self.level].latency_s
        key = (self.level, doing)
        if key not in self._alone_s:
            rates = self.device.clusters.rates(self.device.base)
            self._alone_s[key] = profile(self._bus, commands, rates, EventLog((), 0), self.device.host, self.device.other_bytes_s).latency_s
        return latency_s / self._alone_s[key]

    def ask(self, now_s: float, slowed: float) -> bool:
        """Ask the policy at the end of an inference that took so much longer than at the level's clocks; whether it wants another level."""
        self._note_pace(now_s, slowed)
        seen = self._observation(now_s)
        self.next_ask_s = self._next_ask(now_s)
        wanted = self.levels.policy.wanted(seen)
        if not isinstance(wanted, int):
            raise OptionError(f"the policy {type(self.levels.policy).__name__} wants the level {wanted!r}: it must be a whole number")
        self.target = seen.nearest(wanted)
        return self.target != self.level

    def _note_pace(self, now_s: float, slowed: float) -> None:
        """Remember what an inference takes at this level: a mean that forgets, since governors go up and down."""
        known, took_s = self._known[self.level], slowed * self._known[self.level].latency_s
        fresh = known.seen_s is None or self._asked_at_s < self._since_s
        weight = 1.0 if fresh else -math.expm1(-(now_s - self._asked_at_s) / FORGOTTEN_S)
        before = took_s if known.seen_s is None else known.seen_s
        self._known[self.level] = replace(known, seen_s=before + weight * (took_s - before))
        self._asked_at_s = now_s

    def begin(self, now_s: float) -> tuple[Command, ...]:
        """Start the switch to the level that was asked for: what the host has to do for it, perhaps nothing."""
        cost = self.levels.switch(self.level, self.target)
        self.switches.append(Switched(now_s, self.level, self.target, cost.pack_s + cost.handover_s))
        return _commands(self.plans[self.level].table, cost, f"level {self.level} -> {self.target}")

    def finish(self, now_s: float) -> None:
        """The switch is done: the new level's clocks hold."""
        self.switches[-1] = replace(self.switches[-1], seconds=now_s - self.switches[-1].time_s)
        self.level, self._since_s = self.target, now_s
        self.hold(self.level)

    def hold(self, number: int) -> None:
        """Have the clocks and the cores of a level."""
        self.device.hold(self.plans[number].clocks, self.plans[number].table.lanes)

    def _observation(self, now_s: float) -> Observation:
        device = self.device
        seconds, joules = device.heat_j(self._intervals)
        self._intervals = len(device.history.start_s)
        if seconds > 0 and device.thermal:
            self._loads.append(Load(now_s, seconds, self.level, tuple((joules / seconds).tolist())))
        while self._loads and self._loads[0].end_s < now_s - REMEMBERED_S:
            self._loads.popleft()
        node_c = tuple(device.node_c.tolist()) if self._nodes else ()
        skin_c = max((node_c[k] for k in self._skin), default=None)
        return Observation(
            now_s, self.level, round(now_s - self._since_s, 9), tuple(self._known.values()), self._nodes, node_c, skin_c,
            self._clock(), self._trips,
            self.levels.battery if device.supply is None else device.supply.charge, tuple(self._loads), self._after,
            self._critical_c, self._asked_s,
        )  # fmt: skip

    def _after(self, heat_w: Sequence[float], seconds: float) -> tuple[float, ...]:
        network = self.device.network
        return () if network is None else tuple(network.grid_step(self.device.node_c, np.array(heat_w), seconds).tolist())

    def _clock(self) -> float:
        kept: FloatArray = self.device.hz / self.device.asked_hz
        return float(kept[self._used[self.level]].min(initial=1.0))

    def levelled(self, end_s: float) -> Levelled:
        """How long each level ran until ``end_s``."""
        seconds = dict.fromkeys(self.plans, 0.0)
        level, since, switching = self.levels.level, 0.0, 0.0
        for s in self.switches:
            seconds[level] += s.time_s - since
            level, since = s.after, min(s.time_s + s.seconds, end_s)
            switching += since - s.time_s
        seconds[level] += end_s - since
        return Levelled(tuple(self.switches), seconds, switching)


def _staged_trips(soc: SoC, nodes: tuple[str, ...]) -> tuple[Trip, ...]:
    stages: dict[int, list[float]] = {}
    for trip in soc.thermal.trips if nodes else ():
        for name in trip.read:
            stages.setdefault(nodes.index(name), []).append(float(trip.temperature_c))
    return tuple(Trip(n, min(c), max(c)) for n, c in sorted(stages.items()))


def _commands(table: CostTable, cost: Switch, name: str) -> tuple[Command, ...]:
    """A switch as work of the host: the bytes of weights and of states are read and written evenly over their time."""
    bandwidth = float(table.bandwidth_bytes_s[table.host])
    work = []
    for what, seconds, moved in (("pack", cost.pack_s, 2.0 * cost.weight_bytes), ("hand over", cost.handover_s, 2.0 * cost.state_bytes)):
        if seconds > 0 and moved > 0:
            work.append(Work("transfer", what, 0.0, 0.0, seconds, moved, min(moved / seconds, bandwidth)))
        elif seconds > 0:
            work.append(Work("transfer", what, seconds))
    if not work:
        return ()
    return (Command(0, table.host, name, tuple(work), (), None, sum(w.seconds for w in work)),)
