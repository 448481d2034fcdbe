"""Short tables for people. Machines use ``--json``."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from hetsched.cli.lines import counted, printable
from hetsched.sizes import size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from hetsched.app.planned import Planned
    from hetsched.app.running import Ran
    from hetsched.partition import PlanDiff
    from hetsched.passes import PassReport
    from hetsched.plans import Plan, Prediction

    console: Console

Rows = Sequence[Sequence[str]]


def __getattr__(name: str) -> Any:
    if name == "console":
        return _console()
    raise AttributeError(f"module 'hetsched.cli.show' has no attribute {name!r}")


@cache
def _console() -> Console:
    """Where tables go. It is made for the first of them: single lines need no more than ``print``."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def json(value: object) -> None:
    """Print one JSON value on standard output."""
    print(json_module.dumps(value, indent=1, allow_nan=False))


def line(text: str) -> None:
    """Print one line; what a terminal would obey is escaped. A terminal gets it broken between words, what is below further in."""
    shown = printable(text)
    if _is_terminal() and _cells(shown) > _console().width:
        indent = " " * (len(shown) - len(shown.lstrip()))
        shown = fill(
            shown, _console().width, subsequent_indent=indent + "  ", break_long_words=False, break_on_hyphens=False, drop_whitespace=True
        )
    print(shown)


def _is_terminal() -> bool:
    """Whether lines are for a person's eyes, as far as can be told without the console."""
    made = _console.cache_info().currsize > 0
    return _console().is_terminal if made or (sys.stdout is not None and sys.stdout.isatty()) else False


def _cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def _escaped(text: str) -> str:
    """A text that the console shows as it is."""
    from rich.markup import escape

    return escape(text)


def _table(**options: Any) -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, **options)


def seconds(value: float | None) -> str:
    """A duration in the unit that suits it."""
    if value is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}" if abs(value) < 1000 * scale else f"{value / scale:.0f} {unit}"
    return f"{value * 1e9:.3g} ns" if value else "0"


def joules(value: float | None) -> str:
    """An energy in mJ or J."""
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1e3:.3g} mJ"
    return f"{value:.3g} J" if value < 1000 else f"{value / 1e3:.3g} kJ"


def table(title: str, columns: Sequence[str], rows: Rows, numeric: Sequence[int] = (), whole: int = -1, spare: Sequence[int] = ()) -> None:
    """Print a table; cells are shown literally (names from a file are not markup).

    Args:
        title: above it; empty: none.
        columns: their heads.
        rows: their cells.
        numeric: columns that are aligned at the right.
        whole: the column that is never broken.
        spare: columns that are left out, in this order, while the terminal is too narrow for all.
    """
    shown = _fitting(_widths(columns, rows), spare)
    _title(title)
    out = _table(header_style="bold")
    for i in shown:
        out.add_column(columns[i], justify="right" if i in numeric else "left", overflow="fold", no_wrap=i == whole)
    for row in rows:
        out.add_row(*(_escaped(printable(row[i])) for i in shown))
    _console().print(out)
    _say_left_out(columns, shown)


def _title(text: str) -> None:
    """A line of its own over a table, which a narrow table would break."""
    if text:
        _console().print(_escaped(printable(text)), style="italic")


def _widths(heads: Sequence[str], rows: Rows) -> list[int]:
    """Width of each column; a head may have several lines."""
    return [max(_cells(printable(t)) for t in (*head.split("\n"), *(row[i] for row in rows))) for i, head in enumerate(heads)]


def _fitting(widths: Sequence[int], spare: Sequence[int]) -> list[int]:
    """Indices of the columns that are shown: all without those of ``spare`` that have to go."""
    shown = list(range(len(widths)))
    for i in spare:
        if sum(widths[j] + 2 for j in shown) - 2 <= _console().width:
            break
        shown.remove(i)
    return shown


def _say_left_out(columns: Sequence[str], shown: Sequence[int]) -> None:
    left_out = [c for i, c in enumerate(columns) if i not in shown]
    if left_out:
        line(f"(no room here for {', '.join(left_out)}: widen the terminal, or see --json)")


