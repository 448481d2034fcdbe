"""Writing a trace in the format that its file name asks for."""

from __future__ import annotations

from pathlib import Path

from hetsched.errors import OptionError
from hetsched.trace import Trace

SUFFIXES = (".pftrace", ".parquet")


def check_name(path: Path | None) -> None:
    """Refuse an unknown suffix before any work is done."""
    if path is not None and path.suffix not in SUFFIXES:
        raise OptionError(f"--trace {path} must end in {' or '.join(SUFFIXES)}")


def write(trace: Trace, path: Path | None) -> None:
    """Write ``trace`` as Perfetto or Parquet."""
    if path is None:
        return
    if path.suffix == ".pftrace":
        from hetsched.trace import perfetto

        perfetto.write(trace, path)
    else:
        from hetsched.trace import parquet

        parquet.write(trace, path)
