"""Every decoder family, small and with seeded weights: a prefill gives what decoding token by token gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.frontends.gguf_frontend import GgufFrontend
from hetsched.graph import DType, Graph, Role
from hetsched.passes import standard
from hetsched.reference import run
from hetsched.states import cache_bytes, kv_bytes_per_token

WriteGguf = Callable[..., Path]
_SPEC = spec_from_file_location("small_decoders", Path(__file__).with_name("small_decoders.py"))
assert _SPEC is not None and _SPEC.loader is not None
small_decoders = module_from_spec(_SPEC)
_SPEC.loader.exec_module(small_decoders)
H, LAYERS, HEADS, KV, D, FFN, VOCAB = (getattr(small_decoders, n) for n in ("H", "LAYERS", "HEADS", "KV", "D", "FFN", "VOCAB"))
FAMILIES, family_model, seeded = small_decoders.FAMILIES, small_decoders.family_model, small_decoders.seeded


@pytest.fixture
def model(write_gguf: WriteGguf) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        metadata, shapes = family_model(name)
        return write_gguf(metadata, seeded(shapes), name)

    return make


def feeds(graph: Graph, ids: np.ndarray[Any, Any], start: int, states: dict[str, Any]) -> dict[str, Any]:
    positions = np.broadcast_to(np.arange(start, start + ids.shape[1]), ids.shape)
    return {n: {"input_ids": ids, "position_ids": positions}.get(n, states.get(n.replace("past.", "present."))) for n in graph.inputs}


@pytest.mark.parametrize("name", FAMILIES)
def test_prefill_is_decoding_step_by_step(model: Callable[[str], Path], name: str) -> None:
    path, batch, tokens = model(name), 2, 9
    ids = np.random.default_rng(4).integers(0, VOCAB, (batch, tokens))
    whole = load(path, {"batch": batch, "tokens": tokens, "past": 0, "logits": tokens})
    want = run(whole, feeds(whole, ids, 0, {}))
    states: dict[str, Any] = {}
    for start, end in ((0, 4), (4, 5), (5, 6), (6, 9)):
        graph = load(path, {"batch": batch, "tokens": end - start, "past": start, "logits": end - start})
        got = run(graph, feeds(graph, ids[:, start:end], start, states))
        states = {n: got[n] for n in graph.outputs if n.startswith("present.")}
        scale = np.abs(want["logits"]).max()
        np.testing.assert_allclose(got["logits"], want["logits"][:, start:end], atol=4e-3 * scale)
    for n in states:
        np.testing.assert_allclose(states[n].astype(np.float32), want[n].astype(np.float32), atol=3e-2)


@pytest.mark.parametrize("name", FAMILIES)
def test_fusion_keeps_the_meaning(model: Callable[[str], Path], name: str) -> None:
    graph = load(model(name), {"tokens": 5, "past": 0})
    fused = standard(graph)
    assert len(fused.ops) <= len(graph.ops)
    ids = np.arange(5)[None]
    want, got = run(graph, feeds(graph, ids, 0, {})), run(fused, feeds(fused, ids, 0, {}))
    np.testing.assert_allclose(got["logits"], want["logits"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_all_weights_are_used(model: Callable[[str], Path], name: str, parameters: Callable[[Graph], int]) -> None:
    _, shapes = family_model(name)
    assert parameters(load(model(name))) == sum(int(np.prod(s)) for s in shapes.values())


def test_phi_2_computes_what_its_layers_say(write_gguf: WriteGguf) -> None:
    """Against the formulas in float64: one layer norm for both blocks, which are added together; half of every head rotated."""
    metadata, shapes = family_model("phi2")
    w = {k: v.astype(np.float64) for k, v in seeded(shapes).items()}
    path = write_gguf(metadata, seeded(shapes), "phi2")
    tokens, turned = 6, D // 2
    ids = np.random.default_rng(2).integers(0, VOCAB, tokens)

    def norm(x: Any, role: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[f"{role}.weight"] + w[f"{role}.bias"]

    def linear(x: Any, role: str) -> Any:
        return x @ w[f"{role}.weight"].T + w[f"{role}.bias"]

    def rotated(x: Any) -> Any:
        angle = np.arange(tokens)[:, None] * 10000.0 ** (-np.arange(0, turned, 2) / turned)
        a, b, rest = x[..., : turned // 2], x[..., turned // 2 : turned], x[..., turned:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle), rest], -1)

    def attended(x: Any, role: str) -> Any:
        q, k, v = (linear(x, f"{role}.attn_{c}").reshape(tokens, -1, D).swapaxes(0, 1) for c in "qkv")
        q, k, v = rotated(q), *(np.repeat(t, HEADS // KV, 0) for t in (rotated(k), v))
        scores = np.where(np.tri(tokens) > 0, q @ k.swapaxes(1, 2) / np.sqrt(D), -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        y = (share / share.sum(-1, keepdims=True)) @ v
        return linear(y.swapaxes(0, 1).reshape(tokens, -1), f"{role}.attn_output")

    x = w["token_embd.weight"][ids]
    for i in range(LAYERS):
        normal = norm(x, f"blk.{i}.attn_norm")
        up = linear(normal, f"blk.{i}.ffn_up")
        gelu = up * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
        x = x + attended(normal, f"blk.{i}") + linear(gelu, f"blk.{i}.ffn_down")
    want = linear(norm(x, "output_norm"), "output")
    graph = load(path, {"tokens": tokens, "past": 0, "logits": tokens})
    got = run(graph, feeds(graph, ids[None], 0, {}))["logits"][0]
    np.testing.assert_allclose(got, want, atol=2e-4 * np.abs(want).max())


def test_defaults_are_a_decode_step_after_512(model: Callable[[str], Path]) -> None:
    graph = load(model("llama"))
    assert dict(graph.dims) == {"batch": 1, "tokens": 1, "past": 512, "logits": 1}
    key = graph.tensors["past.0.key"]
    assert key.role is Role.STATE and key.dtype is DType.F16 and key.shape == (1, KV, 512, D)
    assert graph.tensors["present.2.value"].shape == (1, KV, 513, D)
    assert graph.tensors["logits"].shape == (1, 1, VOCAB)
    assert dict(load(model("llama"), {"tokens": 8}).dims) == {"batch": 1, "tokens": 8, "past": 0, "logits": 1}


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"sequence": 4}, "no dim 'sequence'"),
        ({"tokens": 0}, "tokens=0"),
        ({"tokens": 4, "logits": 5}, "logits=5"),
        ({"past": -1}, "past=-1"),
        ({"tokens": 1 << 20, "batch": 64}, "lower one"),
    ],
)
def test_dims_that_it_does_not_have(model: Callable[[str], Path], dims: dict[str, int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        load(model("llama"), dims)


def test_operators_of_a_llama_layer(model: Callable[[str], Path]) -> None:
    counts = Counter(op.type for op in standard(load(model("llama"))).ops)
    assert counts["GroupQueryAttention"] == LAYERS and counts["RotaryEmbedding"] == counts["SkipRMSNorm"] == 2 * LAYERS
    assert counts["MergedMatMul"] == 2 * LAYERS and counts["Gemm"] == 2 * LAYERS + 1 and counts["SwiGLU"] == LAYERS
    assert counts["RMSNorm"] == 1 and counts["Add"] == 0


def test_names_are_the_file_s_own(model: Callable[[str], Path]) -> None:
    names = {op.name for op in load(model("qwen3")).ops}
    assert {"blk.0.attn_q", "blk.2.ffn_down", "blk.1.attn_q_norm", "token_embd", "output"} <= names


def test_windows_bound_the_cache(model: Callable[[str], Path]) -> None:
    graph = load(model("gemma2"), {"past": 100})
    assert [graph.tensors[f"past.{i}.key"].shape[2] for i in range(LAYERS)] == [3, 100, 3]
    assert [graph.tensors[f"present.{i}.key"].shape[2] for i in range(LAYERS)] == [3, 101, 3]
    assert kv_bytes_per_token(graph) == 2 * LAYERS * KV * D * 2


@pytest.mark.parametrize("name", [f for f in FAMILIES if f != "mamba"])
def test_cache_bytes_per_token(model: Callable[[str], Path], name: str) -> None:
    path = model(name)
    assert kv_bytes_per_token(load(path)) == GgufFrontend().architecture(path).kv_bytes_per_token() == 2 * LAYERS * KV * D * 2


def test_a_state_space_does_not_grow(model: Callable[[str], Path]) -> None:
    short, long = load(model("mamba"), {"past": 1}), load(model("mamba"), {"past": 4000})
    assert kv_bytes_per_token(long) == 0
    assert cache_bytes(short) == cache_bytes(long) == LAYERS * 2 * H * (3 + 8) * 4


def test_only_active_experts_are_counted(model: Callable[[str], Path]) -> None:
    one, many = (load(model("mixtral"), {"tokens": n}) for n in (1, 1000))
    first, last = (next(op for op in g.ops if op.type == "MoE") for g in (one, many))
    assert first.attr_float("active_experts", 0) == 2
    assert first.attr_int("active_weight_bytes", 0) == 2 * 3 * FFN * H * 4
    assert last.attr_int("active_weight_bytes", 0) == 4 * 3 * FFN * H * 4


def test_a_few_layers_without_embedding(write_gguf: WriteGguf) -> None:
    metadata, shapes = family_model("qwen3")
    graph = load(write_gguf(metadata, seeded({k: v for k, v in shapes.items() if k != "token_embd.weight"})), {"tokens": 3})
    assert graph.inputs[0] == "hidden_states" and graph.tensors["last_hidden_state"].shape == (1, 1, H)


def test_shared_experts_are_refused(write_gguf: WriteGguf) -> None:
    metadata, shapes = family_model("qwen3moe")
    with pytest.raises(UnsupportedModelError, match="shared experts"):
        load(write_gguf({**metadata, "qwen3moe.expert_shared_count": 1}, seeded(shapes)))


def test_too_many_experts_are_refused_before_they_cost_anything(write_gguf: WriteGguf) -> None:
    metadata, shapes = family_model("mixtral")
    with pytest.raises(ModelError, match="4000 experts in 1000 layers are more than 65536"):
        load(write_gguf({**metadata, "llama.expert_count": 4000, "llama.block_count": 1000}, seeded(shapes)))
