"""``hetsched study``: a study run, listed, or asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetsched.cli import show
from hetsched.cli.progress import progress
from hetsched.errors import OptionError
from hetsched.studies import shipped
from hetsched.studies.folder import Folder
from hetsched.studies.study_file import Study, read_study
from hetsched.studies.work import Failure

#: Failures that are named; the rest are counted.
NAMED = 5
#: Scenarios that a terminal shows.
SHOWN = 24


def list_studies(as_json: bool) -> None:
    """The studies that ship with hetsched."""
    known = {name: read_study(path) for name, path in shipped.shipped().items()}
    if as_json:
        show.json([{"name": n, "title": s.title, "question": s.question, "scenarios": len(s.scenarios())} for n, s in known.items()])
        return
    rows = [[n, str(len(s.scenarios())), s.title] for n, s in known.items()]
    show.table("", ["study", "scenarios", "question"], rows, numeric=(1,), whole=0)


def run_study(name: str, output: Path | None, given: Sequence[str], workers: int | None, cluster: str | None, as_json: bool) -> int:
    """Run a study, write its tables and its page, and say what it found; returns the exit code."""
    from hetsched.app.scenario_runs import Simulations
    from hetsched.studies.results import collect, write_tables
    from hetsched.studies.running import prepared, run

    _check_installed()
    path = shipped.study_path(name)
    file, subject, folder = read_study(path), Simulations(), Folder(output or Path(f"{path.stem}.study"))
    try:
        study = file.renamed(subject.name).fixed({subject.name(k): v for k, v in _fixed(given).items()})
        scenarios = prepared(study, subject, path.parent)
    except OptionError as e:
        raise OptionError(f"{path}: {e}") from e
    with progress(study.title, as_json) as bar:
        ran = run(
            scenarios, subject, folder, workers=workers, cluster=cluster, curves=study.curves,
            progress=lambda done, of: bar.share(done / max(1, of)),
        )  # fmt: skip
    rows = collect(folder, scenarios)
    write_tables(folder, rows)
    folder.mark({"title": study.title, "question": study.question, "scenarios": [s.key for s in scenarios]})
    from hetsched.studies.page import write_page

    write_page(study, rows, folder.page)
    summary = _summary(study, folder, ran.kept, rows, ran.failures)
    if as_json:
        show.json(summary)
    else:
        _show(summary, rows)
    return max((f.exit_code for f in ran.failures), default=0)


def _check_installed() -> None:
    """Raises :class:`OptionError` before any work where a table or the page could not be written."""
    from importlib.util import find_spec

    missing = next((name for name in ("pyarrow", "jinja2", "plotly") if find_spec(name) is None), None)
    if missing is not None:
        raise OptionError(f"studies need {missing}, which is not installed: pip install 'hetsched[studies]'")


def _fixed(given: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` items, the values read as in a study file."""
    from hetsched import plain_yaml

    out: dict[str, Any] = {}
    for item in given:
        key, eq, text = (part.strip() for part in item.partition("="))
        if not eq or not key or not text:
            raise OptionError(f"--with {item!r} is not of the form KEY=VALUE, such as ambient=35")
        try:
            out[key] = plain_yaml.load(text)
        except ValueError as e:
            raise OptionError(f"--with {item!r} {e}") from e
    return out


def _summary(study: Study, folder: Folder, kept: int, rows: Sequence[Any], failures: Sequence[Failure]) -> dict[str, Any]:
    """The stable keys of ``study --json``."""
    return {
        "title": study.title, "scenarios": len(rows) + len(failures), "ran": len(rows) - kept, "kept": kept,
        "refused": sum(bool(r.findings.refused) for r in rows),
        "failed": [{"scenario": f.key, "reason": f.message} for f in failures],
        "folder": str(folder.path), "results_path": str(folder.results), "page_path": str(folder.page),
    }  # fmt: skip


def _show(summary: dict[str, Any], rows: Sequence[Any]) -> None:
    """The scenarios with what matters of each, and where everything is."""
    from hetsched.studies.axes import axes_of
    from hetsched.studies.words import HEADS, axis_name, shown_figure, shown_input

    axes = axes_of(rows).all
    figures = [f for f in HEADS if any(r.number(f) is not None for r in rows)]
    cells = [
        [shown_input(a, r.inputs.get(a)) for a in axes]
        + (["refused"] + [""] * (len(figures) - 1) if r.findings.refused else [shown_figure(f, r.figures.get(f)) for f in figures])
        for r in rows[:SHOWN]
    ]  # fmt: skip
    heads = [*map(axis_name, axes), *(HEADS[f] for f in figures)]
    numeric = range(len(axes), len(heads))
    show.table(summary["title"], heads, cells, numeric=numeric, whole=0, spare=[*reversed(numeric[2:])])
    if len(rows) > SHOWN:
        show.line(f"({len(rows) - SHOWN} more: see the page, or ask with 'hetsched study query {summary['folder']} SQL')")
    counts = f"{summary['scenarios']} scenario(s): {summary['ran']} ran, {summary['kept']} were there"
    show.line(counts + (f", {summary['refused']} refused" if summary["refused"] else ""))
    reasons = Counter(f["reason"] for f in summary["failed"])
    for reason, count in reasons.most_common(NAMED):
        show.line(f"failed{f' ({count} scenarios)' if count > 1 else ''}: {reason}")
    if len(reasons) > NAMED:
        show.line(f"({len(summary['failed'])} failed in all: see --json)")
    show.line(f"results: {summary['results_path']}")
    show.line(f"page: {summary['page_path']}")


def ask(folder: Path, question: str, as_json: bool) -> None:
    """Answer a question in SQL."""
    from hetsched.studies.querying import query

    found = query(folder, question)
    twice = next((name for name, count in Counter(found.columns).items() if count > 1), None)
    if as_json:
        if twice is not None:
            raise OptionError(f"the answer has two columns {twice!r}, and an object in JSON one: name them with 'as'")
        show.json([dict(zip(found.columns, (_plain(v) for v in row), strict=True)) for row in found.rows])
        return
    cells = [["-" if v is None else f"{v:.4g}" if isinstance(v, float) else str(v) for v in row] for row in found.rows]
    numeric = [i for i in range(len(found.columns)) if all(isinstance(row[i], int | float | None) for row in found.rows)]
    fitting = _fitting([max(map(len, column)) for column in zip(found.columns, *cells, strict=True)])
    show.table("", found.columns[:fitting], [row[:fitting] for row in cells], numeric=[i for i in numeric if i < fitting])
    left = len(found.columns) - fitting
    show.line(f"({len(found.rows)} row(s)" + (f"; {left} more column(s): name those that you want, or see --json)" if left else ")"))


def _fitting(widths: Sequence[int]) -> int:
    """How many columns, from the left, the terminal has room for."""
    ends = [sum(widths[: k + 1]) + 2 * k for k in range(len(widths))]
    return max(1, sum(end <= show.console.width for end in ends))


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    return (
        value if value is None or isinstance(value, str | int | bool) or (isinstance(value, float) and math.isfinite(value)) else str(value)
    )
