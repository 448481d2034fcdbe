"""Questions to a study in SQL, answered by DuckDB (the extra ``studies``)."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetsched.errors import OptionError
from hetsched.studies.folder import Folder
from hetsched.studies.results import arrow

#: Rows that an answer may have, seconds that it may take, and memory that the database may use.
MAX_ROWS = 100_000
LIMIT_S = 60.0
MEMORY = "4GB"


@dataclass(frozen=True, slots=True)
class Answer:
    """Columns and rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def query(folder: Path, question: str) -> Answer:
    """Ask the tables ``results`` and ``curves`` of a study.

    The tables are copied into memory, and the database then has no access to files, to the network or to extensions.

    Args:
        folder: of the study.
        question: one SQL statement, such as ``select soc, max(rate) from results group by soc``.

    Raises:
        OptionError: the folder has no results, DuckDB is not installed, or the statement cannot be answered within :data:`LIMIT_S`,
            :data:`MEMORY` and :data:`MAX_ROWS`.
    """
    place = Folder(folder)
    place.about()
    if not place.results.is_file():
        raise OptionError(f"{folder} has no results yet: run the study with 'hetsched study STUDY -o {folder}'")
    try:
        import duckdb
    except ModuleNotFoundError as e:
        raise OptionError("study query needs duckdb, which is not installed: pip install 'hetsched[studies]'") from e
    _, parquet = arrow()
    own: dict[str, Any] = {
        "autoinstall_known_extensions": False, "autoload_known_extensions": False, "memory_limit": MEMORY, "temp_directory": "",
    }  # fmt: skip
    with duckdb.connect(":memory:", config=own) as base:
        for name, path in (("results", place.results), ("curves", place.curves)):
            try:
                base.register("read", parquet.read_table(path))
            except (OSError, ValueError) as e:
                raise OptionError(f"{path} is damaged: run the study again with 'hetsched study STUDY -o {folder}'") from e
            base.execute(f"create table {name} as select * from read")  # noqa: S608 - two names of our own
            base.unregister("read")
        base.execute("set python_enable_replacements = false; set enable_external_access = false; set lock_configuration = true")
        alarm = threading.Timer(LIMIT_S, base.interrupt)
        alarm.start()
        try:
            found = base.execute(question)
            columns = tuple(d[0] for d in (found and found.description) or ())
            rows = tuple(found.fetchmany(MAX_ROWS + 1)) if columns else ()
        except duckdb.InterruptException as e:
            raise OptionError(f"the question takes longer than {LIMIT_S:g} s: ask for less") from e
        except duckdb.Error as e:
            raise OptionError(f"the question cannot be answered: {_first_line(str(e))}; the tables are {_tables(base)}") from e
        finally:
            alarm.cancel()
    if not columns:
        raise OptionError('the question is empty: ask in SQL, such as "select * from results"')
    if len(rows) > MAX_ROWS:
        raise OptionError(f"the answer has more than {MAX_ROWS} rows: ask for less, such as with 'limit {MAX_ROWS}'")
    return Answer(columns, rows)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason is given")


def _tables(base: Any) -> str:
    """The columns that can be asked for."""
    found: dict[str, list[str]] = {}
    for table, column in base.execute("select table_name, column_name from duckdb_columns() where not internal").fetchall():
        found.setdefault(table, []).append(f'"{column}"' if "." in column else column)
    return "; ".join(f"{table} ({', '.join(columns)})" for table, columns in found.items())
