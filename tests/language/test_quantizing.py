"""Weights that a folder stores as plain floats, quantized as the model is opened."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hetsched.app.generating import assistant
from hetsched.errors import OptionError
from hetsched.language.decode_graph import decode_graph
from hetsched.language.quantizing import q4_1, q8_0, quantized
from hetsched.language.session import LanguageModel
from hetsched.reference.gguf_types import constant_value, decode

DATA = Path(__file__).parent / "data"
FAMILIES = ["llama", "qwen2", "gemma3", "mixtral", "mamba"]


@given(arrays(np.float32, (3, 32), elements=st.floats(-1000, 1000, width=32)))
def test_blocks_are_as_near_as_their_steps(x: np.ndarray) -> None:
    for kind, blocks, step in (("Q8_0", q8_0(x), np.abs(x).max(1) / 127), ("Q4_1", q4_1(x), (x.max(1) - x.min(1)) / 15)):
        away = np.abs(decode(kind, blocks.reshape(-1)).reshape(x.shape) - x).max(1)
        assert (away <= 0.51 * step + 2e-3 * np.abs(x).max(1) + 1e-5).all(), kind


def scores(path: Path, ids: list[int], bits: int = 0) -> np.ndarray:
    with LanguageModel(path, context=64, precision="w4a16", weight_bits=bits) as model:
        return model.compute(ids, model.sequence(), scored=len(ids)).copy()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("bits", [8, 4])
def test_scores_are_those_of_the_decoded_weights(family: str, bits: int, tmp_path: Path) -> None:
    """A folder whose matrices hold what the blocks stand for, rounded to float16, gives the same scores."""
    folder = tmp_path / family
    shutil.copytree(DATA / family, folder)
    raw = bytearray((folder / "model.safetensors").read_bytes())
    before = decode_graph(DATA / family, 64)
    for name, tensor in quantized(before, bits).tensors.items():
        place = before.tensors.get(name.split(" ")[0], tensor).data
        if tensor.quantization is not None and place is not None and " " not in name:
            raw[place.offset : place.offset + place.length] = constant_value(tensor).astype(np.float16).tobytes()
    (folder / "model.safetensors").write_bytes(raw)
    ids = np.load(DATA / family / "golden.npz")["ids"].tolist()
    got, want, plain = scores(DATA / family, ids, bits), scores(folder, ids), scores(DATA / family, ids)
    near, far = (np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(got, other, strict=True)]) for other in (want, plain))
    assert near >= 0.998 and near >= far


def test_embeddings_stay_and_sensitive_weights_keep_eight_bits() -> None:
    tensors = quantized(decode_graph(DATA / "qwen2", 32), 4).tensors  # its head is the embedding
    assert tensors["model.embed_tokens.weight"].quantization is None
    schemes = {n: t.quantization.scheme for n, t in tensors.items() if t.quantization is not None}
    assert schemes["model.embed_tokens.weight (Q8_0)"] == "gguf:Q8_0"
    assert schemes["model.layers.0.mlp.down_proj.weight"] == "gguf:Q8_0"
    assert schemes["model.layers.0.mlp.up_proj.weight"] == "gguf:Q4_1"
    with pytest.raises(OptionError, match="cannot be quantized to 5 bits"):
        quantized(decode_graph(DATA / "qwen2", 32), 5)


def test_weights_keep_sixteen_bits_unless_a_precision_names_others() -> None:
    sizes = {}
    for precision in ("auto", "w8a16", "w4a16", "w8a8-dynamic"):
        with assistant(DATA / "llama", context=64, precision=precision, cores=(0,)) as opened:
            said = list(opened.conversation().say("Name a city.", most=4))
            summary = opened.summary(opened.conversation().answer)
            sizes[precision] = summary["weights_mb"]
            assert said and summary["weights"] == {
                "auto": "f16", "w8a16": "gguf:Q8_0", "w4a16": "gguf:Q4_1, gguf:Q8_0", "w8a8-dynamic": "gguf:Q8_0"
            }[precision]  # fmt: skip
    assert sizes["auto"] > sizes["w8a16"] > sizes["w4a16"]
    products = sum(t.elements for n, t in decode_graph(DATA / "llama", 32).tensors.items() if t.data is not None and len(t.shape) == 2)
    assert sizes["auto"] * 1e6 < 2.6 * products  # two bytes each, and what fills up whole panels
