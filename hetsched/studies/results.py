"""The results of a study as rows, and as Parquet tables of them and of their curves."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hetsched.errors import OptionError
from hetsched.files import write_atomically
from hetsched.scenarios import Findings, Prepared, Scalar
from hetsched.studies.folder import Folder

if TYPE_CHECKING:
    import pyarrow

#: Inputs that are no axis of a chart, however they differ.
LABELS = ("seed",)


@dataclass(frozen=True, slots=True)
class Row:
    """A scenario and what it gave."""

    key: str
    inputs: dict[str, Scalar]
    findings: Findings = field(repr=False)

    @property
    def figures(self) -> dict[str, Scalar]:
        """Figures by column."""
        return dict(self.findings.figures)

    def number(self, name: str) -> float | None:
        """A figure that is a number, if there is one."""
        value = self.findings.figures.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def collect(folder: Folder, scenarios: Sequence[Prepared]) -> list[Row]:
    """The scenarios that have a record, in the study's order.

    Raises:
        OptionError: a record is damaged.
    """
    there = folder.recorded()
    return [Row(s.key, dict(s.inputs), folder.read(s.key)) for s in scenarios if s.key in there]


def varying(rows: Sequence[Row]) -> list[str]:
    """Inputs that differ between rows, in the order in which they come."""
    names = list(dict.fromkeys(k for r in rows for k in r.inputs if k not in LABELS))
    return [n for n in names if len(values_of(rows, n)) > 1]


def values_of(rows: Sequence[Row], name: str) -> list[Scalar]:
    """Values of an input, in the order in which they come."""
    return list(dict.fromkeys(r.inputs.get(name) for r in rows))


def write_tables(folder: Folder, rows: Sequence[Row]) -> None:
    """Write ``results.parquet`` (a row a scenario) and ``curves.parquet`` (a row a sample); same rows, same bytes.

    Raises:
        OptionError: pyarrow is not installed, or a file cannot be written.
    """
    table = [{**r.inputs, **r.figures, "refused": r.findings.refused or None, "scenario": r.key} for r in rows]
    columns = dict.fromkeys(k for group in (_used(rows), _figures(rows), ["refused", "scenario"]) for k in group)
    _write(folder.results, {name: [row.get(name) for row in table] for name in columns})
    samples: dict[str, list[Any]] = {"scenario": [], "curve": [], "unit": [], "time_s": [], "value": []}
    for r in rows:
        for name, c in r.findings.curves.items():
            n = len(c.times_s)
            for column, values in zip(samples, ([r.key] * n, [name] * n, [c.unit] * n, c.times_s, c.values), strict=True):
                samples[column].extend(values)
    _write(folder.curves, samples)


def _used(rows: Sequence[Row]) -> list[str]:
    """Inputs that any scenario has."""
    return list(dict.fromkeys(k for r in rows for k, v in r.inputs.items() if v is not None))


def _figures(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(k for r in rows for k in r.findings.figures))


def _write(path: Any, columns: dict[str, list[Any]]) -> None:
    pa, parquet = arrow()
    out = io.BytesIO()
    parquet.write_table(pa.table({name: _column(pa, name, values) for name, values in columns.items()}), out, compression="zstd")
    write_atomically(path, out.getvalue())


def _column(pa: pyarrow, name: str, values: list[Any]) -> pyarrow.Array:
    if any(isinstance(v, float) for v in values):
        values = [float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values]
    try:
        return pa.array(values, pa.string() if all(v is None for v in values) else None)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if v is None else str(v) for v in values], pa.string())


def arrow() -> tuple[Any, Any]:
    """The library that reads and writes Parquet, and its module for that.

    Raises:
        OptionError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as e:
        raise OptionError("studies need pyarrow, which is not installed: pip install 'hetsched[studies]'") from e
    return pyarrow, pyarrow.parquet
