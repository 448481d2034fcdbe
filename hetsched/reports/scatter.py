"""Measured beside predicted, op by op."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hetsched.reports.markup import el, percent
from hetsched.reports.units import axis, quantity

SIZE = 260


@dataclass(frozen=True)
class Pair:
    """One op: what was predicted for it and what it took."""

    op: str
    type: str
    queue: str
    predicted_s: float
    seconds: float


@dataclass(frozen=True)
class Total:
    """Sums of one queue's ops."""

    queue: str
    ops: int
    predicted_s: float
    seconds: float


def totals(pairs: Sequence[Pair]) -> list[Total]:
    """Sums per queue, and over all if there are several queues."""
    rows: dict[str, list[Pair]] = {}
    for p in pairs:
        rows.setdefault(p.queue, []).append(p)
    out = [Total(q, len(r), sum(p.predicted_s for p in r), sum(p.seconds for p in r)) for q, r in sorted(rows.items())]
    if len(out) > 1:
        out.append(Total("all", len(pairs), sum(t.predicted_s for t in out), sum(t.seconds for t in out)))
    return out


def furthest(pairs: Sequence[Pair], count: int = 8) -> list[Pair]:
    """The ops whose seconds differ most from the prediction."""
    return sorted(pairs, key=lambda p: (-abs(p.seconds - p.predicted_s), p.op))[:count]


def scatter(pairs: Sequence[Pair], colours: Mapping[str, str], verb: str, what: str = "ops") -> Markup | None:
    """A log-log scatter of ``what`` with the diagonal and the factor-of-two band; None without positive pairs."""
    shown = [p for p in pairs if p.predicted_s > 0 and p.seconds > 0]
    if not shown:
        return None
    values = [v for p in shown for v in (p.predicted_s, p.seconds)]
    low, high = math.floor(math.log10(min(values)) - 0.05), math.ceil(math.log10(max(values)) + 0.05)
    span = high - low

    def at(log: float) -> float:
        return (log - low) / span

    half = math.log10(2) / span
    parts: list[Markup] = []
    for k in range(low, high + 1):
        y = SIZE * (1 - at(k))
        anchor = "start" if k == low else "end" if k == high else "middle"
        parts.append(el("line", class_="g", x1="0", x2="100%", y1=y, y2=y))
        parts.append(el("line", class_="g", x1=percent(at(k)), x2=percent(at(k)), y1=0, y2=SIZE))
        parts.append(el("text", axis(10.0**k, "s"), class_="a", x=percent(at(k)), y=SIZE + 14, text_anchor=anchor))
        if k > low:
            parts.append(el("text", axis(10.0**k, "s"), class_="a", x=3, y=y + 12))
    for shift, kind in ((half, "band"), (0.0, "same"), (-half, "band")):
        x1, x2 = max(0.0, -shift), min(1.0, 1.0 - shift)
        parts.append(el("line", class_=kind, x1=percent(x1), x2=percent(x2), y1=SIZE * (1 - x1 - shift), y2=SIZE * (1 - x2 - shift)))
    for p in shown:
        x, y = at(math.log10(p.predicted_s)), SIZE * (1 - at(math.log10(p.seconds)))
        tip = f"{p.op}\n{p.type} on {p.queue}\npredicted {quantity(p.predicted_s, 's')}, {verb} {quantity(p.seconds, 's')}"
        parts.append(el("circle", class_=f"p {colours.get(p.queue, 'c-other0')}", cx=percent(x), cy=y, r=4, data_t=tip))
    label = f"{verb} over predicted seconds of {len(shown)} {what}, logarithmic"
    return el("svg", *parts, class_="scatter", width="100%", height=SIZE + 18, role="img", aria_label=label)
