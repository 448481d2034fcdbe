"""Every profile format, from small files that were written for these tests after the formats' public descriptions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hetsched.errors import TraceError
from hetsched.profiles import Profile, read
from hetsched.profiles.measurements import to_json
from hetsched.profiles.timings import Timing, trace_of
from hetsched.trace import Span, Trace, files


def write(folder: Path, text: str, name: str = "profile.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def ort_event(
    name: str, ts: float, dur: float, op: str = "Conv", provider: str = "CPUExecutionProvider", tid: int = 1
) -> dict[str, object]:
    args = {"op_name": op, "provider": provider, "output_type_shape": [{"float": [1, 8, 4, 4]}]}
    return {"cat": "Node", "pid": 1, "tid": tid, "dur": dur, "ts": ts, "ph": "X", "name": f"{name}_kernel_time", "args": args}


ORT = [
    {"cat": "Session", "pid": 1, "tid": 1, "dur": 900, "ts": 5, "ph": "X", "name": "model_loading", "args": {}},
    {"cat": "Session", "pid": 1, "tid": 1, "dur": 100, "ts": 1000, "ph": "X", "name": "model_run", "args": {}},
    ort_event("a", 1010, 30),
    ort_event("loop", 1050, 40, "Loop"),
    ort_event("inner", 1060, 10, "Add"),
    {"cat": "Session", "pid": 1, "tid": 1, "dur": 100, "ts": 2000, "ph": "X", "name": "model_run", "args": {}},
    ort_event("a", 2010, 50),
    ort_event("loop", 2070, 20, "Loop", "QNNExecutionProvider"),
]


def test_onnx_runtime_runs_and_what_is_inside_a_loop(tmp_path: Path) -> None:
    found = read(write(tmp_path, json.dumps(ORT)))
    assert [(t.name, t.run, t.queue, round(t.seconds * 1e6)) for t in found.timings] == [
        ("a", 0, "cpu", 30), ("loop", 0, "cpu", 40), ("a", 1, "cpu", 50), ("loop", 1, "npu", 20),
    ]  # fmt: skip
    assert found.timings[0].shape == (1, 8, 4, 4) and found.timings[0].precision == "f32"
    assert found.per_op()[0].seconds == pytest.approx(40e-6)  # the median of 30 and 50
    assert "1 kernel time" in found.notes[0]


TFLITE_TEXT = """STARTING!
Profiling Info for Benchmark Initialization:
============================== Run Order ==============================
\t             [node type]\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]\t[times called]\t[Name]
\t ModifyGraphWithDelegate\t    3.000\t    3.000\t 75.000%\t 75.000%\t     0.000\t        1\tModifyGraphWithDelegate/0

Operator-wise Profiling Info for Regular Benchmark Runs:
============================== Run Order ==============================
\t             [node type]\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]\t[times called]\t[Name]
\t                 CONV_2D\t    1.400\t    1.250\t 50.000%\t 50.000%\t     0.000\t        1\t[net/conv0/Relu6]:0
\t       DEPTHWISE_CONV_2D\t    0.700\t    0.500\t 20.000%\t 70.000%\t     0.000\t        1\t[net/conv1, net/side]:1

============================== Top by Computation Time ==============================
\t             [node type]\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]\t[times called]\t[Name]
\t                 CONV_2D\t    9.000\t    9.000\t 50.000%\t 50.000%\t     0.000\t        1\t[net/conv0/Relu6]:0

Number of nodes executed: 2
============================== Summary by node type ==============================
\t             [Node type]\t  [count]\t  [avg ms]\t    [avg %]\t    [cdf %]\t  [mem KB]\t[times called]
\t                 CONV_2D\t        1\t     9.000\t    70.000%\t    70.000%\t     0.000\t        1
"""
TFLITE_CSV = """============================== Run Order ==============================
node type, first, avg_ms, %, cdf%, mem KB, times called, name
CONV_2D, 1.400, 1.250, 50%, 50%, 0, 1, [net/conv0/Relu6]:0
DEPTHWISE_CONV_2D, 0.700, 0.500, 20%, 70%, 0, 1, [net/conv1\t net/side]:1

