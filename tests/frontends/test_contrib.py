"""Operators of com.microsoft, and newer ONNX operators that are defined by others, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import hetsched
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import unfuse
from hetsched.reference import run

MS = "com.microsoft"
rng = np.random.default_rng(11)


def real(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


@dataclass
class Case:
    """One node: ``feeds`` come at run time, ``weights`` are constants; names are the node's inputs, in order."""

    type: str
    inputs: Sequence[str]
    feeds: Mapping[str, np.ndarray]
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    domain: str = MS
    opset: int = 18
    tolerance: float = 2e-5
    kinds: Sequence[str] = ()

    def model(self) -> onnx.ModelProto:
        node = helper.make_node(self.type, self.inputs, self.outputs, "node", domain=self.domain, **self.attrs)
        infos = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in self.feeds.items()]
        graph = helper.make_graph(
            [node], "g", infos, [onnx.ValueInfoProto(name=o) for o in self.outputs if o],
            [numpy_helper.from_array(v, k) for k, v in self.weights.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", self.opset), *([helper.make_opsetid(MS, 1)] if self.domain == MS else [])]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def loaded(model: onnx.ModelProto, folder: Path) -> Graph:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return load(path)


def agree(case: Case, folder: Path) -> Graph:
    """The graph, after its values were found equal to ONNX Runtime's, before and after its composites are undone."""
    model = case.model()
    graph = loaded(model, folder)
    s = session(model)
    names = [o.name for o in s.get_outputs()]
    theirs = dict(zip(names, s.run(names, dict(case.feeds)), strict=True))
    for form in (graph, unfuse(graph)):
        ours = run(form, case.feeds)
        for name, value in theirs.items():
            if value.size == 0:
                continue
            got = ours[name]
            assert got.shape == value.shape == graph.tensors[name].shape, name
            assert graph.tensors[name].dtype.numpy == value.dtype, name
            assert np.ptp(value) > 0 or value.size == 1, f"{name} is constant and proves nothing"
            limit = case.tolerance * max(1.0, float(np.abs(value.astype(np.float64)).max()))
            assert np.abs(got.astype(np.float64) - value.astype(np.float64)).max() <= limit, name
    return graph


X = {"x": real(2, 5, 16)}
W16 = {"w": real(16), "b": real(16)}
QKV = {"q": real(2, 5, 16), "k": real(2, 5, 16), "v": real(2, 5, 16)}
PAST = {"pk": real(2, 4, 3, 4), "pv": real(2, 4, 3, 4)}
RUNNING = ["q", "k", "v", "", "", "", "pk", "pv"]
ANGLES = np.arange(12)[:, None] * 10.0 ** (-np.arange(2) / 2)
TABLES = {"cos": np.cos(ANGLES).astype(np.float32), "sin": np.sin(ANGLES).astype(np.float32)}
WIDE_ANGLES = np.arange(12)[:, None] * 10.0 ** (-np.arange(8) / 4)
WIDE_TABLES = {"cos": np.cos(WIDE_ANGLES).astype(np.float32), "sin": np.sin(WIDE_ANGLES).astype(np.float32)}

NORMS = {
    "gelu": Case("Gelu", ["x"], X),
    "fast_gelu": Case("FastGelu", ["x"], X),
    "fast_gelu_bias": Case("FastGelu", ["x", "b"], X, W16),
    "bias_gelu": Case("BiasGelu", ["x", "b"], X, W16),
    "quick_gelu": Case("QuickGelu", ["x"], X, attrs={"alpha": 1.702}),
    "quick_gelu_silu": Case("QuickGelu", ["x"], X, attrs={"alpha": 1.0}, kinds=["Silu"]),
    "simplified": Case(
        "SimplifiedLayerNormalization", ["x", "w"], X, W16, {"epsilon": 1e-3, "axis": -1}, domain="", kinds=["RMSNorm"]
    ),
    "skip": Case(
        "SkipLayerNormalization", ["x", "s", "w", "b", "c"], {**X, "s": real(2, 5, 16)}, {**W16, "c": real(16)}, {"epsilon": 1e-5},
        ["y", "", "", "sum"], kinds=["Add", "SkipLayerNorm"],
    ),
    "skip_plain": Case("SkipLayerNormalization", ["x", "s", "w"], {**X, "s": real(2, 5, 16)}, W16, kinds=["SkipLayerNorm"]),
    "skip_simplified": Case(
        "SkipSimplifiedLayerNormalization", ["x", "s", "w"], {**X, "s": real(2, 5, 16)}, W16, {"epsilon": 1e-5}, ["y", "", "", "sum"],
        kinds=["SkipRMSNorm"],
    ),
    "embed": Case(
        "EmbedLayerNormalization", ["ids", "segments", "word", "position", "segment", "w", "b", "mask"],
        {"ids": rng.integers(0, 9, (2, 5)).astype(np.int32), "segments": rng.integers(0, 2, (2, 5)).astype(np.int32),
         "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)},
        {"word": real(9, 16), "position": real(7, 16), "segment": real(2, 16), **W16}, {"epsilon": 1e-5}, ["y", "lengths", "sum"],
    ),
}  # fmt: skip

ATTENTION = {
    "multi_head": Case("MultiHeadAttention", ["q", "k", "v"], QKV, attrs={"num_heads": 4}, kinds=["Attention"]),
    "multi_head_bias_causal": Case(
        "MultiHeadAttention", ["q", "k", "v", "bias"], QKV, {"bias": real(48)}, {"num_heads": 4, "unidirectional": 1}
    ),
    "multi_head_padding": Case(
        "MultiHeadAttention", ["q", "k", "v", "", "mask"], {**QKV, "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)},
        attrs={"num_heads": 4},
    ),
    "multi_head_cache": Case("MultiHeadAttention", RUNNING, {**QKV, **PAST}, {}, {"num_heads": 4}, ["y", "k2", "v2"]),
    "multi_head_cross": Case(
        "MultiHeadAttention", ["q", "k", "v"], {"q": real(2, 5, 16), "k": real(2, 4, 7, 4), "v": real(2, 4, 7, 4)}, attrs={"num_heads": 4}
    ),
    "attention": Case(
        "Attention", ["x", "w", "b", "mask"], {**X, "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)},
        {"w": real(16, 48, scale=0.3), "b": real(48)}, {"num_heads": 4},
    ),
    "attention_lengths": Case(
        "Attention", ["x", "w", "b", "mask"], {**X, "mask": np.array([3, 5], np.int32)}, {"w": real(16, 48, scale=0.3), "b": real(48)},
        {"num_heads": 4},
    ),
    "attention_cache": Case(
        "Attention", ["x", "w", "b", "", "past"], {**X, "past": real(2, 2, 4, 3, 4)}, {"w": real(16, 48, scale=0.3), "b": real(48)},
        {"num_heads": 4, "unidirectional": 1}, ["y", "present"],
    ),
    "rotary": Case(
        "RotaryEmbedding", ["x", "p", "cos", "sin"], {**X, "p": rng.integers(0, 12, (2, 5))}, TABLES, {"num_heads": 4},
        kinds=["Gather", "Gather", "RotaryEmbedding"],
    ),
    "rotary_interleaved": Case(
        "RotaryEmbedding", ["x", "p", "cos", "sin"], {"x": real(2, 4, 5, 4), "p": np.array([3])}, TABLES, {"interleaved": 1}
    ),
    "grouped_prefill": Case(
        "GroupQueryAttention", ["q", "k", "v", "", "", "n", "t", "cos", "sin"],
        {"q": real(2, 5, 64), "k": real(2, 5, 32), "v": real(2, 5, 32), "n": np.array([4, 4], np.int32), "t": np.array(5, np.int32)},
        WIDE_TABLES, {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}, ["y", "k2", "v2"],
    ),
    "grouped_decode": Case(
        "GroupQueryAttention", ["q", "k", "v", "pk", "pv", "n", "t", "cos", "sin"],
        {"q": real(2, 1, 64), "k": real(2, 1, 32), "v": real(2, 1, 32), "pk": real(2, 2, 6, 16), "pv": real(2, 2, 6, 16),
         "n": np.array([6, 6], np.int32), "t": np.array(7, np.int32)},
        WIDE_TABLES, {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}, ["y", "k2", "v2"],
    ),
    "grouped_window": Case(
        "GroupQueryAttention", ["q", "", "", "", "", "n", "t"],
        {"q": real(1, 9, 64), "n": np.array([8], np.int32), "t": np.array(9, np.int32)}, {},
        {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 3}, ["y", "k2", "v2"],
    ),
    "grouped_window_decode": Case(
        "GroupQueryAttention", ["q", "k", "v", "pk", "pv", "n", "t"],
        {"q": real(2, 1, 64), "k": real(2, 1, 32), "v": real(2, 1, 32), "pk": real(2, 2, 6, 16), "pv": real(2, 2, 6, 16),
         "n": np.array([6, 6], np.int32), "t": np.array(7, np.int32)},
        {}, {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 3}, ["y", "k2", "v2"],
    ),
    "standard": Case(
        "Attention", ["q", "k", "v", "mask"], {**QKV, "mask": real(5, 5)}, {}, {"q_num_heads": 4, "kv_num_heads": 4, "softcap": 2.0},
        domain="", opset=23, kinds=["Attention"],
    ),
    "standard_grouped": Case(
        "Attention", ["q", "k", "v"], {"q": real(2, 4, 5, 4), "k": real(2, 2, 5, 4), "v": real(2, 2, 5, 4)}, {}, {"is_causal": 1},
        domain="", opset=23, kinds=["Attention"],
    ),
    "standard_cache": Case(
        "Attention", ["q", "k", "v", "", "pk", "pv"], {**QKV, **PAST}, {}, {"q_num_heads": 4, "kv_num_heads": 4}, ["y", "k2", "v2"],
        domain="", opset=24,
    ),
    "standard_rotary": Case(
        "RotaryEmbedding", ["x", "cos", "sin", "p"], {**X, "p": rng.integers(0, 12, (2, 5))}, TABLES, {"num_heads": 4}, domain="",
        opset=23,
    ),
    "rms": Case("RMSNormalization", ["x", "w"], X, W16, {"epsilon": 1e-4}, domain="", opset=23, kinds=["RMSNorm"]),
    "swish": Case("Swish", ["x"], X, {}, {"alpha": 1.0}, domain="", opset=24, kinds=["Silu"]),
    "gelu20": Case("Gelu", ["x"], X, {}, {"approximate": "tanh"}, domain="", opset=20, kinds=["Gelu"]),
    "group_norm": Case(
        "GroupNormalization", ["x", "w", "b"], {"x": real(2, 16, 3, 3)}, W16, {"num_groups": 4}, domain="", opset=21,
        kinds=["GroupNormalization"],
    ),
    "celu": Case("Celu", ["x"], X, {}, {"alpha": 0.7}, domain="", opset=12),
    "selu": Case("Selu", ["x"], X, {}, {}, domain="", opset=18),
    "shrink": Case("Shrink", ["x"], X, {}, {"lambd": 0.3, "bias": 0.1}, domain="", opset=18),
    "rms_rows": Case(
        "RMSNormalization", ["x", "w"], X, {"w": real(5, 16)}, {"axis": 1}, domain="", opset=23, kinds=["RMSNormalization"]
    ),
    "mean_variance": Case("MeanVarianceNormalization", ["x"], {"x": real(2, 3, 4, 4)}, {}, {}, domain="", opset=13),
}  # fmt: skip


def codes(bits: int, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, dtype=np.uint8)


def n_bits(bits: int, n: int, k: int, group: int, zeros: bool = False, bias: bool = False, index: bool = False) -> Case:
    blocks = -(-k // group)
    weights = {"b": codes(bits, n, blocks, group * bits // 8), "s": np.abs(real(n, blocks)) * 0.1 + 0.01}
    inputs = ["x", "b", "s", "", "", ""]
    if zeros:
        weights["z"] = codes(bits, n, -(-blocks * bits // 8))
        inputs[3] = "z"
    if index:
        weights["g"] = rng.permutation(np.arange(blocks * group) // group).astype(np.int32)
        inputs[4] = "g"
    if bias:
        weights["c"] = real(n)
        inputs[5] = "c"
    while not inputs[-1]:
        inputs.pop()
    attrs = {"N": n, "K": k, "bits": bits, "block_size": group}
    return Case("MatMulNBits", inputs, {"x": real(2, 3, k)}, weights, attrs, kinds=["MatMulNBits"])


def gathered(bits: int, zeros: bool) -> Case:
    weights = {"data": codes(bits, 7, 32 * bits // 8), "s": np.abs(real(7, 2)) + 0.1}
    inputs = ["data", "i", "s"]
    if zeros:
        weights["z"] = codes(bits, 7, 2 * bits // 8)
        inputs.append("z")
    attrs = {"bits": bits, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}
    return Case("GatherBlockQuantized", inputs, {"i": np.array([[1, 6], [0, 3]])}, weights, attrs, opset=21, kinds=["GatherBlockQuantized"])


I8 = rng.integers(-100, 100, (16, 8)).astype(np.int8)
U8 = rng.integers(0, 256, (2, 5, 16)).astype(np.uint8)
ONE = {"as": np.array(0.02, np.float32), "bs": np.array(0.01, np.float32), "az": np.array(120, np.uint8), "bz": np.array(3, np.int8)}

PRODUCTS = {
    "n_bits_4": n_bits(4, 8, 64, 32),
    "n_bits_4_zeros_bias": n_bits(4, 8, 64, 32, zeros=True, bias=True),
    "n_bits_4_odd": n_bits(4, 8, 90, 32, zeros=True),
    "n_bits_2": n_bits(2, 8, 64, 16, zeros=True),
    "n_bits_8": n_bits(8, 8, 64, 32, zeros=True),
    "n_bits_8_default": n_bits(8, 8, 64, 32),
    "n_bits_index": n_bits(4, 8, 64, 32, index=True),
    "gather_4": gathered(4, False),
    "gather_4_zeros": gathered(4, True),
    "gather_8": gathered(8, True),
    "bnb4_nf4": Case(
        "MatMulBnb4", ["x", "b", "p"], {"x": real(3, 32)}, {"b": codes(4, 8 * 16), "p": np.abs(real(16))},
        {"N": 8, "K": 32, "block_size": 16, "quant_type": 1}, kinds=["MatMulBnb4"],
    ),
    "bnb4_fp4": Case(
        "MatMulBnb4", ["x", "b", "p"], {"x": real(3, 32)}, {"b": codes(4, 8 * 16), "p": np.abs(real(16))},
        {"N": 8, "K": 32, "block_size": 16, "quant_type": 0},
    ),
    "dynamic": Case("DynamicQuantizeMatMul", ["x", "b", "bs", "bz", "c"], X, {"b": I8, **ONE, "c": real(8)}),
    "dynamic_columns": Case(
        "DynamicQuantizeMatMul", ["x", "b", "s"], X, {"b": I8, "s": np.abs(real(8)) * 0.01 + 0.001}
    ),
    "integer_static": Case(
        "MatMulIntegerToFloat", ["a", "b", "as", "bs", "az", "bz", "c"], {"a": U8}, {"b": I8, **ONE, "c": real(8)}
    ),
    "integer_moving": Case(
        "MatMulIntegerToFloat", ["a", "b", "as", "bs", "az", "bz"], {"a": U8, "as": np.array(0.02, np.float32)},
        {"b": I8, **{k: v for k, v in ONE.items() if k != "as"}},
    ),
    "q_attention": Case(
        "QAttention", ["a", "w", "c", "as", "bs", "", "az", "bz"], {"a": U8},
        {"w": rng.integers(-100, 100, (16, 48)).astype(np.int8), "c": real(48), **ONE}, {"num_heads": 4},
    ),
    "matmul_integer": Case(
        "MatMulInteger", ["a", "b", "az", "bz"], {"a": U8}, {"b": I8, **ONE}, domain="", opset=18
    ),
    "conv_integer": Case(
        "ConvInteger", ["a", "w", "az"], {"a": rng.integers(0, 256, (1, 3, 6, 6)).astype(np.uint8)},
        {"w": rng.integers(0, 256, (4, 3, 3, 3)).astype(np.uint8), **ONE}, {"pads": [1, 1, 1, 1]}, domain="", opset=18,
    ),
    "fused_matmul": Case("FusedMatMul", ["x", "w"], X, {"w": real(7, 16)}, {"transB": 1, "alpha": 0.5}),
    "fused_matmul_both": Case(
        "FusedMatMul", ["x", "w"], {"x": real(2, 16, 5), "w": real(2, 7, 16)}, {}, {"transA": 1, "transB": 1}
    ),
    "fused_gemm": Case("FusedGemm", ["x", "w", "b"], {"x": real(3, 16)}, {"w": real(16, 7), "b": real(7)}, {"activation": "Relu"}),
}  # fmt: skip

VISION = {
    "fused_conv": Case(
        "FusedConv", ["x", "w", "b"], {"x": real(1, 8, 6, 6)}, {"w": real(4, 8, 3, 3), "b": real(4)},
        {"activation": "LeakyRelu", "activation_params": [0.1], "pads": [1, 1, 1, 1]},
    ),
    "fused_conv_clip": Case(
        "FusedConv", ["x", "w", "", "z"], {"x": real(1, 8, 6, 6), "z": real(1, 4, 4, 4)}, {"w": real(4, 8, 3, 3)},
        {"activation": "Relu"},
    ),
    "nhwc_max_pool": Case(
        "NhwcMaxPool", ["x"], {"x": rng.integers(0, 256, (1, 6, 6, 8)).astype(np.uint8)}, {}, {"kernel_shape": [2, 2], "strides": [2, 2]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", [pytest.param(c, id=name) for t in (NORMS, ATTENTION, PRODUCTS, VISION) for name, c in t.items()])
def test_an_operator_computes_what_onnx_runtime_does(case: Case, tmp_path: Path) -> None:
    graph = agree(case, tmp_path)
    assert all(op.domain == "" for op in graph.ops)
    if case.kinds:
        assert [op.type for op in graph.ops] == list(case.kinds)


ON_THIS_MACHINE = [
    ("skip", True),
    ("multi_head_padding", False),
    ("attention_cache", True),
    ("grouped_decode", True),
    ("n_bits_4_zeros_bias", False),
    ("gather_4", False),
]


@pytest.mark.parametrize(("name", "narrow"), ON_THIS_MACHINE, ids=[n for n, _ in ON_THIS_MACHINE])
def test_it_runs_on_this_machine(name: str, narrow: bool, tmp_path: Path) -> None:
    """Planned for the host, where composites without a kernel are undone and float16 becomes float32."""
    from hetsched.runtime import compile as compile_plan

    case = {**NORMS, **ATTENTION, **PRODUCTS}[name]
    if narrow:
        half = [{k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in d.items()} for d in (case.feeds, case.weights)]
        case = replace(case, feeds=half[0], weights=half[1])
    path = tmp_path / "model.onnx"
    path.write_bytes(case.model().SerializeToString())
    planned = hetsched.plan(path, "host")
    with compile_plan(planned.graph, planned.plan) as executable:
        got = executable.run(dict(case.feeds)).outputs
    s = session(case.model())
    names = [o.name for o in s.get_outputs()]
    for key, value in zip(names, s.run(names, dict(case.feeds)), strict=True):
        assert got[key].dtype == value.dtype
        limit = (1e-2 if narrow else 1e-4) * max(1.0, float(np.abs(value.astype(np.float64)).max()))
        assert np.abs(got[key].astype(np.float64) - value.astype(np.float64)).max() <= limit, key
