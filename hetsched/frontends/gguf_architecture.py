"""GGUF metadata as an architecture. Keys: the GGUF specification, and for each family what llama.cpp reads."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hetsched.errors import UnsupportedModelError
from hetsched.frontends.decoder_architecture import Architecture, Experts, Rope, StateSpace
from hetsched.frontends.decoder_fields import MAX_LAYERS, Fields
from hetsched.frontends.decoder_weights import Weights
from hetsched.frontends.gguf_reader import GgufArray, GgufHeader

#: ``general.architecture`` values that are handled, and whether rotary pairs are neighbours.
FAMILIES: Mapping[str, bool] = {
    "llama": True, "qwen2": False, "qwen3": False, "qwen3moe": False, "gemma": False, "gemma2": False, "gemma3": False, "phi2": False,
    "phi3": False, "mamba": False,
}  # fmt: skip


def gguf_architecture(header: GgufHeader) -> Architecture:
    """The architecture that a file's metadata describe.

    Raises:
        UnsupportedModelError: the architecture is not one that is handled.
        ModelError: a field is missing or absurd.
    """
    where = f"the GGUF file {header.path.name!r}"
    general = Fields(header.metadata, where)
    family = general.text("general.architecture", "")
    if family not in FAMILIES:
        raise UnsupportedModelError(f"{where} has the architecture {family!r}, which is not supported; supported are {', '.join(FAMILIES)}")
    own = {k.removeprefix(family + "."): v for k, v in header.metadata.items() if k.startswith(family + ".")}
    fields = Fields(own, where)
    common = {
        "family": family,
        "layers": fields.size("block_count", most=MAX_LAYERS),
        "hidden": fields.size("embedding_length"),
        "vocab": _vocabulary(header, fields),
        "context": fields.size("context_length", default=2048),
        "norm_epsilon": fields.positive("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", default=1e-5),
        "tied": "output.weight" not in header.tensors,
    }
    if family == "mamba":
        return Architecture(**common, state_space=_state_space(fields))  # type: ignore[arg-type]
    return Architecture(**common, **_transformer(fields, family))  # type: ignore[arg-type]


def _vocabulary(header: GgufHeader, fields: Fields) -> int:
    table = header.tensors.get("token_embd.weight")
    if table is not None and len(table.shape) == 2:
        return table.shape[0]
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return fields.size("vocab_size", default=tokens.count if isinstance(tokens, GgufArray) and tokens.count else 1)


def _transformer(fields: Fields, family: str) -> dict[str, object]:
    layers, hidden = fields.size("block_count"), fields.size("embedding_length")
    heads = _same_in_all_layers(fields, "attention.head_count", None)
    head_dim = fields.size("attention.key_length", default=max(hidden // heads, 1))
    if fields.size("attention.value_length", default=head_dim) != head_dim:
        raise UnsupportedModelError(f"{fields.where} has values of another length than its keys, which is not supported")
    rope = _rope(fields, family, head_dim)
    windows = _windows(fields, family, layers)
    return {
        "heads": heads,
        "kv_heads": _same_in_all_layers(fields, "attention.head_count_kv", heads),
        "head_dim": head_dim,
        "ffn": _same_in_all_layers(fields, "feed_forward_length", 0 if family == "qwen3moe" else None),
        "rope": rope,
        "local_rope": Rope(10000.0, rope.dim) if family == "gemma3" else None,
        "windows": windows,
        "activation": "gelu_tanh" if family == "phi2" or family.startswith("gemma") else "silu",
        "layer_norm": family == "phi2",
        "parallel": family == "phi2",
        "gated": family != "phi2",
        "embedding_scale": math.sqrt(hidden) if family.startswith("gemma") else 1.0,
        "attention_scale": _scale(family, layers, hidden, heads, head_dim),
        "attention_cap": fields.number("attn_logit_softcapping", default=50.0 if family == "gemma2" else 0.0),
        "logit_cap": fields.number("final_logit_softcapping", default=30.0 if family == "gemma2" else 0.0),
        "experts": _experts(fields, family),
    }


def _same_in_all_layers(fields: Fields, name: str, default: int | None) -> int:
    """A number that may be stored for each layer; models whose layers differ are refused."""
    value = fields.values.get(name)
    if not isinstance(value, tuple):
        return fields.size(name, default=default, least=0 if default == 0 else 1)
    if len(set(value)) != 1:
        raise UnsupportedModelError(f"{name!r} of {fields.where} differs between layers, which is not supported")
    return Fields({name: value[0]}, fields.where).size(name)


def _rope(fields: Fields, family: str, head_dim: int) -> Rope:
    scaling = fields.text("rope.scaling.type", "none")
    factor = fields.positive("rope.scaling.factor", "rope.scale_linear", default=1.0)
    return Rope(
        theta=fields.positive("rope.freq_base", default=10000.0),
        dim=fields.size("rope.dimension_count", default=head_dim),
        interleaved=FAMILIES[family],
        scaling="" if scaling == "none" and factor == 1 else "linear" if scaling == "none" else scaling,
        factor=factor,
        low=1.0,
        high=32.0,
        original=fields.size("rope.scaling.original_context_length", default=0, least=0),
        magnitude=fields.number("rope.scaling.attn_factor", default=0.0),
    )


def _windows(fields: Fields, family: str, layers: int) -> tuple[int, ...]:
    """gemma2 has a window in every second layer, gemma3 in five of six, others in all (where they have one)."""
    window = fields.size("attention.sliding_window", default=4096 if family == "gemma2" else 0, least=0, most=1 << 40)
    if not window or window == 1 or family in ("llama", "qwen2", "qwen3", "qwen3moe", "gemma", "phi2"):
        return ()
    period = {"gemma2": 2, "gemma3": 6}.get(family, 0)
    return tuple(0 if period and (i + 1) % period == 0 else window for i in range(layers))


def _scale(family: str, layers: int, hidden: int, heads: int, head_dim: int) -> float:
    """Keys' scale; the 27B models of gemma2 (46 layers) and gemma3 (62) divide by the width of a head of the residual.

    No field of GGUF says so, and neither do the sizes (the 2B model's heads are narrower than the residual too), so llama.cpp goes
    by the number of layers as well.
    """
    wide = (family, layers) in (("gemma2", 46), ("gemma3", 62))
    return 1 / math.sqrt(hidden / heads if wide else head_dim)


def _experts(fields: Fields, family: str) -> Experts | None:
    count = fields.size("expert_count", default=0, least=0, most=4096)
    if not count:
        return None
    if fields.size("expert_shared_count", default=0, least=0):
        raise UnsupportedModelError(f"{fields.where} has shared experts, which are not supported")
    ffn = fields.size("expert_feed_forward_length", "feed_forward_length")
    return Experts(count, fields.size("expert_used_count", most=4096), ffn)


def _state_space(fields: Fields) -> StateSpace:
    if fields.flag("ssm.dt_b_c_rms", False):
        raise UnsupportedModelError(f"{fields.where} has norms within its state space layers, which are not supported")
    return StateSpace(
        inner=fields.size("ssm.inner_size"),
        state=fields.size("ssm.state_size"),
        kernel=fields.size("ssm.conv_kernel", most=64),
        rank=fields.size("ssm.time_step_rank"),
    )


def gguf_weights(header: GgufHeader) -> Weights:
    """The weights of a file by role; GGUF's names are the roles."""
    from hetsched.frontends.decoder_weights import same

    return Weights(header.tensors, same, f"the GGUF file {header.path.name!r}")
