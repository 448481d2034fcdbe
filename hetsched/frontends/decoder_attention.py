"""The attention block of a decoder layer, with its key-value cache as state."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.frontends.decoder_architecture import Architecture
from hetsched.frontends.decoder_builder import GraphBuilder
from hetsched.frontends.decoder_phase import Phase
from hetsched.frontends.decoder_rope import RotaryTables
from hetsched.frontends.decoder_weights import Weights
from hetsched.graph import DType, Role, Tensor


@dataclass(frozen=True)
class Layer:
    """What every part of a layer needs to be built; ``role`` is the prefix of its weights' roles, ``name`` the file's."""

    builder: GraphBuilder
    architecture: Architecture
    weights: Weights
    phase: Phase
    index: int
    name: str
    cache: DType = DType.F16

    def weight(self, role: str, *shape: int) -> Tensor:
        """A weight of this layer that must be there."""
        return self.weights.get(f"blk.{self.index}.{role}.weight", *shape)

    def bias(self, role: str, size: int, expected: bool) -> Tensor | None:
        """A bias of this layer, None where there is none."""
        return self.weights.find(f"blk.{self.index}.{role}.bias", size, expected=expected)

    def module(self, role: str) -> str:
        """The file's name of a module of this layer."""
        return self.weights.module(f"blk.{self.index}.{role}.weight")

    def linear(self, role: str, x: str, size: int, has_bias: bool = False) -> str:
        """Project rows to ``size`` elements."""
        weight = self.weight(role, size, self.builder.shape(x)[-1])
        return self.builder.linear(self.module(role), x, weight, self.bias(role, size, has_bias))

    def norm(self, role: str, x: str, size: int = 0) -> str:
        """Normalisation of rows, or of groups of ``size`` elements (heads)."""
        return normalised(self.builder, self.architecture, self.weights, f"blk.{self.index}.{role}", x, size)


def normalised(builder: GraphBuilder, architecture: Architecture, weights: Weights, role: str, x: str, size: int = 0) -> str:
    """``x / rms(x) · (weight + offset)``, or layer normalisation where the architecture has that."""
    width = size or builder.shape(x)[-1]
    name, weight = weights.module(f"{role}.weight"), weights.get(f"{role}.weight", width)
    if architecture.layer_norm:
        inputs = [x, builder.weight(weight), builder.weight(weights.get(f"{role}.bias", width))]
        return builder.emit("LayerNormalization", name, inputs, builder.shape(x), axis=-1, epsilon=architecture.norm_epsilon)
    attrs = {"epsilon": architecture.norm_epsilon}
    if architecture.norm_offset:
        attrs["offset"] = architecture.norm_offset
    return builder.emit_many("RMSNorm", name, [x, builder.weight(weight)], [Tensor(name, builder.shape(x), DType.F32)], attrs)[0]


def cached(tokens: int, window: int) -> int:
    """Positions that the cache holds after ``tokens``: all of them, or one less than the window."""
    return min(tokens, window - 1) if window else tokens


def attention(layer: Layer, x: str, rotary: RotaryTables) -> str:
    """Projections, rotary embedding, attention over cache and new tokens, output projection; rows in, rows out."""
    a = layer.architecture
    q, k, v = _projections(layer, x)
    if layer.weights.has(f"blk.{layer.index}.attn_q_norm.weight") or (layer.weights.tensors is None and a.has_head_norms):
        q, k = layer.norm("attn_q_norm", q, a.head_dim), layer.norm("attn_k_norm", k, a.head_dim)
    rope = a.rope_of(layer.index)
    if rope is not None:
        q = rotary.apply(f"{layer.name}.rotary_q", q, rope, a.heads)
        k = rotary.apply(f"{layer.name}.rotary_k", k, rope, a.kv_heads)
    y = _attend(layer, q, k, v)
    return layer.linear("attn_output", y, a.hidden, a.has_output_bias)


def _projections(layer: Layer, x: str) -> tuple[str, str, str]:
    a = layer.architecture
    sizes = (a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.head_dim)
    fused = layer.weights.has(f"blk.{layer.index}.attn_qkv.weight") or (layer.weights.tensors is None and a.fused_projections)
    if fused:
        q, k, v = layer.builder.split(f"{layer.name}.split_qkv", layer.linear("attn_qkv", x, sum(sizes), a.has_qkv_bias), sizes)
    else:
        q, k, v = (layer.linear(r, x, n, a.has_qkv_bias) for r, n in zip(("attn_q", "attn_k", "attn_v"), sizes, strict=True))
    return q, k, v


def _attend(layer: Layer, q: str, k: str, v: str) -> str:
    a, b, phase = layer.architecture, layer.builder, layer.phase
    window = a.window(layer.index)
    past, present = cached(phase.past, window), cached(phase.past + phase.tokens, window)
    names = [f"past.{layer.index}.{part}" if past else "" for part in ("key", "value")]
    for name in filter(None, names):
        b.input(name, (phase.batch, a.kv_heads, past, a.head_dim), layer.cache, Role.STATE)
    attrs = {
        "num_heads": a.heads, "kv_num_heads": a.kv_heads, "head_dim": a.head_dim, "batch": phase.batch, "window": window,
        "scale": a.attention_scale, "softcap": a.attention_cap,
    }  # fmt: skip
    state = (phase.batch, a.kv_heads, present, a.head_dim)
    outputs = [Tensor(f"{layer.name}.attention", b.shape(q), DType.F32)]
    if present:
        outputs += [Tensor(f"present.{layer.index}.{part}", state, layer.cache, Role.STATE) for part in ("key", "value")]
    written = b.emit_many("GroupQueryAttention", f"{layer.name}.attention", [q, k, v, *names], outputs, attrs)
    for name, before in zip(written[1:], names, strict=False):
        b.state(name, before)
    return written[0]
