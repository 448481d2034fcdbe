"""Hugging Face folders of decoders: the same network from GGUF and from ``config.json`` is the same graph, and computes the same."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.frontends.gguf_frontend import GgufFrontend
from hetsched.frontends.hf_frontend import HuggingFaceFrontend
from hetsched.frontends.hf_names import naming
from hetsched.graph import DType, Graph
from hetsched.passes import standard
from hetsched.reference import run
from hetsched.states import kv_bytes_per_token
from hetsched_cost_models.work import work_of

_SPEC = spec_from_file_location("small_decoders", Path(__file__).with_name("small_decoders.py"))
assert _SPEC is not None and _SPEC.loader is not None
small = module_from_spec(_SPEC)
_SPEC.loader.exec_module(small)

CORPUS = Path(__file__).parents[3] / "shared" / "models"
Arrays = dict[str, np.ndarray[Any, Any]]
FAMILIES = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3_text", "phi2": "phi",
    "phi3": "phi3", "mixtral-apart": "mixtral", "qwen3moe": "qwen3_moe", "mamba": "mamba",
}  # fmt: skip


def config_of(name: str) -> dict[str, Any]:
    """The configuration of the small decoder, as transformers would write it."""
    if name == "mamba":
        return {
            "model_type": "mamba", "num_hidden_layers": small.LAYERS, "hidden_size": small.H, "vocab_size": small.VOCAB, "state_size": 8,
            "conv_kernel": 4, "expand": 2, "time_step_rank": 4, "layer_norm_epsilon": 1e-5, "time_step_limit": [0.0, float("inf")],
        }  # fmt: skip
    base: dict[str, Any] = {
        "model_type": FAMILIES[name], "num_hidden_layers": small.LAYERS, "hidden_size": small.H, "vocab_size": small.VOCAB,
        "num_attention_heads": small.HEADS, "num_key_value_heads": small.KV, "head_dim": small.D, "intermediate_size": small.FFN,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512, "hidden_act": "silu", "sliding_window": None,
        "tie_word_embeddings": name not in ("llama", "phi2"),
    }  # fmt: skip
    extra: dict[str, dict[str, Any]] = {
        "gemma2": {"sliding_window": 4, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        "gemma3": {"sliding_window": 3, "rope_local_base_freq": 10000.0},
        "phi2": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "rms_norm_eps": None},
        "phi3": {"sliding_window": 5, "partial_rotary_factor": (small.D - 4) / small.D},
        "mixtral-apart": {"num_local_experts": 4, "num_experts_per_tok": 2},
        "qwen3moe": {"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True, "moe_intermediate_size": small.FFN},
    }
    gemma = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": small.D} if name.startswith("gemma") else {}
    return {**base, **gemma, **extra.get(name, {})}


def halves(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of a projection whose rotary pairs are neighbours, reordered so that they are halves of each head."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def hf_weights(name: str, arrays: Arrays) -> Arrays:
    """The GGUF arrays under the checkpoint's names and conventions."""
    rename = naming({"mixtral-apart": "mixtral"}.get(name, name))
    out: Arrays = {}
    for role, value in arrays.items():
        if name in ("llama", "mixtral-apart") and (".attn_q." in role or ".attn_k." in role):
            value = halves(value, small.HEADS if ".attn_q." in role else small.KV)
        if name.startswith("gemma") and "norm" in role:
            value = value - 1
        if role.endswith("ssm_a"):
            value = np.log(-value)
        if role.endswith("conv1d.weight"):
            value = value[:, None, :]
        if name == "qwen3moe" and "_exps." in role:
            out |= {rename(role.replace("_exps.", f".{e}."))[0]: part for e, part in enumerate(value)}
        else:
            out[rename(role)[0]] = value
    return out


