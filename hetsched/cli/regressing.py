"""``hetsched regress``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetsched.app.regressing import Baseline, Regression, check_place, read_baseline, record, regress
from hetsched.cli import show
from hetsched.cli.lines import counted
from hetsched.cli.progress import progress


def run(baseline: Path, study: str | None, update: bool, as_json: bool) -> int:
    """Record a baseline, or compare with one; returns the exit code."""
    if study is not None or update:
        check_place(baseline, study)
        inputs, files = _scenarios(study) if study is not None else ([c.inputs for c in read_baseline(baseline).cases], baseline.parent)
        with progress("recording", as_json) as bar:
            found = record(inputs, files, baseline, _say(bar))
        kept, figures = _by_origin(found), sum(len(c.figures) for c in found.cases)
        if as_json:
            show.json({"baseline": str(baseline), "cases": len(found.cases), "figures": figures, "by_origin": kept})
            return 0
        show.line(f"baseline: {baseline} ({counted(len(found.cases), 'case')}, {counted(figures, 'figure')})")
        for origin, names in kept.items():
            show.line(f"  {origin}: {', '.join(names)}")
        return 0
    with progress("comparing", as_json) as bar:
        compared = regress(baseline, _say(bar))
    if as_json:
        show.json({"baseline": str(baseline), **compared.summary()})
    else:
        _show(baseline, compared)
    return 1 if compared.moved else 0


def _by_origin(found: Baseline) -> dict[str, list[str]]:
    """The names of the figures that any case has, under where they come from."""
    out: dict[str, dict[str, None]] = {}
    for case in found.cases:
        for name, kept in case.figures.items():
            out.setdefault(kept.origin, {})[name.removeprefix(f"{kept.origin} ")] = None
    return {origin: list(names) for origin, names in out.items()}


def _say(bar: Any) -> Any:
    def say(what: str, done: float) -> None:
        bar.stage(what)
        bar.share(done)

    return say


def _scenarios(name: str) -> tuple[list[dict[str, Any]], Path]:
    """The scenarios of a study, and the folder of its models."""
    from hetsched.studies.shipped import study_path
    from hetsched.studies.study_file import read_study

    path = study_path(name)
    return read_study(path).scenarios(), path.parent


def _show(baseline: Path, compared: Regression) -> None:
    """What moved, case by case."""
    by_case: dict[str, list[list[str]]] = {}
    for m in compared.moved:
        now = "-" if m.now is None else f"{m.now:.4g}"
        change = "" if m.change is None else f"{m.change:+.1%}"
        row = [m.figure, f"{m.was.value:.4g}", f"{m.was.low:.4g} to {m.was.high:.4g}", now, change, m.verdict]
        by_case.setdefault(f"{m.case}: {m.reason}" if m.reason else m.case, []).append(row)
    if by_case:
        show.grouped("what moved", ["figure", "was", "may be", "now", "change", ""], by_case, numeric=(1, 3, 4), spare=(2,))
    for text in compared.skipped:
        show.line(f"passed over: {text}")
    counts: Mapping[str, int] = {v: sum(m.verdict == v for m in compared.moved) for v in ("worse", "better", "gone")}
    said = ", ".join(f"{n} {v}" for v, n in counts.items() if n) or "nothing moved"
    show.line(f"{counted(compared.figures, 'figure')} of {counted(compared.cases, 'case')} of {baseline}: {said}")
    if compared.moved:
        show.line(f"(if that is meant: 'hetsched regress {baseline} --update')")
