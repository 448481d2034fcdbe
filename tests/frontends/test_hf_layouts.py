"""Layouts of Hugging Face checkpoints: experts as one parameter, folders that lack some of their files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ModelError
from hetsched.frontends import load
from hetsched.reference import run
from hetsched_cost_models.work import work_of

H, F, V, E = 16, 12, 40, 4
CONFIG: dict[str, Any] = {
    "model_type": "mixtral", "hidden_size": H, "intermediate_size": F, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": V, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "num_local_experts": E,
    "num_experts_per_tok": 2, "dtype": "float32",
}  # fmt: skip
Arrays = dict[str, np.ndarray[Any, np.dtype[np.float32]]]


def weights() -> Arrays:
    """Experts one by one, with the names of older checkpoints."""
    rng = np.random.default_rng(5)
    shapes = {"model.embed_tokens.weight": (V, H), "model.norm.weight": (H,), "lm_head.weight": (V, H)}
    for i in range(2):
        base = f"model.layers.{i}"
        shapes |= {f"{base}.{n}.weight": (H,) for n in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{base}.self_attn.{n}_proj.weight": s for n, s in (("q", (H, H)), ("k", (8, H)), ("v", (8, H)), ("o", (H, H)))}
        shapes[f"{base}.block_sparse_moe.gate.weight"] = (E, H)
        for e in range(E):
            shapes |= {f"{base}.block_sparse_moe.experts.{e}.{n}.weight": s for n, s in (("w1", (F, H)), ("w2", (H, F)), ("w3", (F, H)))}
    return {n: (0.3 * rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}


def joined(arrays: Arrays, module: str) -> Arrays:
    """The same experts as one parameter for gates and ups and one for downs, with the names of newer checkpoints."""
    out = {n.replace("block_sparse_moe", module): a for n, a in arrays.items() if ".experts." not in n}
    for i in range(2):
        old, new = f"model.layers.{i}.block_sparse_moe.experts", f"model.layers.{i}.{module}.experts"
        parts = [[arrays[f"{old}.{e}.{n}.weight"] for e in range(E)] for n in ("w1", "w3", "w2")]
        out[f"{new}.gate_up_proj"] = np.concatenate([np.stack(parts[0]), np.stack(parts[1])], 1)
        out[f"{new}.down_proj"] = np.stack(parts[2])
    return out


def write(folder: Path, arrays: Arrays, files: int = 1) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    names, index = list(arrays), {}
    for k in range(files):
        file = "model.safetensors" if files == 1 else f"model-{k}.safetensors"
        header, data = {}, b""
        for n in names[k::files]:
            raw = arrays[n].tobytes()
            header[n] = {"dtype": "F32", "shape": list(arrays[n].shape), "data_offsets": [len(data), len(data) + len(raw)]}
            data, index[n] = data + raw, file
        text = json.dumps(header).encode()
        (folder / file).write_bytes(struct.pack("<Q", len(text)) + text + data)
    if files > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder


@pytest.mark.parametrize("module", ["block_sparse_moe", "mlp"])
def test_experts_as_one_parameter_compute_the_same(tmp_path: Path, module: str) -> None:
    arrays = weights()
    graphs = [load(write(tmp_path / n, a), {"tokens": 5}) for n, a in (("apart", arrays), ("joined", joined(arrays, module)))]
    feeds = {"input_ids": np.array([[1, 5, 2, 9, 30]]), "position_ids": np.arange(5)[None]}
    a, b = (run(g, feeds)["logits"] for g in graphs)
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    apart, whole = (work_of(g) for g in graphs)
    assert apart.macs.sum() == whole.macs.sum()
    assert apart.weight_float_elems.sum() == pytest.approx(whole.weight_float_elems.sum())


def test_experts_of_another_shape_are_refused(tmp_path: Path) -> None:
    arrays = joined(weights(), "mlp")
    name = "model.layers.0.mlp.experts.gate_up_proj"
    arrays[name] = np.ascontiguousarray(arrays[name].swapaxes(1, 2))
    with pytest.raises(ModelError, match="gate_up_proj"):
        load(write(tmp_path / "m", arrays))


def test_a_folder_that_lacks_a_shard_names_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", weights(), files=3)
    load(folder)
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(ModelError, match=r"lacks 1 of the 3 files that its index names \('model-1.safetensors'\)"):
        load(folder)
    for k in (0, 2):
        (folder / f"model-{k}.safetensors").unlink()
    assert load(folder).ops, "the configuration alone is enough to plan"
