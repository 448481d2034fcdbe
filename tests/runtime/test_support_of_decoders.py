"""What the kernels and ONNX Runtime refuse of language models: weights in blocks, bfloat16, composites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetsched.errors import UnsupportedModelError
from hetsched.graph import DType, Graph, Op, Quantization, Role, Tensor, WeightRef
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime import supported
from hetsched.runtime.delegates import load_delegate

HandPlan = Callable[..., Plan]
BLOCKS = Quantization(granularity="group", axis=-1, group=32, scheme="gguf:Q8_0", block_bytes=34)
UNKNOWN = Quantization(granularity="group", axis=-1, group=32, scheme="gguf:MXFP4", block_bytes=17)


def product(op_type: str, dtype: DType, quantization: Quantization | None, nbytes: int) -> Graph:
    """``x [2, 32]`` and a constant ``w [64, 32]``, in a product or as a table."""
    tensors = {
        "x": Tensor("x", (2, 32), DType.F32, Role.INPUT), "ids": Tensor("ids", (2,), DType.I64, Role.INPUT),
        "w": Tensor("w", (64, 32), dtype, Role.WEIGHT, quantization, WeightRef(array=np.zeros(nbytes, np.uint8))),
        "y": Tensor("y", (2, 64) if op_type == "Gemm" else (2, 32), DType.F32, Role.OUTPUT),
    }  # fmt: skip
    op = Op("blk.0.up", "Gemm", ("x", "w"), ("y",), {"transB": 1}) if op_type == "Gemm" else Op("embed", "Gather", ("w", "ids"), ("y",))
    kept = {n: t for n, t in tensors.items() if n in (*op.inputs, *op.outputs)}
    return Graph("small", kept, (op,), tuple(n for n in op.inputs if n != "w"), ("y",))


@pytest.mark.parametrize("op_type", ["Gemm", "Gather"])
@pytest.mark.parametrize(
    ("dtype", "quantization", "nbytes", "stored", "delegate"),
    [
        (DType.I4, UNKNOWN, 64 * 17, "gguf:MXFP4", "numba"),
        (DType.BF16, None, 64 * 32 * 2, "bf16", "numba"),
        (DType.I8, BLOCKS, 64 * 34, "gguf:Q8_0", "ort"),
        (DType.BF16, None, 64 * 32 * 2, "bf16", "ort"),
    ],
)
def test_packed_weights_are_refused(
    plan_by_hand: HandPlan, op_type: str, dtype: DType, quantization: Quantization | None, nbytes: int, stored: str, delegate: str
) -> None:
    graph = product(op_type, dtype, quantization, nbytes)
    reason = load_delegate(delegate).supports(graph.ops[0], graph, "f32")
    assert reason == f"there is no kernel yet for weights stored as {stored}, and its constant 'w' is one"
    assert delegate == "ort" or supported(graph.ops[0], graph, "f32") == reason
    if quantization is not None:
        assert load_delegate(delegate).supports(graph.ops[0], graph, "w8a8") == reason
    with pytest.raises(UnsupportedModelError, match=rf"{graph.ops[0].name}.*stored as {stored}"):
        compile_plan(graph, plan_by_hand(graph, delegate=delegate))


COMPOSITES = ("RMSNorm", "GroupQueryAttention", "Router", "MoE", "CausalConv", "SelectiveScan", "RotaryEmbedding")


@pytest.mark.parametrize("op_type", [*COMPOSITES, "Silu", "FusedElementwise", "FusedMatMul", "Upsample"])
def test_onnx_runtime_refuses_what_onnx_has_not(chain: Any, plan_by_hand: HandPlan, op_type: str) -> None:
    graph = chain("Relu", op_type)
    reason = load_delegate("ort").supports(graph.ops[1], graph, "f32")
    assert reason is not None and f"has no operator {op_type}" in reason
    with pytest.raises(UnsupportedModelError, match=rf"'/user/node_1' \({op_type}\) cannot run with ONNX Runtime"):
        compile_plan(graph, plan_by_hand(graph, delegate="ort"))


@pytest.mark.parametrize("op_type", ["Gelu", "HardSwish", "Softplus", "Mish"])
def test_onnx_runtime_runs_what_onnx_has(chain: Any, plan_by_hand: HandPlan, op_type: str) -> None:
    graph = chain(op_type)
    assert load_delegate("ort").supports(graph.ops[0], graph, "f32") is None
    with compile_plan(graph, plan_by_hand(graph, delegate="ort")) as executable:
        assert np.isfinite(executable.run({"x": np.linspace(-2, 2, 8, dtype=np.float32)}).outputs["t0"]).all()


def test_a_composite_runs_through_its_body(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Silu")
    body = (Op("s", "Sigmoid", ("x",), ("inner",)), Op("op0", "Mul", ("x", "inner"), ("t0",)))
    inner = Tensor("inner", graph.tensors["x"].shape, DType.F32)
    graph = graph.replace(ops=(replace(graph.ops[0], body=body),), tensors={**graph.tensors, "inner": inner})
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    with compile_plan(graph, plan_by_hand(graph, delegate="ort")) as executable:
        np.testing.assert_allclose(executable.run({"x": x}).outputs["t0"], x / (1 + np.exp(-x)), rtol=1e-5)
