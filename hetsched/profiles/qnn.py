"""The CSV of QNN's profile, as ``qnn-profile-viewer`` and ONNX Runtime's QNN provider write it.

One row an event: ``Message`` says what it is of (``NODE`` for operators), ``Time`` and ``Unit of Measurement`` how much. Detailed
profiles give operators in cycles of the accelerator; its time in microseconds over its cycles turns them into seconds.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping

from hetsched.errors import TraceError
from hetsched.profiles.timings import Profile, Timing, number

FORMAT = "QNN profile"
_HEAD = ("message", "time", "unit of measurement", "event identifier")
_SUFFIX = re.compile(r"(?::OpId_\d+)?\s*(?:\(cycles\))?$")
_ACCELERATOR = re.compile(r"accelerator \(execute(?: excluding wait)?\) time", re.IGNORECASE)


def recognises(text: str) -> bool:
    """Whether a text begins with the head of such a CSV (viewers may put lines before it)."""
    return _head(text.splitlines()[:50]) is not None


def _head(lines: list[str]) -> int | None:
    return next((i for i, line in enumerate(lines) if all(c in line.lower() for c in _HEAD)), None)


def read(text: str, where: str) -> Profile:
    """Operators of every execution; an execution ends where the first operator comes again.

    Raises:
        TraceError: a time that is no number, or cycles without the accelerator's time.
    """
    lines = text.splitlines()
    head = _head(lines[:50])
    rows = [
        {(k or "").strip().lower(): (v or "").strip() if isinstance(v, str) else "" for k, v in row.items()}
        for row in csv.DictReader(lines[head or 0 :])
    ]
    nodes: list[tuple[str, float, str, int]] = []
    totals: dict[str, list[float]] = {"us": [], "cycles": []}
    seen: set[str] = set()
    run = 0
    for row in rows:
        name, unit = row.get("event identifier", ""), row.get("unit of measurement", "").lower()
        if row.get("message", "").upper() == "NODE" and unit in ("cycles", "us"):
            run, seen = (run + 1, {name}) if name in seen else (run, seen | {name})
            nodes.append((_SUFFIX.sub("", name), _time(row, where), unit, run))
        elif _ACCELERATOR.match(name) and unit in totals:
            totals[unit].append(_time(row, where))
    return Profile(FORMAT, tuple(_timings(nodes, totals, where)), ("operators have no types or shapes in this format",))


def _time(row: Mapping[str, str], where: str) -> float:
    try:
        return number(row.get("time", ""))
    except ValueError as e:
        raise TraceError(f"{where}: {row.get('time')!r} is not a time: the profile is damaged") from e


def _timings(nodes: list[tuple[str, float, str, int]], totals: Mapping[str, list[float]], where: str) -> list[Timing]:
    cycles = sum(t for _, t, unit, _ in nodes if unit == "cycles")
    per_cycle = 0.0
    if cycles:
        microseconds, counted = sum(totals["us"]), sum(totals["cycles"])
        if not microseconds:
            raise TraceError(
                f"{where} gives operators in cycles but not the accelerator's time in microseconds that would turn them into seconds: "
                "export the profile with its 'Accelerator (execute) time' rows"
            )
        per_cycle = microseconds / 1e6 / (counted or cycles)
    return [Timing(name, "", t * per_cycle if unit == "cycles" else t / 1e6, "npu", run=run) for name, t, unit, run in nodes]
