"""Bad input of every kind gets one sentence on standard error, exit code 2, and leaves nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

SOC = ["--soc", "snapdragon-8-gen-3"]


def hetsched(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "hetsched", *map(str, args)], capture_output=True, text=True, cwd=cwd, timeout=120)


def relu_model(shape: list[int | str], nodes: list[onnx.NodeProto] | None = None, outputs: str = "y") -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes or [helper.make_node("Relu", ["x"], ["y"], "relu")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(outputs, TensorProto.FLOAT, None)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def truncated(folder: Path) -> list[object]:
    data = relu_model([1, 3]).SerializeToString()
    (folder / "m.onnx").write_bytes(data[: len(data) // 2])
    return ["plan", "m.onnx", *SOC]


def empty(folder: Path) -> list[object]:
    (folder / "m.onnx").write_bytes(b"")
    return ["plan", "m.onnx", *SOC]


def garbage(folder: Path) -> list[object]:
    (folder / "m.onnx").write_bytes(np.random.default_rng(0).bytes(4096))
    return ["plan", "m.onnx", *SOC]


def absent(folder: Path) -> list[object]:
    return ["plan", "nowhere.onnx", *SOC]


def a_folder(folder: Path) -> list[object]:
    return ["plan", ".", *SOC]


def cyclic(folder: Path) -> list[object]:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], "first"), helper.make_node("Relu", ["a"], ["b"], "second")]
    (folder / "m.onnx").write_bytes(relu_model([1, 3], nodes, "b").SerializeToString())
    return ["plan", "m.onnx", *SOC]


def missing_dims(folder: Path) -> list[object]:
    (folder / "m.onnx").write_bytes(relu_model([1, "height"]).SerializeToString())
    return ["plan", "m.onnx", *SOC]


def unknown_dim(folder: Path) -> list[object]:
    (folder / "m.onnx").write_bytes(relu_model([1, 3]).SerializeToString())
    return ["plan", "m.onnx", *SOC, "--dim", "nope=3"]


def huge(folder: Path) -> list[object]:
    (folder / "m.onnx").write_bytes(relu_model([1 << 30, 1 << 30]).SerializeToString())
    return ["plan", "m.onnx", *SOC]


def control_flow(folder: Path, node: onnx.NodeProto) -> list[object]:
    """A model of one node that reads ``x`` and the bool ``c``, and writes ``y``."""
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )  # fmt: skip
    (folder / "m.onnx").write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    return ["plan", "m.onnx", *SOC]


def branch_of_nothing(folder: Path) -> list[object]:
    branch = helper.make_graph(
        [helper.make_node("Relu", ["gone"], ["r"])], "b", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, [1])]
    )
    return control_flow(folder, helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch, else_branch=branch))


def endless_loop(folder: Path) -> list[object]:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Constant", [], ["on"], value=numpy_helper.from_array(np.array(True))), helper.make_node("Relu", ["v"], ["w"])],
        "b", [value("i", TensorProto.INT64, []), value("k", TensorProto.BOOL, []), value("v", TensorProto.FLOAT, [1])],
        [value("on", TensorProto.BOOL, []), value("w", TensorProto.FLOAT, [1])],
    )  # fmt: skip
    return control_flow(folder, helper.make_node("Loop", ["", "", "x"], ["y"], "spin", body=body))


def escaping_weights(folder: Path) -> list[object]:
    model = relu_model([1, 3], [helper.make_node("Add", ["x", "w"], ["y"], "add")])
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    external_data_helper.set_external_data(weight, "../../etc/passwd", 0, 12)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    model.graph.initializer.append(weight)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return ["plan", "m.onnx", *SOC]


def good(folder: Path) -> Path:
    (folder / "good.onnx").write_bytes(relu_model([1, 3]).SerializeToString())
    return Path("good.onnx")


def unknown_soc(folder: Path) -> list[object]:
    return ["plan", good(folder), "--soc", "snapdragon-9000"]


def malformed_soc(folder: Path) -> list[object]:
    (folder / "soc.yaml").write_text("id: [unclosed\n  name: {")
    return ["plan", good(folder), "--soc", "soc.yaml"]


def hostile_soc(folder: Path) -> list[object]:
    (folder / "soc.yaml").write_text("!!python/object/apply:os.system ['touch pwned']")
    return ["plan", good(folder), "--soc", "soc.yaml"]


def unknown_solver(folder: Path) -> list[object]:
    return ["plan", good(folder), *SOC, "--solver", "magic"]


def unknown_objective(folder: Path) -> list[object]:
    return ["plan", good(folder), *SOC, "--objective", "beauty"]


def unknown_precision(folder: Path) -> list[object]:
    return ["plan", good(folder), *SOC, "--precision", "w0a0"]


def unwritable(folder: Path) -> list[object]:
    return ["plan", good(folder), *SOC, "-o", "no/such/folder/plan.json"]


def unknown_op(folder: Path) -> list[object]:
    return ["plan", good(folder), *SOC, "--force", "nope=cpu"]


def not_a_plan(folder: Path) -> list[object]:
    (folder / "plan.json").write_text('{"header": 3}')
    return ["simulate", "plan.json"]


def broken_json(folder: Path) -> list[object]:
    (folder / "plan.json").write_text('{"header": ')
    return ["explain", "plan.json", "relu"]


def cold_ambient(folder: Path) -> list[object]:
    return ["simulate", good(folder), *SOC, "--ambient", "-300"]


def fuller_than_full(folder: Path) -> list[object]:
    return ["simulate", good(folder), *SOC, "--duration", "1s", "--battery", "150"]


def a_share_of_the_battery(folder: Path) -> list[object]:
    return ["simulate", good(folder), *SOC, "--duration", "1s", "--battery", "0.4"]


def think_without_unit(folder: Path) -> list[object]:
    return ["simulate", good(folder), *SOC, "--duration", "1s", "--think", "5"]


def deadline_without_unit(folder: Path) -> list[object]:
    return ["simulate", good(folder), *SOC, "--duration", "1s", "--deadline", "33"]


def silly_duration(folder: Path) -> list[object]:
    return ["simulate", good(folder), *SOC, "--duration", "ten minutes"]


def unknown_trace_format(folder: Path) -> list[object]:
    return ["simulate", good(folder), *SOC, "--trace", "trace.mp3"]


def phone_plan_here(folder: Path) -> list[object]:
    return ["run", good(folder), *SOC]


def missing_inputs(folder: Path) -> list[object]:
    return ["run", good(folder), "--input", "nowhere.npz"]


def pickled_inputs(folder: Path) -> list[object]:
    np.savez(folder / "x.npz", x=np.array([{"a": 1}], object))
    return ["run", good(folder), "--input", "x.npz"]


def misshapen_inputs(folder: Path) -> list[object]:
    np.savez(folder / "x.npz", x=np.zeros((7, 7), np.float32))
    return ["run", good(folder), "--input", "x.npz"]


def report_of_nothing(folder: Path) -> list[object]:
    return ["report", "nowhere.json", "-o", "report.html"]


def report_that_is_no_page(folder: Path) -> list[object]:
    return ["report", good(folder), "-o", "report.pdf"]


def report_of_nothing_written(folder: Path) -> list[object]:
    (folder / "t.pftrace").write_bytes(b"")
    return ["report", "t.pftrace", "-o", "report.html"]


def report_of_garbage(folder: Path) -> list[object]:
    (folder / "trace.parquet").write_bytes(b"PAR1 but not really")
    return ["report", "trace.parquet", "-o", "report.html"]


def report_of_inputs(folder: Path) -> list[object]:
    np.savez(folder / "x.npz", x=np.zeros(3))
    return ["report", "x.npz", "-o", "report.html"]


def unknown_inputs(folder: Path) -> list[object]:
    np.savez(folder / "x.npz", x=np.zeros((1, 3), np.float32), extra=np.zeros(2))
    return ["run", good(folder), "--input", "x.npz"]


def wide_window(folder: Path) -> list[object]:
    kernel = numpy_helper.from_array(np.ones((1, 1, 256), np.float32), "w")
    model = relu_model([1, 1, "length"], [helper.make_node("Conv", ["x", "w"], ["y"], "conv")])
    model.graph.initializer.append(kernel)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return ["plan", "m.onnx", *SOC, "--dim", "length=69"]


def few_bits_for_keys(folder: Path) -> list[object]:
    return ["plan", good(folder), *SOC, "--kv", "int4"]


def onto_the_model(folder: Path) -> list[object]:
    return ["plan", good(folder), *SOC, "-o", "good.onnx"]


def onto_a_device(folder: Path) -> list[object]:
    return ["plan", good(folder), *SOC, "-o", "/dev/null"]


def onto_another_kind(folder: Path) -> list[object]:
    (folder / "weights.bin").write_bytes(b"\x00" * 64)
    return ["plan", good(folder), *SOC, "-o", "weights.bin"]


def onto_the_inputs(folder: Path) -> list[object]:
    np.savez(folder / "x.npz", x=np.zeros((1, 3), np.float32))
    return ["run", good(folder), "--input", "x.npz", "-o", "x.npz"]


def onto_the_report(folder: Path) -> list[object]:
    (folder / "p.json").write_text("{}")
    return ["report", "p.json", "-o", "p.json"]


def swollen_inputs(folder: Path) -> list[object]:
    np.savez_compressed(folder / "x.npz", x=np.zeros(1 << 24, np.float32))
    return ["run", good(folder), "--input", "x.npz"]


def no_arguments(folder: Path) -> list[object]:
    return ["plan"]


def unknown_option(folder: Path) -> list[object]:
    return ["plan", good(folder), "--quickly"]


def not_a_number(folder: Path) -> list[object]:
    return ["simulate", good(folder), *SOC, "--ambient", "warm"]


def endless_limit(folder: Path) -> list[object]:
    return ["plan", good(folder), *SOC, "--time-limit", "1e400"]


def endless_memory(folder: Path) -> list[object]:
    return ["plan", good(folder), *SOC, "--memory-limit", "1e999GB"]


def empty_soc(folder: Path) -> list[object]:
    return ["plan", good(folder), "--soc", ""]


def empty_delegate(folder: Path) -> list[object]:
    return ["run", good(folder), "--delegate", ""]


def negative_seed(folder: Path) -> list[object]:
    return ["run", good(folder), "--seed", "-1"]


def two_lines(folder: Path) -> list[object]:
    return ["plan", "a\nb\x1b[31m.onnx", *SOC]


def long_name(folder: Path) -> list[object]:
    return ["plan", "x" * 300, *SOC]


def model_of_no_text(folder: Path) -> list[object]:
    good(folder)
    (folder / "good.onnx").rename(folder / "b\udcffd.onnx")
    return ["plan", "b\udcffd.onnx", *SOC, "-o", "plan.json"]


KINDS: list[tuple[Callable[[Path], list[object]], str]] = [
    (truncated, "m.onnx"), (empty, "m.onnx"), (garbage, "m.onnx"), (absent, "nowhere.onnx"), (a_folder, "a folder without config.json"),
    (cyclic, "cycle"),
    (missing_dims, "--dim"), (unknown_dim, "nope"), (huge, "x"),
    (branch_of_nothing, "gone"), (endless_loop, "spin"), (escaping_weights, "etc/passwd"),
    (unknown_soc, "snapdragon-9000"), (malformed_soc, "soc.yaml"), (hostile_soc, "soc.yaml"), (unknown_solver, "magic"),
    (unknown_objective, "beauty"), (unknown_precision, "w0a0"), (unwritable, "no/such/folder"), (unknown_op, "nope"),
    (not_a_plan, "plan.json"), (broken_json, "plan.json"), (cold_ambient, "-300"), (silly_duration, "ten minutes"),
    (fuller_than_full, "--battery 150"), (a_share_of_the_battery, "write 40 for 40 %"),
    (think_without_unit, "--think '5' has no unit"), (deadline_without_unit, "has no unit"),
    (unknown_trace_format, "trace.mp3"), (phone_plan_here, "snapdragon-8-gen-3"), (missing_inputs, "nowhere.npz"),
    (pickled_inputs, "x.npz"), (misshapen_inputs, "x.npz"), (report_of_nothing, "nowhere.json"),
    (report_that_is_no_page, "a page's name ends in .html"), (report_of_nothing_written, "hetsched: the trace file 't.pftrace' is empty"),
    (report_of_garbage, "trace.parquet"),
    (onto_the_model, "good.onnx"), (onto_a_device, "/dev/null"), (onto_another_kind, "weights.bin"), (onto_the_inputs, "x.npz"),
    (onto_the_report, "p.json"), (swollen_inputs, "x.npz"), (no_arguments, "MODEL"), (unknown_option, "--quickly"),
    (not_a_number, "--ambient"), (endless_limit, "--time-limit"), (endless_memory, "--memory-limit"), (empty_soc, "''"),
    (empty_delegate, "''"), (negative_seed, "-1"), (two_lines, r"a\nb\x1b[31m.onnx"), (long_name, "File name too long"),
    (model_of_no_text, "UTF-8"), (report_of_inputs, "neither a plan nor a trace"), (unknown_inputs, "'extra'"),
    (wide_window, "length=69"), (few_bits_for_keys, "use int8/int4"),
]  # fmt: skip


@pytest.mark.parametrize(("prepare", "named"), KINDS, ids=[k.__name__ for k, _ in KINDS])
def test_one_sentence_and_exit_code_2(prepare: Callable[[Path], list[object]], named: str, tmp_path: Path) -> None:
    args = prepare(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    done = hetsched(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("hetsched: ") and named in lines[0]
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
    assert done.stdout == ""
    assert {p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_nobody_reads_the_output(tmp_path: Path) -> None:
    """``hetsched ... | head -1`` ends quietly."""
    command = f"{sys.executable} -m hetsched socs --json"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -1; {command} >&-; {command} 2>&-"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stderr == ""


@pytest.mark.parametrize("change", [{"HOME": ""}, {"COLUMNS": "1"}, {"TERM": "dumb", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}], ids=str)
def test_odd_surroundings(tmp_path: Path, change: dict[str, str]) -> None:
    env = {k: v for k, v in os.environ.items() if k not in {"HOME", "XDG_CACHE_HOME"}} | change
    args = [sys.executable, "-m", "hetsched", "plan", str(good(tmp_path)), *SOC]
    done = subprocess.run(args, capture_output=True, cwd=tmp_path, env=env)
    assert done.returncode == 0 and done.stderr == b""
