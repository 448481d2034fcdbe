"""The real models, op by op against ONNX Runtime, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from hetsched.errors import UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard
from hetsched.reference import run_op

Array = np.ndarray[Any, Any]
DIMS: dict[str, dict[str, int]] = {
    "pp-ocrv4-det": {"x.2": 96, "x.3": 160},
    "magika": {},
    "minilm-l3-onnx": {"sequence_length": 24},
    "smart-turn": {},
    "mobilenet_v2_qdq": {},
}


def seeded_inputs(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    feeds: dict[str, Array] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if tensor.dtype.is_float:
            feeds[name] = rng.standard_normal(tensor.shape).astype(tensor.dtype.numpy)
        else:
            feeds[name] = rng.integers(0, 2 if "mask" in name else 257, tensor.shape).astype(tensor.dtype.numpy)
    return feeds


def all_tensors(path: Path, graph: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
    """Every tensor that the graph's operators write, from ONNX Runtime without optimisations."""
    model = onnx.load(path)
    names = [o for op in graph.ops for o in op.outputs if o]
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {**feeds, **dict(zip(names, session.run(names, feeds), strict=True))}


def difference(got: Array, expected: Array) -> float:
    """How far apart, from 0: of floats the largest error over the largest value; of integers the share that is off by over 1."""
    if got.dtype.kind == "f":
        return float(np.abs(got - expected).max() / max(float(np.abs(expected).max()), 1e-3))
    steps = np.abs(got.astype(np.int64) - expected.astype(np.int64))
    return float((steps > 1).mean() + (0 if (steps > 0).mean() < 1e-3 else 1))


@pytest.mark.real_models
@pytest.mark.parametrize("name", DIMS)
def test_every_fused_op_equals_onnx_runtime(real_model: Callable[[str], Path], name: str) -> None:
    path = real_model(name)
    graph = standard(load(path, DIMS[name]))
    values = all_tensors(path, graph, seeded_inputs(graph))
    worst: dict[str, float] = {}
    for op in graph.ops:
        inputs = [None if not i else graph.tensors[i].numpy() if graph.tensors[i].is_constant else values[i] for i in op.inputs]
        for out, got in zip(op.outputs, run_op(op, inputs, graph.tensors), strict=True):
            assert got.shape == graph.tensors[out].shape and got.dtype == graph.tensors[out].dtype.numpy
            worst[out] = difference(got, values[out])
    assert max(worst.values()) < 2e-4, sorted(worst.items(), key=lambda kv: -kv[1])[:3]


@pytest.mark.real_models
def test_what_fusion_leaves(real_model: Callable[[str], Path]) -> None:
    def count(name: str) -> Counter[str]:
        return Counter(op.type for op in standard(load(real_model(name), DIMS.get(name, {}))).ops)

    ocr = count("pp-ocrv4-det")
    assert ocr["FusedConv"] == 50 and ocr["Conv"] == 12 and not ocr["BatchNormalization"] and not ocr["Clip"] and not ocr["Div"]
    bert = count("minilm-l3-onnx")
    assert bert["FusedSoftmax"] == 3 and bert["FusedMatMul"] == 18 and bert["LayerNormalization"] == 7 and not bert["Erf"]
    assert count("magika")["FusedMatMul"] == 2
    turn = count("smart-turn")
    assert turn["Gelu"] == 8 and turn["QuantizeLinear"] == 1 and not turn["DequantizeLinear"]
    mobile = count("mobilenet_v2_qdq")
    assert mobile["QuantizeLinear"] <= 1 and mobile["DequantizeLinear"] <= 1


@pytest.mark.real_models
def test_weights_are_not_read(real_model: Callable[[str], Path]) -> None:
    graph = standard(load(real_model("minilm-l3-onnx"), {"sequence_length": 8}))
    in_memory = sum(t.data.array.nbytes for t in graph.tensors.values() if t.data is not None and t.data.array is not None)
    assert in_memory < 400_000 < sum(t.nbytes for t in graph.tensors.values() if t.is_constant)


@pytest.mark.real_models
def test_silero_vad_is_refused_by_name(real_model: Callable[[str], Path]) -> None:
    with pytest.raises(UnsupportedModelError, match="'If_0' is a nested If"):
        load(real_model("silero-vad"))
