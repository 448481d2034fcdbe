"""Traces as one Parquet table, for data frames.

One row per event. ``record`` says what a row is:

====== ================================================================================================
span    queue, kind, name, start_s, end_s, segment, iteration, predicted_s (null: nothing was predicted)
counter name, unit, start_s (time of the sample), value
instant kind, name, start_s, detail
====== ================================================================================================

Rows keep the trace's own order; columns that a record does not use are null. Origin, model, SoC, queues, notes and the
list of counters are JSON in the schema's metadata under ``hetsched.trace``. Reading returns exactly what was written.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from hetsched.errors import OptionError, TraceError
from hetsched.files import write_atomically
from hetsched.trace import Counter, Instant, Kind, Origin, Span, Trace
from hetsched.trace.files import read_whole

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
KEY = b"hetsched.trace"
#: More rows than this are refused before anything is allocated.
MAX_ROWS = 4_000_000
MAX_UNCOMPRESSED_BYTES = 1 << 30
COLUMNS = ("record", "queue", "kind", "name", "start_s", "end_s", "segment", "iteration", "predicted_s", "unit", "value", "detail")
_FLOATS = ("start_s", "end_s", "predicted_s", "value")
_INTEGERS = ("segment", "iteration")


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as e:
        raise OptionError("Parquet traces need pyarrow, which is not installed: pip install 'hetsched[trace]'") from e
    return pyarrow


def _schema(pa: Any) -> Any:
    def kind(column: str) -> Any:
        if column in _FLOATS:
            return pa.float64()
        return pa.int64() if column in _INTEGERS else pa.dictionary(pa.int32(), pa.string())

    return pa.schema([(c, kind(c)) for c in COLUMNS])


def table(trace: Trace) -> pa.Table:
    """The trace as an Arrow table.

    Raises:
        OptionError: pyarrow is not installed.
    """
    pa = _arrow()
    columns: dict[str, list[Any]] = {c: [] for c in COLUMNS}
    for s in trace.spans:
        _row(columns, "span", s.queue, s.kind, s.name, s.start_s, s.end_s, s.segment, s.iteration, s.predicted_s, None, None, None)
    for c in trace.counters.values():
        for time, value in zip(c.times_s, c.values, strict=True):
            _row(columns, "counter", None, None, c.name, time, None, None, None, None, c.unit, value, None)
    for i in trace.instants:
        _row(columns, "instant", None, i.kind, i.name, i.time_s, None, None, None, None, None, None, i.detail)
    about = {
        "version": VERSION,
        "origin": trace.origin,
        "model": trace.model,
        "soc": trace.soc,
        "queues": list(trace.queues),
        "notes": list(trace.notes),
        "counters": [[c.name, c.unit] for c in trace.counters.values()],
    }
    schema = _schema(pa)
    arrays = [pa.array(columns[f.name], f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema.with_metadata({KEY: json.dumps(about, sort_keys=True).encode()}))


def _row(columns: dict[str, list[Any]], *values: Any) -> None:
    for column, value in zip(columns.values(), values, strict=True):
        column.append(value)


def write(trace: Trace, path: Path) -> None:
    """Write a trace as one Parquet file (zstd).

    Raises:
        OptionError: the file cannot be written, or pyarrow is not installed.
    """
    pa = _arrow()
    sink = io.BytesIO()
    pa.parquet.write_table(table(trace), sink, compression="zstd")
    write_atomically(path, sink.getvalue())


def read(path: Path) -> Trace:
    """Read a trace that :func:`write` wrote.

    Raises:
        TraceError: absent, not Parquet, not a trace, too large, or made by a newer version.
        OptionError: pyarrow is not installed.
    """
    pa = _arrow()
    data = read_whole(path)
    try:
        file = pa.parquet.ParquetFile(io.BytesIO(data))
        _check_size(file.metadata, path)
        content = file.read()
    except (pa.ArrowException, OSError, ValueError) as e:
        raise TraceError(f"{str(path)!r} is not a readable Parquet file ({str(e).splitlines()[0]}): write the trace again") from e
    raw = (content.schema.metadata or {}).get(KEY)
    if raw is None or content.column_names != list(COLUMNS):
        raise TraceError(f"{str(path)!r} is a Parquet file but not a trace of hetsched: it lacks the metadata {KEY.decode()!r}")
    try:
        return _trace(json.loads(raw), content.cast(_schema(pa)).to_pydict())
    except TraceError as e:
        raise TraceError(f"{str(path)!r}: {e}") from e
    except (KeyError, TypeError, ValueError, pa.ArrowException) as e:
        raise TraceError(f"the trace {str(path)!r} is damaged ({type(e).__name__}: {e}): write it again") from e


def _check_size(metadata: Any, path: Path) -> None:
    size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    if metadata.num_rows > MAX_ROWS or size > MAX_UNCOMPRESSED_BYTES:
        raise TraceError(f"{str(path)!r} holds {metadata.num_rows} rows ({size} bytes); at most {MAX_ROWS} rows are read")


def _trace(about: dict[str, Any], columns: dict[str, list[Any]]) -> Trace:
    if about["version"] != VERSION:
        raise TraceError(f"it has format version {about['version']}; this hetsched reads {VERSION}: upgrade hetsched")
    if about["origin"] not in get_args(Origin):
        raise TraceError(f"its origin is {about['origin']!r}; expected one of {', '.join(get_args(Origin))}")
    trace = Trace(about["origin"], about["model"], about["soc"], tuple(about["queues"]), notes=list(about["notes"]))
    for name, unit in about["counters"]:
        trace.counters[name] = Counter(name, unit)
    kinds = get_args(Kind)
    for record, queue, kind, name, start, end, segment, iteration, predicted, _, value, detail in zip(*columns.values(), strict=True):
        if record == "counter":
            trace.counters[name].times_s.append(start)
            trace.counters[name].values.append(value)
        elif record == "instant":
            trace.instants.append(Instant(kind, name, start, detail))
        elif record == "span" and kind in kinds:
            trace.spans.append(Span(queue, kind, name, start, end, segment, iteration, predicted))
        else:
            raise TraceError(f"it has a row of record {record!r} and kind {kind!r}, which no trace has")
    return trace
