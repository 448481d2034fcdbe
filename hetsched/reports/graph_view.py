"""The placement, drawn on the operator graph and on the graph of segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hetsched.graph import Graph, Op
from hetsched.plans import Placement, Plan
from hetsched.reports.layers import Drawing, Point, Style, layout
from hetsched.reports.markup import el, join, number
from hetsched.reports.units import quantity

#: Larger graphs are drawn by segment only.
MAX_OPS = 2000


@dataclass(frozen=True)
class Node:
    """A box: two texts, a CSS colour class, how full its time bar is, and what its tooltip says."""

    label: str
    value: str
    colour: str
    load: float
    tip: str
    row: int = -1
    mark: str = ""


def operator_graph(plan: Plan, graph: Graph, colours: Mapping[str, str]) -> Markup | None:
    """The operator DAG with one box per op, coloured by queue; None where it is too large or not this plan's graph."""
    place = {p.op: p for p in plan.placements}
    if len(graph.ops) > MAX_OPS or any(op.name not in place for op in graph.ops):
        return None
    segment = {op: s.index for s in plan.segments for op in s.ops}
    first = {s.ops[0]: s.index for s in plan.segments if s.ops}
    row = {p.op: i for i, p in enumerate(plan.placements)}
    most = max((p.seconds for p in plan.placements), default=0.0) or 1.0
    nodes = []
    for op in graph.ops:
        p = place[op.name]
        mark = f"segment {first[op.name]} · {p.queue}" if op.name in first else ""
        tip = _op_tip(p, op, graph, segment.get(op.name, -1))
        nodes.append(Node(op_label(op), quantity(p.seconds, "s"), colours[p.queue], p.seconds / most, tip, row[op.name], mark))
    edges = [(int(p), i) for i, preds in enumerate(graph.predecessors) for p in preds]
    crossing = {(a, b) for a, b in edges if place[graph.ops[a].name].queue != place[graph.ops[b].name].queue}
    return draw(layout(len(nodes), edges), nodes, crossing, Style(), "Operator graph, coloured by where each operator runs")


def segment_graph(plan: Plan, graph: Graph | None, colours: Mapping[str, str]) -> Markup:
    """One box per segment; edges are data dependencies where the graph is known, else fences and queue order."""
    style = Style(width=196, height=40, pitch=62, rows=14)
    most = max((s.end_s - s.start_s for s in plan.segments), default=0.0) or 1.0
    nodes = []
    for s in plan.segments:
        tip = f"segment {s.index} on {s.queue}\n{len(s.ops)} ops, {quantity(s.end_s - s.start_s, 's')}"
        tip += f"\nlaunch {quantity(s.launch_s, 's')}, transfers {quantity(s.transfer_s, 's')}, work {quantity(s.work_s, 's')}"
        tip += f"\nenergy {quantity(s.energy_j, 'J')}\nfrom {s.ops[0]}\nto {s.ops[-1]}" if s.ops else ""
        value = f"{len(s.ops)} op{'s' if len(s.ops) != 1 else ''} · {quantity(s.end_s - s.start_s, 's')}"
        nodes.append(Node(f"{s.index} · {s.queue}", value, colours[s.queue], (s.end_s - s.start_s) / most, tip))
    edges = sorted(_segment_edges(plan, graph))
    crossing = {(a, b) for a, b in edges if plan.segments[a].queue != plan.segments[b].queue}
    return draw(layout(len(nodes), edges, style), nodes, crossing, style, "Segments, coloured by where each runs")


def _segment_edges(plan: Plan, graph: Graph | None) -> set[tuple[int, int]]:
    owner = {op: i for i, s in enumerate(plan.segments) for op in s.ops}
    if graph is not None and all(op.name in owner for op in graph.ops):
        ops = graph.ops
        pairs = {(owner[ops[int(p)].name], owner[ops[i].name]) for i, preds in enumerate(graph.predecessors) for p in preds}
        return {(a, b) for a, b in pairs if a < b}
    edges = {(f.signal, f.wait) for f in plan.fences if f.signal < f.wait < len(plan.segments)}
    previous: dict[str, int] = {}
    for i, s in enumerate(plan.segments):
        if s.queue in previous:
            edges.add((previous[s.queue], i))
        previous[s.queue] = i
    return edges


