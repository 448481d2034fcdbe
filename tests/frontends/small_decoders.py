"""Small decoders of every family: GGUF metadata and shapes, and seeded weights."""

from __future__ import annotations

from typing import Any

import numpy as np

H, LAYERS, HEADS, KV, D, FFN, VOCAB = 32, 3, 4, 2, 16, 40, 60
Shapes = dict[str, tuple[int, ...]]


def transformer(family: str) -> tuple[dict[str, Any], Shapes]:
    metadata = {
        "general.architecture": family, f"{family}.block_count": LAYERS, f"{family}.embedding_length": H, f"{family}.context_length": 512,
        f"{family}.feed_forward_length": FFN, f"{family}.attention.head_count": HEADS, f"{family}.attention.head_count_kv": KV,
        f"{family}.attention.key_length": D, f"{family}.attention.layer_norm_rms_epsilon": 1e-5, f"{family}.rope.freq_base": 10000.0,
    }  # fmt: skip
    shapes: Shapes = {"token_embd.weight": (VOCAB, H), "output_norm.weight": (H,)}
    for i in range(LAYERS):
        layer: Shapes = {
            "attn_norm.weight": (H,), "attn_q.weight": (HEADS * D, H), "attn_k.weight": (KV * D, H), "attn_v.weight": (KV * D, H),
            "attn_output.weight": (H, HEADS * D), "ffn_norm.weight": (H,), "ffn_gate.weight": (FFN, H), "ffn_up.weight": (FFN, H),
            "ffn_down.weight": (H, FFN),
        }  # fmt: skip
        shapes |= {f"blk.{i}.{k}": v for k, v in layer.items()}
    return metadata, shapes


def in_layers(extra: Shapes) -> Shapes:
    return {f"blk.{i}.{k}": v for i in range(LAYERS) for k, v in extra.items()}


def without(shapes: Shapes, *roles: str) -> Shapes:
    return {k: v for k, v in shapes.items() if not any(f".{r}." in k for r in roles)}


def family_model(name: str) -> tuple[dict[str, Any], Shapes]:
    """Metadata and shapes of a small model of each family that is handled."""
    if name == "mamba":
        return mamba_model()
    metadata, shapes = transformer({"mixtral": "llama", "mixtral-apart": "llama", "llama3": "llama"}.get(name, name))
    head_norms: Shapes = {"attn_q_norm.weight": (D,), "attn_k_norm.weight": (D,)}
    post_norms: Shapes = {"post_attention_norm.weight": (H,), "post_ffw_norm.weight": (H,)}
    if name == "llama":
        shapes["output.weight"] = (VOCAB, H)
    elif name == "llama3":
        shapes["rope_freqs.weight"] = (D // 2,)
    elif name == "qwen2":
        shapes |= in_layers({"attn_q.bias": (HEADS * D,), "attn_k.bias": (KV * D,), "attn_v.bias": (KV * D,)})
    elif name == "qwen3":
        shapes |= in_layers(head_norms)
    elif name == "gemma2":
        metadata |= {"gemma2.attention.sliding_window": 4}
        shapes |= in_layers(post_norms)
    elif name == "gemma3":
        metadata |= {"gemma3.attention.sliding_window": 3, "gemma3.block_count": LAYERS}
        shapes |= in_layers({**head_norms, **post_norms})
    elif name == "phi2":
        del metadata["phi2.attention.layer_norm_rms_epsilon"]
        metadata |= {"phi2.attention.layer_norm_epsilon": 1e-5, "phi2.rope.dimension_count": D // 2}
        biases: Shapes = {
            "attn_norm": (H,), "attn_q": (HEADS * D,), "attn_k": (KV * D,), "attn_v": (KV * D,), "attn_output": (H,), "ffn_up": (FFN,),
            "ffn_down": (H,),
        }  # fmt: skip
        shapes = without(shapes, "ffn_norm", "ffn_gate") | in_layers({f"{k}.bias": v for k, v in biases.items()})
        shapes |= {"output_norm.bias": (H,), "output.weight": (VOCAB, H), "output.bias": (VOCAB,)}
    elif name == "phi3":
        metadata |= {"phi3.attention.sliding_window": 5, "phi3.rope.dimension_count": D - 4}
        shapes = without(shapes, "attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up")
        shapes |= in_layers({"attn_qkv.weight": ((HEADS + 2 * KV) * D, H), "ffn_up.weight": (2 * FFN, H)})
    elif name in ("mixtral", "mixtral-apart", "qwen3moe"):
        family = "qwen3moe" if name == "qwen3moe" else "llama"
        metadata |= {f"{family}.expert_count": 4, f"{family}.expert_used_count": 2}
        shapes = without(shapes, "ffn_gate", "ffn_up", "ffn_down") | in_layers({"ffn_gate_inp.weight": (4, H)})
        parts: Shapes = {"ffn_gate": (FFN, H), "ffn_up": (FFN, H), "ffn_down": (H, FFN)}
        if name == "mixtral-apart":
            shapes |= in_layers({f"{k}.{e}.weight": v for e in range(4) for k, v in parts.items()})
        else:
            shapes |= in_layers({f"{k}_exps.weight": (4, *v) for k, v in parts.items()})
        shapes |= in_layers(head_norms) if name == "qwen3moe" else {}
    return metadata, shapes


def mamba_model() -> tuple[dict[str, Any], Shapes]:
    inner, state, rank = 2 * H, 8, 4
    metadata = {
        "general.architecture": "mamba", "mamba.block_count": LAYERS, "mamba.embedding_length": H, "mamba.ssm.inner_size": inner,
        "mamba.ssm.state_size": state, "mamba.ssm.conv_kernel": 4, "mamba.ssm.time_step_rank": rank,
        "mamba.attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    layer: Shapes = {
        "attn_norm.weight": (H,), "ssm_in.weight": (2 * inner, H), "ssm_conv1d.weight": (inner, 4), "ssm_conv1d.bias": (inner,),
        "ssm_x.weight": (rank + 2 * state, inner), "ssm_dt.weight": (inner, rank), "ssm_dt.bias": (inner,), "ssm_a": (inner, state),
        "ssm_d": (inner,), "ssm_out.weight": (H, inner),
    }  # fmt: skip
    return metadata, {"token_embd.weight": (VOCAB, H), "output_norm.weight": (H,), **in_layers(layer)}


FAMILIES = (
    "llama", "llama3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi2", "phi3", "mixtral", "mixtral-apart", "qwen3moe", "mamba",
)  # fmt: skip


def seeded(shapes: Shapes) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(11)
    values = {}
    for name, shape in shapes.items():
        value = rng.standard_normal(shape) * (0.3 if len(shape) > 1 else 0.1)
        if "norm" in name or name == "rope_freqs.weight":
            value = 1 + np.abs(value)
        values[name] = (-np.exp(value) if name.endswith("ssm_a") else value).astype(np.float32)
    return values
