"""Trace files: exact round trips, an independent decoding of the Perfetto bytes, and damaged input."""

import struct
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from hetsched.errors import OptionError, TraceError
from hetsched.trace import Counter, Instant, Span, Trace, files, parquet, perfetto

times = st.integers(0, 10**13).map(lambda n: n / 1e9)
names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(times)
    return Span(
        draw(st.sampled_from(["cpu", "gpu", "npu:0"])),
        draw(st.sampled_from(["segment", "op", "launch", "wait", "submit"])),
        draw(names),
        start,
        start + draw(st.integers(0, 10**9)) / 1e9,
        draw(st.integers(-1, 500)),
        draw(st.integers(0, 10**6)),
        draw(st.none() | st.floats(0, 1)),
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    counters = {}
    for name in draw(st.lists(names, max_size=3, unique=True)):
        stamps = sorted(draw(st.sets(st.integers(0, 10**12), max_size=5)))
        counters[name] = Counter(
            name, draw(st.sampled_from(["degC", "Hz", "W", "1"])), [t / 1e9 for t in stamps], [draw(numbers) for _ in stamps]
        )
    instants = draw(st.lists(st.builds(Instant, st.sampled_from(["fence", "throttle"]), names, times, names), max_size=4))
    return Trace(
        draw(st.sampled_from(["simulated", "measured", "imported"])),
        draw(names),
        draw(names),
        ("cpu", "gpu", "npu:0"),
        draw(st.lists(spans(), max_size=12)),
        counters,
        instants,
        draw(st.lists(names, max_size=3)),
    )


def example() -> Trace:
    trace = Trace("simulated", "det", "snapdragon-8-gen-3", ("cpu", "npu"), notes=["25 °C"])
    trace.spans = [
        Span("npu", "segment", "segment 0", 0.0, 0.003, 0, 0, 0.0028),
        Span("npu", "launch", "launch", 0.0, 0.0001, 0),
        Span("npu", "op", "conv 1", 0.0001, 0.002, 0, 0, 0.0019),
        Span("npu", "op", "conv 2", 0.002, 0.003, 0),
        Span("cpu", "wait", "wait 0", 0.001, 0.003, 1),
        Span("cpu", "op", "softmax", 0.003, 0.0035, 1),
        Span("cpu", "submit", "overlaps the wait", 0.002, 0.0031, 1),
    ]
    heat = trace.counter("temperature/npu", "degC")
    heat.sample(0.0, 25.0)
    heat.sample(0.003, 25.5)
    trace.instants = [Instant("throttle", "npu down", 0.002, "95 °C"), Instant("fence", "0", 0.003)]
    return trace


# A decoder that shares nothing with the package: field numbers as Perfetto's public .proto files have them.


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def decode(data: bytes) -> dict[int, list]:
    out: dict[int, list] = {}
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = struct.unpack("<d", data[at : at + 8])[0], at + 8
        else:
            assert key & 7 == 2
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            assert len(value) == size
        out.setdefault(key >> 3, []).append(value)
    return out


def test_perfetto_bytes_mean_what_perfetto_says() -> None:
    trace = example()
    packets = [decode(p) for p in decode(perfetto.encode(trace))[1]]
    assert {p[10][0] for p in packets} != {0} and len({p[10][0] for p in packets}) == 1  # trusted_packet_sequence_id
    assert packets[0][13][0] & 1 and not any(p[13][0] & 1 for p in packets[1:])  # SEQ_INCREMENTAL_STATE_CLEARED once, first
    descriptors = [decode(p[60][0]) for p in packets if 60 in p]
    uuids = [d[1][0] for d in descriptors]
    assert len(set(uuids)) == len(uuids) and 0 not in uuids
    process = [d for d in descriptors if 3 in d]
    assert len(process) == 1 and all(d[5][0] == process[0][1][0] for d in descriptors if 3 not in d)  # children of the process
    track_name = {d[1][0]: d[2][0].decode() for d in descriptors if 2 in d}
    counter_unit = {d[1][0]: decode(d[8][0])[6][0].decode() for d in descriptors if 8 in d}
    names: dict[int, str] = {}
    open_slices: dict[int, list] = {}
    last: dict[int, int] = {}
    seen, samples, instants = [], [], []
    for p in packets:
        for interned in p.get(12, []):
            names |= {decode(e)[1][0]: decode(e)[2][0].decode() for e in decode(interned).get(2, [])}
        if 11 not in p:
            continue
        time, event = p[8][0], decode(p[11][0])
        track = event[11][0]
        assert track in uuids and time >= last.get(track, 0)
        last[track] = time
        match event[9][0]:
            case 1:
                open_slices.setdefault(track, []).append((names[event[10][0]], time))
            case 2:
                name, start = open_slices[track].pop()
                seen.append((track_name[track], name, start, time))
            case 3:
                instants.append((names[event[10][0]], time))
            case 4:
                samples.append((track_name[track], counter_unit[track], time, event[44][0]))
    assert not any(open_slices.values())
    assert sorted(seen) == sorted((s.queue, s.name, round(s.start_s * 1e9), round(s.end_s * 1e9)) for s in trace.spans)
    assert samples == [("temperature/npu", "degC", 0, 25.0), ("temperature/npu", "degC", 3_000_000, 25.5)]
    assert instants == [("hetsched.trace", 0), ("npu down", 2_000_000), ("0", 3_000_000)]


def key(span: Span) -> tuple:
    return tuple(
        (x is not None, x)
        for x in (span.queue, span.start_s, span.end_s, span.kind, span.name, span.segment, span.iteration, span.predicted_s)
    )


@given(traces())
@settings(max_examples=60, deadline=None)
def test_perfetto_round_trip(tmp_path_factory: pytest.TempPathFactory, trace: Trace) -> None:
    path = tmp_path_factory.mktemp("t") / "a.pftrace"
    perfetto.write(trace, path)
    again = perfetto.read(path)
    expected = [
        Span(s.queue, s.kind, s.name, round(s.start_s * 1e9) / 1e9, round(s.end_s * 1e9) / 1e9, s.segment, s.iteration, s.predicted_s)
        for s in trace.spans
    ]
    assert sorted(again.spans, key=key) == sorted(expected, key=key)
    assert again.counters == trace.counters and again.instants == trace.instants
    assert (again.origin, again.model, again.soc, again.queues, again.notes) == (
        trace.origin,
        trace.model,
        trace.soc,
        trace.queues,
        trace.notes,
    )
    assert perfetto.encode(trace) == path.read_bytes()


@given(traces())
@settings(max_examples=40, deadline=None)
def test_parquet_round_trip_is_exact(tmp_path_factory: pytest.TempPathFactory, trace: Trace) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("t") / "a.parquet"
    parquet.write(trace, path)
    assert parquet.read(path) == trace


@given(st.lists(spans(), max_size=20))
@settings(max_examples=60, deadline=None)
def test_lanes_hold_only_nested_or_disjoint_spans(some: list[Span]) -> None:
    lanes = perfetto.nested_lanes(some)
    assert sorted((s for lane in lanes for _, _, s in lane), key=key) == sorted(some, key=key)
    for lane in lanes:
        ranges = [(start, end) for start, end, _ in lane]
        for i, (a, b) in enumerate(ranges):
            for c, d in ranges[i + 1 :]:
                assert c >= b or (a <= c and d <= b)


@pytest.mark.parametrize("suffix", [".pftrace", ".parquet"])
def test_files_pick_the_format_and_refuse_damage(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / f"run{suffix}"
    files.write(example(), path)
    assert files.read(path).counters == example().counters
    data = path.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    for damaged in (data[: len(data) // 2], data[:-3], data[:5] + bytes(60) + data[65:], b"", b"PAR1", b"\xff" * 400):
        path.write_bytes(damaged)
        with pytest.raises(TraceError, match=path.name):
            files.read(path)
    with pytest.raises(TraceError, match="absent"):
        files.read(tmp_path / "absent")


def test_other_peoples_files_are_named_as_such(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(TraceError, match="not a trace of hetsched"):
        files.read(tmp_path / "other.parquet")
    (tmp_path / "other.pftrace").write_bytes(b"\x0a\x02\x50\x01")
    with pytest.raises(TraceError, match="not written by hetsched"):
        files.read(tmp_path / "other.pftrace")


def test_bad_traces_and_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="must end in"):
        files.write(example(), tmp_path / "a.json")
    with pytest.raises(OptionError, match="nowhere"):
        files.write(example(), tmp_path / "nowhere" / "a.pftrace")
    for start, end, why in ((-1.0, 1.0, "-1.0"), (float("nan"), 1.0, "nan"), (2.0, 1.0, "before it starts")):
        with pytest.raises(TraceError, match=why):
            perfetto.encode(Trace("measured", spans=[Span("cpu", "op", "x", start, end)]))
    assert list(tmp_path.iterdir()) == []


GOOD = Span("cpu", "op", "relu", 0.5, 1.0)
BAD_TRACES = {
    "time that is no number": Trace("measured", spans=[Span("cpu", "op", "relu", float("nan"), 1.0)]),
    "endless span": Trace("measured", spans=[Span("cpu", "op", "relu", 0.0, float("inf"))]),
    "span before the start": Trace("measured", spans=[Span("cpu", "op", "relu", -1.0, 1.0)]),
    "span that ends first": Trace("measured", spans=[Span("cpu", "op", "relu", 1.0, 0.5)]),
    "span without a time": Trace("measured", spans=[Span("cpu", "op", "relu", None, 1.0)]),  # type: ignore[arg-type]
    "span without a name": Trace("measured", spans=[Span("cpu", "op", None, 0.0, 1.0)]),  # type: ignore[arg-type]
    "span without a queue": Trace("measured", spans=[Span(None, "op", "relu", 0.0, 1.0)]),  # type: ignore[arg-type]
    "span without a segment": Trace("measured", spans=[Span("cpu", "op", "relu", 0.0, 1.0, None)]),  # type: ignore[arg-type]
    "queue that is a list": Trace("measured", queues=(["cpu"],), spans=[GOOD]),  # type: ignore[arg-type]
    "model that is a number": Trace("measured", model=5, spans=[GOOD]),  # type: ignore[arg-type]
    "instant in no time": Trace("measured", instants=[Instant("trip", "npu", float("inf"))]),
    "counter without values": Trace("measured", counters={"c": Counter("c", "W", [1.0], [float("nan")])}),
    "counter beyond everything": Trace("measured", counters={"c": Counter("c", "W", [1.0], [1e31])}),
    "counter that goes back": Trace("measured", counters={"c": Counter("c", "W", [2.0, 1.0], [0.0, 0.0])}),
}


@pytest.mark.parametrize("kind", BAD_TRACES)
def test_traces_that_parse_and_make_no_sense(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "bad.parquet"
    parquet.write(BAD_TRACES[kind], path)
    with pytest.raises(TraceError, match=r"bad\.parquet.*damaged"):
        files.read(path)


def test_row_bombs_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(parquet, "MAX_ROWS", 10)
    parquet.write(Trace("measured", spans=[GOOD] * 11), tmp_path / "big.parquet")
    with pytest.raises(TraceError, match="11 rows"):
        files.read(tmp_path / "big.parquet")
