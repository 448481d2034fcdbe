"""Perfetto traces (``.pftrace``), to be opened in https://ui.perfetto.dev or queried with its trace processor.

One process ``hetsched``; one track per queue with segments, and launches, transfers and ops nested in them; one
counter track per counter; one track of instants. Field numbers are those of Perfetto's public ``TracePacket``,
``TrackDescriptor``, ``TrackEvent`` and ``InternedData`` messages. Times are nanoseconds (the default trace clock).
Same trace, same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from hetsched.errors import TraceError
from hetsched.files import write_atomically
from hetsched.trace import Span, Trace
from hetsched.trace.files import LATEST_S
from hetsched.trace.protobuf import double, integer, message, text

SEQUENCE = 0x68657473  # one writer, one sequence; any number but zero
PROCESS, INSTANTS, FIRST_QUEUE, FIRST_COUNTER = 1, 2, 1 << 8, 1 << 20  # track uuids
PID = 1
SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
CLEARED, NEEDS_STATE = 1, 2
EXPLICIT_ORDER = 3
HEADER = "hetsched.trace"


Notes: TypeAlias = Sequence[tuple[str, str | int | float]]


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds.

    Raises:
        TraceError: negative, infinite, not a number, or beyond 64 bits.
    """
    if not math.isfinite(seconds) or not 0 <= seconds < LATEST_S:
        raise TraceError(f"a trace time of {seconds} s cannot be written: times count from the start of the trace")
    return round(seconds * 1e9)


def write(trace: Trace, path: Path) -> None:
    """Write a trace as a Perfetto protobuf file.

    Raises:
        TraceError: a time is negative or not a number, or a span ends before it starts.
        OptionError: the file cannot be written.
    """
    write_atomically(path, encode(trace))


def encode(trace: Trace) -> bytes:
    """The bytes of the file."""
    writer = _Writer()
    writer.descriptor(PROCESS, message(3, integer(1, PID), text(6, _process_name(trace))), integer(11, EXPLICIT_ORDER))
    writer.descriptor(INSTANTS, text(2, "events"), integer(5, PROCESS), integer(12, 0))
    writer.header(trace)
    queues = tuple(dict.fromkeys((*trace.queues, *(s.queue for s in trace.spans))))
    uuid = FIRST_QUEUE
    of: dict[str, list[Span]] = {q: [] for q in queues}
    for s in trace.spans:
        of[s.queue].append(s)
    for rank, queue in enumerate(queues):
        for lane in nested_lanes(of[queue]):
            writer.descriptor(uuid, text(2, queue), integer(5, PROCESS), integer(12, rank + 1))
            writer.slices(uuid, lane)
            uuid += 1
    for rank, counter in enumerate(trace.counters.values()):
        track = FIRST_COUNTER + rank
        body = (message(8, text(6, counter.unit)), integer(12, len(queues) + rank + 1))
        writer.descriptor(track, text(2, counter.name), integer(5, PROCESS), *body)
        for time, value in zip(counter.times_s, counter.values, strict=True):
            writer.event(nanoseconds(time), track, COUNTER, double(44, value))
    for i in trace.instants:
        writer.named(nanoseconds(i.time_s), INSTANTS, INSTANT, i.kind, i.name, [("detail", i.detail)] if i.detail else [])
    return bytes(writer.out)


def _process_name(trace: Trace) -> str:
    what = " on ".join(x for x in (trace.model, trace.soc) if x)
    return f"hetsched {trace.origin}" + (f": {what}" if what else "")


Timed: TypeAlias = tuple[int, int, Span]  # start and end in nanoseconds


def nested_lanes(spans: Sequence[Span]) -> list[list[Timed]]:
    """Split spans into lanes where any two are disjoint or nested, outer first, as slices on one track must be.

    Raises:
        TraceError: a span ends before it starts, or has a time that cannot be written.
    """
    timed = [(nanoseconds(s.start_s), nanoseconds(s.end_s), s) for s in spans]
    lanes: list[tuple[list[Timed], list[int]]] = [([], [])]
    for start, end, s in sorted(timed, key=lambda x: (x[0], -x[1], x[2].kind != "segment")):
        if end < start:
            raise TraceError(f"the span {s.name!r} on {s.queue!r} ends at {s.end_s} s, before it starts at {s.start_s} s")
        lane: tuple[list[Timed], list[int]] | None = None
        for candidate in lanes:
            ends = candidate[1]
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or end <= ends[-1]:
                lane = candidate
                break
        if lane is None:
            lane = ([], [])
            lanes.append(lane)
        lane[0].append((start, end, s))
        lane[1].append(end)
    return [members for members, _ in lanes]