def write_folder(folder: Path, config: dict[str, Any], arrays: Arrays | None, shards: int = 1) -> Path:
    """A folder with ``config.json`` and safetensors files of float32."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    names = list(arrays or {})
    index: dict[str, str] = {}
    for s in range(shards if arrays else 0):
        header, data = {"__metadata__": {"format": "pt"}}, b""
        for n in names[s::shards]:
            raw = (arrays or {})[n].astype("<f4").tobytes()
            shape = list((arrays or {})[n].shape)
            header[n] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}  # type: ignore[dict-item]
            data += raw
        text = json.dumps(header).encode()
        file = "model.safetensors" if shards == 1 else f"model-{s}.safetensors"
        index |= dict.fromkeys(names[s::shards], file)
        (folder / file).write_bytes(struct.pack("<Q", len(text)) + text + data)
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder


def feeds(graph: Graph, ids: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"input_ids": ids, **({"position_ids": np.arange(ids.shape[1])[None]} if "position_ids" in graph.inputs else {})}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_network_from_gguf_and_from_config(
    name: str, tmp_path: Path, write_gguf: Callable[..., Path], parameters: Callable[[Graph], int]
) -> None:
    metadata, shapes = small.family_model(name)
    arrays = small.seeded(shapes)
    gguf = write_gguf(metadata, arrays, name)
    folder = write_folder(tmp_path / "hf", config_of(name), hf_weights(name, arrays), shards=2 if name == "qwen2" else 1)
    a, b = (load(p, {"tokens": 7, "past": 0, "logits": 7}) for p in (gguf, folder))
    assert Counter(op.type for op in standard(a).ops) == Counter(op.type for op in standard(b).ops)
    assert work_of(a).macs.sum() == work_of(b).macs.sum() > 0
    assert parameters(a) == parameters(b) and kv_bytes_per_token(a) == kv_bytes_per_token(b)
    ids = np.random.default_rng(8).integers(0, small.VOCAB, (1, 7))
    x, y = run(a, feeds(a, ids))["logits"], run(b, feeds(b, ids))["logits"]
    np.testing.assert_allclose(y, x, atol=2e-4 * np.abs(x).max())
    one, other = GgufFrontend().architecture(gguf), HuggingFaceFrontend().architecture(folder)
    for field in ("layers", "hidden", "vocab", "heads", "kv_heads", "head_dim", "windows", "tied", "experts", "logit_cap", "activation"):
        assert getattr(one, field) == getattr(other, field), field


@pytest.mark.parametrize("name", FAMILIES)
def test_a_configuration_alone_is_enough_to_plan(name: str, tmp_path: Path, parameters: Callable[[Graph], int]) -> None:
    _, shapes = small.family_model(name)
    whole = write_folder(tmp_path / "whole", config_of(name), hf_weights(name, small.seeded(shapes)))
    alone = write_folder(tmp_path / "alone", {**config_of(name), "dtype": "bfloat16"}, None)
    a, b = load(whole), load(alone)
    assert [(op.name, op.type) for op in a.ops] == [(op.name, op.type) for op in b.ops]
    assert parameters(a) == parameters(b)
    weights = [t for t in b.tensors.values() if t.data is not None and t.data.path is not None]
    assert weights and all(t.dtype is DType.BF16 and t.data is not None and not t.data.is_present for t in weights)


def test_fields_that_make_no_sense(tmp_path: Path) -> None:
    for i, (change, message) in enumerate(
        [
            ({"hidden_size": "wide"}, "whole number"), ({"num_hidden_layers": 10**9}, "from 1 to 1024"),
            ({"hidden_size": None}, "no 'hidden_size'"),
            ({"rms_norm_eps": 0}, "above 0"), ({"num_key_value_heads": 3}, "4 query heads"), ({"model_type": "rwkv"}, "'rwkv'"),
            ({"hidden_act": "odd"}, "activation 'odd'"), ({"rope_scaling": {"rope_type": "odd"}}, "scaling 'odd'"),
            ({"rope_scaling": [1]}, "not an object"), ({"vocab_size": 10**400}, "over 64 bits"), ({"model_type": 4}, "not a text"),
        ]
    ):  # fmt: skip
        with pytest.raises(ModelError, match=message):
            load(write_folder(tmp_path / str(i), {**config_of("llama"), **change}, None))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"model_type": ', "not valid JSON"), (b'{"model_type": "llama", "model_type": "llama"}', "twice"),
        (b'{"model_type": ' + b"[" * 100_000, "not valid JSON"), (b'{"model_type": "llama", "x": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"model_type": "\xff"}', "not valid JSON"), (b'{"model_type": "llama"}', "no 'num_hidden_layers'"),
    ],
)  # fmt: skip
def test_configurations_that_are_damaged(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(ModelError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd.safetensors", "a/b.safetensors", "x\\..\\y.safetensors", "model.bin"]
)
def test_an_index_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path / "m", config_of("llama"), None)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(ModelError, match="refused"):
        load(folder)


def test_a_safetensors_file_finds_its_configuration(tmp_path: Path) -> None:
    _, shapes = small.family_model("llama")
    folder = write_folder(tmp_path / "m", config_of("llama"), hf_weights("llama", small.seeded(shapes)))
    assert load(folder / "model.safetensors").sha256 == load(folder).sha256
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"put its config\.json beside it"):
        load(folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"a folder without config\.json"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "F12"}, "type 'F12'"), ({"shape": [1]}, "needs 4 bytes"), ({"shape": [-1]}, "no valid description"),
        ({"shape": [1 << 62, 1 << 62]}, "no valid description"), ({"data_offsets": [0]}, "no valid"), ({"data_offsets": [8, 0]}, "needs"),
        ({"shape": "x"}, "no valid description"), ({"shape": [True]}, "no valid description"),
    ],
)  # fmt: skip
def test_weights_that_make_no_sense(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = write_folder(tmp_path / "m", config_of("llama"), None)
    text = json.dumps({"w": {"dtype": "F32", "shape": [60, 32], "data_offsets": [0, 7680], **change}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(ModelError, match=message):
        load(folder)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + text)
    with pytest.raises(ModelError, match="truncated"):
        load(folder)


def test_shapes_must_fit_the_configuration(tmp_path: Path) -> None:
    _, shapes = small.family_model("llama")
    arrays = hf_weights("llama", small.seeded(shapes))
    arrays["model.layers.1.mlp.up_proj.weight"] = arrays["model.layers.1.mlp.up_proj.weight"].T
    with pytest.raises(ModelError, match=r"'model\.layers\.1\.mlp\.up_proj\.weight' .* has the shape \[32, 40\] where \[40, 32\]"):
        load(write_folder(tmp_path / "a", config_of("llama"), arrays))
    del arrays["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ModelError, match=r"no weight 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        load(write_folder(tmp_path / "b", config_of("llama"), arrays))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_folders_load_or_are_refused(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / "fuzz"
    if not folder.exists():
        write_folder(folder, config_of("qwen3"), hf_weights("qwen3", small.seeded(small.family_model("qwen3")[1])))
        (folder / "model.safetensors").rename(folder / "good")
        (folder / "config.json").rename(folder / "config.good")
    raw = bytearray((folder / "good").read_bytes()[:6000])
    config = bytearray((folder / "config.good").read_bytes())
    for target in (raw, config):
        for _ in range(data.draw(st.integers(0, 2))):
            at = data.draw(st.integers(0, len(target) - 1))
            piece = data.draw(
                st.sampled_from([b"9999999999", b"null", b"[]", b"-1", b'"', b"{", b"1e999"]) | st.binary(min_size=1, max_size=3)
            )
            target[at : at + len(piece)] = piece
    (folder / "model.safetensors").write_bytes(bytes(raw))
    (folder / "config.json").write_bytes(bytes(config))
    try:
        graph = HuggingFaceFrontend().load(folder / "config.json", {}, {})
    except (ModelError, OptionError):
        return
    assert graph.ops


def test_phi_2_has_2_78_billion_parameters(tmp_path: Path, parameters: Callable[[Graph], int]) -> None:
    """The sizes of microsoft/phi-2's configuration; its card says 2.78 B (2,779,683,840 in the checkpoint)."""
    config = {
        "model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "vocab_size": 51200, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.4,
        "max_position_embeddings": 2048, "tie_word_embeddings": False, "qk_layernorm": False,
    }  # fmt: skip
    graph = load(write_folder(tmp_path / "phi-2", config, None))
    assert parameters(graph) == 2_779_683_840
    rotated = {op.attr_int("rotary_embedding_dim", 0) for op in graph.ops if op.type == "RotaryEmbedding"}
    assert rotated == {32} and kv_bytes_per_token(graph) == 2 * 32 * 2560 * 2
    counts = Counter(op.type for op in graph.ops)
    assert counts["LayerNormalization"] == 33 and counts["Gelu"] == 32 and not counts["RMSNorm"]
    with pytest.raises(UnsupportedModelError, match="layer norms of query and key heads"):
        load(write_folder(tmp_path / "normed", {**config, "qk_layernorm": True}, None))


