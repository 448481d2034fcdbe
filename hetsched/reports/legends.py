"""What stands beside a curve's name: the figure that says most of it."""

from __future__ import annotations

from hetsched.reports.units import quantity
from hetsched.trace import Counter, Trace

#: Quantities that come and go, so that their value at the end says little.
MEANS = ("power", "bandwidth", "utilisation", "macs", "rate", "throughput")


def legend_of(trace: Trace, group: str, counter: Counter, unit: str) -> str:
    """What stands for a curve in the legend: the peak of a temperature, the mean of what comes and goes; empty: its last value."""
    if group == "temperature":
        return quantity(max(counter.values), unit)
    if group == "status":
        return worst_status(trace)[0]
    if group not in MEANS or counter.times_s[-1] <= counter.times_s[0]:
        return ""
    return quantity(integral(counter) / (counter.times_s[-1] - counter.times_s[0]), unit)


def worst_status(trace: Trace) -> tuple[str, float]:
    """The name of the worst status that apps were told, and when it came first; no name: it never changed."""
    counter = next((c for n, c in trace.counters.items() if n.startswith("status/") and c.values), None)
    if counter is None:
        return "", 0.0
    first = counter.times_s[counter.values.index(max(counter.values))]
    return next((i.name for i in trace.instants if i.kind == "status" and i.time_s == first), ""), first


def integral(counter: Counter) -> float:
    """Of a counter whose values hold until the next sample, from its first to its last."""
    return sum(v * (after - t) for t, after, v in zip(counter.times_s, counter.times_s[1:], counter.values, strict=False))