def grouped(title: str, columns: Sequence[str], groups: Mapping[str, Rows], numeric: Sequence[int] = (), spare: Sequence[int] = ()) -> None:
    """Print a table whose rows stand under headings, which take a line of their own; ``numeric`` and ``spare`` as of :func:`table`.

    Only a last column of text may be broken, and a head at a hyphen if it is wider than what is under it.
    """
    rows = [[f"  {row[0]}", *row[1:]] for group in groups.values() for row in group]
    heads = [_broken(c, w) for c, w in zip([f"  {columns[0]}", *columns[1:]], _widths([""] * len(columns), rows), strict=True)]
    widths = _widths(heads, rows)
    shown = _fitting(widths, spare)
    _title(title)

    def show(cells: Rows, style: str = "") -> None:
        out = _table(show_header=False, style=style)
        for i in shown:
            free = i == shown[-1] and i not in numeric
            out.add_column(justify="right" if i in numeric else "left", width=None if free else widths[i], overflow="fold")
        for row in cells:
            out.add_row(*(_escaped(row[i]) for i in shown))
        _console().print(out)

    show([heads], "bold")
    for heading, group in groups.items():
        _console().print(_escaped(printable(heading)))
        show([[f"  {printable(row[0])}", *(printable(c) for c in row[1:])] for row in group])
    _say_left_out(columns, shown)


def _broken(head: str, width: int) -> str:
    """A head in two lines where that makes it narrower and something narrower stands under it."""
    cuts = [i + 1 for i, c in enumerate(head) if c == "-"]
    if not cuts or len(head) <= width:
        return head
    cut = min(cuts, key=lambda i: max(i, len(head) - i))
    return f"{head[:cut]}\n{head[cut:]}"


def rows(title: str, items: Sequence[Mapping[str, Any]]) -> None:
    """Print a list of flat dicts with the same keys."""
    if not items:
        line(f"no {title}")
        return
    keys = list(items[0])
    table(title, keys, [["" if i[k] is None else str(i[k]) for k in keys] for i in items], whole=0)


def plan(planned: Planned) -> None:
    """The answer, the baselines beside it, where the ops went."""
    p, pred = planned.plan, planned.plan.prediction
    low, high = pred.latency_interval_s
    line(f"{planned.graph.name} on {planned.soc.name}: {seconds(pred.latency_s)} (80 % of cases {seconds(low)} to {seconds(high)}),")
    contended = "" if pred.simulated_s is None else f", {seconds(pred.simulated_s)} with contention"
    line(f"  {joules(pred.energy_j)}, peak {size(pred.peak_memory_bytes)}{contended}")
    line(f"  {arena(pred)}")
    line(f"  {p.solver}: {proof(p)}; {counted(len(p.segments), 'segment')}, {counted(len(p.fences), 'fence')}")
    if p.objective == "period":
        line(f"  a result every {seconds(planned.period_s)} in a steady pipeline: the busiest queue's work")
    if p.objective == "edp":
        line(f"  energy times delay {pred.energy_j * pred.latency_s * 1e9:.3g} nJ s")
    if pred.loss is not None:
        line(f"  accuracy lost: {pred.loss:.4g}, by the sensitivities given")
    baselines = [
        [b.solver, seconds(b.latency_s), joules(b.energy_j), "-" if b.segments is None else str(b.segments), b.reason] for b in p.baselines
    ]
    baselines.append(["this plan", seconds(pred.latency_s), joules(pred.energy_j), str(len(p.segments)), ""])
    table("", ["placement", "latency", "energy", "segments", ""], baselines, numeric=(1, 2, 3), whole=0)
    for text in brief(p):
        line(text)
    if p.front:
        front(p)
    summary = planned.summary()
    line("ops: " + ", ".join(f"{n} on {kind}" for kind, n in summary["ops_by_processor"].items()))
    if "levels" in summary:
        levels(summary["levels"])
    shared = planned.deployment.entries[planned.entry].splits
    if shared:
        line(f"shared by two processors: {counted(len(shared), 'op')}: {', '.join(list(shared)[:3])}{' ...' if len(shared) > 3 else ''}")
    for note in p.notes:
        line(f"note: {note}")
    if planned.path is not None:
        line(f"plan: {planned.path}")


def brief(p: Plan) -> list[str]:
    """What the vendor's default loses and what it cannot take, in a line or two; nothing where it is as good."""
    from hetsched.partition.losses import explain_plan

    return explain_plan(p).brief()