#: Parameters as published (or counted by the makers' own tools), in the order: folder, parameters, KV bytes per token in float16.
PUBLISHED = {
    "smollm2-135m": (134_515_008, 2 * 30 * 3 * 64 * 2), "llama-3.2-1b": (1_235_814_400, 2 * 16 * 8 * 64 * 2),
    "qwen2.5-0.5b": (494_032_768, 2 * 24 * 2 * 64 * 2), "tinyllama-1.1b": (1_100_048_384, 2 * 22 * 4 * 64 * 2),
}  # fmt: skip


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the shared corpus is absent ({CORPUS})")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameter_counts(name: str, parameters: Callable[[Graph], int]) -> None:
    graph = load(CORPUS / "hf" / name)
    assert (parameters(graph), kv_bytes_per_token(graph)) == PUBLISHED[name]


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the shared corpus is absent ({CORPUS})")
def test_smollm2_from_both_formats(parameters: Callable[[Graph], int]) -> None:
    a, b = (load(CORPUS / p) for p in ("gguf/smollm2_135m_q4_1.header.gguf", "hf/smollm2-135m"))
    assert Counter(op.type for op in standard(a).ops) == Counter(op.type for op in standard(b).ops)
    assert work_of(a).macs.sum() == work_of(b).macs.sum()
    assert parameters(a) == parameters(b)
    gemma = load(CORPUS / "gguf" / "gemma3_270m_q4_k_m.header.gguf")
    assert parameters(gemma) == 268_098_176


def test_other_models_are_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", {"model_type": "t5", "hidden_size": 4}, None)
    with pytest.raises(UnsupportedModelError, match="'t5', which is not supported; supported are llama"):
        load(folder)
    with pytest.raises(UnsupportedModelError, match="not a decoder language model"):
        HuggingFaceFrontend().architecture(folder)
