"""What ``hetsched calibrate`` measured, in units for people, and what ``hetsched delegates`` found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hetsched.cli.show import line, seconds, table

_GIGA = 1e9
#: Kinds of work under these names are bytes that matrix work moves, not operators of their own.
_INSIDE = "matrix/"


def measurement(measured: Mapping[str, Any]) -> None:
    """Rates, overheads and how quiet the machine was; every figure of one core unless it says otherwise."""
    cores = measured["cores"]
    many = f"{len(cores)} cores" if len(cores) > 1 else "1 core"
    line(f"this machine: {measured['model']}, {many} measured; rates are of one core unless they say otherwise")
    memory = [
        ["memory, read by one core", _bytes(measured["read_one_bytes_s"])],
        [f"memory, read by all {many}", _bytes(measured["read_all_bytes_s"])],
        ["cost of starting an operator", seconds(measured["op_overhead_s"])],
        ["cost of starting a segment", seconds(measured["launch_s"])],
        ["signal from core to core", seconds(measured["sync_s"]) + (" (assumed)" if measured["sync_estimated"] else "")],
    ]
    line("")
    table("memory and overheads", ["", "measured"], memory, numeric=(1,))
    line("")
    title = "matrix work: billions of operations a second (a multiply and an add are two)"
    table(title, ["kernel", "FP32", "INT8"], _kernels(measured), numeric=(1, 2))
    line("")
    table("other operators: GB/s that they read and write", ["operator", "rate"], _others(measured), numeric=(1,))
    line("")
    line(f"quality: repeats {measured['spread']:.0%} apart, other programs used {measured['others']:.2g} cores")
    for note in measured["notes"]:
        line(f"note: {note}")
    line("plans for --soc host rest on this; 'hetsched calibrate --json' has every figure")


def delegates(rows: Sequence[Mapping[str, Any]]) -> None:
    """Two or three lines a delegate: what it is, what it runs here or why not, and what it can only build."""
    for row in rows:
        version = row["version"] or "not present"
        line(f"{row['delegate']} {version}" + (f" on {', '.join(row['devices'])}" if row["devices"] else ""))
        if not row["available"]:
            line(f"  does not run here: {row['reason']}")
        else:
            emulated = f"; emulated by {row['emulated']}: no times" if row["emulated"] else ""
            line(f"  runs here: {row['runs']}{emulated}")
        if row["builds"]:
            line(f"  builds: {row['builds']}")


def _kernels(measured: Mapping[str, Any]) -> list[list[str]]:
    """Kernel, and its rate at each precision."""
    rates = {"peak/f32": measured["peak_f32_ops_s"], "peak/i8": measured["peak_i8_ops_s"], **measured["rates"]}
    names = dict.fromkeys(key.partition("/")[0] for key in rates)
    return [[name, *(_giga(rates.get(f"{name}/{precision}")) for precision in ("f32", "i8"))] for name in names]


def _others(measured: Mapping[str, Any]) -> list[list[str]]:
    """Operator, and the rate at which it passes bytes: the plain elementwise one's over its cost relative to that."""
    plain = measured["vector_bytes_s"]
    return [[name, f"{plain / cost / _GIGA:.3g}"] for name, cost in measured["vector"].items() if not name.startswith(_INSIDE)]


def _giga(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / _GIGA:.3g}"


def _bytes(rate: float) -> str:
    return f"{rate / _GIGA:.3g} GB/s"
