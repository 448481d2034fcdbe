"""``hetsched compare``: runs the matrix, prints it, writes its page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetsched.app.accelerator_needs import COMPILE_BASIS
from hetsched.app.comparing import CHEAP, Cell, Matrix, compare
from hetsched.cli import options, show
from hetsched.cli.progress import progress
from hetsched.files import check_page
from hetsched.sizes import size
from hetsched.soc_quantities import TIERS
from hetsched.soc_words import market, power_basis
from hetsched.socs import SoC

#: Types of operators named for one reason.
_TYPES = 4
#: What a target without a duration leaves open.
ONCE = "one inference on a phone at rest: --for 10min shows whether it holds when the phone gets warm"
_COLUMNS = ("SoC", "market", "verdict", "latency", "80 %", "energy", "NPU memory", "first compile")
#: Columns of the terminal's table that a narrow one lacks, in the order in which they go.
_SPARE = (1, 7, 6, 4, 5)


def compare_all(
    models: Sequence[Path], *, socs: Sequence[str], target: str | None, duration: str | None, ambient: float, output: Path | None,
    as_json: bool, dim: Sequence[str], what_if: Sequence[str] = (), time_limit: str = "5s", **plan_options: Any,
) -> None:  # fmt: skip
    """Compare, write the page if asked, print."""
    if output is not None:
        check_page(output, (*models, *socs))
    target_s, duration_s = options.seconds(target, "--target"), options.seconds(duration, "--for")
    with progress("compare", as_json) as bar:

        def step(what: str, done: float) -> None:
            bar.stage(what)
            bar.share(done)

        found = compare(
            models,
            socs,
            dims=options.dims(dim),
            target_s=target_s,
            duration_s=duration_s,
            ambient_c=ambient,
            progress=step,
            overrides=options.settings(what_if),
            time_limit_s=options.seconds(time_limit, "--time-limit") or 0.0,
            **plan_options,
        )
    if output is not None:
        page(found, output)
    if as_json:
        show.json(found.summary() | {"page": None if output is None else str(output)})
    else:
        _show(found, output)


def _show(found: Matrix, output: Path | None) -> None:
    for model in found.models:
        rows = [row_of(found.cell(model, s.id)) for s in found.socs]
        extra = ["holds"] if found.target_s is not None else []
        body = [[s.id, s.market.tier if s.market else "-", *row] for s, row in zip(found.socs, rows, strict=True)]
        if not extra:
            body = [r[:-1] for r in body]
        show.table(model, ["SoC", "tier", *_COLUMNS[2:], *extra], body, numeric=(3, 4, 5, 6, 7), whole=0, spare=_SPARE)
        for text in _notes(found, model):
            show.line(text)
        show.line("")
    show.line(f"{CHEAP}; energy and memory are estimates")
    for basis, socs in _by_basis(found.socs).items():
        show.line(f"{', '.join(socs)}: {basis}")
    if any(c.anchor for c in found.cells):
        show.line("^ anchored: corrected by a public measurement of this network")
    if any(c.compile_s is not None for c in found.cells):
        show.line(f"* first compile {COMPILE_BASIS}; - where nothing is known")
    if output is not None:
        show.line(f"page: {output}")


def _by_basis(socs: Sequence[SoC]) -> dict[str, list[str]]:
    """What power and energy rest on -> ids of the SoCs."""
    out: dict[str, list[str]] = {}
    for soc in socs:
        if power_basis(soc):
            out.setdefault(power_basis(soc), []).append(soc.id)
    return out


def row_of(cell: Cell) -> list[str]:
    """What is shown of a cell: verdict, latency, interval, energy, memory, first compile, whether it holds the target."""
    if cell.latency_s is None or cell.interval_s is None:
        return [cell.verdict, "-", "-", "-", "-", "-", "-"]
    low, high = cell.interval_s
    verdict = cell.verdict + (f" ({_ops(sum(f.count for f in cell.fallbacks))})" if cell.fallbacks else "")
    memory = "-" if not cell.npu_bytes else size(cell.npu_bytes) + ("!" if cell.warning else "")
    compiled = "-" if cell.compile_s is None else f"{show.seconds(cell.compile_s)}*"
    latency = show.seconds(cell.latency_s) + ("^" if cell.anchor else "")
    holds = "no: too slow" if cell.sustained is None else held(cell)
    return [verdict, latency, f"{show.seconds(low)}-{show.seconds(high)}", show.joules(cell.energy_j), memory, compiled, holds]


def _ops(count: int) -> str:
    return f"{count} op" if count == 1 else f"{count} ops"


def held(cell: Cell) -> str:
    """What the simulated run at the target's rate showed."""
    s = cell.sustained
    if s is None:
        return ""
    verdict, throttled = "yes" if s.holds else "no", ", throttled" if s.throttled else ""
    return f"{verdict}: once {show.seconds(s.p99_s)}" if s.inferences == 1 else f"{verdict}: p99 {show.seconds(s.p99_s)}{throttled}"


