"""A Hugging Face ``config.json`` of a decoder as an architecture. Fields: those of the configurations in ``transformers``."""

from __future__ import annotations

import math

from hetsched.errors import UnsupportedModelError
from hetsched.frontends.decoder_architecture import Architecture, Experts, Rope, StateSpace
from hetsched.frontends.decoder_fields import MAX_LAYERS, Fields

#: ``model_type`` -> family of :class:`Architecture`.
FAMILIES = {
    "llama": "llama", "mistral": "mistral", "mixtral": "mixtral", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe",
    "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3", "gemma3_text": "gemma3", "phi": "phi2", "phi3": "phi3",
    "mamba": "mamba",
}  # fmt: skip
_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "relu": "relu",
}  # fmt: skip


def hf_architecture(config: Fields, family: str) -> Architecture:
    """The architecture of a decoder.

    Raises:
        ModelError: a field is missing or absurd.
        UnsupportedModelError: it has something that is not handled.
    """
    common = {
        "family": family,
        "layers": config.size("num_hidden_layers", "n_layer", most=MAX_LAYERS),
        "hidden": config.size("hidden_size", "d_model"),
        "vocab": config.size("vocab_size"),
        "context": config.size("max_position_embeddings", default=2048),
        "norm_epsilon": config.positive("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", default=1e-5),
        "tied": config.flag("tie_word_embeddings", family.startswith("gemma") or family == "mamba"),
    }
    if family == "mamba":
        return Architecture(**common, state_space=_state_space(config))  # type: ignore[arg-type]
    return Architecture(**common, **_transformer(config, family))  # type: ignore[arg-type]


