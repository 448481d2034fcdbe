"""Trace files: which format a name or a file's first bytes mean."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hetsched.errors import OptionError, TraceError
from hetsched.trace import Trace

PERFETTO = (".pftrace", ".perfetto-trace")
PARQUET = (".parquet",)
#: Perfetto counts nanoseconds in 64 bits.
LATEST_S = 1e10
#: No quantity of a phone is larger, whatever its unit.
LARGEST = 1e30
#: Larger files are refused before anything is allocated.
MAX_BYTES = 256 << 20


def read_whole(path: Path) -> bytes:
    """The bytes of a trace file.

    Raises:
        TraceError: absent, empty, unreadable or larger than ``MAX_BYTES``.
    """
    if not path.is_file():
        raise TraceError(f"there is no trace file {str(path)!r}")
    size = path.stat().st_size
    if size == 0:
        raise TraceError(f"the trace file {str(path)!r} is empty: it was not written to its end")
    if size > MAX_BYTES:
        raise TraceError(f"the trace file {str(path)!r} has {size} bytes; at most {MAX_BYTES} are read")
    try:
        return path.read_bytes()
    except OSError as e:
        raise TraceError(f"cannot read the trace file {str(path)!r}: {e.strerror or e}") from e


def write(trace: Trace, path: Path) -> None:
    """Write a trace in the format that its name ends with (``.pftrace``, ``.perfetto-trace`` or ``.parquet``).

    Raises:
        OptionError: another ending, or the file cannot be written.
        TraceError: the trace itself is malformed (a time that is negative or not a number).
    """
    if path.name.endswith(PERFETTO):
        from hetsched.trace import perfetto

        perfetto.write(trace, path)
    elif path.name.endswith(PARQUET):
        from hetsched.trace import parquet

        parquet.write(trace, path)
    else:
        raise OptionError(f"the trace file {str(path)!r} must end in .pftrace (for ui.perfetto.dev) or .parquet (for data frames)")


def read(path: Path) -> Trace:
    """Read a trace that hetsched wrote, in the format that its first bytes show.

    Raises:
        TraceError: absent, damaged, or not a trace of hetsched.
    """
    if not path.is_file():
        raise TraceError(f"there is no trace file {str(path)!r}")
    with path.open("rb") as f:
        magic = f.read(4)
    if magic == b"PAR1":
        from hetsched.trace import parquet

        trace = parquet.read(path)
    else:
        from hetsched.trace import perfetto

        trace = perfetto.read(path)
    fault = _fault(trace)
    if fault:
        raise TraceError(f"the trace {str(path)!r} is damaged: {fault}; write it again")
    return trace


def is_trace(path: Path) -> bool:
    """Whether a file begins like a trace: a Parquet file, or a Perfetto one, whose first field is a packet."""
    with path.open("rb") as f:
        head = f.read(4)
    return head == b"PAR1" or head[:1] == b"\x0a"


def _fault(trace: Trace) -> str:
    """What is wrong with a trace whose file could be parsed; readers and reports rely on all of this."""
    texts = [trace.model, trace.soc, *trace.queues, *trace.notes, *(t for s in trace.spans for t in (s.queue, s.kind, s.name))]
    texts += [t for i in trace.instants for t in (i.kind, i.name, i.detail)] + [
        t for c in trace.counters.values() for t in (c.name, c.unit)
    ]
    if not all(isinstance(t, str) for t in texts):
        return "a name in it is not text"
    for s in trace.spans:
        if not (_is_time(s.start_s) and _is_time(s.end_s) and s.start_s <= s.end_s):
            return f"{s.name!r} on {s.queue!r} lasts from {s.start_s} to {s.end_s} s"
        if not (isinstance(s.segment, int) and isinstance(s.iteration, int) and (s.predicted_s is None or _is_time(s.predicted_s))):
            return f"{s.name!r} on {s.queue!r} has the segment {s.segment}, the iteration {s.iteration} and the prediction {s.predicted_s}"
    for i in trace.instants:
        if not _is_time(i.time_s):
            return f"{i.name!r} happens at {i.time_s} s"
    for c in trace.counters.values():
        if not all(map(_is_time, c.times_s)) or not all(isinstance(v, float | int) and abs(v) <= LARGEST for v in c.values):
            return f"the counter {c.name!r} has a time or a value that is no number, or too large a one"
        if any(b < a for a, b in pairwise(c.times_s)):
            return f"the counter {c.name!r} goes back in time"
    return ""


def _is_time(value: object) -> bool:
    return isinstance(value, float | int) and 0 <= value < LATEST_S
