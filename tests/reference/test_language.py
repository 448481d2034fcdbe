"""The composites of language models against loops that follow their definitions word for word."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.graph import Op
from hetsched.reference import run_op

Array = np.ndarray[Any, Any]


def call(kind: str, inputs: list[Array | None], outputs: int = 1, **attrs: Any) -> list[Array]:
    names = tuple(f"i{k}" if v is not None else "" for k, v in enumerate(inputs))
    return run_op(Op("op", kind, names, tuple(f"o{k}" for k in range(outputs)), attrs), inputs)


def naive_attention(q: Array, k: Array, v: Array, past: int, window: int, scale: float, cap: float) -> Array:
    """``q [tokens, heads, d]``, ``k, v [past + tokens, shared, d]``; one query, one head, one key at a time."""
    out = np.zeros(q.shape)
    for t in range(q.shape[0]):
        for h in range(q.shape[1]):
            g = h * k.shape[1] // q.shape[1]
            weights = {}
            for j in range(past + t + 1):
                if window and past + t - j >= window:
                    continue
                s = scale * sum(float(q[t, h, d]) * float(k[j, g, d]) for d in range(q.shape[2]))
                weights[j] = math.exp(cap * math.tanh(s / cap) if cap else s)
            total = sum(weights.values())
            for j, w in weights.items():
                out[t, h] += w / total * v[j, g]
    return out


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 4), past=st.integers(0, 5), heads=st.integers(1, 2), share=st.integers(1, 3),
    window=st.sampled_from([0, 2, 3, 9]),
    cap=st.sampled_from([0.0, 2.0]), batch=st.integers(1, 2), seed=st.integers(0, 99),
)  # fmt: skip
def test_group_query_attention(tokens: int, past: int, heads: int, share: int, window: int, cap: float, batch: int, seed: int) -> None:
    rng, d = np.random.default_rng(seed), 4
    held = min(past, window - 1) if window else past
    q = rng.standard_normal((batch, tokens, heads * share, d)).astype(np.float32)
    keys, values = (rng.standard_normal((batch, held + tokens, heads, d)).astype(np.float32) for _ in range(2))
    caches: list[Array | None] = [np.moveaxis(c[:, :held], 1, 2) if held else None for c in (keys, values)]
    rows = [q.reshape(batch * tokens, -1), *(c[:, held:].reshape(batch * tokens, -1) for c in (keys, values))]
    attrs = {"num_heads": heads * share, "kv_num_heads": heads, "batch": batch, "window": window, "scale": 0.7, "softcap": cap}
    y, new_keys, new_values = call("GroupQueryAttention", [*rows, *caches], 3, **attrs)
    want = [naive_attention(q[b], keys[b], values[b], held, window, 0.7, cap) for b in range(batch)]
    np.testing.assert_allclose(y.reshape(q.shape), want, rtol=1e-5, atol=1e-5)
    kept = min(held + tokens, window - 1) if window else held + tokens
    for got, all_of in ((new_keys, keys), (new_values, values)):
        np.testing.assert_allclose(got, np.moveaxis(all_of[:, held + tokens - kept :], 1, 2), atol=2e-3)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dim", [0, 4])
@pytest.mark.parametrize("layout", ["heads", "tokens", "rows"])
def test_rotary_embedding_is_onnx_s(interleaved: int, dim: int, layout: str) -> None:
    """The definition of opset 23, as ONNX Runtime (or onnx's own evaluator) computes it."""
    from onnx.reference import ReferenceEvaluator

    rng, batch, heads, tokens, d = np.random.default_rng(1), 2, 3, 5, 8
    x = rng.standard_normal((batch, heads, tokens, d)).astype(np.float32)
    cos, sin = (rng.standard_normal((batch, tokens, (dim or d) // 2)).astype(np.float32) for _ in range(2))
    attrs = {"interleaved": interleaved, "num_heads": heads, **({"rotary_embedding_dim": dim} if dim else {})}
    node = onnx.helper.make_node("RotaryEmbedding", ["x", "c", "s"], ["y"], **attrs)
    infos = [onnx.helper.make_tensor_value_info(n, 1, v.shape) for n, v in (("x", x), ("c", cos), ("s", sin))]
    graph = onnx.helper.make_graph([node], "g", infos, [onnx.helper.make_tensor_value_info("y", 1, None)])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
    want = np.asarray(ReferenceEvaluator(proto).run(None, {"x": x, "c": cos, "s": sin})[0])
    if layout != "heads":
        x, want = (np.moveaxis(a, 1, 2).reshape(batch, tokens, heads * d) for a in (x, want))
    if layout == "rows":
        x, want, cos, sin = (a.reshape(batch * tokens, -1) for a in (x, want, cos, sin))
    np.testing.assert_allclose(call("RotaryEmbedding", [x, cos, sin], **attrs)[0], want, rtol=1e-5, atol=1e-6)


def test_rotary_embedding_reads_tables_by_position() -> None:
    rng = np.random.default_rng(2)
    x, table = rng.standard_normal((1, 2, 3, 4)).astype(np.float32), rng.standard_normal((9, 2)).astype(np.float32)
    at = np.array([[7, 1, 4]])
    (want,) = call("RotaryEmbedding", [x, table[at], table[at] + 1])
    np.testing.assert_array_equal(call("RotaryEmbedding", [x, table, table + 1, at])[0], want)


def test_rms_norm_of_rows_and_of_heads() -> None:
    x, w = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32), np.array([1.0, 2.0, 3.0], np.float32)
    heads = x.reshape(4, 2, 3).astype(np.float64)
    want = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-6) * (1 + w)
    np.testing.assert_allclose(call("RMSNorm", [x, w], epsilon=1e-6, offset=1.0)[0], want.reshape(4, 6), rtol=1e-6)
    whole = np.ones(6, np.float32)
    want = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(call("RMSNorm", [x, whole], epsilon=1e-5)[0], want, rtol=1e-5)


def test_router_and_experts_one_token_at_a_time() -> None:
    rng, experts, k, h, f = np.random.default_rng(4), 5, 2, 6, 7
    x, scores = rng.standard_normal((8, h)).astype(np.float32), rng.standard_normal((8, experts)).astype(np.float32)
    gate, up = (rng.standard_normal((experts, f, h)).astype(np.float32) for _ in range(2))
    down = rng.standard_normal((experts, h, f)).astype(np.float32)
    share, chosen = call("Router", [scores], 2, experts_per_token=k, normalize=1)
    want = np.zeros((8, h))
    for t in range(8):
        best = sorted(range(experts), key=lambda e, t=t: -scores[t, e])[:k]
        total = sum(math.exp(scores[t, e]) for e in best)
        for e in best:
            g = gate[e] @ x[t]
            want[t] += math.exp(scores[t, e]) / total * (down[e] @ (g / (1 + np.exp(-g)) * (up[e] @ x[t])))
    stacked = call("MoE", [x, share, chosen, gate, up, down], num_experts=experts, stacked=1, activation="silu")[0]
    np.testing.assert_allclose(stacked, want, rtol=1e-4, atol=1e-4)
    apart = call("MoE", [x, share, chosen, *gate, *up, *down], num_experts=experts, stacked=0, activation="silu")[0]
    np.testing.assert_allclose(apart, stacked, rtol=1e-6)
    plain, _ = call("Router", [scores], 2, experts_per_token=k, normalize=0)
    assert (plain.sum(-1) < share.sum(-1)).all()


def test_causal_convolution_is_onnx_conv_with_padding() -> None:
    rng, batch, tokens, c, k = np.random.default_rng(5), 2, 6, 3, 4
    x, w = rng.standard_normal((batch, tokens, c)).astype(np.float32), rng.standard_normal((c, k)).astype(np.float32)
    bias = rng.standard_normal(c).astype(np.float32)
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[{batch},{c},{tokens}] x, float[{c},1,{k}] w, float[{c}] b) => (float[{batch},{c},{tokens}] y)
        {{ y = Conv<group={c}, pads=[{k - 1},0]>(x, w, b) }}"""
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, {"x": np.ascontiguousarray(x.swapaxes(1, 2)), "w": w[:, None], "b": bias})[0].swapaxes(1, 2)
    y, state = call("CausalConv", [x.reshape(-1, c), w, bias, None], 2, batch=batch)
    np.testing.assert_allclose(y.reshape(x.shape), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(state, x[:, tokens - k + 1 :].swapaxes(1, 2))


def test_selective_scan_one_number_at_a_time() -> None:
    rng, tokens, c, s = np.random.default_rng(6), 4, 3, 2
    x, step = (rng.standard_normal((tokens, c)).astype(np.float32) for _ in range(2))
    into, out = (rng.standard_normal((tokens, s)).astype(np.float32) for _ in range(2))
    decay, skip = -np.exp(rng.standard_normal((c, s))).astype(np.float32), rng.standard_normal(c).astype(np.float32)
    h, want = np.zeros((c, s)), np.zeros((tokens, c))
    for t in range(tokens):
        for i in range(c):
            delta = math.log1p(math.exp(step[t, i]))
            for j in range(s):
                h[i, j] = math.exp(delta * decay[i, j]) * h[i, j] + delta * into[t, j] * x[t, i]
                want[t, i] += out[t, j] * h[i, j]
            want[t, i] += skip[i] * x[t, i]
    y, state = call("SelectiveScan", [x, step, decay, into, out, skip, None], 2, batch=1)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state[0], h, rtol=1e-5, atol=1e-6)
    again, _ = call("SelectiveScan", [x, step, np.log(-decay), into, out, skip, None], 2, batch=1, logarithmic=1)
    np.testing.assert_allclose(again, y, rtol=1e-5, atol=1e-6)
