"""The transformers of the shared corpus: how many composites each becomes, from whatever tool it came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard
from hetsched.reference import run, run_op
from hetsched_cost_models.work import work_of

CORPUS = Path(__file__).parents[3] / "shared" / "models"
#: Attentions (per layer, or per head where the file has one product a head), merged products, residual norms.
EXPECTED: dict[str, tuple[int, int, int]] = {
    "graphs/bert_base_uncased_s128.onnx": (12, 12, 24),
    "graphs/distilbert_s128.onnx": (6, 6, 12),
    "graphs/llama32_1b_1layer_decode_p512.onnx": (1, 2, 2),
    "graphs/llama32_1b_1layer_prefill128.onnx": (1, 2, 2),
    "graphs/minilm_l6_h384_s128.onnx": (6, 6, 12),
    "graphs/minilm_l6_h384_s128_dynint8.onnx": (6, 6, 12),
    "graphs/smollm2_135m_decode_p512.onnx": (30, 60, 60),
    "graphs/timm_deit_tiny_patch16_224.onnx": (12, 12, 24),
    "graphs/vit_b_16.onnx": (12, 12, 24),
    "graphs/whisper_tiny_decoder_t32.onnx": (8, 8, 12),
    "graphs/whisper_tiny_encoder.onnx": (4, 4, 8),
    "graphs/whisper_tiny_encoder_fp16.onnx": (4, 4, 8),
    "aihub/albert_base_v2_hf.onnx": (12, 12, 24),
    "aihub/bert_base_uncased_hf.onnx": (12, 12, 24),
    "aihub/distil_bert_base_uncased_hf.onnx": (6, 6, 12),
    "aihub/electra_bert_base_discrim_google.onnx": (12, 12, 24),
    "aihub/mobile_bert_uncased_google.onnx": (24, 24, 0),
    "aihub/vit.onnx": (12, 12, 24),
    "aihub/whisper_tiny__HfWhisperDecoder.onnx": (48, 0, 12),
    "aihub/whisper_tiny__HfWhisperEncoder.onnx": (24, 0, 8),
    "aihub/yolov11_det.onnx": (1, 0, 0),
    "hf/all-minilm-l6-v2": (6, 6, 12),
    "hf/bert-base-uncased": (12, 12, 24),
    "hf/distilbert-base": (6, 6, 12),
    "hf/llama-3.2-1b": (16, 32, 32),
    "hf/vit-base-patch16-224": (12, 12, 24),
}
ATTENTION = ("Attention", "GroupQueryAttention")
SKIPS = ("SkipLayerNorm", "SkipRMSNorm")


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the shared corpus is absent ({CORPUS})")
@pytest.mark.parametrize("name", EXPECTED)
def test_composites_of_a_transformer(name: str) -> None:
    graph = load(CORPUS / name)
    fused = standard(graph)
    counts = Counter(op.type for op in fused.ops)
    found = sum(counts[k] for k in ATTENTION), counts["MergedMatMul"], sum(counts[k] for k in SKIPS)
    assert found == EXPECTED[name]
    assert not counts["Pow"] and not counts["ReduceMean"] and not counts["Erf"] and not counts["Sqrt"]
    assert counts["LayerNormalization"] + counts["RMSNorm"] <= 2
    assert work_of(fused).macs.sum() == pytest.approx(work_of(graph).macs.sum(), rel=1e-12)


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the shared corpus is absent ({CORPUS})")
def test_one_network_from_two_tools() -> None:
    kinds = ("Attention", "MergedMatMul", "SkipLayerNorm")
    for one, other in (("graphs/bert_base_uncased_s128.onnx", "hf/bert-base-uncased"), ("graphs/vit_b_16.onnx", "aihub/vit.onnx")):
        a, b = (Counter(op.type for op in standard(load(CORPUS / n)).ops) for n in (one, other))
        assert [a[k] for k in kinds] == [b[k] for k in kinds]


@pytest.mark.real_models
def test_composites_of_a_trained_model_mean_what_their_bodies_do(real_model: Callable[[str], Path]) -> None:
    graph = load(real_model("minilm-l3-onnx"), {"sequence_length": 12})
    fused = standard(graph)
    values = _values(fused, graph)
    seen: Counter[str] = Counter()
    for op in fused.ops:
        if op.type not in ("Attention", "MergedMatMul", "SkipLayerNorm"):
            continue
        seen[op.type] += 1
        own = run_op(replace(op, body=()), [values[n] if n else None for n in op.inputs])
        for out, value in zip(op.outputs, own, strict=True):
            np.testing.assert_allclose(value, values[out], rtol=2e-4, atol=1e-4)
    assert seen == {"Attention": 3, "MergedMatMul": 3, "SkipLayerNorm": 6}


def _values(fused: Graph, graph: Graph) -> dict[str, Any]:
    """Every tensor on a sentence of noise, the last two tokens masked."""
    rng = np.random.default_rng(5)
    feeds = {n: rng.integers(1, 900, graph.tensors[n].shape).astype(graph.tensors[n].dtype.numpy) for n in graph.inputs}
    for name in feeds:
        if "mask" in name:
            feeds[name] = (np.arange(feeds[name].size) < feeds[name].size - 2).reshape(feeds[name].shape).astype(feeds[name].dtype)
        elif "type" in name:
            feeds[name] = feeds[name] * 0
    constants = {n: t.numpy() for n, t in fused.tensors.items() if t.is_constant}
    after, before = run(fused, feeds), run(graph, feeds)
    for out in graph.outputs:
        np.testing.assert_array_equal(before[out], after[out])
    return {**constants, **after}
