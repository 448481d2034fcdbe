"""Whisper from its configuration: the encoder, and a decoder step with its caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hetsched.errors import ModelError, OptionError
from hetsched.frontends.decoder_builder import GraphBuilder
from hetsched.frontends.decoder_fields import MAX_LAYERS, Fields
from hetsched.frontends.decoder_phase import Phase, bind
from hetsched.frontends.hf_files import Folder
from hetsched.frontends.hf_layers import Layers, bound, prefixed
from hetsched.graph import DType, Graph, Role, Tensor


def whisper_graph(folder: Folder, dims: Mapping[str, int]) -> Graph:
    """One of the two phases: the decoder where ``tokens`` or ``past`` is among ``dims``, else the encoder.

    The encoder takes ``input_features [batch, mels, 2 · positions]`` to the keys and values of the decoder's attention to it,
    ``cross.<layer>.key [batch, heads, head_dim, positions]`` and ``cross.<layer>.value [batch, heads, positions, head_dim]``,
    and to ``last_hidden_state``. The decoder reads these as state, beside its own cache.

    Raises:
        ModelError: the configuration and the weights do not fit together.
        OptionError: a dim is unknown or out of range.
    """
    return _decoder(folder, dims) if {"tokens", "past", "logits"} & set(dims) else _encoder(folder, dims)


@dataclass(frozen=True)
class _Sizes:
    hidden: int
    heads: int
    layers: int
    ffn: int
    activation: str


def _sizes(c: Fields, part: str) -> _Sizes:
    hidden, heads = c.size("d_model"), c.size(f"{part}_attention_heads")
    if hidden % heads:
        raise ModelError(f"{c.where} has {heads} heads for {hidden} elements: it is damaged")
    layers = c.size(f"{part}_layers", most=MAX_LAYERS)
    return _Sizes(hidden, heads, layers, c.size(f"{part}_ffn_dim"), c.text("activation_function", "gelu"))


def _attention(base: str, kind: str) -> tuple[str, str, str, str]:
    q, k, v, o = (f"{base}.{kind}.{part}_proj" for part in ("q", "k", "v", "out"))
    return q, k, v, o


def _layers(folder: Folder, batch: int) -> Layers:
    return Layers(GraphBuilder(folder.name), folder.weights(prefixed("model.", "")), batch, 1e-5)


def _encoder(folder: Folder, dims: Mapping[str, int]) -> Graph:
    c = folder.config
    at = bound(dims, {"batch": (1, 1 << 16)}, folder.name)
    layers, s, positions = _layers(folder, at["batch"]), _sizes(c, "encoder"), c.size("max_source_positions", default=1500)
    b = layers.builder
    x = b.input("input_features", (at["batch"], c.size("num_mel_bins", default=80), 2 * positions))
    x = _convolution(layers, "encoder.conv1", x, s, 1)
    x = _convolution(layers, "encoder.conv2", x, s, 2)
    x = b.emit("Transpose", "encoder.frames", [x], (at["batch"], positions, s.hidden), perm=(0, 2, 1))
    table = b.weight(layers.weights.get("encoder.embed_positions.weight", positions, s.hidden))
    x = b.reshape("encoder.rows", b.binary("Add", "encoder.with_positions", x, table), (at["batch"] * positions, s.hidden))
    for i in range(s.layers):
        base = f"encoder.layers.{i}"
        y = layers.norm(f"{base}.self_attn_layer_norm", x)
        y = layers.self_attention(f"{base}.attention", y, _attention(base, "self_attn"), s.heads, key_bias=False)
        x = layers.add(f"{base}.residual_attention", x, y)
        x = _feed_forward(layers, base, x, s)
    x = layers.norm("encoder.layer_norm", x)
    _cross_caches(layers, c, x)
    wanted = b.array("last_hidden_state.shape", np.asarray((at["batch"], positions, s.hidden), np.int64))
    b.output(b.emit("Reshape", "last_hidden_state", [x, wanted], (at["batch"], positions, s.hidden)))
    return b.graph(folder.path, folder.sha256, at)


def _convolution(layers: Layers, role: str, x: str, s: _Sizes, stride: int) -> str:
    b = layers.builder
    batch, channels, frames = b.shape(x)
    weight = layers.weights.get(f"{role}.weight", s.hidden, channels, 3)
    inputs = [x, b.weight(weight), b.weight(layers.weights.get(f"{role}.bias", s.hidden))]
    shape = (batch, s.hidden, (frames - 1) // stride + 1)
    y = b.emit("Conv", role, inputs, shape, kernel_shape=(3,), strides=(stride,), pads=(1, 1))
    return layers.activation(f"{role}.activation", y, s.activation)


def _feed_forward(layers: Layers, base: str, x: str, s: _Sizes) -> str:
    y = layers.norm(f"{base}.final_layer_norm", x)
    y = layers.mlp(base, y, (f"{base}.fc1", f"{base}.fc2"), s.ffn, s.activation)
    return layers.add(f"{base}.residual_ffn", x, y)


def _cross_caches(layers: Layers, c: Fields, x: str) -> None:
    """Keys and values of the encoder's output for every layer of the decoder; they are computed once an utterance."""
    b, s = layers.builder, _sizes(c, "decoder")
    for i in range(s.layers):
        _, k, v, _ = _attention(f"decoder.layers.{i}", "encoder_attn")
        for part, y in (("key", layers.linear(k, x, s.hidden, bias=False)), ("value", layers.linear(v, x, s.hidden))):
            perm = (0, 2, 3, 1) if part == "key" else (0, 2, 1, 3)
            b.output(_renamed(layers, f"cross.{i}.{part}", y, s.heads, perm), Role.STATE)


