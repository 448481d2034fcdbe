"""Writes the committed rows: CSV with a header and the same bytes for the same rows."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def write_rows(path: Path, fields: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write ``rows`` under a header of ``fields``."""
    with path.open("w", encoding="utf-8", newline="") as f:
        writer = csv.DictWriter(f, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
