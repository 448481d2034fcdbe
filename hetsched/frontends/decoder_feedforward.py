"""The feed-forward block of a decoder layer: with a gate or without, or a mixture of experts."""

from __future__ import annotations

from hetsched.errors import UnsupportedModelError
from hetsched.frontends.decoder_architecture import Experts
from hetsched.frontends.decoder_attention import Layer
from hetsched.graph import AttrValue, DType, Tensor

_ACTIVATIONS = {"silu": ("Silu", ""), "gelu_tanh": ("Gelu", "tanh"), "gelu": ("Gelu", "none"), "relu": ("Relu", "")}
_PARTS = ("ffn_gate", "ffn_up", "ffn_down")


def feed_forward(layer: Layer, x: str) -> str:
    """The layer's feed-forward block on rows."""
    if layer.architecture.experts is not None:
        return _experts(layer, x, layer.architecture.experts)
    return _gated(layer, x) if layer.architecture.gated else _plain(layer, x)


def activate(layer: Layer, name: str, x: str) -> str:
    """The model's activation.

    Raises:
        UnsupportedModelError: it is not known.
    """
    known = _ACTIVATIONS.get(layer.architecture.activation)
    if known is None:
        raise UnsupportedModelError(f"the activation {layer.architecture.activation!r} of {layer.name!r} is not supported")
    kind, approximate = known
    return layer.builder.unary(kind, name, x, approximate=approximate) if approximate else layer.builder.unary(kind, name, x)


def _plain(layer: Layer, x: str) -> str:
    """``down(act(up(x)))``."""
    a = layer.architecture
    inner = activate(layer, f"{layer.name}.activation", layer.linear("ffn_up", x, a.ffn, a.has_mlp_bias))
    return layer.linear("ffn_down", inner, layer.builder.shape(x)[-1], a.has_mlp_bias)


def _gated(layer: Layer, x: str) -> str:
    """``down(act(gate(x)) · up(x))``; gate and up may be one product."""
    a, b = layer.architecture, layer.builder
    hidden = b.shape(x)[-1]
    role = f"blk.{layer.index}.ffn_gate.weight"
    separate = layer.weights.has(role) or (layer.weights.tensors is None and not a.fused_projections)
    if separate:
        gate, up = (layer.linear(r, x, a.ffn, a.has_mlp_bias) for r in _PARTS[:2])
    else:
        gate, up = b.split(f"{layer.name}.split_gate_up", layer.linear("ffn_up", x, 2 * a.ffn, a.has_mlp_bias), (a.ffn, a.ffn))
    inner = b.binary("Mul", f"{layer.name}.gated", activate(layer, f"{layer.name}.activation", gate), up)
    return layer.linear("ffn_down", inner, hidden, a.has_mlp_bias)


def _experts(layer: Layer, x: str, experts: Experts) -> str:
    """Router and experts; only those that some token chooses are read."""
    b = layer.builder
    rows, hidden = b.shape(x)
    scores = layer.linear("ffn_gate_inp", x, experts.count)
    chosen = (rows, experts.per_token)
    share, index = b.emit_many(
        "Router",
        f"{layer.name}.router",
        [scores],
        [Tensor(f"{layer.name}.router.share", chosen, DType.F32), Tensor(f"{layer.name}.router.expert", chosen, DType.I64)],
        {"num_experts": experts.count, "experts_per_token": experts.per_token, "normalize": int(experts.normalised)},
    )
    joined = _joined_weights(layer, experts, hidden)
    weights = joined or [w for part in _PARTS for w in _expert_weights(layer, part, experts, hidden)]
    active = expected_active(experts, rows)
    stored = sum(w.nbytes for w in weights)
    attrs: dict[str, AttrValue] = {
        "num_experts": experts.count, "experts_per_token": experts.per_token, "activation": layer.architecture.activation,
        "stacked": int(len(weights) <= len(_PARTS)), "joined": int(bool(joined)), "active_experts": active,
        "active_weight_bytes": round(stored * active / experts.count),
    }  # fmt: skip
    inputs = [x, share, index, *(b.weight(w) for w in weights)]
    name = f"{layer.name}.experts"
    return b.emit_many("MoE", name, inputs, [Tensor(name, (rows, hidden), DType.F32)], attrs)[0]


def _joined_weights(layer: Layer, experts: Experts, hidden: int) -> list[Tensor]:
    """Gate and up of all experts as one tensor ``[experts, 2 · ffn, hidden]``, and down; none where they are apart."""
    role = f"blk.{layer.index}.ffn_gate_up_exps.weight"
    joined = layer.weights.find(role, experts.count, 2 * experts.ffn, hidden, expected=False)
    if joined is None:
        return []
    return [joined, layer.weights.get(f"blk.{layer.index}.ffn_down_exps.weight", experts.count, hidden, experts.ffn)]


def _expert_weights(layer: Layer, part: str, experts: Experts, hidden: int) -> list[Tensor]:
    """One tensor ``[experts, out, in]``, or one ``[out, in]`` for each expert."""
    shape = (hidden, experts.ffn) if part == "ffn_down" else (experts.ffn, hidden)
    stacked = layer.weights.find(f"blk.{layer.index}.{part}_exps.weight", experts.count, *shape, expected=False)
    if stacked is not None:
        return [stacked]
    return [layer.weight(f"{part}.{e}", *shape) for e in range(experts.count)]


def expected_active(experts: Experts, rows: int) -> float:
    """Experts that ``rows`` tokens use together, if every token chooses each with the same probability."""
    return experts.count * (1 - (1 - experts.per_token / experts.count) ** rows)