def _transformer(config: Fields, family: str) -> dict[str, object]:
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    head_dim = config.size("head_dim", default=256 if family.startswith("gemma") else max(hidden // heads, 1))
    gemma, newer, phi = family.startswith("gemma"), family in ("gemma2", "gemma3"), family == "phi2"
    bias = config.flag("attention_bias", phi)
    if config.flag("qk_layernorm", False):
        raise UnsupportedModelError(f"{config.where} has layer norms of query and key heads, which are not supported")
    return {
        "heads": heads,
        "kv_heads": config.size("num_key_value_heads", default=8 if family in ("mistral", "mixtral") else heads),
        "head_dim": head_dim,
        "ffn": config.size("intermediate_size"),
        "norm_offset": 1.0 if gemma else 0.0,
        "activation": _activation(config, family),
        "rope": _rope(config, head_dim, "full_attention", 0.5 if phi else 1.0),
        "local_rope": _local_rope(config, head_dim) if family == "gemma3" else None,
        "windows": _windows(config, family),
        "attention_scale": config.positive("query_pre_attn_scalar", default=float(head_dim)) ** -0.5,
        "attention_cap": config.number("attn_logit_softcapping", default=0.0),
        "logit_cap": config.number("final_logit_softcapping", default=0.0),
        "embedding_scale": math.sqrt(hidden) if gemma else 1.0,
        "experts": _experts(config, family),
        "has_qkv_bias": bias or family == "qwen2",
        "has_output_bias": bias,
        "has_mlp_bias": config.flag("mlp_bias", phi),
        "has_head_bias": phi,
        "has_head_norms": family in ("qwen3", "qwen3moe", "gemma3"),
        "has_post_norms": newer,
        "fused_projections": family == "phi3",
        "layer_norm": phi,
        "parallel": phi,
        "gated": not phi,
    }


def _activation(config: Fields, family: str) -> str:
    if family.startswith("gemma") and "hidden_activation" not in config:
        return "gelu_tanh"
    name = config.text("hidden_activation", config.text("hidden_act", "gelu_new" if family == "phi2" else "silu"))
    if name not in _ACTIVATIONS:
        raise UnsupportedModelError(f"{config.where} has the activation {name[:40]!r}, which is not supported")
    return _ACTIVATIONS[name]


def _rope(config: Fields, head_dim: int, layer_type: str, share: float = 1.0) -> Rope:
    """The rotary embedding of layers with full (or sliding) attention, in the spelling of transformers 5 or before.

    ``share`` of a head is rotated where the configuration does not say.
    """
    scaling = config.part("rope_parameters" if "rope_parameters" in config else "rope_scaling")
    if layer_type in scaling:
        scaling = scaling.part(layer_type)
    context = config.size("max_position_embeddings", default=2048)
    original = scaling.size("original_max_position_embeddings", default=config.size("original_max_position_embeddings", default=context))
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    yarn = kind == "yarn"
    return Rope(
        theta=scaling.positive("rope_theta", default=config.positive("rope_theta", default=10000.0)),
        dim=_rotated(config, scaling, head_dim, share),
        scaling="" if kind == "default" else kind,
        factor=scaling.positive("factor", default=context / original),
        low=scaling.positive("beta_slow" if yarn else "low_freq_factor", default=1.0),
        high=scaling.positive("beta_fast" if yarn else "high_freq_factor", default=32.0 if yarn else 4.0),
        original=original,
        short_factors=scaling.numbers("short_factor"),
        long_factors=scaling.numbers("long_factor"),
        magnitude=scaling.number("attention_factor", default=0.0),
    )


def _rotated(config: Fields, scaling: Fields, head_dim: int, share: float) -> int:
    share = scaling.positive("partial_rotary_factor", default=config.positive("partial_rotary_factor", default=share))
    return max(int(head_dim * min(share, 1.0)), 2)


def _local_rope(config: Fields, head_dim: int) -> Rope:
    if "sliding_attention" in config.part("rope_parameters"):
        return _rope(config, head_dim, "sliding_attention")
    return Rope(config.positive("rope_local_base_freq", default=10000.0), head_dim)


def _windows(config: Fields, family: str) -> tuple[int, ...]:
    """The sliding window of every layer; empty where all see everything."""
    layers = config.size("num_hidden_layers", most=MAX_LAYERS)
    default = {"gemma2": 4096, "gemma3": 4096}.get(family, 0)
    window = config.size("sliding_window", default=default, least=0, most=1 << 40)
    if window <= 1 or family in ("llama", "gemma", "phi2") or (family.startswith("qwen") and not config.flag("use_sliding_window", False)):
        return ()
    types = config.values.get("layer_types")
    if isinstance(types, list) and len(types) == layers:
        return tuple(window if t == "sliding_attention" else 0 for t in types)
    if family.startswith("qwen"):
        first = config.size("max_window_layers", default=layers, least=0)
        return tuple(window if i >= first else 0 for i in range(layers))
    period = {"gemma2": 2, "gemma3": config.size("sliding_window_pattern", default=6)}.get(family, 0)
    return tuple(0 if period and (i + 1) % period == 0 else window for i in range(layers))


def _experts(config: Fields, family: str) -> Experts | None:
    if family not in ("mixtral", "qwen3moe"):
        return None
    if config.size("decoder_sparse_step", default=1) != 1 or config.values.get("mlp_only_layers"):
        raise UnsupportedModelError(f"{config.where} has experts in some layers only, which is not supported")
    count = config.size("num_local_experts", "num_experts", default=8 if family == "mixtral" else 128, most=4096)
    used = config.size("num_experts_per_tok", default=2 if family == "mixtral" else 8, most=4096)
    ffn = config.size("moe_intermediate_size", "intermediate_size")
    return Experts(count, used, ffn, config.flag("norm_topk_prob", family == "mixtral"))


def _state_space(config: Fields) -> StateSpace:
    hidden = config.size("hidden_size", "d_model")
    rank = config.values.get("time_step_rank", "auto")
    if config.flag("use_bias", False):
        raise UnsupportedModelError(f"{config.where} has biases in its projections, which are not supported")
    return StateSpace(
        inner=config.size("intermediate_size", default=config.size("expand", default=2, most=64) * hidden),
        state=config.size("state_size", default=16),
        kernel=config.size("conv_kernel", default=4, most=64),
        rank=-(-hidden // 16) if rank == "auto" else config.size("time_step_rank"),
        logarithmic=True,
    )
