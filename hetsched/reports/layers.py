"""Layered drawing of a directed acyclic graph, wrapped into columns like a newspaper. Deterministic.

Sugiyama's method: ranks by longest path, order within a rank by barycentres, positions by least squares under the
order (pool adjacent violators). Edges that span several ranks run in a lane of their own, shared by all consumers of
one producer. Ranks are then cut into columns where the fewest lanes cross.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]


@dataclass(frozen=True)
class Style:
    """Sizes in pixels; ``rows`` is the number of ranks that a column should have."""

    width: float = 176
    height: float = 24
    pitch: float = 38
    lane: float = 14
    gap: float = 12
    gutter: float = 36
    rows: int = 24


@dataclass(frozen=True)
class Drawing:
    """Top-left corner of every node, the polylines of every edge, and the size of the whole.

    An edge that goes on in the next column is in several pieces; ``links`` are the labelled points where it leaves a
    column and where it comes in again.
    """

    nodes: tuple[Point, ...]
    edges: tuple[tuple[int, int, tuple[tuple[Point, ...], ...]], ...]
    links: tuple[tuple[float, float, str], ...]
    width: float
    height: float
    columns: int


@dataclass
class _Cells:
    """Real nodes first, then lane cells; ``down`` / ``up`` join cells of adjacent ranks."""

    real: int
    rank: list[int]
    down: list[list[int]]
    up: list[list[int]]
    route: dict[tuple[int, int], list[int]]

    def width(self, cell: int, style: Style) -> float:
        return style.width if cell < self.real else style.lane


def layout(count: int, edges: Sequence[tuple[int, int]], style: Style | None = None) -> Drawing:
    """Place ``count`` nodes joined by ``edges`` (pairs with source < target in a topological numbering)."""
    style = style or Style()
    cells = _cells(count, edges)
    layers: list[list[int]] = [[] for _ in range(max(cells.rank, default=-1) + 1)]
    for cell, rank in enumerate(cells.rank):
        layers[rank].append(cell)
    _order(cells, layers)
    breaks = _breaks(cells, layers, _even(len(layers), style.rows))
    return _assemble(cells, layers, breaks, style)


def _cells(count: int, edges: Sequence[tuple[int, int]]) -> _Cells:
    targets: list[list[int]] = [[] for _ in range(count)]
    rank = [0] * count
    is_source = [True] * count
    for a, b in sorted(dict.fromkeys(edges)):
        targets[a].append(b)
        rank[b] = max(rank[b], rank[a] + 1)
        is_source[b] = False
    for a in range(count):  # a source that is needed late is drawn late
        if is_source[a] and targets[a]:
            rank[a] = max(rank[a], min(rank[b] for b in targets[a]) - 1)
    cells = _Cells(count, rank, [[] for _ in range(count)], [[] for _ in range(count)], {})
    for a in range(count):
        chain = [a]
        for b in sorted(targets[a], key=lambda b: (rank[b], b)):
            while rank[chain[-1]] < rank[b] - 1:
                chain.append(_append(cells, chain[-1]))
            here = next(c for c in chain if cells.rank[c] == rank[b] - 1)
            cells.down[here].append(b)
            cells.up[b].append(here)
            cells.route[a, b] = [*chain[: chain.index(here) + 1], b]
    return cells


def _append(cells: _Cells, above: int) -> int:
    new = len(cells.rank)
    cells.rank.append(cells.rank[above] + 1)
    cells.down.append([])
    cells.up.append([above])
    cells.down[above].append(new)
    return new


def _order(cells: _Cells, layers: list[list[int]], sweeps: int = 6) -> None:
    """Sort each layer by the mean position of its neighbours, down and up in turn."""
    for sweep in range(2 * sweeps):
        downward = sweep % 2 == 0
        neighbours = cells.up if downward else cells.down
        place: dict[int, float] = {}
        for layer in layers if downward else reversed(layers):
            old = {c: float(i) for i, c in enumerate(layer)}
            wanted = {c: sum(place[n] for n in neighbours[c]) / len(neighbours[c]) if neighbours[c] else old[c] for c in layer}
            layer.sort(key=lambda c: (wanted[c], old[c]))
            place.update((c, float(i) - (len(layer) - 1) / 2) for i, c in enumerate(layer))


def _even(ranks: int, rows: int) -> int:
    """Rows per column such that all columns are about as long."""
    return -(-ranks // -(-ranks // rows)) if ranks else rows


def _breaks(cells: _Cells, layers: list[list[int]], rows: int) -> list[int]:
    """First rank of every column: cut where the fewest edges cross, near the wanted height."""
    starts = [0]
    while len(layers) - starts[-1] > rows + rows // 4:
        low, high = starts[-1] + rows - rows // 4, starts[-1] + rows + rows // 8
        crossing = {r: sum(bool(cells.down[c]) for c in layers[r - 1]) for r in range(low, min(high, len(layers) - 1) + 1)}
        starts.append(min(crossing, key=lambda r: (crossing[r], abs(r - starts[-1] - rows))))
    return starts


def _positions(cells: _Cells, layers: list[list[int]], style: Style) -> dict[int, float]:
    """Centre of every cell of one column of layers."""
    inside = {c for layer in layers for c in layer}
    x: dict[int, float] = {}
    for layer in layers:
        x.update(_spread(layer, [0.0] * len(layer), cells, style))
    for sweep in range(10):
        downward = sweep % 2 == 0
        for layer in layers if downward else reversed(layers):
            wanted = []
            for c in layer:
                near = [n for n in (cells.up[c] if downward else cells.down[c]) if n in inside]
                wanted.append(sum(x[n] for n in near) / len(near) if near else x[c])
            x.update(_spread(layer, wanted, cells, style))
    return x


def _spread(layer: list[int], wanted: list[float], cells: _Cells, style: Style) -> dict[int, float]:
    """Closest positions to ``wanted`` (least squares) that keep the order and do not overlap."""
    offset, at = [], 0.0
    for i, c in enumerate(layer):
        if i:
            at += (cells.width(layer[i - 1], style) + cells.width(c, style)) / 2 + style.gap
        offset.append(at)
    blocks: list[tuple[float, int]] = []  # (mean, members)
    for w, o in zip(wanted, offset, strict=True):
        mean, size = w - o, 1
        while blocks and blocks[-1][0] > mean:
            other, members = blocks.pop()
            mean = (mean * size + other * members) / (size + members)
            size += members
        blocks.append((mean, size))
    flat = [mean for mean, size in blocks for _ in range(size)]
    return {c: m + o for c, m, o in zip(layer, flat, offset, strict=True)}


def _assemble(cells: _Cells, layers: list[list[int]], breaks: list[int], style: Style) -> Drawing:
    x: dict[int, float] = {}
    column: dict[int, int] = {}
    left, tallest = style.gutter, 0
    for k, start in enumerate(breaks):
        part = layers[start : breaks[k + 1] if k + 1 < len(breaks) else len(layers)]
        own = _positions(cells, part, style)
        low = min((own[c] - cells.width(c, style) / 2 for c in own), default=0.0)
        right = max((own[c] + cells.width(c, style) / 2 for c in own), default=0.0)
        x.update((c, own[c] - low + left) for layer in part for c in layer)
        column.update((c, k) for layer in part for c in layer)
        left += right - low + style.gutter
        tallest = max(tallest, len(part))
    y = {c: style.gutter + (cells.rank[c] - breaks[column[c]]) * style.pitch for c in x}
    links = _Links(style, x, y)
    edges = tuple((a, b, tuple(links.pieces(cells, route, column))) for (a, b), route in sorted(cells.route.items()))
    nodes = tuple((x[c] - style.width / 2, y[c]) for c in range(cells.real))
    height = style.gutter + tallest * style.pitch + style.gutter / 2
    return Drawing(nodes, edges, tuple(links.points), left, height, len(breaks))


class _Links:
    """Turns routes into polylines, and gives what crosses from one column to the next a letter."""

    def __init__(self, style: Style, x: dict[int, float], y: dict[int, float]) -> None:
        self.style, self.x, self.y = style, x, y
        self.points: list[tuple[float, float, str]] = []
        self._labels: dict[int, str] = {}
        self._seen: set[Point] = set()

    def pieces(self, cells: _Cells, route: list[int], column: dict[int, int]) -> list[tuple[Point, ...]]:
        """Polylines of one edge, one per column that it runs through."""
        x, y, stub = self.x, self.y, self.style.pitch - self.style.height
        out: list[tuple[Point, ...]] = []
        line: list[Point] = [(x[route[0]], y[route[0]] + self.style.height)]
        for before, c in itertools.pairwise(route):
            if column[before] != column[c]:
                end = (line[-1][0], y[before] + self.style.height + stub)
                self._link(route[0], end, (x[c], y[c] - stub))
                out.append((*line, end))
                line = [(x[c], y[c] - stub)]
            line.append((x[c], y[c]))
            if c >= cells.real:
                line.append((x[c], y[c] + self.style.height))
        return [*out, tuple(line)]

    def _link(self, source: int, leave: Point, enter: Point) -> None:
        label = self._labels.get(source)
        if label is None:
            n = len(self._labels)
            label = self._labels[source] = (chr(ord("A") + n // 26 - 1) if n >= 26 else "") + chr(ord("A") + n % 26)
        for point in (leave, enter):
            if point not in self._seen:
                self._seen.add(point)
                self.points.append((*point, label))
