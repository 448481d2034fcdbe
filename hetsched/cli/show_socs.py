"""SoCs on a terminal: the table of all, a drawing of one, what tells two apart. ``~`` marks estimates, ``!`` what was set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.columns import Columns
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from hetsched.cli import show
from hetsched.cli.lines import printable
from hetsched.soc_figures import Difference, estimated_share, figures
from hetsched.soc_words import (
    PRECISIONS,
    heat_basis,
    link_line,
    marked,
    market,
    memory_lines,
    power_basis,
    processor_lines,
    quantity,
    trip_lines,
)
from hetsched.socs import SoC

#: From this width on the table of all SoCs has room for the names of processors.
_WIDE = 130
_COLUMNS = {
    "id": "id", "tier": "tier", "since": "release", "vendor": "vendor", "CPU": "cpu", "GPU": "gpu", "NPU": "npu",
    "float": "npu_float_tops", "INT8": "npu_int8_tops", "peak": "memory_gb_s", "reach": "memory_reachable_gb_s",
    "estimated": "estimated_share",
}  # fmt: skip
_NAMES = ("vendor", "CPU", "GPU", "NPU")


def table(rows: Sequence[dict[str, object]]) -> None:
    """All SoCs, one a line."""
    wide = show.console.width >= _WIDE
    out = Table(title="SoCs: TOPS of the NPU, GB/s of the memory", title_justify="left", box=None, pad_edge=False, header_style="bold")
    shown = {name: key for name, key in _COLUMNS.items() if wide or name not in (*_NAMES, "since")}
    widths = {n: max(len(c) for c in (n, *(_cell(n, row[key]) for row in rows))) for n, key in shown.items()}
    room = show.console.width - sum(w + 2 for n, w in widths.items() if n not in _NAMES)
    for name in shown:
        width = min(widths[name], room // len(_NAMES) - 2) if name in _NAMES else widths[name]
        out.add_column(
            name, no_wrap=True, overflow="ellipsis", width=width, justify="left" if name in ("id", "tier", "since", *_NAMES) else "right"
        )
    for row in rows:
        out.add_row(*(Text(printable(_cell(name, row[key]))) for name, key in shown.items()))
    show.console.print(out)


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0%}" if name == "estimated" else f"{value:.3g}"
    return str(value)


def draw(soc: SoC) -> None:
    """Processors, memory, links and thermal network of one SoC."""
    node = f", {soc.process_nm:g} nm" if soc.process_nm else ""
    node += f", {market(soc)}" if soc.market else ""
    show.line(
        f"{soc.name} ({soc.id}; {soc.vendor}{node}): {estimated_share(soc):.0%} of {len(figures(soc))} figures are estimates, marked ~"
    )
    for field, value in sorted(soc.overrides.items()):
        show.line(f"what-if: {field} = {value}, marked !")
    boxes = [_box(p.name, [("", p.model), *processor_lines(soc, p)]) for p in soc.processors]
    show.console.print(Columns(boxes, padding=(0, 1)))
    show.console.print(_box(f"memory: {soc.memory.kind}", memory_lines(soc)))
    show.console.print(_box("energy, derived from watts (estimated)", _energy_lines(soc)))
    show.console.print(_box("links", [(" ── ".join(k.between), link_line(k)) for k in soc.links]))
    show.console.print(_thermal(soc))
    for note in filter(None, (power_basis(soc), heat_basis(soc), *soc.notes)):
        show.line(f"note: {note}")


def _box(title: str, lines: Iterable[tuple[str, str]]) -> Panel:
    grid = Table.grid(padding=(0, 1))
    for name, value in lines:
        grid.add_row(Text(printable(name)), Text(printable(value)))
    return Panel(grid, title=Text(printable(title)), title_align="left", expand=False)


def _energy_lines(soc: SoC) -> list[tuple[str, str]]:
    """What each queue draws: joules an operation at its peaks and an on-chip byte, watts while busy."""
    from hetsched_cost_models.energy import drawn

    return [
        (
            d.queue,
            f"{', '.join(f'{j * 1e12:.3g} pJ/op {PRECISIONS[p]}' for p, j in d.op_j.items() if p in PRECISIONS)}; "
            f"{d.byte_j * 1e12:.3g} pJ/B on chip; busy {d.busy_w:.3g} W, leaks {d.leakage_w:.3g} W",
        )
        for d in drawn(soc)
    ]


def _thermal(soc: SoC) -> Group:
    """The network as a tree that hangs from ambient, and its trips."""
    tree = Tree(Text("heat flows to ambient"))
    _hang(soc, tree, "ambient", {"ambient"})
    return Group(tree, *(Text(printable(t)) for t in trip_lines(soc)))


def _hang(soc: SoC, tree: Tree, at: str, seen: set[str]) -> None:
    """Add the nodes that resistances join to one; a path that closes a ring is not followed."""
    nodes = {n.name: n for n in soc.thermal.nodes}
    for r in soc.thermal.resistances:
        other = r.between[1] if r.between[0] == at else r.between[0]
        if at not in r.between or other in seen:
            continue
        seen.add(other)
        held = f", heated by {', '.join(nodes[other].processors)}" if nodes[other].processors else ""
        size = marked("_j_per_k", nodes[other].capacity_j_per_k)
        branch = tree.add(Text(printable(f"{other}: {size}{held}, {marked('k_per_w', r.k_per_w)} to {at}")))
        _hang(soc, branch, other, seen)


def sources(soc: SoC) -> None:
    """Every figure with where it is from."""
    lines = [[f.path, quantity(f.path, f.value), f"estimated: {f.origin}" if f.estimated else f.origin] for f in figures(soc)]
    if soc.market is not None:
        origin = soc.market.source or f"estimated: {soc.market.estimated}"
        lines.insert(0, ["market", f"{soc.market.tier} of {soc.market.release}", origin])
    show.grouped(soc.name, ["figure", "value", "where from"], _by_part(lines), numeric=(1,))
    show.line(_PATHS)


def difference(a: SoC, b: SoC, found: Sequence[Difference]) -> None:
    """The figures in which two SoCs differ."""
    lines = [[d.path, quantity(d.path, d.a), quantity(d.path, d.b), "" if d.ratio is None else f"{d.ratio:.3g}"] for d in found]
    show.grouped(f"{a.name} and {b.name}", ["figure", a.id, b.id, "ratio"], _by_part(lines), numeric=(1, 2, 3))
    show.line(_PATHS)


_PATHS = "(--set takes heading, dot, name: processors.npu.launch_s=1e-4)"
#: Fields whose keys are part of a figure's own name: ``peak_ops_s.i8``.
_KEYED = ("peak_ops_s", "together_bytes_s", "utilisation")


def _by_part(lines: Iterable[list[str]]) -> dict[str, list[list[str]]]:
    """Lines that begin with a dotted path, under the part of the SoC that the path leads to."""
    out: dict[str, list[list[str]]] = {}
    for path, *rest in lines:
        part, _, name = path.rpartition(".")
        above, _, key = part.rpartition(".")
        if key in _KEYED:
            part, name = above, f"{key}.{name}"
        out.setdefault(part or "whole SoC", []).append([name, *rest])
    return out
