"""Operators that ONNX Runtime has no CPU kernel for, states, packed weights, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import DType, Graph, Role
from hetsched.passes import for_soc, standard
from hetsched.reference import run
from hetsched.small_types import pack, unpack
from hetsched.soc_files import load_soc
from hetsched_cost_models import build_table
from hetsched_cost_models.matrices import matrix_work
from hetsched_cost_models.work import work_of

MS = "com.microsoft"
PHONES = ("snapdragon-8-gen-3", "dimensity-9300", "apple-a17-pro")
Write = Callable[..., Graph]


@pytest.fixture
def one(tmp_path: Path) -> Write:
    """Load a model of one node; floats and integers by shape, constants by value."""

    def write(
        kind: str, inputs: Sequence[str], shapes: dict[str, Any], weights: dict[str, Any] | None = None,
        attrs: dict[str, Any] | None = None, outputs: Sequence[str] = ("y",), domain: str = MS, opset: int = 21,
    ) -> Graph:  # fmt: skip
        node = helper.make_node(kind, inputs, outputs, "node", domain=domain, **(attrs or {}))
        infos = [helper.make_tensor_value_info(k, *(v if isinstance(v, tuple) else (TensorProto.FLOAT, v))) for k, v in shapes.items()]
        values = [v if isinstance(v, TensorProto) else numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()]
        graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=o) for o in outputs if o], values)
        imports = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
        path = tmp_path / "model.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString())
        return load(path)

    return write


def test_a_window_is_what_attention_computes_and_reads(one: Write) -> None:
    """One token after 4096: a window of w reads w - 1 cached positions and writes one."""
    heads, shared, dim, past = 4, 2, 16, 4096

    def work(window: int) -> tuple[float, float]:
        caches = {n: (TensorProto.FLOAT16, [1, shared, past, dim]) for n in ("pk", "pv")}
        new = {n: (TensorProto.FLOAT16, [1, 1, k * dim]) for n, k in (("q", heads), ("k", shared), ("v", shared))}
        counts = {"n": np.array([past], np.int32), "t": np.array(past + 1, np.int32)}
        attrs = {"num_heads": heads, "kv_num_heads": shared, "local_window_size": window}
        names = ["q", "k", "v", "pk", "pv", "n", "t"]
        graph = standard(one("GroupQueryAttention", names, {**new, **caches}, counts, attrs, ["y", "present_key", "present_value"]))
        plan_everywhere(graph)
        found = [op for op in graph.ops if op.type == "GroupQueryAttention"]
        assert [op.attr_int("window", 0) for op in found] == [max(window, 0)] and graph.tensors["present_key"].shape[2] == past + 1
        done = work_of(graph)
        return done.macs.sum(), done.state_bytes.sum()

    for window, seen in ((-1, past + 1), (256, 256), (2048, 2048)):
        assert work(window) == (2 * heads * dim * seen, 2 * shared * dim * 2 * seen), window


def plan_everywhere(graph: Graph) -> None:
    for name in PHONES:
        soc = load_soc(name)
        table = build_table(for_soc(standard(graph), soc), soc)
        assert not [n for n in table.notes if "bytes only" in n]


def test_channels_last_convolution_and_group_norm(one: Write) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 5, 5, 4)).astype(np.float32), rng.standard_normal((6, 4, 3, 3)).astype(np.float32)
    graph = one("NhwcConv", ["x", "w"], {"x": [1, 5, 5, 4]}, {"w": w})
    assert graph.tensors["y"].shape == (1, 3, 3, 6)
    patches = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    np.testing.assert_allclose(run(graph, {"x": x})["y"], np.einsum("nhwcij,ocij->nhwo", patches, w), rtol=1e-4, atol=1e-4)

    scale, bias = rng.standard_normal((2, 4)).astype(np.float32)
    graph = one("GroupNorm", ["x", "s", "b"], {"x": [1, 5, 5, 4]}, {"s": scale, "b": bias}, {"groups": 2, "epsilon": 1e-5, "activation": 1})
    groups = x.reshape(25, 2, 2).astype(np.float64)
    normal = (groups - groups.mean((0, 2), keepdims=True)) / np.sqrt(groups.var((0, 2), keepdims=True) + 1e-5)
    z = normal.reshape(x.shape) * scale + bias
    np.testing.assert_allclose(run(graph, {"x": x})["y"], z / (1 + np.exp(-z)), rtol=1e-4, atol=1e-4)
    plan_everywhere(graph)

    graph = one(
        "SkipGroupNorm", ["x", "s", "b", "z"], {"x": [1, 5, 5, 4], "z": [1, 4]}, {"s": scale, "b": bias}, {"groups": 2}, ["y", "sum"]
    )
    got = run(graph, {"x": x, "z": np.ones((1, 4), np.float32)})
    np.testing.assert_allclose(got["sum"], x + 1, rtol=1e-6)


def test_packed_queries_keys_and_values(one: Write) -> None:
    rng = np.random.default_rng(1)
    packed = rng.standard_normal((2, 5, 4, 3, 8)).astype(np.float32)
    graph = one("MultiHeadAttention", ["q"], {"q": [2, 5, 4, 3, 8]}, {}, {"num_heads": 4})
    q, k, v = (np.moveaxis(packed[:, :, :, i], 1, 2).astype(np.float64) for i in range(3))
    scores = np.exp(q @ np.swapaxes(k, 2, 3) / np.sqrt(8))
    expected = np.moveaxis(scores / scores.sum(-1, keepdims=True) @ v, 1, 2).reshape(2, 5, 32)
    np.testing.assert_allclose(run(graph, {"q": packed})["y"], expected, rtol=1e-4, atol=1e-5)


def test_caches_are_states(one: Write) -> None:
    graph = one(
        "GroupQueryAttention", ["q", "k", "v", "pk", "pv", "n", "t"],
        {"q": [1, 1, 64], "k": [1, 1, 32], "v": [1, 1, 32], "pk": [1, 2, 511, 16], "pv": [1, 2, 511, 16],
         "n": (TensorProto.INT32, [1]), "t": (TensorProto.INT32, [])},
        {}, {"num_heads": 4, "kv_num_heads": 2}, ["y", "k2", "v2"],
    )  # fmt: skip
    assert [op.type for op in graph.ops] == ["Reshape", "Reshape", "Reshape", "GroupQueryAttention", "Reshape"]
    assert graph.states == {"k2": "pk", "v2": "pv"}
    assert {n for n, t in graph.tensors.items() if t.role is Role.STATE} == {"pk", "pv", "k2", "v2"}
    assert work_of(graph).macs.sum() == 2 * 4 * 16 * 512
    plan_everywhere(graph)


def test_mixtures_of_experts_are_costed_by_the_experts_in_use(one: Write) -> None:
    rng = np.random.default_rng(2)
    shapes = {"x": [3, 64], "r": [3, 8]}
    fc1, fc2 = (rng.standard_normal((8, *s)).astype(np.float32) for s in ((128, 64), (64, 128)))
    plain = one("MoE", ["x", "r", "a", "", "b"], shapes, {"a": fc1, "b": fc2}, {"k": 2, "activation_type": "gelu"})
    codes = {"a": np.zeros((8, 128, 32), np.uint8), "b": np.zeros((8, 64, 64), np.uint8)}
    scales = {"as": np.ones((8, 128), np.float32), "bs": np.ones((8, 64), np.float32)}
    packed = one("QMoE", ["x", "r", "a", "as", "", "b", "bs"], shapes, {**codes, **scales}, {"k": 2, "expert_weight_bits": 4})
    macs = 3 * 2 * 2 * 64 * 128
    for graph, stored in ((plain, fc1.nbytes + fc2.nbytes), (packed, sum(c.nbytes for c in codes.values()))):
        assert graph.tensors["y"].shape == (3, 64)
        assert work_of(graph).macs.sum() == macs
        assert graph.ops[0].attr_float("active_weight_bytes", 0) == pytest.approx(stored * (1 - 0.75**3), rel=1e-3)
        plan_everywhere(graph)


def test_dynamic_quantize_lstm_plans_with_its_integer_weights(one: Write) -> None:
    weights = {
        "w": np.ones((1, 16, 32), np.int8), "r": np.ones((1, 8, 32), np.int8), "ws": np.full(1, 0.1, np.float32),
        "wz": np.zeros(1, np.int8), "rs": np.full((1, 32), 0.1, np.float32), "rz": np.zeros((1, 32), np.int8),
    }  # fmt: skip
    inputs = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    graph = one("DynamicQuantizeLSTM", inputs, {"x": [5, 2, 16]}, weights, {"hidden_size": 8}, ["y", "h", "c"])
    assert graph.tensors["y"].shape == (5, 1, 2, 8)
    assert matrix_work(graph, graph.ops[0]).macs == 5 * 2 * (16 + 8) * 32
    assert graph.tensors["w"].dtype is DType.I8
    plan_everywhere(graph)


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs"),
    [
        ("BeamSearch", ["x"], {}), ("GreedySearch", ["x"], {}), ("Sampling", ["x"], {}), ("PackedAttention", ["x"], {}),
        ("DecoderMaskedMultiHeadAttention", ["x"], {}), ("MatMulNBits", ["x", "x", "x"], {"N": 4, "K": 4, "bits": 3}),
        ("FusedMatMul", ["x", "x"], {"transBatchA": 1}), ("FusedConv", ["x", "x"], {"activation": "Softmax"}),
        ("MultiHeadAttention", ["x", "x", "x"], {}), ("GroupQueryAttention", ["x", "x", "x"], {"num_heads": 2}),
    ],
)  # fmt: skip
def test_what_is_not_handled_is_refused_by_name(one: Write, kind: str, inputs: list[str], attrs: dict[str, Any]) -> None:
    with pytest.raises((UnsupportedModelError, ModelError), match="'node'"):
        one(kind, inputs, {"x": [1, 4, 4]}, {}, attrs)


@pytest.mark.parametrize("shape", [(4, 2, 8), (4, 1, 16), (3, 2, 16), (0,)])
def test_weights_of_another_size_are_damage(one: Write, shape: tuple[int, ...]) -> None:
    weights = {"b": np.zeros(shape, np.uint8), "s": np.ones((4, 2), np.float32)}
    attrs = {"N": 4, "K": 64, "bits": 4, "block_size": 32}
    with pytest.raises(ModelError, match="'node'"):
        one("MatMulNBits", ["x", "b", "s"], {"x": [1, 64]}, weights, attrs)


@given(st.sampled_from([1, 2, 4, 8]), st.lists(st.integers(0, 255), max_size=40))
def test_packing_is_undone(bits: int, values: list[int]) -> None:
    codes = np.array(values, np.int64) & ((1 << bits) - 1)
    raw = pack(codes, bits)
    assert raw.nbytes == -(-len(values) * bits // 8)
    assert unpack(raw, bits, len(values)).tolist() == codes.tolist()


@given(
    bits=st.sampled_from([2, 4, 8]), group=st.sampled_from([16, 32]), k=st.integers(1, 100), n=st.integers(1, 5), zeros=st.booleans(),
    seed=st.integers(0, 1 << 20),
)  # fmt: skip
def test_weights_of_a_few_bits_mean_what_their_formula_says(
    tmp_path_factory: pytest.TempPathFactory, bits: int, group: int, k: int, n: int, zeros: bool, seed: int
) -> None:
    """Packed by hand from codes, they multiply as ``scale * (code - zero point)``."""
    rng = np.random.default_rng(seed)
    blocks = -(-k // group)
    codes = rng.integers(0, 1 << bits, (n, blocks * group))
    points = rng.integers(0, 1 << bits, (n, blocks)) if zeros else np.full((n, blocks), 1 << (bits - 1))
    scales = rng.uniform(0.1, 1, (n, blocks)).astype(np.float32)
    x = rng.standard_normal((2, k)).astype(np.float32)
    packed = {"b": pack(codes, bits).reshape(n, blocks, -1), "s": scales}
    if zeros:
        packed["z"] = np.stack([pack(row, bits) for row in points])
    node = helper.make_node("MatMulNBits", ["x", *packed], ["y"], "node", domain=MS, N=n, K=k, bits=bits, block_size=group)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, [2, k])], [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(v, name) for name, v in packed.items()],
    )  # fmt: skip
    path = tmp_path_factory.mktemp("bits") / "m.onnx"
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString())
    loaded = load(path)
    real = (codes - np.repeat(points, group, 1)) * np.repeat(scales, group, 1).astype(np.float64)
    np.testing.assert_allclose(run(loaded, {"x": x})["y"], x @ real[:, :k].T, rtol=1e-4, atol=1e-4)
    w = loaded.tensors[loaded.ops[0].inputs[1]]
    assert (w.shape, w.dtype.bits, w.nbytes) == ((n, blocks * group), bits, packed["b"].nbytes)
    assert w.quantization is not None and (w.quantization.granularity, w.quantization.group) == ("group", group)


def test_packed_weights_are_counted_as_they_are_stored(one: Write) -> None:
    weights = {"b": np.zeros((64, 4, 16), np.uint8), "s": np.ones((64, 4), np.float32)}
    graph = one("MatMulNBits", ["x", "b", "s"], {"x": [1, 128]}, weights, {"N": 64, "K": 128, "bits": 4, "block_size": 32})
    work = work_of(graph)
    assert work.macs.sum() == 64 * 128
    assert work.weight_fixed_bytes.sum() == 64 * 128 / 2
    assert work.weight_float_elems.sum() == 64 * 4
    refused = build_table(graph, load_soc("dimensity-9300")).refusals[0]
    assert any("MatMulNBits is not in the operator list" in r.reason for r in refused)
    plan_everywhere(graph)


def test_shapes_of_newer_and_rarer_operators(one: Write) -> None:
    signal = one("DFT", ["x", "", "a"], {"x": [1, 16, 1]}, {"a": np.array(1)}, {"onesided": 1}, domain="", opset=20)
    assert signal.tensors["y"].shape == (1, 9, 2)
    cache = one(
        "TensorScatter", ["p", "u", "i"], {"p": [2, 4, 16, 8], "u": [2, 4, 1, 8], "i": (TensorProto.INT64, [2])}, domain="", opset=24
    )
    assert cache.tensors["y"].shape == (2, 4, 16, 8)
    plan_everywhere(cache)
    grid = one("AffineGrid", ["t", "s"], {"t": [1, 2, 3]}, {"s": np.array([1, 3, 4, 5])}, domain="", opset=20)
    assert grid.tensors["y"].shape == (1, 4, 5, 2)
    plan_everywhere(grid)


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs"),
    [
        ("MatMulNBits", ["x", "w", "s", "", "i"], {"N": 4, "K": 1 << 40, "bits": 4, "block_size": 32}),
        ("MatMulBnb4", ["x", "w", "s"], {"N": 1 << 20, "K": 1 << 20, "block_size": 64}),
        ("MultiHeadAttention", ["long", "long", "long", "", "n"], {"num_heads": 1}),
        ("MultiHeadAttention", ["long", "long", "long"], {"num_heads": 1, "unidirectional": 1}),
        ("RotaryEmbedding", ["long", "one", "s", "s"], {}),
        ("GroupQueryAttention", ["long", "long", "long", "", "", "n", "n", "s", "s"], {"num_heads": 1, "kv_num_heads": 1, "do_rotary": 1}),
    ],
)  # fmt: skip
def test_absurd_sizes_take_no_memory(one: Write, kind: str, inputs: list[str], attrs: dict[str, Any]) -> None:
    shapes = {"x": [1, 64], "long": [1, 1 << 30, 4], "n": (TensorProto.INT32, [1]), "one": (TensorProto.INT64, [1])}
    weights = {"w": np.zeros((4, 2, 16), np.uint8), "s": np.ones((4, 2), np.float32), "i": np.zeros(64, np.int32)}
    with pytest.raises((UnsupportedModelError, ModelError), match="'node'"):
        one(kind, inputs, {k: v for k, v in shapes.items() if k in inputs}, {k: v for k, v in weights.items() if k in inputs}, attrs)
