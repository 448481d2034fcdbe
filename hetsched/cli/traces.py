"""The trace option: its file name is checked before any work is done."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hetsched.errors import OptionError
from hetsched.files import check_destination
from hetsched.trace import Trace

SUFFIXES = (".pftrace", ".parquet")


def check_name(path: Path | None, inputs: Iterable[Path | str | None] = ()) -> None:
    """Refuse an unknown suffix, a place that cannot be written, or one of the ``inputs``."""
    if path is None:
        return
    if path.suffix not in SUFFIXES:
        raise OptionError(f"--trace {path} must end in {' or '.join(SUFFIXES)}")
    check_destination(path, inputs, "--trace")


def write(trace: Trace, path: Path | None) -> None:
    """Write ``trace`` as Perfetto or Parquet."""
    if path is not None:
        from hetsched.trace import files

        files.write(trace, path)
