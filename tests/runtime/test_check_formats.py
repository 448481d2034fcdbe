"""The check of files that are not ONNX: LiteRT and the reference executor as oracles."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetsched
from hetsched.errors import CheckError
from hetsched.frontends import load
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.runtime import check, litert_oracle, make_inputs
from hetsched.runtime import compile as compile_plan

CORPUS = Path(__file__).parents[3] / "shared" / "models" / "real"
Write = Callable[[bool], Path]
Array = np.ndarray[Any, Any]


@pytest.fixture
def write_tflite(tmp_path: Path) -> Write:
    """A small TFLite net, float or int8: one fully connected layer with ReLU, on ``[2, 6]``."""
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="ai-edge-litert is not installed: nothing to write with")
    flatbuffers = pytest.importorskip("flatbuffers")
    rng = np.random.default_rng(7)

    def tensor(model: Any, name: str, shape: Sequence[int], kind: int, value: Array | None, scales: Sequence[float], zero: int) -> Any:
        t = schema.TensorT()
        t.name, t.shape, t.type, t.buffer = name, list(shape), kind, 0
        if value is not None:
            b = schema.BufferT()
            b.data = list(value.tobytes())
            t.buffer = len(model.buffers)
            model.buffers.append(b)
        if scales:
            q = schema.QuantizationParametersT()
            q.scale, q.zeroPoint, q.quantizedDimension = list(scales), [zero] * len(scales), 0
            t.quantization = q
        return t

    def write(integers: bool) -> Path:
        model, graph = schema.ModelT(), schema.SubGraphT()
        model.version, model.subgraphs, model.buffers = 3, [graph], [schema.BufferT()]
        if integers:
            w, b = rng.integers(-127, 128, (4, 6)).astype(np.int8), rng.integers(-200, 200, 4).astype(np.int32)
            rows = [
                ("x", (2, 6), 9, None, [0.05], -3), ("w", (4, 6), 9, w, [0.02], 0), ("b", (4,), 2, b, [0.001], 0),
                ("y", (2, 4), 9, None, [0.1], -128),
            ]  # fmt: skip
        else:
            w, b = rng.standard_normal((4, 6)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
            rows = [("x", (2, 6), 0, None, [], 0), ("w", (4, 6), 0, w, [], 0), ("b", (4,), 0, b, [], 0), ("y", (2, 4), 0, None, [], 0)]
        graph.tensors = [tensor(model, *row) for row in rows]
        code, op, options = schema.OperatorCodeT(), schema.OperatorT(), schema.FullyConnectedOptionsT()
        code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.FULLY_CONNECTED
        code.version = 4 if integers else 1
        options.fusedActivationFunction = schema.ActivationFunctionType.RELU
        op.opcodeIndex, op.inputs, op.outputs = 0, [0, 1, 2], [3]
        op.builtinOptions, op.builtinOptionsType = options, schema.BuiltinOptions.FullyConnectedOptions
        model.operatorCodes, graph.operators, graph.inputs, graph.outputs = [code], [op], [0], [3]
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        path = tmp_path / f"net.{'i8' if integers else 'f32'}.tflite"
        path.write_bytes(bytes(builder.Output()))
        return path

    return write


@pytest.mark.parametrize("integers", [False, True])
def test_tflite_is_checked_by_litert(write_tflite: Write, integers: bool) -> None:
    ran = hetsched.run(write_tflite(integers), check=True, repeat=1)
    assert ran.check is not None and ran.check.oracle == "LiteRT" and ran.summary()["check"]["oracle"] == "LiteRT"
    assert ran.check.passed, ran.check.sentence()
    assert [c.tensor for c in ran.check.checks if c.is_output] == ["y"]


@pytest.mark.parametrize("integers", [False, True])
def test_without_litert_the_reference_executor_checks(write_tflite: Write, integers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litert_oracle, "find_spec", lambda name: None)
    ran = hetsched.run(write_tflite(integers), check=True, repeat=1)
    assert ran.check is not None and ran.check.passed
    assert ran.check.oracle == "the reference executor (LiteRT is not installed)"


def test_a_crash_of_litert_is_no_crash_here(write_tflite: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litert_oracle.sys, "executable", "/bin/false")
    ran = hetsched.run(write_tflite(False), check=True, repeat=1)
    assert ran.check is not None and ran.check.passed and "LiteRT cannot run it" in ran.check.oracle


@pytest.mark.parametrize("integers", [False, True])
def test_a_wrong_result_fails(write_tflite: Write, integers: bool, plan_by_hand: Callable[..., Plan]) -> None:
    graph = standard(load(write_tflite(integers)))
    plan, feeds = plan_by_hand(graph, precision=lambda i: "w8a8" if integers else "f32"), make_inputs(graph, 3)
    with compile_plan(graph, plan) as executable:
        result = executable.run(feeds, observe=True)
    assert check(graph, plan, feeds, result).passed
    result.observed["y"][0, 0] += 60
    result.observed["y"][1, 2] += 60
    assert [c.tensor for c in check(graph, plan, feeds, result).failures] == ["y"]


def test_nothing_observed_is_refused(write_tflite: Write, plan_by_hand: Callable[..., Plan]) -> None:
    graph = standard(load(write_tflite(False)))
    feeds = make_inputs(graph, 0)
    with compile_plan(graph, plan_by_hand(graph)) as executable, pytest.raises(CheckError, match="observe=True"):
        check(graph, plan_by_hand(graph), feeds, executable.run(feeds))


def test_a_float_tflite_is_calibrated_and_runs_in_integers(write_tflite: Write) -> None:
    path = write_tflite(False)
    x = np.random.default_rng(0).standard_normal((20, 2, 6)).astype(np.float32)
    found = hetsched.calibrate_ranges(path, {"x": x})
    assert found.ranges.samples == 20 and {"x", "y"} <= set(found.ranges.ranges)
    ran = hetsched.run(path, precision="w8a8", inputs={"x": x[0]}, check=True, repeat=1)
    assert ran.check is not None and ran.check.passed and ran.check.oracle == "LiteRT"
    assert {p.precision for p in ran.planned.plan.placements if p.type.endswith("Gemm")} == {"w8a8"}


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["mlperf_tiny__kws_ref_model", "mlperf_tiny__ad01_int8", "mlperf_tiny__pretrainedResnet"])
def test_real_tflite_files_pass(name: str) -> None:
    path = CORPUS / f"{name}.tflite"
    if not path.is_file():
        pytest.skip(f"{path.name} is absent: the shared corpus is not here")
    ran = hetsched.run(path, check=True, repeat=1)
    assert ran.check is not None and ran.check.passed, ran.check.sentence()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (subprocess.TimeoutExpired("python", 600), "it took longer than 600 s"),
        (subprocess.CalledProcessError(-11, "python"), "its interpreter crashed"),
        (
            subprocess.CalledProcessError(1, "python", b"", b"Traceback\nValueError: unresolved custom op: Decoder.\nSee there\n"),
            "unresolved custom op: Decoder",
        ),
        (subprocess.CalledProcessError(3, "python", b"", b""), "its process ended with 3"),
        (OSError("no space left"), "no space left"),
    ],
)  # fmt: skip
def test_why_litert_failed_is_readable(error: Exception, said: str) -> None:
    assert litert_oracle._reason(error) == said
