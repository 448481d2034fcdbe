"""What a simulated run measures over time, energy meters, and how they become the counters of a trace.

Counters hold until their next sample. A counter with too many samples is thinned in bins; each bin keeps its least and
its greatest value. Rates (power, bandwidth, utilisation, frequency) keep their integral over every bin exactly, by
giving each extreme the time that makes the mean right; temperatures keep their true times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.costs import FloatArray
from hetsched.trace import Counter, Instant, Trace
from hetsched_simulations.result import Levelled

LIMIT = 2000
"""Samples of one counter after thinning."""


class Other(NamedTuple):
    """What another app draws: dynamic power and leakage at 25 degrees of what it takes of clusters ([c]), and its bytes in the DRAM."""

    dynamic_w: FloatArray
    leakage_25_w: FloatArray
    dram_w: float


@dataclass(frozen=True, eq=False, slots=True)
class Mode:
    """What holds during an interval: [c] clusters, [q] queues, [n] thermal nodes."""

    dynamic_w: FloatArray  # [c]
    active: FloatArray  # [c] share of the cluster at work
    leakage_25_w: FloatArray  # [c] leakage of what works, at 25 degrees
    flow_bytes_s: float
    dram_w: float
    busy: FloatArray  # [q]
    hz: FloatArray  # [c]
    throttled: bool
    heat_w: FloatArray  # [n] everything but what clusters draw statically
    cached_bytes_s: float  # that the system cache serves
    other: Other | None = None  # what another app has of all this


def mixed(share: FloatArray, modes: Sequence[Mode]) -> Mode:
    """The mean of modes that hold for these shares of the time; throttled if any of them is."""

    def over(values: Iterable[FloatArray]) -> FloatArray:
        return np.asarray(share @ np.array(list(values)))

    return Mode(
        over(m.dynamic_w for m in modes), over(m.active for m in modes), over(m.leakage_25_w for m in modes),
        float(share @ [m.flow_bytes_s for m in modes]), float(share @ [m.dram_w for m in modes]), over(m.busy for m in modes),
        over(m.hz for m in modes), any(m.throttled for m in modes), over(m.heat_w for m in modes),
        float(share @ [m.cached_bytes_s for m in modes]), _mixed_others(share, [m.other for m in modes if m.other is not None]),
    )  # fmt: skip


def _mixed_others(share: FloatArray, others: Sequence[Other]) -> Other | None:
    if not others:
        return None
    dynamic, leakage = (np.asarray(share @ np.array(values)) for values in list(zip(*others, strict=True))[:2])
    return Other(dynamic, leakage, float(share @ [o.dram_w for o in others]))


class History:
    """Intervals one after another, each with its mode, its static power and the temperatures at its start."""

    def __init__(self) -> None:
        self.start_s: list[float] = []
        self.end_s = 0.0
        self.node_c: list[FloatArray] = []
        self.static_w: list[FloatArray] = []
        self._modes: list[Mode] = []
        self._index: dict[int, int] = {}
        self._mode_of: list[int] = []

    def add(self, start_s: float, end_s: float, mode: Mode, node_c: FloatArray, static_w: FloatArray) -> None:
        """Append an interval; ``node_c`` are the temperatures at its start."""
        index = self._index.get(id(mode))
        if index is None:
            index = self._index[id(mode)] = len(self._modes)
            self._modes.append(mode)
        self._mode_of.append(index)
        self.start_s.append(start_s)
        self.end_s = end_s
        self.node_c.append(node_c)
        self.static_w.append(static_w)

    def heat_j(self, first: int, from_static: FloatArray) -> tuple[float, FloatArray]:
        """Seconds, and joules into each node [n], of all intervals from ``first`` on; ``from_static`` [n, c] spreads static power."""
        seconds = np.diff(np.append(self.start_s[first:], self.end_s))
        heat = np.array([self._modes[k].heat_w for k in self._mode_of[first:]]) + np.array(self.static_w[first:]) @ from_static.T
        return float(seconds.sum()), np.asarray(seconds @ heat)

    def mean(self, first: int) -> Mode:
        """The mean of all intervals from ``first`` on; throttled if any of them was."""
        seconds = np.diff(np.append(self.start_s[first:], self.end_s))
        return mixed(seconds / seconds.sum(), [self._modes[k] for k in self._mode_of[first:]])

    def others(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Of another app in every interval: dynamic power [k, c], its share of all leakage [k, c] and power of the DRAM [k].

        The last is the activity of clusters ([k, c]), with what the plan has of it.
        """
        rows = [(m.other, m) for m in self._modes if m.other is not None]
        k = self._mode_of
        shares = [o.leakage_25_w / np.maximum(m.leakage_25_w, np.finfo(float).tiny) for o, m in rows]
        dynamic, dram = np.array([o.dynamic_w for o, _ in rows])[k], np.array([o.dram_w for o, _ in rows])[k]
        return dynamic, np.array(shares)[k], dram, np.array([m.active for _, m in rows])[k]

    def columns(self) -> Columns:
        """Everything as arrays."""
        k, m = self._mode_of, self._modes
        start = np.array(self.start_s)
        return Columns(
            start, np.diff(np.append(start, self.end_s)), np.array([x.dynamic_w for x in m])[k], np.array(self.static_w),
            np.array([x.dram_w for x in m])[k], np.array([x.flow_bytes_s for x in m])[k], np.array([x.busy for x in m])[k],
            np.array([x.hz for x in m])[k], np.array([x.throttled for x in m])[k], np.array(self.node_c),
            np.array([x.cached_bytes_s for x in m])[k],
        )  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class Columns:
    """A history of ``k`` intervals as arrays, [k] or [k, c], [k, q], [k, n]."""

    start_s: FloatArray
    seconds: FloatArray
    dynamic_w: FloatArray
    static_w: FloatArray
    dram_w: FloatArray
    flow_bytes_s: FloatArray
    busy: FloatArray
    hz: FloatArray
    throttled: npt.NDArray[np.bool_]
    node_c: FloatArray
    cached_bytes_s: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Labels:
    """Names of the counters' subjects."""

    nodes: tuple[str, ...]
    processors: tuple[str, ...]
    clusters: tuple[str, ...]
    queues: tuple[str, ...]
    to_processor: FloatArray  # [p, c] one where the cluster belongs to the processor
    loads_w: Mapping[str, float] = field(default_factory=dict)
    """What is drawn beside the base, by name."""
    cache_bytes_s: float = inf
    """What goes through the system cache at most; infinite: there is nothing to tell of it."""
    dma_w: float = 0.0
    """What the DMA engine, the last of the queues, draws while it copies; 0: there is none, or nothing to tell."""