class _Writer:
    """Appends packets of one sequence. Names are interned on first use; what repeats between events is encoded once."""

    def __init__(self) -> None:
        self.out = bytearray()
        self._names: dict[tuple[int, str], int] = {}
        self._heads: dict[tuple[int, str, str, int, float | None], bytes] = {}
        self._iterations: dict[int, bytes] = {}

    def packet(self, *parts: bytes) -> None:
        tail = (
            integer(10, SEQUENCE) + integer(13, NEEDS_STATE)
            if self.out
            else integer(10, SEQUENCE) + integer(13, CLEARED | NEEDS_STATE) + integer(87, 1)
        )
        self.out += message(1, *parts, tail)

    def descriptor(self, uuid: int, *parts: bytes) -> None:
        self.packet(message(60, integer(1, uuid), *parts))

    def event(self, time_ns: int, track: int, kind: int, *parts: bytes) -> None:
        self.packet(integer(8, time_ns), message(11, integer(9, kind), integer(11, track), *parts))

    def _intern(self, table: int, value: str, new: list[bytes]) -> int:
        """Id of a category (table 1), event name (2) or annotation name (3)."""
        iid = self._names.get((table, value))
        if iid is None:
            iid = self._names[table, value] = len(self._names) + 1
            new.append(message(table, integer(1, iid), text(2, value)))
        return iid

    def head(self, track: int, kind: int, category: str, name: str, notes: Notes, new: list[bytes]) -> bytes:
        """The fields of a named event; definitions of names seen for the first time are appended to ``new``."""
        parts = [integer(9, kind), integer(11, track), integer(3, self._intern(1, category, new)), integer(10, self._intern(2, name, new))]
        return b"".join(parts + [self._note(key, value, new) for key, value in notes])

    def _note(self, key: str, value: str | int | float, new: list[bytes]) -> bytes:
        encoded = text(6, value) if isinstance(value, str) else double(5, value) if isinstance(value, float) else integer(4, value)
        return message(4, integer(1, self._intern(3, key, new)), encoded)

    def named(self, time_ns: int, track: int, kind: int, category: str, name: str, notes: Notes) -> None:
        new: list[bytes] = []
        head = self.head(track, kind, category, name, notes, new)
        self.packet(integer(8, time_ns), message(11, head), message(12, *new) if new else b"")

    def header(self, trace: Trace) -> None:
        """An instant at time 0 that carries what the tracks do not say."""
        notes: list[tuple[str, str | int | float]] = [("origin", trace.origin), ("model", trace.model), ("soc", trace.soc)]
        notes += [("queue", q) for q in trace.queues] + [("note", n) for n in trace.notes]
        self.named(0, PROCESS, INSTANT, HEADER, HEADER, notes)

    def slices(self, track: int, spans: Sequence[Timed]) -> None:
        """Begin and end events of one lane, in nesting order."""
        tail = integer(10, SEQUENCE) + integer(13, NEEDS_STATE)
        closing = message(11, integer(9, SLICE_END), integer(11, track)) + tail
        open_ends: list[int] = []
        for start, end, s in spans:
            while open_ends and open_ends[-1] <= start:
                self.out += message(1, integer(8, open_ends.pop()), closing)
            new: list[bytes] = []
            key = (track, s.kind, s.name, s.segment, s.predicted_s)
            head = self._heads.get(key)
            if head is None:
                notes: list[tuple[str, str | int | float]] = [("segment", s.segment)]
                if s.predicted_s is not None:
                    notes.append(("predicted_s", float(s.predicted_s)))
                head = self._heads[key] = self.head(track, SLICE_BEGIN, s.kind, s.name, notes, new)
            iteration = self._iterations.get(s.iteration)
            if iteration is None:
                iteration = self._iterations[s.iteration] = self._note("iteration", s.iteration, new)
            self.out += message(1, integer(8, start), message(11, head, iteration), message(12, *new) if new else b"", tail)
            open_ends.append(end)
        while open_ends:
            self.out += message(1, integer(8, open_ends.pop()), closing)


def read(path: Path) -> Trace:
    """Read a Perfetto file that :func:`write` made (times come back in whole nanoseconds).

    Raises:
        TraceError: absent, damaged, or a Perfetto trace of something else.
    """
    from hetsched.trace.perfetto_reader import read as read_file

    return read_file(path)
