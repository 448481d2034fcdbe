"""``hetsched accuracy``: prints the tables, writes the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.app.judging import ANCHOR, FALLBACK_HEADS, HEADS, cells, fallback_cells
from hetsched.app.judging import accuracy as measure
from hetsched.cli import show
from hetsched.cli.progress import progress
from hetsched.files import check_page

if TYPE_CHECKING:
    from hetsched_cost_models.accuracy import Group

#: Columns of the tables: the page and ``--json`` have each on its own, and the mean error besides.
_HEADS = ("what", "rows", *(h for h in HEADS[7:] if h != "mean"))


def accuracy(chips: Sequence[str], *, output: Path | None, as_json: bool) -> None:
    """Compare, write the page if asked, print."""
    if output is not None:
        check_page(output)
    with progress("accuracy", as_json):
        found = measure(chips)
        if output is not None:
            found.page(output)
    if as_json:
        show.json(found.summary() | {"page": None if output is None else str(output)})
        return
    if chips:
        _print("by precision, runtime and use", found.groups)
        show.line("")
    _print("by chip", found.chips)
    if found.anchored:
        show.line("")
        _print(f"by chip, anchored on the {ANCHOR}", found.anchored)
    show.line("")
    show.table(
        "layers left on the CPU, all chips", FALLBACK_HEADS, [fallback_cells(s) for s in found.placement], numeric=(1, 2, 3), whole=0
    )
    show.line("errors are |predicted - measured| / measured, not anchored unless it says so; models weigh alike")
    show.line("in 80 %: share of the measurements inside the 80 % interval")
    show.line("fit: rows that were fitted (flattering); validate: same chip, models that were not fitted;")
    show.line("other chip: predicted from its published figures")
    if not chips:
        show.line("by precision, runtime and use: 'hetsched accuracy SOC', the page (-o FILE.html) or --json")
    if output is not None:
        show.line(f"page: {output}")


def _print(title: str, groups: Sequence[Group]) -> None:
    """A table that fits a terminal: the chips are headings; unit, precision, runtime and use are one column."""
    rows: dict[str, list[list[str]]] = {}
    for group in groups:
        chip, unit, precision, runtime, use, *figures = cells(group)
        what = " ".join(w for w in (unit, precision, runtime, use) if w != "all")
        shown = [f for h, f in zip(HEADS[5:], figures, strict=True) if h not in ("models", "mean")]
        rows.setdefault(chip, []).append([what, *shown])
    show.grouped(title, _HEADS, rows, numeric=tuple(range(1, len(_HEADS))), spare=(_HEADS.index("in 25 %"), _HEADS.index("p90")))