def write_counters(trace: Trace, columns: Columns, labels: Labels, base_w: float, final_c: FloatArray | None) -> None:
    """Write all counters of a history into a trace; ``final_c`` None: there are no temperatures."""
    t, end = columns.start_s, float(columns.start_s[-1] + columns.seconds[-1])
    power = (columns.dynamic_w + columns.static_w) @ labels.to_processor.T
    for j, name in enumerate(labels.processors):
        write_rate(trace, f"power/{name}", "W", t, power[:, j], end)
    write_rate(trace, "power/dram", "W", t, columns.dram_w, end)
    for name, watts in {"base": base_w, **labels.loads_w}.items():
        write_rate(trace, f"power/{name}", "W", t, np.full(len(t), watts), end)
    copying_w = labels.dma_w * columns.busy[:, -1]
    if labels.dma_w:
        write_rate(trace, "power/dma", "W", t, copying_w, end)
    rest_w = base_w + sum(labels.loads_w.values())
    write_rate(trace, "power/total", "W", t, power.sum(axis=1) + columns.dram_w + copying_w + rest_w, end)
    write_rate(trace, "bandwidth/dram", "B/s", t, columns.flow_bytes_s, end)
    if labels.cache_bytes_s < inf:
        write_rate(trace, "bandwidth/system_cache", "B/s", t, columns.cached_bytes_s, end)
        through = columns.flow_bytes_s + columns.cached_bytes_s
        write_rate(trace, "utilisation/system_cache", "1", t, through / labels.cache_bytes_s, end)
    for j, name in enumerate(labels.queues):
        write_rate(trace, f"utilisation/{name}", "1", t, columns.busy[:, j], end)
    for j, name in enumerate(labels.clusters):
        write_rate(trace, f"frequency/{name}", "Hz", t, columns.hz[:, j], end)
    if final_c is not None:
        nodes = np.vstack([columns.node_c, final_c])
        for j, name in enumerate(labels.nodes):
            write_points(trace, f"temperature/{name}", "degC", np.append(t, end), nodes[:, j])