def _notes(found: Matrix, model: str) -> list[str]:
    """Which operators fall back and why, what is refused, what may not load, and the cheapest SoC that holds the target."""
    cells = [c for c in found.cells if c.model == model]
    said: dict[str, list[str]] = {}
    for c in cells:
        for reason, types in _by_reason(c).items():
            said.setdefault(f"not on the NPU: {types} ({reason})", []).append(c.soc)
        if c.verdict == "refused":
            said.setdefault(f"refused: {c.reason}", []).append(c.soc)
        if c.warning:
            said.setdefault(f"! {c.warning}", []).append(c.soc)
    lines = [f"  {', '.join(socs)}: {text}" for text, socs in said.items()]
    if found.target_s is not None:
        lines.append("  " + answer(found, model))
    return lines


def _by_reason(cell: Cell) -> dict[str, str]:
    """Reason -> the operators that the NPU refuses for it, as ``52 Conv, 10 Add``."""
    rows: dict[str, list[str]] = {}
    for f in cell.fallbacks:
        rows.setdefault(f.reason, []).append(f"{f.count} {f.type}")
    return {r: ", ".join(t[:_TYPES]) + (f" and {len(t) - _TYPES} more" if len(t) > _TYPES else "") for r, t in rows.items()}


def answer(found: Matrix, model: str) -> str:
    """The sentence on the target."""
    best = found.cheapest(model)
    d = found.duration_s
    span = "" if d is None else f"{d / 60:.4g} min" if d >= 60 else f"{d:.4g} s"
    how_long = f"for {span} at {found.ambient_c:g} °C (simulated)" if span else "once"
    wanted = f"{show.seconds(found.target_s)} {how_long}"
    said = f"no SoC here holds {wanted}" if best is None else f"cheapest that holds {wanted}: {best}"
    return said if span else f"{said}; {ONCE}"


def page(found: Matrix, path: Path) -> None:
    """Write the matrix as a page."""
    from hetsched.reports import sheet

    columns = [sheet.Column(c, numeric=i in (3, 4, 5, 6, 7)) for i, c in enumerate(_COLUMNS)]
    columns += [sheet.Column("holds")] if found.target_s is not None else []
    columns += [sheet.Column("falls back, refused, warnings")]
    sections = []
    for model in found.models:
        lines = [_line(found.cell(model, s.id), s, found.target_s is not None) for s in found.socs]
        hint = answer(found, model) + "." if found.target_s is not None else ""
        sections.append(sheet.Section(model, hint, columns, lines))
    count = f"{len(found.models)} model{'s' if len(found.models) > 1 else ''} on {len(found.socs)} SoC{'s' if len(found.socs) > 1 else ''}"
    lead = f"{count}. {CHEAP}. Latency, energy and memory are predicted; first compile is {COMPILE_BASIS}. " + "; ".join(
        f"{', '.join(s)}: {basis}" for basis, s in _by_basis(found.socs).items()
    )
    sheet.write(path, "Compatibility matrix", lead, sections)


def _rank(soc: SoC) -> float:
    """Place among the tiers, then by year and month, to sort a page."""
    return 1e9 if soc.market is None else TIERS.index(soc.market.tier) * 1e6 + float(soc.market.release.replace("-", ""))


def _line(cell: Cell, soc: SoC, with_target: bool) -> Any:
    from hetsched.reports import sheet

    texts = row_of(cell)
    sorts = [0.0, cell.latency_s or 1e9, cell.interval_s[1] if cell.interval_s else 1e9, cell.energy_j or 1e9, float(cell.npu_bytes or 0)]
    sorts += [cell.compile_s or 0.0]
    cells = [sheet.Cell(soc.id, note=soc.name), sheet.Cell(market(soc), _rank(soc))]
    cells += [sheet.Cell(t, s) for t, s in zip(texts[:6], sorts, strict=True)]
    if with_target:
        cells.append(sheet.Cell(texts[6]))
    why = [f"{types}: {reason}" for reason, types in _by_reason(cell).items()]
    why += [text for text in (cell.reason, cell.warning) if text]
    cells.append(sheet.Cell("; ".join(why), note=f"anchored to {cell.anchor}" if cell.anchor else ""))
    return sheet.Line(tuple(cells), bad=cell.verdict == "refused" or bool(cell.warning))
