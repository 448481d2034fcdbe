"""Models that ONNX Runtime's own tools quantized: dynamic, static in both forms, and to 4 bits."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

from hetsched.app.inputs import targeted
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import for_soc, standard, unfuse
from hetsched.passes.fuse_dynamic_quantization import FuseDynamicQuantization
from hetsched.reference import run
from hetsched.soc_files import load_soc
from hetsched_cost_models import build_table

Quantize = Callable[..., Path]


def _save(folder: Path, nodes: list[Any], weights: dict[str, np.ndarray], shape: list[int], out: list[int]) -> Path:
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", 1, shape)], [helper.make_tensor_value_info("y", 1, out)],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )  # fmt: skip
    path = folder / "float.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.fixture
def perceptron(tmp_path: Path) -> Path:
    """Three products with biases, a normalisation and an activation between them."""
    rng = np.random.default_rng(3)
    weights = {n: (rng.standard_normal(s) / 8).astype(np.float32) for n, s in {"w1": (64, 48), "w2": (48, 96), "w3": (48, 96)}.items()}
    weights |= {"b1": rng.standard_normal(48).astype(np.float32), "b2": rng.standard_normal(96).astype(np.float32)}
    weights |= {"g": np.ones(48, np.float32), "c": np.zeros(48, np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["p1"], "first"),
        helper.make_node("Add", ["p1", "b1"], ["s1"], "first_bias"),
        helper.make_node("LayerNormalization", ["s1", "g", "c"], ["n1"], "norm"),
        helper.make_node("MatMul", ["n1", "w2"], ["p2"], "second"),
        helper.make_node("Add", ["p2", "b2"], ["s2"], "second_bias"),
        helper.make_node("Relu", ["s2"], ["r2"], "relu"),
        helper.make_node("MatMul", ["n1", "w3"], ["p3"], "third"),
        helper.make_node("Add", ["r2", "p3"], ["y"], "sum"),
    ]
    return _save(tmp_path, nodes, weights, [2, 5, 64], [2, 5, 96])


@pytest.fixture
def convolutions(tmp_path: Path) -> Path:
    rng = np.random.default_rng(4)
    weights = {"w1": rng.standard_normal((8, 3, 3, 3)) / 5, "b1": rng.standard_normal(8), "w2": rng.standard_normal((4, 8, 1, 1)) / 3}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["p1"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["p1"], ["r1"], "relu"),
        helper.make_node("Conv", ["r1", "w2"], ["y"], "second"),
    ]
    return _save(tmp_path, nodes, {k: v.astype(np.float32) for k, v in weights.items()}, [1, 3, 8, 8], [1, 4, 8, 8])


@pytest.fixture
def dynamic() -> Iterator[Quantize]:
    logging.disable(logging.WARNING)

    def quantize(model: Path, **options: Any) -> Path:
        path = model.with_name("dynamic.onnx")
        quantize_dynamic(model, path, **options)
        return path

    yield quantize
    logging.disable(logging.NOTSET)


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    return {n: np.random.default_rng(5).standard_normal(graph.tensors[n].shape).astype(np.float32) for n in graph.inputs}


def by_onnx_runtime(path: Path, values: dict[str, np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    y: np.ndarray = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(["y"], values)[0]
    return y


def kinds(graph: Graph) -> Counter[str]:
    return Counter(op.type for op in graph.ops)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weight", [QuantType.QInt8, QuantType.QUInt8])
def test_dynamic_products_run_as_they_are_written(
    perceptron: Path, dynamic: Quantize, plan_by_hand: Callable[..., Any], weight: QuantType, per_channel: bool
) -> None:
    from hetsched.runtime import compile as compile_plan

    path = dynamic(perceptron, weight_type=weight, per_channel=per_channel)
    loaded = load(path)
    graph = standard(loaded)
    assert kinds(graph) == {"FusedMatMul": 3, "LayerNormalization": 1, "Add": 1}
    fused = [op for op in graph.ops if op.type == "FusedMatMul"]
    assert [op.attr_int("dynamic", 0) for op in fused] == [1, 1, 1]
    assert sorted(op.attr_str("activation", "") for op in fused) == ["", "", "Relu"]
    assert {op.name: op for op in unfuse(graph).ops} == {op.name: op for op in unfuse(loaded).ops}
    granularity = {q.granularity for op in fused if (q := graph.tensors[op.inputs[1]].quantization) is not None}
    assert granularity == ({"channel"} if per_channel else {"tensor"})
    values = feeds(graph)
    expected = by_onnx_runtime(path, values)
    np.testing.assert_allclose(run(graph, values)["y"], expected, rtol=1e-5, atol=1e-5)
    precision = ["w8a8" if op.type == "FusedMatMul" else "f32" for op in graph.ops]
    with compile_plan(graph, plan_by_hand(graph, precision=lambda i: precision[i])) as executable:
        got = executable.run(values).outputs["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=np.abs(expected).max() * 0.02)  # a rounding step may flip
    assert np.median(np.abs(got - expected)) < 1e-5


def test_dynamic_convolutions(convolutions: Path, dynamic: Quantize, plan_by_hand: Callable[..., Any]) -> None:
    from hetsched.runtime import compile as compile_plan

    path = dynamic(convolutions, op_types_to_quantize=["Conv"], weight_type=QuantType.QUInt8)
    graph = standard(load(path))
    assert kinds(graph) == {"FusedConv": 2}
    values = feeds(graph)
    expected = by_onnx_runtime(path, values)
    np.testing.assert_allclose(run(graph, values)["y"], expected, rtol=1e-5, atol=1e-5)
    with compile_plan(graph, plan_by_hand(graph, precision=lambda i: "w8a8")) as executable:
        got = executable.run(values).outputs["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=np.abs(expected).max() * 0.02)


def test_an_embedding_of_codes(tmp_path: Path, dynamic: Quantize, plan_by_hand: Callable[..., Any]) -> None:
    """Codes are gathered first and dequantized after: they get their meaning on the other side of the Gather."""
    from hetsched.runtime import compile as compile_plan

    rng = np.random.default_rng(7)
    weights = {"e": rng.standard_normal((11, 16)).astype(np.float32), "w": rng.standard_normal((16, 8)).astype(np.float32)}
    nodes = [
        helper.make_node("Gather", ["e", "x"], ["g"]),
        helper.make_node("Relu", ["g"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    path = _save(tmp_path, nodes, weights, [2, 5], [2, 5, 8])
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    onnx.save(model, path)
    path = dynamic(path, weight_type=QuantType.QInt8)
    graph = standard(load(path))
    values = {"x": rng.integers(0, 11, (2, 5))}
    expected = by_onnx_runtime(path, values)
    np.testing.assert_allclose(run(graph, values)["y"], expected, rtol=1e-5, atol=1e-5)
    with compile_plan(graph, plan_by_hand(graph, precision=lambda i: "w8a8" if "MatMul" in graph.ops[i].type else "f32")) as executable:
        got = executable.run(values).outputs["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=np.abs(expected).max() * 0.02)


def test_where_activations_are_quantized_while_running(perceptron: Path, dynamic: Quantize) -> None:
    graph = standard(load(dynamic(perceptron, weight_type=QuantType.QInt8)))
    first = next(i for i, op in enumerate(graph.ops) if op.type == "FusedMatMul")
    offers = {}
    for name in ("snapdragon-8-gen-3", "dimensity-9300", "apple-a17-pro"):
        soc = load_soc(name)
        table = build_table(for_soc(graph, soc), soc)
        names = [table.queues[table.alt_queue[a]].kind for a in table.alternatives(first)]
        offers[name] = dict(zip(names, (table.alt_precision[a] for a in table.alternatives(first)), strict=True))
        if name == "dimensity-9300":
            assert any("does not quantize activations while running" in r.reason for r in table.refusals[first])
    assert offers["snapdragon-8-gen-3"]["npu"] == offers["snapdragon-8-gen-3"]["cpu"] == "w8a8"
    assert offers["dimensity-9300"]["npu"] == offers["apple-a17-pro"]["npu"] == "f16"
    plain = build_table(graph, load_soc("snapdragon-8-gen-3"), precision="float")
    assert "w8a8" not in plain.alt_precision


def test_nothing_else_is_taken_for_a_dynamic_product(perceptron: Path, dynamic: Quantize) -> None:
    """A sum that something else reads, and a weight that is computed, stay as they are."""
    path = dynamic(perceptron, weight_type=QuantType.QInt8)
    model = onnx.load(path)
    product = next(n for n in model.graph.node if n.op_type == "MatMulInteger")
    model.graph.output.append(onnx.ValueInfoProto(name=product.output[0]))
    onnx.save(model, path)
    graph = FuseDynamicQuantization()(load(path))
    assert kinds(graph)["MatMulInteger"] == 1 and kinds(graph)["FusedMatMul"] == 2
    assert kinds(graph)["DynamicQuantizeLinear"] == 1


class _Inputs(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(6)
        self._rows = iter([{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._rows, None)


@pytest.mark.parametrize("form", [QuantFormat.QOperator, QuantFormat.QDQ])
def test_static_forms(perceptron: Path, form: QuantFormat) -> None:
    path = perceptron.with_name("static.onnx")
    logging.disable(logging.WARNING)
    quantize_static(perceptron, path, _Inputs((2, 5, 64)), form, per_channel=form is QuantFormat.QDQ)
    logging.disable(logging.NOTSET)
    graph = standard(load(path))
    assert not {"QLinearMatMul", "QLinearAdd"} & set(kinds(graph))
    values = feeds(graph)
    expected = by_onnx_runtime(path, values)
    got = run(graph, values)["y"]
    # QOperator files round as integers do; through floats a half may fall to the other side.
    assert np.abs(got - expected).max() <= 2.01 * np.ptp(expected) / 255
    assert np.median(np.abs(got - expected)) < 1e-4
    table = build_table(graph, load_soc("snapdragon-8-gen-3"))
    assert "w8a8" in table.alt_precision


def test_the_host_plans_dynamic_products_in_integers(perceptron: Path, dynamic: Quantize) -> None:
    """The same graph comes back when nothing needs undoing for the kernels of this machine."""
    graph = standard(load(dynamic(perceptron, weight_type=QuantType.QInt8)))

    class Host:
        id, is_host = "host", True

    assert kinds(targeted(graph, Host()))["FusedMatMul"] == 3  # type: ignore[arg-type]
