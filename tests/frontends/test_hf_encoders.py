"""BERT-like, ViT and Whisper folders: against graphs that transformers exported, and small ones against themselves."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import DType, Graph, Role, WeightRef
from hetsched.passes import standard
from hetsched.reference import run
from hetsched.states import kv_bytes_per_token
from hetsched_cost_models.work import work_of

CORPUS = Path(__file__).parents[3] / "shared" / "models"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the shared corpus is absent ({CORPUS})")
Arrays = dict[str, np.ndarray[Any, Any]]

BERT = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 30,
}
DISTIL = {"model_type": "distilbert", "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "vocab_size": 30}
ROBERTA = {**BERT, "model_type": "roberta", "max_position_embeddings": 20, "pad_token_id": 1, "type_vocab_size": 1}
VIT = {
    "model_type": "vit", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "image_size": 12,
    "patch_size": 4,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24,
    "decoder_attention_heads": 2, "decoder_ffn_dim": 24, "vocab_size": 30, "num_mel_bins": 5, "max_source_positions": 7,
    "max_target_positions": 12,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    def write(config: dict[str, Any]) -> Path:
        import json

        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path

    return write


def seeded(graph: Graph) -> Graph:
    """The graph with seeded arrays for its (absent) weights; a weight has the same values in every graph."""
    tensors = dict(graph.tensors)
    for name, t in graph.tensors.items():
        if t.data is not None and t.data.array is None:
            rng = np.random.default_rng(list(name.encode()))
            value = rng.standard_normal(t.shape) * (0.3 if len(t.shape) > 1 else 0.1) + ("norm" in name.lower() and name.endswith("weight"))
            tensors[name] = replace(t, dtype=DType.F32, data=WeightRef(array=value.astype(np.float32)))
    return graph.replace(tensors=tensors)


@pytest.mark.parametrize("config", [BERT, DISTIL, ROBERTA], ids=lambda c: c["model_type"])
def test_encoders_treat_sequences_alone_and_obey_the_mask(config: dict[str, Any], folder: Any) -> None:
    path = folder(config)
    both, one = (seeded(load(path, {"batch": n, "tokens": 6})) for n in (2, 1))
    rng = np.random.default_rng(1)
    ids, mask = rng.integers(0, 30, (2, 6)), np.array([[1] * 6, [1, 1, 1, 1, 0, 0]])
    y = run(both, _named(both, ids, mask))["last_hidden_state"]
    for b in range(2):
        np.testing.assert_allclose(run(one, _named(one, ids[b : b + 1], mask[b : b + 1]))["last_hidden_state"][0], y[b], atol=1e-5)
    hidden = ids.copy()
    hidden[1, 4:] = 0
    np.testing.assert_allclose(run(both, _named(both, hidden, mask))["last_hidden_state"][1, :4], y[1, :4], atol=1e-5)
    fused = standard(both)
    np.testing.assert_allclose(run(fused, _named(fused, ids, mask))["last_hidden_state"], y, atol=1e-5)
    assert Counter(op.type for op in fused.ops)["Attention"] == 2


def _named(graph: Graph, ids: Any, mask: Any) -> dict[str, Any]:
    return {n: {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0}[n] for n in graph.inputs}


def test_images_are_treated_alone(folder: Any) -> None:
    path = folder(VIT)
    both, one = (seeded(load(path, {"batch": n})) for n in (2, 1))
    pixels = np.random.default_rng(2).standard_normal((2, 3, 12, 12)).astype(np.float32)
    y = run(both, {"pixel_values": pixels})["last_hidden_state"]
    assert y.shape == (2, 10, 16)
    np.testing.assert_allclose(run(one, {"pixel_values": pixels[1:]})["last_hidden_state"][0], y[1], atol=1e-5)


def test_whisper_decodes_step_by_step(folder: Any) -> None:
    path = folder(WHISPER)
    sound = np.random.default_rng(3).standard_normal((2, 5, 14)).astype(np.float32)
    encoder = seeded(load(path, {"batch": 2}))
    heard = run(encoder, {"input_features": sound})
    cross = {n: heard[n] for n in encoder.outputs if n.startswith("cross.")}
    assert {encoder.tensors[n].role for n in cross} == {Role.STATE} and len(cross) == 4
    ids = np.random.default_rng(4).integers(0, 30, (2, 6))
    whole = seeded(load(path, {"batch": 2, "tokens": 6, "past": 0, "logits": 6}))
    positions = np.broadcast_to(np.arange(6), (2, 6))
    want = run(whole, {"input_ids": ids, "position_ids": positions, **cross})["logits"]
    states: dict[str, Any] = {}
    for start, end in ((0, 3), (3, 4), (4, 6)):
        graph = seeded(load(path, {"batch": 2, "tokens": end - start, "past": start, "logits": end - start}))
        got = run(graph, {"input_ids": ids[:, start:end], "position_ids": positions[:, start:end], **cross, **states})
        states = {n.replace("present", "past"): got[n] for n in graph.outputs if n.startswith("present.")}
        np.testing.assert_allclose(got["logits"], want[:, start:end], atol=5e-3)
    assert kv_bytes_per_token(whole) == 2 * 2 * 16 * 2


@pytest.mark.parametrize(
    ("config", "dims", "message"),
    [
        (BERT, {"past": 3}, "no dim 'past'"), (BERT, {"tokens": 513}, "tokens=513 is out of range"),
        (VIT, {"tokens": 3}, "no dim 'tokens'"), (BERT, {"tokens": 512, "batch": 65536}, "rows: lower one"),
        (WHISPER, {"tokens": 4, "past": 9}, "more than the 12 positions"), (ROBERTA, {"tokens": 19}, "from 1 to 18"),
    ],
)  # fmt: skip
def test_dims_that_do_not_fit(folder: Any, config: dict[str, Any], dims: dict[str, int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        load(folder(config), dims)


@pytest.mark.parametrize("config", [BERT, DISTIL, VIT, WHISPER], ids=lambda c: c["model_type"])
def test_configurations_that_make_no_sense(config: dict[str, Any], folder: Any) -> None:
    for name in config:
        if name in ("model_type", "max_source_positions", "max_target_positions", "num_mel_bins"):
            continue
        with pytest.raises(ModelError):
            load(folder({**config, name: -1}), {"tokens": 1} if "decoder" in name or (config is WHISPER and name == "vocab_size") else {})
    act = {"bert": "hidden_act", "distilbert": "activation", "vit": "hidden_act", "whisper": "activation_function"}[config["model_type"]]
    with pytest.raises(UnsupportedModelError, match="activation 'odd'"):
        load(folder({**config, act: "odd"}))


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize(
    ("name", "graph", "dims", "pooler"),
    [("bert-base-uncased", "bert_base_uncased_s128", {}, 768**2), ("distilbert-base", "distilbert_s128", {}, 0),
     ("all-minilm-l6-v2", "minilm_l6_h384_s128", {}, 384**2)],
)  # fmt: skip
def test_work_is_that_of_the_export(name: str, graph: str, dims: dict[str, int], pooler: int, parameters: Callable[[Graph], int]) -> None:
    with (CORPUS / "graphs.csv").open() as file:
        row = next(r for r in csv.DictReader(file) if r["name"] == graph)
    mine = load(CORPUS / "hf" / name, dims)
    assert parameters(mine) == int(row["params"])
    assert work_of(mine).macs.sum() - pooler == pytest.approx(int(row["macs"]), rel=1e-4)


@pytest.mark.corpus
@needs_corpus
def test_vit_and_whisper_of_the_corpus() -> None:
    vit, encoder = load(CORPUS / "hf" / "vit-base-patch16-224"), load(CORPUS / "hf" / "whisper-tiny")
    assert work_of(vit).macs.sum() == pytest.approx(17_563_828_224, rel=1e-3)
    cross = 4 * 2 * 1500 * 384**2
    assert work_of(encoder).macs.sum() - cross == 18_468_864_000
    decoder = load(CORPUS / "hf" / "whisper-tiny", {"tokens": 1, "past": 447})
    assert decoder.tensors["cross.3.key"].shape == (1, 6, 64, 1500)
    both = {t.name: t.elements for g in (encoder, decoder) for t in g.tensors.values() if t.data is not None and t.data.path is not None}
    assert sum(both.values()) == 37_760_640


@pytest.mark.corpus
@needs_corpus
def test_minilm_computes_what_transformers_exported() -> None:
    """The export's weights are seeded; its folded matrices are those of the layers, in the order of their use."""
    proto, arrays = _export_with_weights()
    graph = load(CORPUS / "hf" / "all-minilm-l6-v2", {"tokens": 128})
    used = dict.fromkeys(i for node in proto.graph.node for i in node.input)
    matrices = iter([n for n in used if n.startswith("val_") and arrays.get(n, np.zeros(0)).ndim == 2])
    parts = (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
        "attention.output.dense",
        "intermediate.dense",
        "output.dense",
    )
    values: Arrays = {f"encoder.layer.{i}.{p}.weight": arrays[next(matrices)].T for i in range(6) for p in parts}
    tensors = dict(graph.tensors)
    for name, t in graph.tensors.items():
        if t.data is not None and t.data.array is None:
            shared = "m.embeddings.LayerNorm.weight" if name.endswith("LayerNorm.weight") else "m.embeddings.LayerNorm.bias"
            own = values.get(name, arrays.get(f"m.{name}", np.zeros(t.shape, np.float32) if "pooler" in name else arrays[shared]))
            tensors[name] = replace(t, data=WeightRef(array=np.ascontiguousarray(own)))
    ids = np.random.default_rng(3).integers(0, 30522, (1, 128))
    mask = (np.arange(128) < 100).astype(np.int64)[None]
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
    got = run(graph.replace(tensors=tensors), {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0})["last_hidden_state"]
    np.testing.assert_allclose(got[:, :100], want[:, :100], atol=2e-5)


def _export_with_weights() -> tuple[onnx.ModelProto, Arrays]:
    proto = onnx.load(CORPUS / "graphs" / "minilm_l6_h384_s128.onnx", load_external_data=False)
    rng, arrays = np.random.default_rng(1), Arrays()
    index = np.stack([np.zeros(128, np.int64), np.arange(128)], -1).reshape(1, 1, 1, 128, 2)
    known = {"expand": np.zeros((1, 512), np.int64), "val_47": index}
    for t in proto.graph.initializer:
        if t.data_location != t.EXTERNAL:
            arrays[t.name] = numpy_helper.to_array(t)
        elif t.name in known:
            arrays[t.name] = known[t.name]
        else:
            value = rng.standard_normal(tuple(t.dims)) * (0.05 if len(t.dims) == 2 else 0.1) + t.name.endswith("LayerNorm.weight")
            arrays[t.name] = value.astype(np.float32)
    for t in proto.graph.initializer:
        t.CopyFrom(numpy_helper.from_array(arrays[t.name], t.name))
    return proto, arrays
