"""Reports: one self-contained HTML file from plans, traces and checks. See ``docs/report.md``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from hetsched.errors import OptionError
from hetsched.plans import Deployment
from hetsched.reports.items import CheckItem, ComparisonItem, PlanItem, ReportItem, TraceItem
from hetsched.trace import Trace

__all__ = ["CheckItem", "ComparisonItem", "PlanItem", "ReportItem", "TraceItem", "html", "render"]


def render(items: Sequence[ReportItem | Deployment | Trace], path: Path) -> None:
    """Write the report of ``items`` to ``path`` (see :mod:`hetsched.reports.items` for what they can be).

    Args:
        items: plans, traces, checks and comparisons; a bare deployment or trace is taken as an item without a title.
        path: the HTML file; written whole or not at all.

    Raises:
        OptionError: nothing to show, an item of another kind, jinja2 is not installed, or the file cannot be written.
    """
    from hetsched.files import write_atomically

    write_atomically(path, html(items).encode())


def html(items: Sequence[ReportItem | Deployment | Trace]) -> str:
    """The page as text: same items, same text.

    Raises:
        OptionError: nothing to show, an item of another kind, or jinja2 is not installed.
    """
    if not items:
        raise OptionError("a report needs at least one plan, trace or check")
    text: str = _page().html([as_item(i) for i in items])
    return text


def as_item(item: ReportItem | Deployment | Trace) -> ReportItem:
    """A bare deployment or trace as an item.

    Raises:
        OptionError: anything else.
    """
    if isinstance(item, Deployment):
        return PlanItem(item)
    if isinstance(item, Trace):
        return TraceItem(item)
    if isinstance(item, (PlanItem, TraceItem, CheckItem, ComparisonItem)):
        return item
    raise OptionError(f"a report cannot show a {type(item).__name__}: give plans, traces, checks or comparisons")


def _page() -> ModuleType:
    try:
        from hetsched.reports import page
    except ModuleNotFoundError as e:
        if e.name not in ("jinja2", "markupsafe"):
            raise
        raise OptionError(f"reports need {e.name}, which is not installed: pip install 'hetsched[report]'") from e
    return page
