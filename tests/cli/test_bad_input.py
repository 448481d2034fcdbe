"""Bad input of every kind gets one sentence on standard error, exit code 2, and leaves nothing half-written."""

from __future__ import annotations

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


def nested_if(folder: Path) -> list[object]:
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"])], "b", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, [1])]
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch, else_branch=branch)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )  # fmt: skip
    (folder / "m.onnx").write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    return ["plan", "m.onnx", *SOC]


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


def report_of_garbage(folder: Path) -> list[object]:
    (folder / "trace.parquet").write_bytes(b"PAR1 but not really")
    return ["report", "trace.parquet", "-o", "report.html"]


KINDS: list[tuple[Callable[[Path], list[object]], str]] = [
    (truncated, "m.onnx"), (empty, "m.onnx"), (garbage, "m.onnx"), (absent, "nowhere.onnx"), (a_folder, ""), (cyclic, "cycle"),
    (missing_dims, "--dim"), (unknown_dim, "nope"), (huge, "x"), (nested_if, "choice"), (escaping_weights, "etc/passwd"),
    (unknown_soc, "snapdragon-9000"), (malformed_soc, "soc.yaml"), (hostile_soc, "soc.yaml"), (unknown_solver, "magic"),
    (unknown_objective, "beauty"), (unknown_precision, "w0a0"), (unwritable, "no/such/folder"), (unknown_op, "nope"),
    (not_a_plan, "plan.json"), (broken_json, "plan.json"), (cold_ambient, "-300"), (silly_duration, "ten minutes"),
    (unknown_trace_format, "trace.mp3"), (phone_plan_here, "snapdragon-8-gen-3"), (missing_inputs, "nowhere.npz"),
    (pickled_inputs, "x.npz"), (misshapen_inputs, "x.npz"), (report_of_nothing, "nowhere.json"), (report_of_garbage, "trace.parquet"),
]  # fmt: skip


@pytest.mark.parametrize(("prepare", "named"), KINDS, ids=[k.__name__ for k, _ in KINDS])
def test_one_sentence_and_exit_code_2(prepare: Callable[[Path], list[object]], named: str, tmp_path: Path) -> None:
    args = prepare(tmp_path)
    before = sorted(p.name for p in tmp_path.rglob("*"))
    done = hetsched(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("hetsched: ") and named in lines[0]
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
    assert done.stdout == ""
    assert sorted(p.name for p in tmp_path.rglob("*")) == before
