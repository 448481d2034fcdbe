"""Trace files: which format a name or a file's first bytes mean."""

from __future__ import annotations

from pathlib import Path

from hetsched.errors import OptionError, TraceError
from hetsched.trace import Trace

PERFETTO = (".pftrace", ".perfetto-trace")
PARQUET = (".parquet",)
#: Larger files are refused before anything is allocated.
MAX_BYTES = 4 << 30


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

        return parquet.read(path)
    from hetsched.trace import perfetto

    return perfetto.read(path)
