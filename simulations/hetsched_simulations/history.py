"""What a simulated run measures over time, energy meters, and how they become the counters of a trace.

Counters hold until their next sample. A counter with too many samples is thinned in bins; each bin keeps its least and
its greatest value. Rates (power, bandwidth, utilisation, frequency) keep their integral over every bin exactly, by
giving each extreme the time that makes the mean right; temperatures keep their true times.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hetsched.costs import FloatArray
from hetsched.trace import Counter, Trace

LIMIT = 2000
"""Samples of one counter after thinning."""


@dataclass(slots=True)
class History:
    """Rows of piecewise-constant figures: from ``start_s[i]`` to ``start_s[i + 1]`` (or ``end_s``)."""

    start_s: list[float] = field(default_factory=list)
    end_s: float = 0.0
    processor_w: list[FloatArray] = field(default_factory=list)
    dram_w: list[float] = field(default_factory=list)
    flow_bytes_s: list[float] = field(default_factory=list)
    busy: list[FloatArray] = field(default_factory=list)
    hz: list[FloatArray] = field(default_factory=list)
    node_c: list[FloatArray] = field(default_factory=list)
    """Temperatures at ``start_s``."""

    def add(
        self, start_s: float, end_s: float, node_c: FloatArray, processor_w: FloatArray,
        dram_w: float, flow_bytes_s: float, busy: FloatArray, hz: FloatArray,
    ) -> None:  # fmt: skip
        """Append an interval; ``node_c`` are the temperatures at its start."""
        self.start_s.append(start_s)
        self.end_s = end_s
        self.node_c.append(node_c)
        self.processor_w.append(processor_w)
        self.dram_w.append(dram_w)
        self.flow_bytes_s.append(flow_bytes_s)
        self.busy.append(busy)
        self.hz.append(hz)


@dataclass(frozen=True, slots=True)
class Labels:
    """Names of the counters' subjects."""

    nodes: tuple[str, ...]
    processors: tuple[str, ...]
    clusters: tuple[str, ...]
    queues: tuple[str, ...]


def write_counters(trace: Trace, history: History, labels: Labels, base_w: float, final_c: FloatArray | None) -> None:
    """Write all of a history's counters into a trace; ``final_c`` None: there are no temperatures."""
    if not history.start_s:
        return
    t, end = np.array(history.start_s), history.end_s
    power, dram = np.array(history.processor_w), np.array(history.dram_w)
    for j, name in enumerate(labels.processors):
        _rate(trace, f"power/{name}", "W", t, power[:, j], end)
    _rate(trace, "power/dram", "W", t, dram, end)
    _rate(trace, "power/base", "W", t, np.full(len(t), base_w), end)
    _rate(trace, "power/total", "W", t, power.sum(axis=1) + dram + base_w, end)
    _rate(trace, "bandwidth/dram", "B/s", t, np.array(history.flow_bytes_s), end)
    for j, name in enumerate(labels.queues):
        _rate(trace, f"utilisation/{name}", "1", t, np.array(history.busy)[:, j], end)
    for j, name in enumerate(labels.clusters):
        _rate(trace, f"frequency/{name}", "Hz", t, np.array(history.hz)[:, j], end)
    if final_c is not None:
        nodes = np.vstack([np.array(history.node_c), final_c])
        for j, name in enumerate(labels.nodes):
            write_points(trace, f"temperature/{name}", "degC", np.append(t, end), nodes[:, j])


def _rate(trace: Trace, name: str, unit: str, t: FloatArray, v: FloatArray, end: float) -> None:
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
