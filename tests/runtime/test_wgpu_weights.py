"""Weights of four bits on the GPU: dequantized in the kernel, or ahead where their groups do not fit words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from hetsched import reference
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.delegates import load_delegate
from hetsched.runtime.delegates.wgpu import delegate as module
from hetsched.runtime.delegates.wgpu.segment import WgpuSegment

pytestmark = pytest.mark.skipif(not load_delegate("wgpu").probe().available, reason="there is no WebGPU adapter")


def n_bits(folder: Path, rows: int, k: int, n: int, block: int, zeros: bool) -> Graph:
    """A model of one ``MatMulNBits``."""
    rng = np.random.default_rng(k + n)
    groups = -(-k // block)
    constants = {
        "w": rng.integers(0, 256, (n, groups, block // 2)).astype(np.uint8),
        "s": (rng.random((n, groups)) * 0.1 + 0.01).astype(np.float32),
    }
    if zeros:
        constants["z"] = rng.integers(0, 256, (n, (groups + 1) // 2)).astype(np.uint8)
    attrs = {"K": k, "N": n, "bits": 4, "block_size": block}
    node = helper.make_node("MatMulNBits", ["x", *constants], ["y"], "product", domain="com.microsoft", **attrs)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [rows, k])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [rows, n])
    graph = helper.make_graph([node], "w4", [x], [y], [numpy_helper.from_array(v, name) for name, v in constants.items()])
    path = folder / "w4.onnx"
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return standard(load(path))


@pytest.mark.parametrize("precision", ["f32", "f16", "w4a16"])
@pytest.mark.parametrize(
    ("rows", "k", "n", "block", "zeros"), [(1, 64, 5, 32, False), (3, 96, 17, 32, True), (6, 50, 9, 16, True), (4, 256, 33, 128, False)]
)  # fmt: skip
def test_products_with_groups_of_four_bits(
    precision: str, rows: int, k: int, n: int, block: int, zeros: bool, tmp_path: Path, plan_by_hand: Callable[..., Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    graph = n_bits(tmp_path, rows, k, n, block, zeros)
    segments: list[WgpuSegment] = []
    real = module.build

    def build(*args: Any) -> WgpuSegment:
        segments.append(real(*args))
        return segments[-1]

    monkeypatch.setattr(module, "build", build)
    x = np.random.default_rng(0).standard_normal((rows, k)).astype(np.float32)
    plan = plan_by_hand(graph, lambda i: "gpu", lambda i: precision, delegate="wgpu")
    with compile_plan(graph, plan, delegate="wgpu") as executable:
        got: Any = executable.run({"x": x}).outputs["y"]
    want = reference.run(graph, {"x": x})["y"]
    np.testing.assert_allclose(got, want, atol=np.abs(want).max() * (1e-5 if precision == "f32" else 5e-3))
    # The weights take their four bits on the device, not more.
    words = graph.tensors[graph.ops[0].inputs[1]].elements // 2
    assert segments[0].buffers["weight"].size < 2 * words + 4096


def test_float_weights_are_no_weights_of_four_bits(save: Callable[..., Path]) -> None:
    graph = load(save("g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1,2,3,4}> { y = MatMul(x, w) }"))
    why = load_delegate("wgpu").supports(graph.ops[0], graph, "w4a16")
    assert why is not None and "weights that the file stores as 4 bits" in why
