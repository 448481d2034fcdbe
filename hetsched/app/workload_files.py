"""Workload files: what arrives when, as CSV or YAML."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from hetsched import plain_yaml, wrong_fields
from hetsched.app.scenario import MAX_DURATION_S, Seconds, Tokens
from hetsched.errors import OptionError
from hetsched.soc_quantities import Strict

MOST = 1_000_000
"""Arrivals that a file may hold."""
MAX_FILE_BYTES = 1 << 26


class Arrival(Strict):
    """One arrival: an inference or, of a language model, a turn of a conversation."""

    time: Annotated[Seconds, Field(ge=0, le=MAX_DURATION_S)]
    prompt: Tokens | None = None
    generate: Tokens | None = None
    """None: as many as the plan is for."""
    past: Annotated[int, Field(ge=0, le=1 << 24)] | None = None
    """Tokens before; 0: a new conversation begins. None: it goes on."""


class _Workload(Strict):
    arrivals: Annotated[tuple[Arrival, ...], Field(min_length=1, max_length=MOST)]


def read_workload(path: str | Path) -> tuple[Arrival, ...]:
    """The arrivals of a file, by time.

    Args:
        path: a CSV table with a header (``time,prompt,generate,...``), or YAML with a list ``arrivals`` of such fields.

    Raises:
        OptionError: it cannot be read, or a field makes no sense.
    """
    path = Path(path)
    table = path.suffix.lower() == ".csv"
    raw = {"arrivals": _rows(path)} if table else plain_yaml.read(path, "the workload", MAX_FILE_BYTES)
    try:
        found = _Workload.model_validate(raw)
    except ValidationError as e:
        raise OptionError(f"the workload {path}: {wrong_fields.fault(e, _Workload, raw)}") from e
    return tuple(sorted(found.arrivals, key=lambda a: a.time))


def _rows(path: Path) -> Sequence[Mapping[str, str]]:
    """The rows of a table; empty cells are left out."""
    if path.exists() and not path.is_file():
        raise OptionError(f"the workload {path} is not a plain file: name a CSV table, or a YAML file")
    if path.is_file() and path.stat().st_size > MAX_FILE_BYTES:
        raise OptionError(f"the workload {path} has {path.stat().st_size} bytes: at most {MAX_FILE_BYTES} are read")
    try:
        with path.open(encoding="utf-8-sig", newline="") as f:
            heads = [head.strip() for head in next(csv.reader(f), [])]
            twice = next((head for k, head in enumerate(heads) if head in heads[:k]), None)
            if twice is not None:
                raise OptionError(f"the workload {path} has two columns {twice!r}: keep one")
            return [_row(path, row) for row in islice(csv.DictReader(f, heads), MOST + 1)]
    except OSError as e:
        raise OptionError(f"the workload {path} cannot be read: {e.strerror}") from e
    except (UnicodeDecodeError, csv.Error) as e:
        raise OptionError(f"the workload {path} is no CSV table: {e}") from e


def _row(path: Path, row: Mapping[str | None, Any]) -> dict[str, str]:
    if None in row:
        raise OptionError(f"the workload {path} has a row with more cells than its header, with {row[None][0]!r}: give every column a name")
    return {str(head): cell.strip() for head, cell in row.items() if isinstance(cell, str) and cell.strip()}