def write_peaks(trace: Trace, nodes: Sequence[str], time_s: FloatArray, peak_c: FloatArray) -> None:
    """Add the hottest moment of every node to its temperatures, where it is none of their samples."""
    for name, t, c in zip(nodes, time_s.tolist(), peak_c.tolist(), strict=False):
        counter = trace.counters[f"temperature/{name}"]
        k = bisect_left(counter.times_s, t)
        if c > max(counter.values) and (k == len(counter.times_s) or counter.times_s[k] > t):
            counter.times_s.insert(k, t)
            counter.values.insert(k, c)


def write_levels(trace: Trace, levelled: Levelled, first: int, end_s: float) -> None:
    """Write the level over time, and an instant per switch."""
    counter = trace.counter("level/plan", "level")
    counter.sample(0.0, float(first))
    for s in levelled.switches:
        counter.sample(min(s.time_s + s.seconds, end_s), float(s.after))
        trace.instants.append(Instant("switch", f"level {s.before} -> {s.after}", s.time_s, f"{s.seconds * 1e3:.3g} ms"))
    counter.sample(end_s, counter.values[-1])
    trace.instants.sort(key=lambda i: i.time_s)


def write_rate(trace: Trace, name: str, unit: str, t: FloatArray, v: FloatArray, end: float) -> None:
    """Write a counter of a rate that holds from each time to the next, the last until ``end``, thinned."""
    times, values = thin_rate(t, v, end, LIMIT)
    trace.counters[name] = Counter(name, unit, [*times.tolist(), end], [*values.tolist(), float(values[-1])])


def write_points(trace: Trace, name: str, unit: str, t: FloatArray, v: FloatArray) -> None:
    """Write a counter of momentary values, thinned."""
    times, values = thin_points(t, v, LIMIT)
    trace.counters[name] = Counter(name, unit, times.tolist(), values.tolist())


def thin_rate(t: FloatArray, v: FloatArray, end: float, limit: int) -> tuple[FloatArray, FloatArray]:
    """Thin a piecewise-constant rate (value ``v[i]`` from ``t[i]``, the last one until ``end``) to at most ``limit`` samples.

    The integral of the whole and of every bin is kept, and so are the least and the greatest value of every bin.
    """
    changes = np.flatnonzero(np.concatenate([[True], v[1:] != v[:-1]]))
    t, v = t[changes], v[changes]
    if len(t) <= limit:
        return t, v
    length = np.diff(np.append(t, end))
    first = np.linspace(0, len(t), limit // 2, endpoint=False).astype(int)
    low, high = np.minimum.reduceat(v, first), np.maximum.reduceat(v, first)
    span = np.add.reduceat(length, first)
    at_low = np.clip((high * span - np.add.reduceat(v * length, first)) / np.where(high > low, high - low, 1.0), 0.0, span)
    rising = v[first] - low <= high - v[first]
    out_t = np.stack([t[first], t[first] + np.where(rising, at_low, span - at_low)], axis=1).ravel()
    out_v = np.stack([np.where(rising, low, high), np.where(rising, high, low)], axis=1).ravel()
    lasts = np.diff(np.append(out_t, end)) > 0
    return out_t[lasts], out_v[lasts]


def thin_points(t: FloatArray, v: FloatArray, limit: int) -> tuple[FloatArray, FloatArray]:
    """Thin momentary values to about ``limit``: the least and the greatest of every bin at their own times, and both ends."""
    if len(t) <= limit:
        return t, v
    edges = np.linspace(0, len(t), limit // 2, endpoint=False).astype(int)
    keep = {0, len(t) - 1}
    for a, b in zip(edges, [*edges[1:], len(t)], strict=True):
        keep |= {int(a + np.argmin(v[a:b])), int(a + np.argmax(v[a:b]))}
    index = np.array(sorted(keep))
    return t[index], v[index]
