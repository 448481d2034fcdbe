"""The verb *report*: plans, simulated runs and real runs as one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hetsched.app.chatting import SimulatedChat
from hetsched.app.language import PlannedLanguage
from hetsched.app.language_simulating import SimulatedLanguage
from hetsched.app.planned import Planned
from hetsched.app.running import Ran
from hetsched.app.sessions import read_plan
from hetsched.app.sharing import SimulatedTogether
from hetsched.app.simulating import Simulated
from hetsched.errors import OptionError
from hetsched.files import check_destination, check_page, is_plan_file, write_atomically
from hetsched.plans import Stage
from hetsched.socs import SoC
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched.reports import ReportItem
    from hetsched.runtime import CheckReport

Run: TypeAlias = Simulated | SimulatedLanguage | SimulatedChat | SimulatedTogether
Item: TypeAlias = str | Path | Planned | Run | Ran | Trace


def report(items: Sequence[Item] | Item, path: str | Path = "report.html") -> Path:
    """Draw plans, simulated runs and real runs as one self-contained HTML page.

    Args:
        items: plan files, trace files, or what the other verbs returned; several plans are also compared.
        path: the file to write.

    Raises:
        OptionError: an item is none of these, or ``path`` cannot be written.
        PlanError: a plan file is malformed.
        TraceError: a trace file cannot be read.
    """
    return draw(items, path).path


@dataclass(frozen=True)
class Drawn:
    """A report that was written, and what its reader should know of its parts: sentences."""

    path: Path
    notes: tuple[str, ...]


def draw(items: Sequence[Item] | Item, path: str | Path) -> Drawn:
    """Draw a report, and say which runs are of none of its plans; arguments and errors as for :func:`report`."""
    from hetsched.reports import ComparisonItem, PlanItem, TraceItem, render
    from hetsched.reports.runs import stray

    given = [items] if isinstance(items, Item) else list(items)
    if not given:
        raise OptionError("a report needs at least one plan or trace")
    target = Path(path)
    check_page(target, [item for item in given if isinstance(item, (str, Path))])
    parts = [part for item in given for part in _parts(item)]
    plans = [p for p in parts if isinstance(p, PlanItem)]
    if len(plans) > 1:
        parts.insert(0, ComparisonItem(plans))
    render(parts, target)
    told = ((p.title, stray(p.trace, plans)) for p in parts if isinstance(p, TraceItem))
    return Drawn(target, tuple(f"{title} is {why}" for title, why in told if why))


def draw_soc(soc: SoC, path: str | Path) -> Path:
    """Draw one SoC as a self-contained HTML page: block diagram, thermal network, every figure with its source.

    Args:
        soc: from :func:`hetsched.soc`.
        path: the file to write.

    Raises:
        OptionError: ``path`` cannot be written.
    """
    from hetsched.reports.soc_page import soc_html

    target = Path(path)
    check_destination(target, ())
    write_atomically(target, soc_html(soc).encode())
    return target


def _parts(item: Item) -> list[ReportItem]:
    from hetsched.reports import CheckItem, TraceItem

    if isinstance(item, Planned):
        return _plan_items(item)
    if isinstance(item, SimulatedTogether):
        name = item.planned[0].soc.name
        return [TraceItem(item.trace, f"simulated together on {name}, {item.scenario.ambient_c:g} °C", name)]
    if isinstance(item, Run):
        return [TraceItem(item.trace, f"simulated on {item.planned.soc.name}, {item.ambient_c:g} °C", item.planned.soc.name)]
    if isinstance(item, Ran):
        check: list[ReportItem] = [] if item.check is None else [CheckItem(_check_rows(item.check))]
        return [TraceItem(item.trace, f"measured on {item.planned.soc.name}", item.planned.soc.name), *check]
    if isinstance(item, Trace):
        return [TraceItem(item, item.origin, _named(item.soc))]
    return _from_file(Path(item))


def _check_rows(check: CheckReport) -> list[dict[str, Any]]:
    return [
        {
            "op": c.op, "type": c.type, "cosine": c.difference.cosine, "snr_db": c.difference.snr_db, "max_abs": c.difference.max_abs,
            "ok": c.verdict != "failed", "note": c.reason or ("" if c.verdict == "ok" else c.verdict),
        }
        for c in check.checks
    ]  # fmt: skip


def _plan_item(planned: Planned) -> ReportItem:
    from hetsched.reports import PlanItem

    return PlanItem(planned.deployment, planned.graph, planned.soc, passes=planned.passes, changes=_changes(planned))


def _changes(planned: Planned) -> dict[Stage, dict[str, tuple[str, ...]]]:
    """What would have to change for each op to be elsewhere, of the entry at hand."""
    from hetsched.partition import smallest_changes

    entry = planned.deployment.entries[planned.entry]
    return {(entry.phase, entry.level): smallest_changes(entry.plan, planned.table, planned.closed)}


def _plan_items(planned: Planned) -> list[ReportItem]:
    """The plan, or each phase of a language model by itself, with its own graph."""
    from hetsched.reports import PlanItem

    if not isinstance(planned, PlannedLanguage):
        return [_plan_item(planned)]
    return [
        PlanItem(p.deployment.alone(p.deployment.entries[p.entry]), p.graph, p.soc, passes=p.passes, changes=_changes(p))
        for p in planned.phases.values()
    ]  # fmt: skip


def _from_file(path: Path) -> list[ReportItem]:
    from hetsched.reports import TraceItem

    if not path.is_file():
        raise OptionError(f"there is no plan or trace {path}")
    if is_plan_file(path):
        return _plan_items(read_plan(path))
    from hetsched.trace import files

    if path.stat().st_size and not files.is_trace(path):
        raise OptionError(f"{path} is neither a plan nor a trace: name what 'hetsched plan', 'simulate' or 'run' wrote")
    trace = files.read(path)
    return [TraceItem(trace, f"{trace.origin}: {path.stem}", _named(trace.soc))]


def _named(soc: str) -> str:
    """The full name of a SoC that ships with hetsched; empty for others and for this machine."""
    from hetsched.soc_files import list_socs, load_soc

    return load_soc(soc).name if soc in list_socs() else ""
