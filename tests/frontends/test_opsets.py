"""Older operator forms: the loaded graph has opset-18 forms and computes what ONNX Runtime computes on the original."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from hetsched.frontends import load
from hetsched.reference import run

Save = Callable[..., Path]
CASES = {
    "clip-6": (7, "float[2,5]", "y = Clip <min = -0.5, max = 0.25> (x)"),
    "clip-6 without bounds": (7, "float[2,5]", "y = Clip <max = 0.25> (x)"),
    "slice-1": (9, "float[4,5]", "y = Slice <axes = [1], starts = [1], ends = [-1]> (x)"),
    "slice-1 default axes": (9, "float[4,5]", "y = Slice <starts = [1,0], ends = [3,9]> (x)"),
    "pad-2": (10, "float[2,3]", "y = Pad <pads = [0,1,1,0], value = 2.5> (x)"),
    "pad-2 reflect": (10, "float[2,3]", 'y = Pad <pads = [0,2,0,1], mode = "reflect"> (x)'),
    "squeeze-1": (11, "float[2,1,3]", "y = Squeeze <axes = [1]> (x)"),
    "unsqueeze-11": (11, "float[2,3]", "y = Unsqueeze <axes = [0,-1]> (x)"),
    "reduce-mean-11": (11, "float[2,3,4]", "y = ReduceMean <axes = [1,-1], keepdims = 0> (x)"),
    "reduce-sum-11": (11, "float[2,3,4]", "y = ReduceSum <axes = [0]> (x)"),
    "reduce-max-11 over all": (11, "float[2,3,4]", "y = ReduceMax(x)"),
    "softmax-11 default axis": (11, "float[2,3,4]", "y = Softmax(x)"),
    "softmax-11 axis 0": (11, "float[2,3,4]", "y = Softmax <axis = 0> (x)"),
    "softmax-11 last axis": (11, "float[2,3,4]", "y = Softmax <axis = 2> (x)"),
    "log-softmax-11": (11, "float[2,3,4]", "y = LogSoftmax <axis = 1> (x)"),
    "dropout-7": (7, "float[2,3]", "d = Dropout <ratio = 0.5> (x)  y = Relu(d)"),
    "split-11": (11, "float[2,6]", "a, y, c = Split <axis = 1, split = [1,2,3]> (x)"),
    "split-11 equal": (11, "float[2,6]", "a, y = Split <axis = 1> (x)"),
    "top-k-1": (9, "float[2,6]", "y, i = TopK <k = 2> (x)"),
    "upsample-7": (7, "float[1,1,3,3]", 'y = Upsample <mode = "nearest", scales = [1.0,1.0,2.0,3.0]> (x)'),
    "upsample-9": (9, "float[1,1,3,3]", 's = Constant <value = float[4] {1,1,2,2}> ()  y = Upsample <mode = "linear"> (x, s)'),
    "resize-10": (10, "float[1,1,4,4]", 's = Constant <value = float[4] {1,1,2,2}> ()  y = Resize <mode = "nearest"> (x, s)'),
    "sum of two": (8, "float[2,3]", "y = Sum(x, x)"),
    "batch-norm-7": (7, "float[1,2,3]", "y = BatchNormalization(x, v, v, v, v)"),
    "cast-like-15": (15, "float[2,3]", "c = Constant <value = double {1}> ()  y = CastLike(x, c)"),
}


@pytest.mark.parametrize("name", CASES)
def test_same_as_the_original(save: Save, name: str) -> None:
    opset, type_, nodes = CASES[name]
    kind = "double" if "cast-like" in name else "float"
    path = save(f"g ({type_} x) => ({kind}[] y) <float[2] v = {{0.5, 2.0}}> {{ {nodes} }}", opset)
    import onnx

    model = onnx.load(path)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    path.write_bytes(model.SerializeToString())
    graph = load(path)
    x = np.random.default_rng(1).standard_normal(graph.tensors["x"].shape).astype(np.float32)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    expected = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(["y"], {"x": x})[0]
    got = run(graph, {"x": x})["y"]
    assert got.shape == expected.shape == graph.tensors["y"].shape
    assert got.dtype == expected.dtype == graph.tensors["y"].dtype.numpy
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    moved = {"axes", "min", "max", "starts", "ends", "pads", "split", "k", "scales", "spatial"}
    assert not [op for op in graph.ops if moved & set(op.attrs) and op.type not in {"Conv"}]