def _renamed(layers: Layers, name: str, x: str, heads: int, perm: tuple[int, ...]) -> str:
    b = layers.builder
    rows, width = b.shape(x)
    wide = b.reshape(f"{name}.heads", x, (layers.batch, rows // layers.batch, heads, width // heads))
    return b.emit("Transpose", name, [wide], tuple(b.shape(wide)[p] for p in perm), perm=perm)


def _decoder(folder: Folder, dims: Mapping[str, int]) -> Graph:
    c = folder.config
    most = c.size("max_target_positions", default=448)
    phase = bind({"past": min(most - 1, 64) if dims.get("tokens", 1) == 1 else 0, **dims}, {}, folder.name)
    if phase.past + phase.tokens > most:
        raise OptionError(
            f"{phase.past} + {phase.tokens} tokens are more than the {most} positions of {folder.name!r}: lower past or tokens"
        )
    layers, s = _layers(folder, phase.batch), _sizes(c, "decoder")
    b = layers.builder
    table, x = _embedded(layers, c, phase, s.hidden)
    for i in range(s.layers):
        base = f"decoder.layers.{i}"
        y = _cached_attention(layers, base, layers.norm(f"{base}.self_attn_layer_norm", x), s, phase, i)
        x = layers.add(f"{base}.residual_attention", x, y)
        y = _cross_attention(layers, base, layers.norm(f"{base}.encoder_attn_layer_norm", x), s, c, i)
        x = layers.add(f"{base}.residual_cross", x, y)
        x = _feed_forward(layers, base, x, s)
    x = layers.norm("decoder.layer_norm", x)
    rows = np.arange(phase.batch)[:, None] * phase.tokens + np.arange(phase.tokens - phase.logits, phase.tokens)
    if phase.logits < phase.tokens:
        x = b.emit("Gather", "last_positions", [x, b.array("last_rows", rows.reshape(-1))], (rows.size, s.hidden), axis=0)
    x = b.linear("proj_out", x, table)
    shape = (phase.batch, phase.logits, table.shape[0])
    b.output(b.emit("Reshape", "logits", [x, b.array("logits.shape", np.asarray(shape, np.int64))], shape))
    return b.graph(folder.path, folder.sha256, phase.dims)


def _embedded(layers: Layers, c: Fields, phase: Phase, hidden: int) -> tuple[Tensor, str]:
    b, shape = layers.builder, (phase.batch, phase.tokens)
    table = layers.weights.get("decoder.embed_tokens.weight", c.size("vocab_size"), hidden)
    places = layers.weights.get("decoder.embed_positions.weight", c.size("max_target_positions", default=448), hidden)
    parts = []
    for name, weight in (("input_ids", table), ("position_ids", places)):
        inputs = [b.weight(weight), b.input(name, shape, DType.I64)]
        looked_up = b.emit("Gather", weight.name.removesuffix(".weight"), inputs, (*shape, hidden), axis=0)
        parts.append(b.reshape(f"{name}.rows", looked_up, (phase.rows, hidden)))
    return table, b.binary("Add", "decoder.with_positions", parts[0], parts[1])


def _cached_attention(layers: Layers, base: str, x: str, s: _Sizes, phase: Phase, i: int) -> str:
    b, roles, d = layers.builder, _attention(base, "self_attn"), s.hidden // s.heads
    q, k = layers.linear(roles[0], x, s.hidden), layers.linear(roles[1], x, s.hidden, bias=False)
    v = layers.linear(roles[2], x, s.hidden)
    past = [f"past.{i}.{part}" if phase.past else "" for part in ("key", "value")]
    for name in filter(None, past):
        b.input(name, (phase.batch, s.heads, phase.past, d), DType.F16, Role.STATE)
    attrs = {
        "num_heads": s.heads, "kv_num_heads": s.heads, "head_dim": d, "batch": phase.batch, "window": 0, "scale": d**-0.5, "softcap": 0.0,
    }  # fmt: skip
    state = (phase.batch, s.heads, phase.past + phase.tokens, d)
    outputs = [Tensor(f"{base}.attention", b.shape(q), DType.F32)]
    outputs += [Tensor(f"present.{i}.{part}", state, DType.F16, Role.STATE) for part in ("key", "value")]
    y, *written = b.emit_many("GroupQueryAttention", f"{base}.attention", [q, k, v, *past], outputs, attrs)
    for name, before in zip(written, past, strict=True):
        b.state(name, before)
    return layers.linear(roles[3], y, s.hidden)


def _cross_attention(layers: Layers, base: str, x: str, s: _Sizes, c: Fields, i: int) -> str:
    b, roles, d = layers.builder, _attention(base, "encoder_attn"), s.hidden // s.heads
    positions = c.size("max_source_positions", default=1500)
    keys = b.input(f"cross.{i}.key", (layers.batch, s.heads, d, positions), role=Role.STATE)
    values = b.input(f"cross.{i}.value", (layers.batch, s.heads, positions, d), role=Role.STATE)
    q = layers.heads(f"{base}.cross.q", layers.linear(roles[0], x, s.hidden), s.heads)
    return layers.linear(roles[3], layers.attend(f"{base}.cross", q, keys, values), s.hidden)
