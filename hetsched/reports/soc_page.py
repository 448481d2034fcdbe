"""One SoC as a page: a block diagram, its thermal network, and every figure with where it is from."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from markupsafe import Markup

from hetsched.reports.markup import el, join
from hetsched.soc_figures import estimated_share, figures
from hetsched.soc_words import link_line, marked, memory_lines, processor_lines, quantity, trip_lines
from hetsched.socs import SoC

_WIDTH, _GAP, _LINE, _HEAD = 1160.0, 20.0, 19.0, 52.0


def soc_html(soc: SoC) -> str:
    """The page as text: self-contained, no script, nothing to fetch."""
    style = "".join((files("hetsched.reports") / "templates" / name).read_text("utf-8") for name in ("report.css", "soc.css"))
    share = f"{estimated_share(soc):.0%} of {len(figures(soc))} figures are estimates and marked ~."
    set_here = "".join(f" What-if: {k} = {v}, marked !." for k, v in sorted(soc.overrides.items()))
    body = [
        el("header", el("h1", soc.name), el("p", share + set_here, class_="answer"), class_="top"),
        el(
            "main",
            el("h2", "Processors, links and memory"),
            el("figure", _blocks(soc), class_="chart"),
            el("h2", "Heat"),
            el("figure", _network(soc), class_="chart"),
            el("ul", *(el("li", t) for t in trip_lines(soc)), class_="notes"),
            el("h2", "Notes"),
            el("ul", *(el("li", n) for n in soc.notes), class_="notes"),
            el("h2", "Every figure"),
            _table(soc),
        ),
    ]
    head = el("head", el("meta", charset="utf-8"), el("title", soc.name), el("style", Markup(style)))  # noqa: S704 - package files
    return "<!doctype html>\n" + str(el("html", head, el("body", *body), lang="en")) + "\n"


def _text(x: float, y: float, text: str, class_: str | None = None) -> Markup:
    return el("text", text, x=x, y=y, class_=class_)


def _box(x: float, y: float, width: float, height: float, class_: str = "") -> Markup:
    return el("rect", x=x, y=y, width=width, height=height, rx=10.0, class_=f"box {class_}".strip())


def _blocks(soc: SoC) -> Markup:
    """Processors side by side, the links that join them above, the memory that they share below."""
    shown = [(p, processor_lines(soc, p)) for p in soc.processors]
    width = (_WIDTH - _GAP * (len(shown) - 1)) / len(shown)
    tall = max(len(lines) for _, lines in shown) * _LINE + _HEAD + 12
    top = 24.0 + _LINE * len(soc.links)
    parts = [_text(0, 16 + i * _LINE, f"{' ↔ '.join(k.between)}: {link_line(k)}") for i, k in enumerate(soc.links)]
    for i, (p, lines) in enumerate(shown):
        x = i * (width + _GAP)
        parts += [
            _box(x, top, width, tall, f"c-{p.kind}0"),
            _text(x + 14, top + 24, p.name, "t"),
            _text(x + 14, top + 42, _short(p.model, width), "soft"),
        ]
        parts += _rows(lines, x + 14, top + _HEAD + 12, 96)
        parts += [
            el("line", x1=x + width / 2, x2=x + width / 2, y1=top + tall, y2=top + tall + 44),
            _text(x + width / 2 + 8, top + tall + 26, marked("bytes_s", p.bandwidth_bytes_s), "soft"),
        ]
        if i:
            parts.append(el("line", x1=x - _GAP, x2=x, y1=top + tall / 2, y2=top + tall / 2))
    below = top + tall + 44
    height = len(memory_lines(soc)) * _LINE + 46
    parts += [_box(0, below, _WIDTH, height), _text(14, below + 24, f"memory: {soc.memory.kind}", "t")]
    parts += _rows(memory_lines(soc), 14, below + 46, 96)
    return _svg(parts, below + height + 2, f"Block diagram of {soc.name}")


def _short(text: str, width: float) -> str:
    """As much as fits on a line of 13 pixels' type."""
    room = int((width - 28) / 6.8)
    return text if len(text) <= room else text[: room - 1] + "…"


def _rows(lines: Sequence[tuple[str, str]], x: float, y: float, indent: float) -> list[Markup]:
    return [t for i, (k, v) in enumerate(lines) for t in (_text(x, y + i * _LINE, k, "k"), _text(x + indent, y + i * _LINE, v))]


def _network(soc: SoC) -> Markup:
    """Thermal nodes by their distance from ambient, hottest on the left."""
    levels: list[list[str]] = [["ambient"]]
    seen = {"ambient"}
    while levels[-1]:
        ends = [n for at in levels[-1] for r in soc.thermal.resistances if at in r.between for n in r.between if n not in seen]
        levels.append(list(dict.fromkeys(ends)))
        seen |= set(ends)
    levels = levels[:-1][::-1]
    column = _WIDTH / len(levels)
    at = {n: (i * column, 10 + 70.0 * k) for i, names in enumerate(levels) for k, n in enumerate(names)}
    parts = []
    for r in soc.thermal.resistances:
        (x1, y1), (x2, y2) = sorted(at[n] for n in r.between)
        parts.append(el("line", x1=x1 + 150, y1=y1 + 24, x2=x2, y2=y2 + 24))
        label = marked("k_per_w", r.k_per_w)
        parts.append(_text(x1 + 158, y1 + 18 + (y2 - y1) * 8 / (x2 - x1 - 150), label, "soft"))
    sizes = {n.name: marked("_j_per_k", n.capacity_j_per_k) for n in soc.thermal.nodes}
    for name, (x, y) in at.items():
        parts += [_box(x, y, 150, 48), _text(x + 12, y + 20, name, "t"), _text(x + 12, y + 38, sizes.get(name, ""), "soft")]
    return _svg(parts, max(y for _, y in at.values()) + 60, f"Thermal network of {soc.name}")


def _svg(parts: Sequence[Markup], height: float, label: str) -> Markup:
    return el("svg", *parts, viewBox=f"-2 -2 {_WIDTH + 4:g} {height + 4:g}", class_="soc", role="img", aria_label=label)


def _table(soc: SoC) -> Markup:
    rows = [
        el("tr", el("td", f.path), el("td", quantity(f.path, f.value)), el("td", f"estimated: {f.origin}" if f.estimated else f.origin))
        for f in figures(soc)
    ]
    return el("table", join(rows), class_="figures")
