"""Language models on the kernels: weights in blocks and groups, norms, rotary embedding, attention over a cache; a real model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.graph import AttrValue, DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.plans import Plan
from hetsched.reference import run as reference
from hetsched.reference.gguf_types import BY_NAME, SCHEME, decode
from hetsched.runtime import compile as compile_plan
from hetsched.runtime import supported

HandPlan = Callable[..., Plan]
MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-q4_1.gguf"
KINDS = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "TQ2_0")


def noise(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def one_op(
    kind: str, feeds: Mapping[str, Any], constants: Mapping[str, Any], outputs: Mapping[str, tuple[tuple[int, ...], DType]],
    inputs: tuple[str, ...], **attrs: AttrValue,
) -> Graph:  # fmt: skip
    """A graph of one operator; a constant is an array or a finished tensor."""
    tensors = {n: Tensor(n, a.shape, DType(_DTYPES[a.dtype.name]), Role.INPUT) for n, a in feeds.items()}
    for n, value in constants.items():
        ready = isinstance(value, Tensor)
        tensors[n] = value if ready else Tensor(n, value.shape, DType.F32, Role.WEIGHT, None, WeightRef(array=value))
    tensors |= {n: Tensor(n, shape, dtype, Role.OUTPUT) for n, (shape, dtype) in outputs.items()}
    return Graph("one", tensors, (Op("op", kind, inputs, tuple(outputs), attrs),), tuple(feeds), tuple(outputs))


_DTYPES = {"float32": "f32", "float16": "f16", "int64": "i64"}


def on_kernels(graph: Graph, plan_by_hand: HandPlan, feeds: Mapping[str, Any], precision: str = "f32") -> dict[str, Any]:
    assert supported(graph.ops[0], graph, precision) is None
    with compile_plan(graph, plan_by_hand(graph, precision=lambda i: precision)) as executable:
        return executable.run(feeds).outputs


def blocks(kind: str, rows: int, cols: int) -> Tensor:
    """A weight in blocks of any bytes, with finite scales."""
    from hetsched_kernels.comparison_language import gguf_blocks

    layout = BY_NAME[kind]
    raw = gguf_blocks(np.random.default_rng(1), kind, rows, cols)
    return Tensor("w", (rows, cols), layout.dtype, Role.WEIGHT, layout.quantization, WeightRef(array=raw))


def snr_db(got: Any, want: Any) -> float:
    return float(10 * np.log10((want.astype(float) ** 2).sum() / ((got.astype(float) - want) ** 2).sum()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 5])
def test_products_with_weights_in_blocks(plan_by_hand: HandPlan, kind: str, m: int) -> None:
    """At f32 the weights are decoded; at w8a8 only the activations lose something."""
    w, feeds = blocks(kind, 37, 512), {"x": noise(m, 512)}
    outputs = {"y": ((m, 37), DType.F32)}
    graph = one_op("Gemm", feeds, {"w": w, "b": noise(37, seed=2)}, outputs, ("x", "w", "b"), transB=1)
    want = feeds["x"].astype(np.float64) @ decode(kind, w.numpy()).reshape(37, 512).T + noise(37, seed=2)
    scale = np.abs(want).max()
    np.testing.assert_allclose(on_kernels(graph, plan_by_hand, feeds)["y"], want, rtol=1e-5, atol=1e-5 * scale)
    assert snr_db(on_kernels(graph, plan_by_hand, feeds, "w8a8")["y"], want) > 38


def test_rows_of_a_table_in_blocks(plan_by_hand: HandPlan) -> None:
    w, feeds = blocks("Q8_0", 11, 64), {"ids": np.array([[3, 10, 0]])}
    graph = one_op("Gather", feeds, {"w": w}, {"y": ((1, 3, 64), DType.F32)}, ("w", "ids"), axis=0)
    want = decode("Q8_0", w.numpy()).reshape(11, 64)[feeds["ids"]]
    np.testing.assert_array_equal(on_kernels(graph, plan_by_hand, feeds)["y"], want)


def test_what_has_no_direct_product_is_refused(plan_by_hand: HandPlan) -> None:
    feeds = {"x": noise(2, 256)}
    graph = one_op("Gemm", feeds, {"w": blocks("TQ2_0", 8, 256)}, {"y": ((2, 8), DType.F32)}, ("x", "w"), transB=1, alpha=2.0)
    assert supported(graph.ops[0], graph, "f32") is None
    assert "is not used as rows of a plain product" in str(supported(graph.ops[0], graph, "w8a8"))
    unknown = Tensor("w", (8, 256), DType.I4, Role.WEIGHT, BY_NAME["IQ2_S"].quantization, WeightRef(array=np.zeros(8 * 82, np.uint8)))
    graph = one_op("Gemm", feeds, {"w": unknown}, {"y": ((2, 8), DType.F32)}, ("x", "w"), transB=1)
    assert f"weights stored as {SCHEME}IQ2_S" in str(supported(graph.ops[0], graph, "f32"))


@pytest.mark.parametrize("zeros", [False, True])
def test_n_bits_are_computed_on_directly(plan_by_hand: HandPlan, tmp_path: Path, zeros: bool) -> None:
    import onnx
    from onnx import helper, numpy_helper

    n, k, group = 21, 80, 32
    rng, blocks_of = np.random.default_rng(0), -(-k // group)
    packed = rng.integers(0, 256, (n, blocks_of, group // 2)).astype(np.uint8)
    values: dict[str, Any] = {"w": packed, "s": rng.random(n * blocks_of).astype(np.float32)}
    if zeros:
        values["z"] = rng.integers(0, 256, n * -(-blocks_of // 2)).astype(np.uint8)
    node = helper.make_node("MatMulNBits", ["x", *values], ["y"], "node", domain="com.microsoft", N=n, K=k, bits=4, block_size=group)
    shapes = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [3, k]), ("y", [3, n]))]
    made = helper.make_graph([node], "g", shapes[:1], shapes[1:], [numpy_helper.from_array(v, name) for name, v in values.items()])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    graph, feeds = load(tmp_path / "m.onnx"), {"x": noise(3, k)}
    assert [op.type for op in graph.ops] == ["MatMulNBits"]
    want = reference(graph, feeds)["y"]
    np.testing.assert_allclose(on_kernels(graph, plan_by_hand, feeds)["y"], want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    assert snr_db(on_kernels(graph, plan_by_hand, feeds, "w8a8")["y"], want) > 38


@pytest.mark.parametrize(("size", "offset"), [(24, 0.0), (8, 0.0), (24, 1.0)])
def test_rms_norm(plan_by_hand: HandPlan, size: int, offset: float) -> None:
    feeds = {"x": noise(5, 24)}
    graph = one_op("RMSNorm", feeds, {"s": noise(size, seed=1)}, {"y": ((5, 24), DType.F32)}, ("x", "s"), epsilon=1e-3, offset=offset)
    np.testing.assert_allclose(on_kernels(graph, plan_by_hand, feeds)["y"], reference(graph, feeds)["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dim", [16, 10])
def test_rotary_embedding(plan_by_hand: HandPlan, interleaved: int, dim: int) -> None:
    feeds = {"x": noise(4, 3 * 16), "cos": noise(4, dim // 2, seed=1), "sin": noise(4, dim // 2, seed=2)}
    attrs: dict[str, AttrValue] = {"num_heads": 3, "interleaved": interleaved, "rotary_embedding_dim": dim}
    graph = one_op("RotaryEmbedding", feeds, {}, {"y": ((4, 48), DType.F32)}, ("x", "cos", "sin"), **attrs)
    np.testing.assert_allclose(on_kernels(graph, plan_by_hand, feeds)["y"], reference(graph, feeds)["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("batch", "tokens", "past", "window", "softcap", "cache"),
    [
        (1, 7, 0, 0, 0.0, "float16"),
        (2, 1, 9, 0, 0.0, "float16"),
        (2, 4, 5, 6, 0.0, "float32"),
        (1, 1, 5, 6, 3.0, "float16"),
        (1, 300, 0, 40, 0.0, "float16"),
    ],
)
def test_attention_over_a_cache(
    plan_by_hand: HandPlan, batch: int, tokens: int, past: int, window: int, softcap: float, cache: str
) -> None:  # fmt: skip
    heads, shared, dim, rows = 6, 2, 20, batch * tokens
    feeds = {n: noise(rows, h * dim, seed=i) for i, (n, h) in enumerate([("q", heads), ("k", shared), ("v", shared)])}
    if past:
        feeds |= {n: noise(batch, shared, past, dim, seed=i).astype(cache) for i, n in enumerate(["pk", "pv"], 5)}
    kept = min(past + tokens, window - 1) if window else past + tokens
    dtype = DType(_DTYPES[cache])
    outputs = {"y": ((rows, heads * dim), DType.F32), **dict.fromkeys(("ck", "cv"), ((batch, shared, kept, dim), dtype))}
    inputs = ("q", "k", "v", *(("pk", "pv") if past else ("", "")))
    attrs: dict[str, AttrValue] = {
        "num_heads": heads, "kv_num_heads": shared, "head_dim": dim, "batch": batch, "window": window, "scale": 0.3, "softcap": softcap,
    }  # fmt: skip
    graph = one_op("GroupQueryAttention", feeds, {}, outputs, inputs, **attrs)
    got, want = on_kernels(graph, plan_by_hand, feeds), reference(graph, feeds)
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-4, atol=1e-5)
    for name in ("ck", "cv"):
        np.testing.assert_array_equal(got[name], want[name].astype(cache))


def test_the_next_token_is_the_most_likely(plan_by_hand: HandPlan) -> None:
    feeds = {"x": noise(3, 50)}
    graph = one_op("Sample", feeds, {}, {"y": ((3,), DType.I64)}, ("x",), method="greedy")
    assert on_kernels(graph, plan_by_hand, feeds)["y"].tolist() == feeds["x"].argmax(1).tolist()
    graph = one_op("Sample", feeds, {}, {"y": ((3,), DType.I64)}, ("x",), method="beam")
    assert supported(graph.ops[0], graph, "f32") == "there is no kernel for sampling with beam: choose greedy, top_k or top_p"


#: The prompt and the greedy answer of ``tests/frontends/test_smollm2.py``.
PROMPT = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
ANSWER = [504, 3575, 282, 4649, 314, 7042, 30, 2]


@pytest.mark.real_models
@pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL.name} is absent: run 'make models'")
@pytest.mark.parametrize("precision", ["f32", "w8a8"])
def test_the_capital_of_france(plan_by_hand: HandPlan, precision: str) -> None:
    """A prefill of prompt and answer, by a plan: every position predicts the next token of the answer."""
    ids = np.array([PROMPT + ANSWER[:-1]])
    graph = load(MODEL, {"tokens": ids.size, "past": 0, "logits": len(ANSWER)})
    plan = plan_by_hand(graph, precision=lambda i: precision if graph.ops[i].type == "Gemm" else "f32")
    with compile_plan(graph, plan) as executable:
        logits = executable.run({"input_ids": ids, "position_ids": np.arange(ids.size)[None]}).outputs["logits"]
    assert logits[0].argmax(-1).tolist() == ANSWER
