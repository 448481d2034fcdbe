"""The trace option: its file name is checked before any work is done."""

from __future__ import annotations

from pathlib import Path

from hetsched.errors import OptionError
from hetsched.trace import Trace

SUFFIXES = (".pftrace", ".parquet")


def check_name(path: Path | None) -> None:
    """Refuse an unknown suffix, or a folder that does not exist."""
    if path is not None and path.suffix not in SUFFIXES:
        raise OptionError(f"--trace {path} must end in {' or '.join(SUFFIXES)}")
    if path is not None and not path.parent.is_dir():
        raise OptionError(f"--trace {path}: the folder {path.parent} does not exist")


def write(trace: Trace, path: Path | None) -> None:
    """Write ``trace`` as Perfetto or Parquet."""
    if path is not None:
        from hetsched.trace import files

        files.write(trace, path)
