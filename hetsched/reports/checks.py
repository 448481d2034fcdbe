"""Numerical checks as a table: the worst first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetsched.reports.items import CheckItem
from hetsched.reports.units import digits


@dataclass(frozen=True)
class CheckRow:
    """One op's comparison, as text and as the number to sort by."""

    op: str
    type: str
    cosine: tuple[str, float]
    snr: tuple[str, float]
    max_abs: tuple[str, float]
    note: str
    ok: bool | None


@dataclass(frozen=True)
class CheckView:
    """A check for the template."""

    title: str
    verdict: str
    rows: list[CheckRow]


def check_view(item: CheckItem) -> CheckView:
    """Rows by ascending cosine, and one line that sums them up."""
    rows = sorted((_row(r) for r in item.rows), key=lambda r: (r.ok is not False, r.cosine[1], r.op))
    known = [r.cosine[1] for r in rows if r.cosine[0] != "–"]
    failed = [r for r in rows if r.ok is False]
    verdict = f"{len(rows)} ops compared with the reference"
    if known:
        verdict += f"; lowest cosine {min(known):.6f}"
    if failed:
        verdict += f"; {len(failed)} failed, the first is {failed[0].op}"
    elif any(r.ok for r in rows):
        verdict += "; all passed"
    return CheckView(item.title, verdict + ".", rows)


def _row(row: Mapping[str, Any]) -> CheckRow:
    ok = row.get("ok")
    return CheckRow(
        str(row.get("op", "")), str(row.get("type", "")), _number(row.get("cosine"), ".6f"), _number(row.get("snr_db"), ".1f"),
        _number(row.get("max_abs"), ""), str(row.get("note") or ""), None if ok is None else bool(ok),
    )  # fmt: skip


def _number(value: Any, form: str) -> tuple[str, float]:
    if value is None or math.isnan(float(value)):
        return "–", -math.inf
    number = float(value)
    if math.isinf(number):
        return "∞" if number > 0 else "−∞", number
    return (format(number, form) if form else digits(number)), number
