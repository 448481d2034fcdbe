"""What Hugging Face checkpoints call the weights of a decoder: role (GGUF's name) -> names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hetsched.frontends.decoder_weights import Naming

_PREFIXES = ("model.", "", "language_model.model.", "model.language_model.")
_TOP = {
    "token_embd.weight": ("embed_tokens.weight",), "output_norm.weight": ("norm.weight",),
    "output.weight": ("lm_head.weight",), "output.bias": ("lm_head.bias",),
}  # fmt: skip
_TOP_BY_FAMILY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "phi2": {"output_norm.weight": ("final_layernorm.weight",), "output_norm.bias": ("final_layernorm.bias",)},
}
_LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_qkv": "self_attn.qkv_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
_POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}  # fmt: skip
_BY_FAMILY: Mapping[str, Mapping[str, str]] = {
    "gemma2": _POST_NORMS,
    "gemma3": _POST_NORMS,
    "phi2": {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
    "phi3": {"ffn_up": "mlp.gate_up_proj", "ffn_gate": "mlp.separate_gate_proj"},
    "mixtral": {"ffn_gate_inp": "block_sparse_moe.gate"},
    "qwen3moe": {"ffn_gate_inp": "mlp.gate"},
}
_EXPERT = {
    "mixtral": ("block_sparse_moe.experts", {"ffn_gate": "w1", "ffn_up": "w3", "ffn_down": "w2"}),
    "qwen3moe": ("mlp.experts", {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}),
}
#: All experts of a layer as one parameter, as newer checkpoints store them.
_STACKED = {"ffn_gate_up_exps": "gate_up_proj", "ffn_down_exps": "down_proj"}
_MAMBA = {
    "attn_norm": "norm", "ssm_in": "mixer.in_proj", "ssm_conv1d": "mixer.conv1d", "ssm_x": "mixer.x_proj", "ssm_dt": "mixer.dt_proj",
    "ssm_a": "mixer.A_log", "ssm_d": "mixer.D", "ssm_out": "mixer.out_proj",
}  # fmt: skip
_MAMBA_TOP = {
    "token_embd.weight": ("backbone.embeddings.weight", "backbone.embedding.weight"), "output_norm.weight": ("backbone.norm_f.weight",),
    "output.weight": ("lm_head.weight",),
}  # fmt: skip
_ROLE = re.compile(r"blk\.(\d+)\.(?:(.*?)\.)??(?:(\d+)\.)?(weight|bias|ssm_a|ssm_d)")


def naming(family: str) -> Naming:
    """How checkpoints of a family name their weights."""
    if family == "mamba":
        return _mamba

    def names(role: str) -> tuple[str, ...]:
        match = _ROLE.fullmatch(role)
        if match is None:
            tails = _TOP_BY_FAMILY.get(family, {}).get(role) or _TOP.get(role, (role,))
            lead = ("", "language_model.") if role.startswith("output.") else _PREFIXES
            return tuple(p + t for p in lead for t in tails)
        layer, module, expert, kind = match.groups()
        if module in _STACKED and family in _EXPERT:
            folders = dict.fromkeys((_EXPERT[family][0], "mlp.experts"))
            return tuple(f"{p}layers.{layer}.{f}.{_STACKED[module]}" for f in folders for p in _PREFIXES)
        path = _module(family, module, expert)
        paths = dict.fromkeys((path, path.replace("block_sparse_moe", "mlp")))
        return tuple(f"{p}layers.{layer}{q}.{kind}" for q in paths for p in _PREFIXES)

    return names


def _module(family: str, module: str | None, expert: str | None) -> str:
    if module is None:
        return ""
    if expert is not None and family in _EXPERT:
        folder, parts = _EXPERT[family]
        return f".{folder}.{expert}.{parts.get(module, module)}"
    return "." + _BY_FAMILY.get(family, {}).get(module, _LAYER.get(module, module))


def _mamba(role: str) -> tuple[str, ...]:
    match = _ROLE.fullmatch(role)
    if match is None:
        return _MAMBA_TOP.get(role, (role,))
    layer, module, _, kind = match.groups()
    base = f"backbone.layers.{layer}"
    if kind in _MAMBA:
        return (f"{base}.{_MAMBA[kind]}",)
    return (f"{base}.{_MAMBA.get(module, module)}.{kind}" if module else f"{base}.{kind}",)
