"""A plain table of latencies (CSV), the hardware lookup table of a search or of a benchmark of single operators.

Columns (parted by commas, semicolons or tabs), in any order and case: ``op`` (or ``type``), and a time, ``time_ms`` (or
``_s``, ``_us``, ``_ns``; ``latency_`` too). Optional: ``name``, ``shape`` of the output (``1x32x112x112``), ``bits`` or
``precision``, ``kernel``, ``queue`` (or ``processor``, ``unit``).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping

from hetsched.errors import TraceError
from hetsched.profiles.timings import Profile, Timing, number

FORMAT = "latency table"
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_BITS = {
    "4": "w4a16", "8": "w8a8", "16": "f16", "32": "f32", "int8": "w8a8", "fp16": "f16", "fp32": "f32", "float16": "f16", "float32": "f32",
}  # fmt: skip
_PRECISIONS = ("", "f32", "f16", "w8a8", "w8a16", "w4a16", "w4a8")


def recognises(text: str) -> bool:
    """Whether the first line names an operator and a time."""
    columns = _columns(_head(text))
    return _time_column(columns) is not None and any(c in columns for c in ("op", "type", "op_type", "name"))


def _columns(line: str) -> list[str]:
    return [c.strip().strip('"').lower().replace(" ", "_") for c in line.split(_delimiter(line))]


def _head(text: str) -> str:
    return text.lstrip("\ufeff").partition("\n")[0].rstrip("\r")


def _delimiter(head: str) -> str:
    """What parts the columns: the most frequent of the three in the first line."""
    return max(",;\t", key=head.count)


def _time_column(columns: list[str]) -> tuple[str, float] | None:
    for column in columns:
        match = re.fullmatch(r"(?:time|latency|mean|median|avg)_([a-zµ]+)", column)
        if match and match[1] in _UNITS:
            return column, _UNITS[match[1]]
    return None


def read(text: str, where: str) -> Profile:
    """One timing a row.

    Raises:
        TraceError: a row whose time, shape or precision cannot be read.
    """
    lines = text.splitlines()
    head = _head(text)
    columns = _columns(head)
    repeated = next((c for c in columns if c and columns.count(c) > 1), None)
    if repeated is not None:
        raise TraceError(f"{where} has two columns {repeated!r}: keep one")
    time = _time_column(columns)
    if time is None:
        raise TraceError(f"{where} has no column with a time: name one time_ms, time_us or time_s")
    rows = csv.DictReader(lines[1:], fieldnames=columns, delimiter=_delimiter(head))
    timings = []
    for at, row in enumerate(rows, 2):
        cells = {k: (v or "").strip() for k, v in row.items() if isinstance(k, str) and not isinstance(v, list)}
        timings.append(_row(cells, time, f"{where}, line {at}"))
    return Profile(FORMAT, tuple(timings), ())


def _row(cells: Mapping[str, str], time: tuple[str, float], where: str) -> Timing:
    def first(*names: str) -> str:
        return next((cells[n] for n in names if cells.get(n)), "")

    try:
        seconds = number(cells[time[0]]) * time[1]
    except (KeyError, ValueError) as e:
        raise TraceError(f"{where}: {cells.get(time[0])!r} is not a time: write a number with a point, such as 1.58") from e
    given = first("precision", "bits").lower()
    precision = _BITS.get(given, given)
    if precision not in _PRECISIONS:
        raise TraceError(f"{where}: the precision {given!r} is unknown: use bits (4, 8, 16, 32) or one of {', '.join(_PRECISIONS[1:])}")
    queue = first("queue", "processor", "unit").lower()
    return Timing(first("name"), first("op", "type", "op_type"), seconds, queue, _shape(first("shape", "output_shape"), where), precision)


def _shape(text: str, where: str) -> tuple[int, ...] | None:
    if not text:
        return None
    parts = re.findall(r"[^\sx,;*\[\]()]+", text)
    if not all(p.isdecimal() and len(p) < 12 for p in parts):
        raise TraceError(f"{where}: the shape {text!r} is not a list of sizes: write 1x32x112x112")
    return tuple(int(p) for p in parts)
