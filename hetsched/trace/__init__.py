"""What happened, when: the one record that simulated runs, real runs and imported profiles share.

Times are seconds from the start of the trace. A trace is columnar underneath only when written (see
:mod:`hetsched.trace.perfetto` and :mod:`hetsched.trace.parquet`); in memory it is plain lists, appended to by whoever
runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["segment", "op", "launch", "transfer", "wait", "submit", "idle"]
Origin = Literal["simulated", "measured", "imported"]


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time on a queue. ``iteration`` counts repeated inferences from 0."""

    queue: str
    kind: Kind
    name: str
    start_s: float
    end_s: float
    segment: int = -1
    iteration: int = 0
    predicted_s: float | None = None


@dataclass(frozen=True, slots=True)
class Instant:
    """Something that happened at one time: ``fence``, ``throttle``, ``switch``, ``fallback``, ``trip``, ``deadline``, ``status``."""

    kind: str
    name: str
    time_s: float
    detail: str = ""


@dataclass(slots=True)
class Counter:
    """A sampled quantity: ``times_s`` ascending, one value each. Values hold until the next sample."""

    name: str  # temperature/npu, frequency/npu, power/npu, bandwidth/dram, memory/arena, utilisation/npu
    unit: str  # degC | Hz | W | B/s | B | 1
    times_s: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def sample(self, time_s: float, value: float) -> None:
        """Append a sample; one that repeats the last value at the same time is dropped."""
        if self.times_s and self.times_s[-1] == time_s:
            self.values[-1] = value
            return
        self.times_s.append(time_s)
        self.values.append(value)


@dataclass(slots=True)
class Trace:
    """Spans, counters and instants of one run, and who made them."""

    origin: Origin
    model: str = ""
    soc: str = ""
    queues: tuple[str, ...] = ()
    spans: list[Span] = field(default_factory=list)
    counters: dict[str, Counter] = field(default_factory=dict)
    instants: list[Instant] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def counter(self, name: str, unit: str) -> Counter:
        """The counter with this name, made on first use."""
        if name not in self.counters:
            self.counters[name] = Counter(name, unit)
        return self.counters[name]

    @property
    def end_s(self) -> float:
        """Time of the last event."""
        return max(
            max((s.end_s for s in self.spans), default=0.0),
            max((i.time_s for i in self.instants), default=0.0),
            max((c.times_s[-1] for c in self.counters.values() if c.times_s), default=0.0),
        )