def levels(found: Sequence[Mapping[str, Any]]) -> None:
    """The plans for a phone that throttles, and what going to each costs."""
    rows = []
    for e in found:
        name = str(e["level"]) if e["phase"] == "inference" else f"{e['phase']} {e['level']}"
        name += "" if e["same_as"] is None else f" (as {e['same_as']})"
        packed = "" if e["switch_ms"] is None else f"{size(e['switch_weight_mb'] * 1e6)}, {seconds(e['switch_ms'] / 1e3)}"
        packed = packed if e["switch_ms"] != 0 else "none"
        figures = [seconds(e["latency_ms"] / 1e3), joules(e["energy_mj"] / 1e3), f"{e['power_w']:.2f} W"]
        rows.append([name, *figures, ", ".join(e["places"]), packed])
    columns = ["level", "latency", "energy", "power", "on", "weights to pack"]
    table("throttle levels", columns, rows, numeric=(1, 2, 3), whole=0, spare=(5, 3))
    line(
        "(1: the NPU, or the GPU where there is none, at three quarters of its clock at most; 2: without it; 3: without it, at low clocks,"
        " for least energy; 4: on two CPU cores at low clocks, for a battery that is nearly empty)"
    )


def front(plan: Plan) -> None:
    """Plans that trade latency for energy, fastest first."""
    if len(plan.front) == 1:
        line("latency against energy: the plan is both the fastest and the thriftiest that was found")
        return
    found = [
        [seconds(f.latency_s), joules(f.energy_j), str(f.segments), ", ".join(f"{n} on {q}" for q, n in f.ops_by_queue.items())]
        for f in plan.front
    ]
    table("latency against energy", ["latency", "energy", "segments", "ops"], found, numeric=(0, 1, 2))


def passes(reports: Sequence[PassReport]) -> None:
    """What each pass changed (those that changed nothing are left out): operators before and after, and those that it made."""
    found = [[r.name, str(r.before), str(r.after), ", ".join(f"{n} {kind}" for kind, n in r.made.items())] for r in reports if r.changed]
    table("passes", ["pass", "ops before", "after", "made"], found, numeric=(1, 2), whole=0)


def arena(p: Prediction) -> str:
    """What the peak memory is made of, how small the arena could be at most, and what sharing bytes saves."""
    pool = f", of it {size(p.pool_bytes)} states" if p.pool_bytes else ""
    least = "the least" if p.arena_bytes <= p.arena_bound_bytes else f"at least {size(p.arena_bound_bytes)}"
    return (
        f"weights {size(p.weight_bytes)}, arena {size(p.arena_bytes)}{pool} ({least} for this order,"
        f" {p.saved:.0%} saved by sharing bytes)" + (f", workspace {size(p.workspace_bytes)}" if p.workspace_bytes else "")
    )


def proof(plan: Plan) -> str:
    """What the bound proves, in words. The gap is a share of the plan's own figure."""
    if plan.gap < 1e-9:
        return "proven optimal for these costs"
    if plan.bound_s <= 0:
        return f"{plan.status}, no useful bound"
    return f"{plan.status}, no placement can be more than {plan.gap:.1%} better"


def ran(result: Ran, trace: Path | None) -> None:
    """Measured beside predicted, and the check."""
    s = result.summary()
    lat, (low, high) = s["latency_ms"], s["predicted_ms_interval"]
    if s["delegate"] == "null":
        line(f"{s['model']}: nothing was computed (delegate null); the schedule was played in {seconds(lat['median'] / 1e3)}")
    elif s["soc"] != "host":
        who = ", ".join(f"{q} by {' and '.join(names)}" for q, names in result.runners.items())
        line(f"{s['model']} as planned for {s['soc']}, {s['inputs']}: {who}")
        emulated = f"{', '.join(result.emulated)} emulated: " if result.emulated else ""
        line(f"  {emulated}{seconds(lat['median'] / 1e3)} here says nothing about {s['soc']}")
    else:
        measured = f"measured {seconds(lat['median'] / 1e3)} (median of {s['repeat']}, best {seconds(lat['min'] / 1e3)})"
        line(f"{s['model']} on this machine, {s['inputs']}: {measured}")
        outside = "" if low <= lat["median"] <= high else "; the measurement is outside"
        line(f"  predicted {seconds(s['predicted_ms'] / 1e3)} (80 % of cases {seconds(low / 1e3)} to {seconds(high / 1e3)}){outside}")
    if result.check is not None:
        verdict = "passed" if result.check.passed else "FAILED"
        line(f"  check against {result.check.oracle} {verdict}: {result.check.sentence()}")
        for c in result.check.checks:
            if c.is_output:
                d = c.difference
                line(f"    output {c.tensor}: cosine {d.cosine:.6f}, SNR {d.snr_db:.1f} dB, max error {d.max_abs:.3g}")
    for note in result.notes:
        line(f"note: {note}")
    if trace is not None:
        line(f"trace: {trace}")


def difference(found: PlanDiff) -> None:
    """What changed between two plans."""
    for text in found.lines():
        line(text)
