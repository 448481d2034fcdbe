"""When each buffer of the arena is in use, by the predicted schedule.

A plan file says in which segments a buffer is needed; with the graph that becomes the very ops: from the start of the
op that writes it to the end of the last one that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hetsched.graph import Graph
from hetsched.plans import Buffer, Plan

Interval = tuple[float, float]


def op_times(plan: Plan) -> dict[str, Interval]:
    """Predicted start and end of every op, in seconds: a segment's launch and transfers come before its ops."""
    seconds = {p.op: p.seconds for p in plan.placements}
    out: dict[str, Interval] = {}
    for s in plan.segments:
        at = s.start_s + s.launch_s + s.transfer_s
        for op in s.ops:
            out[op] = (at, at + seconds[op])
            at += seconds[op]
    return out


def lifetimes(plan: Plan, graph: Graph | None) -> list[Interval]:
    """From when to when each of ``plan.buffers`` is held, in seconds; by whole segments where there is no graph."""
    if graph is None or not plan.segments:
        return [_by_segment(plan, b) for b in plan.buffers]
    return _ByOp(plan, graph).all()


def _by_segment(plan: Plan, b: Buffer) -> Interval:
    n = len(plan.segments)
    if n == 0:
        return 0.0, 0.0
    first, last = (plan.segments[min(max(k, 0), n - 1)] for k in (b.first, b.last))
    return first.start_s, max(first.end_s, last.end_s)


class _ByOp:
    """Lifetimes at the grain of ops. A buffer named ``tensor@queue:dtype`` is a converted copy of ``tensor``."""

    def __init__(self, plan: Plan, graph: Graph) -> None:
        self.plan, self.graph = plan, graph
        self.times = op_times(plan)
        self.segment = {op: k for k, s in enumerate(plan.segments) for op in s.ops}
        self.copies: dict[str, list[Buffer]] = {}
        for b in plan.buffers:
            if b.tensor not in graph.tensors and "@" in b.tensor:
                self.copies.setdefault(self._tensor(b), []).append(b)

    def all(self) -> list[Interval]:
        return [self._interval(b) for b in self.plan.buffers]

    def _tensor(self, b: Buffer) -> str:
        return b.tensor if b.tensor in self.graph.tensors else b.tensor.rsplit("@", 1)[0]

    def _interval(self, b: Buffer) -> Interval:
        tensor = self._tensor(b)
        readers = [self.graph.ops[i].name for i in self.graph.consumers.get(tensor, ())]
        if tensor not in self.graph.tensors or any(r not in self.times for r in readers):
            return _by_segment(self.plan, b)
        writer = self.graph.producer.get(tensor)
        written = self.times.get(self.graph.ops[writer].name) if writer is not None else (0.0, 0.0)
        if written is None:
            return _by_segment(self.plan, b)
        if b.tensor != tensor:
            start = self._made(b, tensor)
            return start, max([start, *(self.times[r][1] for r in readers if self._copy_of(r, tensor) is b)])
        ends = [self.times[r][1] for r in readers if self._copy_of(r, tensor) is None]
        ends += [self._made(c, tensor) + self.plan.segments[c.first].transfer_s for c in self.copies.get(tensor, [])]
        if tensor in self.graph.outputs:
            ends.append(max([self.plan.prediction.latency_s, *(s.end_s for s in self.plan.segments)]))
        return written[0], max([written[1], *ends])

    def _copy_of(self, reader: str, tensor: str) -> Buffer | None:
        """The copy that an op reads instead of the original: made by a segment of its own queue, and still held."""
        segments, k = self.plan.segments, self.segment[reader]
        made = (c for c in self.copies.get(tensor, []) if c.first <= k <= c.last and segments[c.first].queue == segments[k].queue)
        return next(made, None)

    def _made(self, copy: Buffer, tensor: str) -> float:
        """When a copy is written: on entry of its first segment, or after an op of that segment has written the original."""
        start = self.plan.segments[copy.first].start_s
        writer = self.graph.producer.get(tensor)
        return start if writer is None else max(start, self.times[self.graph.ops[writer].name][1])


def live_bytes(plan: Plan, held: Sequence[Interval]) -> tuple[list[float], list[float]]:
    """Bytes of the arena in use over the predicted inference: ``(times_s, bytes)``, steps."""
    change: dict[float, int] = {0.0: 0}
    for start, end, nbytes in _stretches(plan, held):
        change[start] = change.get(start, 0) + nbytes
        change[end] = change.get(end, 0) - nbytes
    times, values, level = [], [], 0
    for t in sorted(change):
        level += change[t]
        times.append(t)
        values.append(float(level))
    return times, values


def _stretches(plan: Plan, held: Sequence[Interval]) -> Iterator[tuple[float, float, int]]:
    """When bytes are in use: buffers at one offset that are held at once are the same bytes (a view, or written over in place)."""
    at: dict[int, list[tuple[float, float, int]]] = {}
    for b, (start, end) in zip(plan.buffers, held, strict=True):
        if b.nbytes:
            at.setdefault(b.offset, []).append((start, end, b.nbytes))
    for rows in at.values():
        start, end, nbytes = min(rows)
        for s, e, n in sorted(rows):
            if s >= end:
                yield start, end, nbytes
                start, end, nbytes = s, e, n
            end, nbytes = max(end, e), max(nbytes, n)
        yield start, end, nbytes