def op_label(op: Op) -> str:
    """A short name for an op: what it computes, its kernel and its activation."""
    label = op.type.removeprefix("Fused")
    kernel = op.attr_ints("kernel_shape", ())
    if kernel:
        label += " " + "×".join(str(k) for k in kernel)
    if "Conv" in op.type and op.attr_int("group", 1) > 1:
        label = label.replace("Conv", "DwConv", 1)
    activation = op.attr_str("activation", "")
    return f"{label} + {activation}" if activation else label


def _op_tip(p: Placement, op: Op, graph: Graph, segment: int) -> str:
    shapes = [f"{'×'.join(map(str, graph.tensors[o].shape)) or 'scalar'} {graph.tensors[o].dtype.value}" for o in op.outputs if o]
    lines = [
        f"{p.op}",
        f"{p.type} → {', '.join(shapes)}",
        f"{p.queue}, {p.precision}, segment {segment}: {quantity(p.seconds, 's')}",
        p.cause,
    ]
    others = [o for o in p.origin if o != p.op]
    if others:
        lines.insert(1, "your nodes: " + ", ".join(others[:6]) + (f" and {len(others) - 6} more" if len(others) > 6 else ""))
    return "\n".join(lines)


def draw(drawing: Drawing, nodes: Sequence[Node], crossing: set[tuple[int, int]], style: Style, title: str) -> Markup:
    """The SVG of a laid-out graph."""
    ordered = sorted(drawing.edges, key=lambda e: e[:2] in crossing)
    lines = [el("path", d=_rounded(piece), class_="e x" if (a, b) in crossing else "e") for a, b, pieces in ordered for piece in pieces]
    boxes = [_box(n, x, y, style) for n, (x, y) in zip(nodes, drawing.nodes, strict=True)]
    boxes += [_link(x, y, label) for x, y, label in drawing.links]
    w, h = number(drawing.width), number(drawing.height)
    label = f"{title}: {len(nodes)} boxes, {len(drawing.edges)} edges, {len(crossing)} of them between processors"
    return el("svg", *lines, *boxes, class_="graph", width=w, height=h, viewBox=f"0 0 {w} {h}", role="img", aria_label=label)


def _box(n: Node, x: float, y: float, style: Style) -> Markup:
    w, h = style.width, style.height
    tall = h >= 32
    room = int(w / 6.4) - 2 if tall else int((w - 62) / 6.1)
    parts: list[Markup] = [
        el("rect", class_="b", width=w, height=h, rx=4),
        el("rect", class_="s", width=5, height=h, rx=2),
        el("rect", class_="l", x=5, y=h - 2.5, width=max(0.0, (w - 7) * n.load), height=2.5),
        el("text", clip(n.label, room), x=11, y=16 if tall else h / 2 + 4),
        el("text", n.value, class_="v", x=11 if tall else w - 6, y=31 if tall else h / 2 + 4, text_anchor=None if tall else "end"),
    ]
    if n.mark:
        parts.append(el("text", clip(n.mark, 28), class_="m", x=0, y=-3))
    return el(
        "g",
        *parts,
        class_=f"n {n.colour}",
        transform=f"translate({number(x)},{number(y)})",
        data_t=n.tip,
        data_row=n.row if n.row >= 0 else None,
    )


def _link(x: float, y: float, label: str) -> Markup:
    return el(
        "g", el("circle", r=7), el("text", label, text_anchor="middle", y=3.5), class_="k", transform=f"translate({number(x)},{number(y)})"
    )


def clip(text: str, length: int) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= length else text[: max(1, length - 1)] + "…"


def _rounded(points: Sequence[Point]) -> str:
    """An SVG path through the points: straight where they are in line, S-curves where they are not."""
    x, y = points[0]
    parts = [f"M{number(x, 1)},{number(y, 1)}"]
    for nx, ny in points[1:]:
        if abs(nx - x) < 0.5 or abs(ny - y) < 0.5:
            parts.append(f"L{number(nx, 1)},{number(ny, 1)}")
        else:
            bend = (y + ny) / 2
            parts.append(f"C{number(x, 1)},{number(bend, 1)} {number(nx, 1)},{number(bend, 1)} {number(nx, 1)},{number(ny, 1)}")
        x, y = nx, ny
    return "".join(parts)


def both(plan: Plan, graph: Graph | None, colours: Mapping[str, str]) -> tuple[Markup | None, Markup]:
    """``(operator drawing or None, segment drawing)``."""
    return (operator_graph(plan, graph, colours) if graph is not None else None), join([segment_graph(plan, graph, colours)])
