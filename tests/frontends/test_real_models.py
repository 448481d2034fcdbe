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

from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard
from hetsched.passes.derived import base_of, derived
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
    written = {o for node in model.graph.node for o in node.output}
    names = [n for n in dict.fromkeys(base_of(o) for op in graph.ops for o in op.outputs if o) if n in written]
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
    values |= {n: v for n in graph.tensors if (b := base_of(n)) in values and (v := derived(graph, n, values[b])) is not None and b != n}
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
    assert bert["Attention"] == bert["MergedMatMul"] == 3 and bert["FusedMatMul"] == 9 and not bert["Erf"]
    assert bert["SkipLayerNorm"] == 6 and bert["LayerNormalization"] == 1 and not bert["Transpose"]
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
def test_silero_vad_is_one_choice_or_the_net_of_one_sampling_rate(real_model: Callable[[str], Path]) -> None:
    path, dims = real_model("silero-vad"), {"input.1": 576, "state.1": 1}
    graph = standard(load(path, dims))
    (choice,) = (op for op in graph.ops if op.type == "If")
    assert sum(op.type == "Conv" for op in choice.body) == 6 and sum(op.type == "LSTM" for op in choice.body) == 1
    assert "else_branch" in str(choice.attrs["impossible"])  # 8 kHz takes 288 samples
    kept = [graph.tensors[n] for n in choice.inputs if "weight" in n and len(graph.tensors[n].shape) == 3]
    assert len(kept) >= 4 and all(t.data is not None and t.data.path == path for t in kept)
    bound = standard(load(path, {**dims, "sr": 16000}))
    assert bound.inputs == ("input", "state") and not any(op.is_control_flow for op in bound.ops) and len(bound.ops) > 20
    assert "LSTM" in {op.type for op in standard(load(path, {"input.1": 288, "state.1": 1, "sr": 8000})).ops}
