"""What TFLite's ``benchmark_model --enable_op_profiling`` prints, as text or (``--op_profiling_output_mode=csv``) as CSV.

A file holds several tables under titles of equals signs; operators are in the *Run Order* table of the regular runs, which comes
after that of the initialisation. Times are averages over the runs, in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hetsched.errors import TraceError
from hetsched.profiles.timings import Profile, Timing, number

FORMAT = "TFLite benchmark_model profile"
_TITLE = re.compile(r"=+ *([A-Za-z ]+?) *=+")
_NAME = re.compile(r"\[(.*)\](?::\d+)?")
#: Rows that are no operators.
_OVERHEADS = ("AllocateTensors", "ModifyGraphWithDelegate", "LiteRT::", "Invoke")
_ACCELERATORS = {"QNN": "npu", "HTP": "npu", "NNAPI": "npu", "CoreML": "npu", "Neuron": "npu", "Gpu": "gpu"}


def recognises(text: str) -> bool:
    """Whether a text has the head of such a table."""
    return any(_columns(line) is not None for line in text.splitlines()[:2000])


def read(text: str, where: str) -> Profile:
    """The operators of the regular runs' *Run Order* table.

    Raises:
        TraceError: a row without its numbers.
    """
    tables = [rows for title, rows in _tables(text, where) if title.lower() == "run order" and rows]
    if not tables:
        tables = [rows for title, rows in _tables(text, where) if not title and rows]
    timings = tuple(tables[-1]) if tables else ()
    note = "averages over the runs of benchmark_model; its operators have no shapes"
    return Profile(FORMAT, timings, (note,))


def _tables(text: str, where: str) -> Iterator[tuple[str, list[Timing]]]:
    """Title and operators of each table of the file."""
    title, columns, rows = "", None, list[Timing]()
    for at, raw in enumerate(text.splitlines(), 1):
        line = raw.rstrip()
        heading = _TITLE.search(line)
        found = _columns(line)
        if heading or found is not None or not line.strip():
            if columns is not None:
                yield title, rows
            title = heading[1] if heading else title if found is not None else ""
            columns, rows = found, []
        elif columns is not None:
            timing = _row(line, columns, f"{where}, line {at}")
            if timing is not None:
                rows.append(timing)
    if columns is not None:
        yield title, rows


def _columns(line: str) -> tuple[str, ...] | None:
    """Names of the columns if the line is the head of a table of operators (with their names), else None."""
    low = line.lower()
    if "[node type]" in low and "[name]" in low:
        return ("\t", *(c.strip().strip("[]") for c in low[low.index("[node type]") :].split("\t")))
    cells = [c.strip() for c in low.split(",")]
    if cells[0] == "node type" and cells[-1] == "name" and any(c in ("avg_ms", "avg ms") for c in cells):
        return (",", *cells)
    return None


def _row(line: str, columns: tuple[str, ...], where: str) -> Timing | None:
    separator, *names = columns
    # The text has a log prefix and a tab before the first column; names in CSV have tabs where there were commas.
    cells = [c.strip() for c in (line.partition("\t")[2] if separator == "\t" else line).split(separator, len(names) - 1)]
    if len(cells) != len(names):
        return None
    row = dict(zip(names, cells, strict=True))
    kind = row["node type"]
    if kind.startswith(_OVERHEADS):
        return None
    average = row.get("avg ms", row.get("avg_ms", ""))
    try:
        seconds = number(average) / 1e3 * max(1.0, number(row.get("times called") or "1"))
    except ValueError as e:
        raise TraceError(f"{where}: {average!r} is not a time in milliseconds: the profile is damaged") from e
    inner = _NAME.fullmatch(row["name"])
    name = (inner[1] if inner else row["name"]).replace("\t", ",")
    queue = next((q for word, q in _ACCELERATORS.items() if word.lower() in kind.lower()), "cpu")
    return Timing(name, kind, seconds, queue)
