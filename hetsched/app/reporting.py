"""The verb *report*: plans and traces as one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsched.app.planning import Planned
from hetsched.app.running import Ran
from hetsched.app.sessions import is_plan_file, read_plan
from hetsched.app.simulating import Simulated
from hetsched.errors import OptionError
from hetsched.trace import Trace

Item = str | Path | Planned | Simulated | Ran | Trace


def report(items: Sequence[Item], path: str | Path = "report.html") -> Path:
    """Draw plans, simulated runs and real runs as one self-contained HTML page.

    Args:
        items: plan files, ``.parquet`` traces, or what the other verbs returned.
        path: the file to write.

    Raises:
        OptionError: an item is none of these, or ``path`` cannot be written.
    """
    from hetsched.report import ReportItem, render

    if not items:
        raise OptionError("a report needs at least one plan or trace")
    render([ReportItem.of(*_parts(i)) for i in items], Path(path))
    return Path(path)


def _parts(item: Item) -> tuple[object, ...]:
    raise NotImplementedError(item)


__all__ = ["report"]
_ = (is_plan_file, read_plan)
