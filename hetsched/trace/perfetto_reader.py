"""Reads Perfetto files that :mod:`hetsched.trace.perfetto` wrote back into a trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from hetsched.errors import TraceError
from hetsched.trace import Counter, Instant, Span, Trace
from hetsched.trace.files import read_whole
from hetsched.trace.perfetto import COUNTER, HEADER, SLICE_BEGIN, SLICE_END
from hetsched.trace.protobuf import fields

Value: TypeAlias = int | float | memoryview
Message: TypeAlias = dict[int, list[Value]]
Notes: TypeAlias = dict[str, list[str | int | float]]


def read(path: Path) -> Trace:
    """Read a Perfetto file that :func:`write` made (times come back in whole nanoseconds).

    Raises:
        TraceError: absent, damaged, or a Perfetto trace of something else.
    """
    data = memoryview(read_whole(path))
    try:
        return _Reader(data).trace()
    except TraceError as e:
        raise TraceError(f"{path}: {e}") from e
    except (ValueError, TypeError, KeyError, UnicodeDecodeError) as e:
        raise TraceError(f"{path} is not a Perfetto trace that hetsched wrote ({type(e).__name__}: {e})") from e


def _group(data: memoryview) -> Message:
    out: Message = {}
    for number, value in fields(data):
        out.setdefault(number, []).append(value)
    return out


def _bytes(value: Value) -> memoryview:
    if not isinstance(value, memoryview):
        raise TraceError("the file is not a trace, or it is damaged: a protobuf message was expected")
    return value


def _int(value: Value) -> int:
    if not isinstance(value, int):
        raise TraceError("the trace is damaged: a protobuf integer was expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _str(value: Value) -> str:
    return bytes(_bytes(value)).decode("utf-8")


class _Reader:
    """Rebuilds a trace from packets."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.names: dict[tuple[int, int], str] = {}
        self.tracks: dict[int, str] = {}
        self.counters: dict[int, Counter] = {}
        self.open: dict[int, list[tuple[int, str, str, Notes]]] = {}
        self.spans: list[Span] = []
        self.instants: list[Instant] = []
        self.notes: dict[bytes, tuple[str, str | int | float]] = {}
        self.about: Notes | None = None

    def trace(self) -> Trace:
        for number, packet in fields(self.data):
            if number == 1:
                self._packet(_group(_bytes(packet)))
        if self.about is None:
            raise TraceError("it was not written by hetsched (no header event): import foreign traces with 'hetsched import'")
        if any(self.open.values()):
            raise TraceError("the trace is truncated: a slice does not end")
        origin = str(self.about["origin"][0])
        if origin not in ("simulated", "measured", "imported"):
            raise TraceError(f"its origin is {origin!r}; expected simulated, measured or imported")
        queues = tuple(str(q) for q in self.about.get("queue", []))
        rank = {q: i for i, q in enumerate(queues)}
        self.spans.sort(key=lambda s: (s.start_s, -s.end_s, rank.get(s.queue, len(rank)), s.kind != "segment"))
        return Trace(
            origin,  # type: ignore[arg-type]
            str(self.about["model"][0]), str(self.about["soc"][0]), queues, self.spans,
            {c.name: c for c in self.counters.values()}, self.instants, [str(n) for n in self.about.get("note", [])],
        )  # fmt: skip

    def _packet(self, packet: Message) -> None:
        for interned in packet.get(12, []):
            for table, entry in fields(_bytes(interned)):
                e = _group(_bytes(entry))
                self.names[table, _int(e[1][0])] = _str(e[2][0])
        for descriptor in packet.get(60, []):
            d = _group(_bytes(descriptor))
            uuid, name = _int(d[1][0]), _str(d[2][0]) if 2 in d else ""
            if 8 in d:
                self.counters[uuid] = Counter(name, _str(_group(_bytes(d[8][0]))[6][0]))
            self.tracks[uuid] = name
        for event in packet.get(11, []):
            self._event(_int(packet[8][0]), _group(_bytes(event)))

    def _event(self, time_ns: int, event: Message) -> None:
        kind, track = _int(event[9][0]), _int(event[11][0])
        if kind == COUNTER:
            value = event[44][0]
            self.counters[track].times_s.append(time_ns / 1e9)
            self.counters[track].values.append(float(value) if isinstance(value, float) else float(_int(value)))
        elif kind == SLICE_END:
            start, category, name, notes = self.open[track].pop()
            self._span(track, start, time_ns, category, name, notes)
        else:
            category, name = self.names[1, _int(event[3][0])], self.names[2, _int(event[10][0])]
            notes = self._notes(event.get(4, []))
            if kind == SLICE_BEGIN:
                self.open.setdefault(track, []).append((time_ns, category, name, notes))
            elif category == HEADER:
                self.about = notes
            else:
                self.instants.append(Instant(category, name, time_ns / 1e9, str(notes.get("detail", [""])[0])))

    def _notes(self, annotations: Sequence[Value]) -> Notes:
        out: Notes = {}
        for a in annotations:
            raw = bytes(_bytes(a))
            known = self.notes.get(raw)  # the same few recur in every slice
            if known is None:
                e = _group(_bytes(a))
                value = _str(e[6][0]) if 6 in e else _int(e[4][0]) if 4 in e else float(e[5][0])
                known = self.notes[raw] = (self.names[3, _int(e[1][0])], value)
            out.setdefault(known[0], []).append(known[1])
        return out

    def _span(self, track: int, start: int, end: int, kind: str, name: str, notes: Notes) -> None:
        predicted = notes.get("predicted_s")
        self.spans.append(
            Span(
                self.tracks[track], kind, name, start / 1e9, end / 1e9,  # type: ignore[arg-type]
                int(notes["segment"][0]), int(notes["iteration"][0]), float(predicted[0]) if predicted else None,
            )
        )  # fmt: skip
