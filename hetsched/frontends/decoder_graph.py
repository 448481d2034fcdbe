"""The graph of one phase of a decoder language model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hetsched.frontends.decoder_architecture import Architecture
from hetsched.frontends.decoder_attention import Layer, attention, normalised
from hetsched.frontends.decoder_builder import GraphBuilder
from hetsched.frontends.decoder_feedforward import feed_forward
from hetsched.frontends.decoder_mamba import mamba
from hetsched.frontends.decoder_phase import Phase
from hetsched.frontends.decoder_rope import RotaryTables
from hetsched.frontends.decoder_weights import Weights
from hetsched.graph import DType, Graph, Tensor


def build(architecture: Architecture, weights: Weights, phase: Phase, name: str, source: Path, sha256: str) -> Graph:
    """Build the graph.

    Inputs are ``input_ids`` and ``position_ids`` ``[batch, tokens]`` (int64) and the caches ``past.<layer>.key`` and
    ``.value`` ``[batch, kv heads, past, head_dim]`` (Mamba: ``.conv`` and ``.scan``), outputs ``logits``
    ``[batch, logits, vocab]`` and the caches ``present.…``. In between every activation is a matrix with a row per token.
    A file without an embedding (a few layers of a model) is planned from ``hidden_states`` on.

    Raises:
        ModelError: a weight is absent or has another shape than the architecture says.
        UnsupportedModelError: the architecture has something that is not handled.
    """
    b = GraphBuilder(name)
    table = weights.find("token_embd.weight", architecture.vocab, architecture.hidden)
    x = _embedded(b, architecture, weights, phase, table)
    rotary = _rotary(b, architecture, weights, phase)
    for i in range(architecture.layers):
        prefix = weights.module(f"blk.{i}.weight")
        x = _layer(Layer(b, architecture, weights, phase, i, prefix), x, rotary)
    x = normalised(b, architecture, weights, "output_norm", x)
    _logits(b, architecture, weights, phase, x, table)
    return b.graph(source, sha256, phase.dims)


def _embedded(b: GraphBuilder, a: Architecture, weights: Weights, phase: Phase, table: Tensor | None) -> str:
    if table is None:
        states = b.input("hidden_states", (phase.batch, phase.tokens, a.hidden))
        return b.reshape("hidden_rows", states, (phase.rows, a.hidden))
    ids = b.input("input_ids", (phase.batch, phase.tokens), DType.I64)
    x = b.emit("Gather", weights.module("token_embd.weight"), [b.weight(table), ids], (phase.batch, phase.tokens, a.hidden), axis=0)
    x = b.reshape("embedding_rows", x, (phase.rows, a.hidden))
    if a.embedding_scale == 1.0:
        return x
    return b.binary("Mul", "embedding_scaled", x, b.scalar("embedding_scale", a.embedding_scale))


def _rotary(b: GraphBuilder, a: Architecture, weights: Weights, phase: Phase) -> RotaryTables:
    if a.rope is None:
        return RotaryTables(b, "", 0)
    positions = b.input("position_ids", (phase.batch, phase.tokens), DType.I64)
    pairs = a.rope.dim // 2
    divisors = weights.find("rope_freqs.weight", pairs, expected=False)
    if divisors is None:
        longer = a.rope.original and phase.past + phase.tokens > a.rope.original
        divisors = weights.find(f"rope_factors_{'long' if longer else 'short'}.weight", pairs, expected=False)
    return RotaryTables(b, positions, phase.past + phase.tokens, divisors)


def _layer(layer: Layer, x: str, rotary: RotaryTables) -> str:
    """One residual layer, with norms after the blocks where the model has them, or with both blocks side by side."""
    a, b = layer.architecture, layer.builder
    if a.state_space is not None:
        return b.binary("Add", f"{layer.name}.residual", x, mamba(layer, layer.norm("attn_norm", x), a.state_space))
    if a.parallel:
        normal = layer.norm("attn_norm", x)
        y = b.binary("Add", f"{layer.name}.blocks", attention(layer, normal, rotary), feed_forward(layer, normal))
        return b.binary("Add", f"{layer.name}.residual", x, y)
    y = _post_norm(layer, "post_attention_norm", attention(layer, layer.norm("attn_norm", x), rotary))
    x = b.binary("Add", f"{layer.name}.residual_attention", x, y)
    y = _post_norm(layer, "post_ffw_norm", feed_forward(layer, layer.norm("ffn_norm", x)))
    return b.binary("Add", f"{layer.name}.residual_ffn", x, y)


def _post_norm(layer: Layer, role: str, x: str) -> str:
    assumed = layer.weights.tensors is None and layer.architecture.has_post_norms
    return layer.norm(role, x) if assumed or layer.weights.has(f"blk.{layer.index}.{role}.weight") else x


def _logits(b: GraphBuilder, a: Architecture, weights: Weights, phase: Phase, x: str, table: Tensor | None) -> None:
    """The last positions' scores; the hidden states where the file has no head."""
    head = weights.find("output.weight", a.vocab, a.hidden, expected=not a.tied) or table
    x = _last(b, phase, x)
    if head is None:
        b.output(_shaped(b, "last_hidden_state", x, phase, a.hidden))
        return
    name = weights.module("output.weight")
    x = b.linear(name, x, head, weights.find("output.bias", a.vocab, expected=a.has_head_bias))
    if a.logit_cap:
        x = b.binary("Div", "logits_divided", x, b.scalar("logit_cap", a.logit_cap))
        x = b.binary("Mul", "logits_capped", b.unary("Tanh", "logits_tanh", x), "logit_cap")
    b.output(_shaped(b, "logits", x, phase, a.vocab))


def _last(b: GraphBuilder, phase: Phase, x: str) -> str:
    if phase.logits == phase.tokens:
        return x
    rows = np.arange(phase.batch)[:, None] * phase.tokens + np.arange(phase.tokens - phase.logits, phase.tokens)
    index = b.array("last_rows", rows.reshape(-1).astype(np.int64))
    return b.emit("Gather", "last_positions", [x, index], (rows.size, b.shape(x)[-1]), axis=0)


def _shaped(b: GraphBuilder, name: str, x: str, phase: Phase, width: int) -> str:
    shape = (phase.batch, phase.logits, width)
    wanted = b.array(f"{name}.shape", np.asarray(shape, np.int64))
    return b.emit("Reshape", name, [x, wanted], shape)