============================== Top by Computation Time ==============================
node type, first, avg_ms, %, cdf%, mem KB, times called, name
CONV_2D, 9.000, 9.000, 50%, 50%, 0, 1, [net/conv0/Relu6]:0
"""


WITH_START = TFLITE_TEXT
for old, new in (
    ("[first]", "[start]\t[first]"),
    ("\t    1.400", "\t 0.0\t 1.4"),
    ("\t    0.700", "\t 1.4\t 0.7"),
    ("\t    9.000", "\t 0.0\t 9.0"),
):
    WITH_START = WITH_START.replace(old, new)


@pytest.mark.parametrize("text", [TFLITE_TEXT, TFLITE_CSV, WITH_START], ids=["text", "csv", "with start"])
def test_tflite_reads_the_run_order_of_the_regular_runs(text: str, tmp_path: Path) -> None:
    found = read(write(tmp_path, text))
    assert [(t.type, t.seconds) for t in found.timings] == [("CONV_2D", 1.25e-3), ("DEPTHWISE_CONV_2D", 0.5e-3)]
    assert [t.name for t in found.timings] == ["net/conv0/Relu6", "net/conv1, net/side"]


QNN_HEAD = "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier\n"
QNN = QNN_HEAD + (
    "0,ROOT,100,US,BACKEND,ROOT,Accelerator (execute) time\n"
    "0,ROOT,1000,CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)\n"
    "0,NODE,600,CYCLES,BACKEND,SUB-EVENT,_features_0_Conv:OpId_21 (cycles)\n"
    "0,NODE,400,CYCLES,BACKEND,SUB-EVENT,_pool:OpId_22 (cycles)\n"
    "0,ROOT,100,US,BACKEND,ROOT,Accelerator (execute) time\n"
    "0,ROOT,1000,CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)\n"
    "0,NODE,800,CYCLES,BACKEND,SUB-EVENT,_features_0_Conv:OpId_21 (cycles)\n"
    "0,NODE,200,CYCLES,BACKEND,SUB-EVENT,_pool:OpId_22 (cycles)\n"
)


def test_qnn_turns_cycles_into_seconds(tmp_path: Path) -> None:
    found = read(write(tmp_path, QNN))
    assert [(t.name, t.run, t.queue) for t in found.timings] == [
        ("_features_0_Conv", 0, "npu"), ("_pool", 0, "npu"), ("_features_0_Conv", 1, "npu"), ("_pool", 1, "npu"),
    ]  # fmt: skip
    assert [t.seconds for t in found.timings] == pytest.approx([60e-6, 40e-6, 80e-6, 20e-6])


def test_qnn_nodes_in_microseconds(tmp_path: Path) -> None:
    found = read(write(tmp_path, QNN_HEAD + "0,NODE,12,US,BACKEND,SUB-EVENT,conv:OpId_1\n"))
    assert [(t.name, t.seconds) for t in found.timings] == [("conv", pytest.approx(12e-6))]


AIHUB = {
    "execution_summary": {"estimated_inference_time": 1500, "all_inference_times": [1500, 1600]},
    "execution_detail": [
        {"name": "conv0", "type": "Conv2d", "compute_unit": "NPU", "execution_time": 900, "execution_cycles": 7},
        {"name": "top", "type": "TopK", "compute_unit": "CPU", "execution_time": 200},
        {"name": "no time", "type": "Cast", "compute_unit": "CPU"},
    ],
}


def test_ai_hub_layers_and_units(tmp_path: Path) -> None:
    found = read(write(tmp_path, json.dumps(AIHUB)))
    assert [(t.name, t.type, t.queue, t.seconds) for t in found.timings] == [
        ("conv0", "Conv2d", "npu", pytest.approx(9e-4)), ("top", "TopK", "cpu", pytest.approx(2e-4)),
    ]  # fmt: skip
    assert found.notes == ("the whole model took 1.500 ms",)


@pytest.mark.parametrize(("column", "value"), [("time_ms", "2.5"), ("latency_us", "2500"), ("Time_s", "0.0025")])
def test_a_latency_table(column: str, value: str, tmp_path: Path) -> None:
    found = read(
        write(tmp_path, f'op,shape,bits,kernel,unit,{column}\nConv,1x32x112x112,8,winograd,NPU,{value}\nAdd,"[1, 4]",,,,{value}\n')
    )
    first, second = found.timings
    assert (first.type, first.shape, first.precision, first.queue) == ("Conv", (1, 32, 112, 112), "w8a8", "npu")
    assert (second.shape, second.precision, second.queue) == ((1, 4), "", "cpu")
    assert first.seconds == second.seconds == pytest.approx(2.5e-3)


def test_a_trace_and_its_way_back(tmp_path: Path) -> None:
    trace = Trace("measured", "net", "host", ("cpu",))
    trace.spans += [Span("cpu", "op", "a", 0.0, 1e-3), Span("cpu", "segment", "s", 0.0, 2e-3), Span("cpu", "op", "b", 1e-3, 2e-3)]
    files.write(trace, tmp_path / "t.pftrace")
    found = read(tmp_path / "t.pftrace")
    assert (found.format, found.model, [t.name for t in found.timings]) == ("measured trace", "net", ["a", "b"])
    again = trace_of(found)
    assert again.origin == "imported"
    assert [(s.name, s.start_s, s.end_s) for s in again.spans] == [
        ("a", 0.0, pytest.approx(1e-3)), ("b", pytest.approx(1e-3), pytest.approx(2e-3)),
    ]  # fmt: skip


def test_formats_without_start_times_are_laid_end_to_end() -> None:
    profile = Profile("f", (Timing("a", "", 2.0), Timing("b", "", 1.0, "npu"), Timing("a", "", 3.0, run=1)))
    spans = trace_of(profile).spans
    assert [(s.name, s.queue, s.iteration) for s in spans] == [("a", "cpu", 0), ("b", "npu", 0), ("a", "cpu", 1)]
    assert spans[1].start_s == 2.0 and spans[2].start_s > spans[1].end_s


def test_measured_times_come_back_as_they_were_written(tmp_path: Path) -> None:
    profile = Profile("f", (Timing("a", "Conv", 2e-3, "npu", (1, 2), "w8a8"), Timing("b", "", 1e-3)), ("n",), "net", "host")
    text = to_json(profile)
    found = read(write(tmp_path, text))
    assert (found.format, found.model, found.soc, found.notes) == ("f", "net", "host", ("n",))
    assert found.per_op() == profile.per_op()
    assert to_json(found) == text


def test_times_without_a_place_count_as_the_cpus_and_it_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, "op,time_ms,queue\nConv,1,npu\nAdd,2,\n")
    found = read(path)
    assert [t.queue for t in found.timings] == ["npu", "cpu"] and found.unplaced == 1
    assert found.notes == ("1 of 2 times do not say where they were taken and count as cpu: --queue says otherwise",)
    assert [t.queue for t in read(path, "gpu").timings] == ["gpu", "gpu"] and read(path, "gpu").notes == ()


def test_layers_of_ai_hub_without_a_unit_count_as_the_npus(tmp_path: Path) -> None:
    layers = [{"name": "a", "execution_time": 5}, {"name": "b", "execution_time": 5, "compute_unit": "CPU"}]
    found = read(write(tmp_path, json.dumps({"execution_summary": {}, "execution_detail": layers})))
    assert [t.queue for t in found.timings] == ["npu", "cpu"] and "1 of 2 times do not say" in found.notes[0]


ROW = {"name": "a", "type": "Conv", "shape": [1, 2], "precision": "", "queue": "npu", "seconds": 1e-3}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seconds": "1"}, "ops.0.seconds = '1': it must be a number of seconds, without a unit"),
        ({"seconds": True}, "ops.0.seconds = True: it must be a number of seconds"),
        ({"seconds": -1}, "ops.0.seconds = -1: it must be at least 0 (seconds)"),
        ({"seconds": 1e9}, "ops.0.seconds = 1000000000.0: it must be at most 100000 (seconds)"),
        ({"shape": "1x2"}, "ops.0.shape = '1x2': it must be a list of whole numbers"),
        ({"shape": [1.5]}, "ops.0.shape.0 = 1.5: it must be a whole number"),
        ({"shape": [-1]}, "ops.0.shape.0 = -1: it must be at least 0"),
        ({"queue": 3}, "ops.0.queue = 3: it must be text"),
        ({"name": None}, "ops.0.name = None: it must be text"),
        ({"second": 1}, "there is no field 'ops.0.second'; did you mean 'seconds'?"),
    ],
    ids=str,
)  # fmt: skip
def test_measurements_are_read_strictly(change: dict[str, object], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as e:
        read(write(tmp_path, json.dumps({"measurements_version": 1, "ops": [ROW | change]})))
    assert sentence in str(e.value) and "import the profile again" in str(e.value)
    (good,) = read(write(tmp_path, json.dumps({"measurements_version": 1, "ops": [ROW]}))).timings
    assert (good.name, good.shape, good.queue, good.seconds) == ("a", (1, 2), "npu", 1e-3)


BAD = {
    "empty": "",
    "prose": "hello\nworld\n",
    "half JSON": json.dumps(ORT)[:200],
    "JSON of something else": '{"a": 1}',
    "a plan": '{"header": {}, "entries": []}',
    "ORT without nodes": json.dumps(ORT[:2]),
    "no layers": json.dumps({"execution_summary": {}, "execution_detail": {}}),
    "layer without a number": json.dumps({"execution_summary": {}, "execution_detail": [{"name": "x", "execution_time": "fast"}]}),
    "negative": json.dumps([ort_event("a", 5, -3)]),
    "not a number": '[{"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": NaN, "args": {}}]',
    "cycles without time": QNN_HEAD + "0,NODE,600,CYCLES,BACKEND,SUB-EVENT,conv\n",
    "cycles that are no number": QNN_HEAD + "0,NODE,many,CYCLES,BACKEND,SUB-EVENT,conv\n",
    "TFLite with a torn row": TFLITE_TEXT.replace("    1.250", "    1.2x0"),
    "table with a bad time": "op,time_ms\nConv,soon\n",
    "table with a bad shape": "op,time_ms,shape\nConv,1,big\n",
    "table with bad bits": "op,time_ms,bits\nConv,1,7\n",
    "measurements of the future": '{"measurements_version": 9, "ops": []}',
    "measurements without times": '{"measurements_version": 1, "ops": [{"name": "a"}]}',
    "measurements as a mapping": '{"measurements_version": 1, "ops": {}}',
    "measurements with a note that is no text": '{"measurements_version": 1, "ops": [], "notes": [3]}',
    "measurements with more": '{"measurements_version": 1, "ops": [], "author": "me"}',
    "deep JSON": "[" * 100_000,
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_bad_profiles_get_one_sentence(text: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r".{20}") as caught:
        read(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_an_absent_profile(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no trace file"):
        read(tmp_path / "nothing.json")


def test_binary_noise(tmp_path: Path) -> None:
    path = tmp_path / "noise"
    path.write_bytes(b"\x00\x01\x02\xff" * 99)
    with pytest.raises(TraceError, match="hetsched reads"):
        read(path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ('op,time_us\nConv,"1,234.5"\n', 1234.5e-6),
        ("op;latency_ms\nConv;1.5\n", 1.5e-3),
        ("op\ttime_ns\nConv\t2e3\n", 2e-6),
        ("\ufeffop,time_s\r\nConv,1\r\n", 1.0),
    ],
    ids=["thousands", "semicolons", "tabs", "bom and crlf"],
)
def test_tables_as_spreadsheets_write_them(text: str, seconds: float, tmp_path: Path) -> None:
    (timing,) = read(write(tmp_path, text)).timings
    assert (timing.type, timing.seconds) == ("Conv", pytest.approx(seconds))


@pytest.mark.parametrize(
    "cell", ["1,58", "1_000", "nan", "inf", "-1", "", "1.5 ms", "0x10", "1e999", "１"], ids=repr
)  # fmt: skip
@pytest.mark.parametrize("head", ["op;time_ms\nConv;{}\n", "op\ttime_ms\nConv\t{}\n"], ids=["semicolons", "tabs"])
def test_times_that_are_none_are_refused_in_one_sentence(head: str, cell: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as e:
        read(write(tmp_path, head.format(cell)))
    assert "\n" not in str(e.value)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="two columns 'time_ms'"):
        read(write(tmp_path, "op,time_ms,time_ms\nConv,1,2\n"))
