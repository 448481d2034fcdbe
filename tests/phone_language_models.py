"""Published configurations of small language models, by the names that public rates use: what `config.json` needs to be planned.

From the model cards; `tests/cost_models/test_phone_language.py` compares them with the counts that the fits use.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def _config(kind: str, hidden: int, ffn: int, layers: int, heads: int, shared: int, dim: int, vocab: int, tied: bool) -> dict[str, Any]:
    """A Hugging Face configuration: width, feed-forward width, layers, heads of queries and of keys, their length, words."""
    return {
        "model_type": kind, "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": shared, "head_dim": dim, "vocab_size": vocab, "tie_word_embeddings": tied, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 32768, "dtype": "bfloat16",
    }  # fmt: skip


#: Name -> (pattern of the names in the rows, configuration).
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-3.2-1b": (r"llama[-_]?v?3[._]2[-_ ]1b", _config("llama", 2048, 8192, 16, 32, 8, 64, 128256, True)),
    "llama-3.2-3b": (r"llama[-_]?v?3[._]2[-_ ]3b", _config("llama", 3072, 8192, 28, 24, 8, 128, 128256, True)),
    "llama-2-7b": (r"llama-2-7b", _config("llama", 4096, 11008, 32, 32, 32, 128, 32000, False)),
    "llama-3-8b": (r"llama[-_]v?3[-_](1_)?(8b|sea|elyza|taide)", _config("llama", 4096, 14336, 32, 32, 8, 128, 128256, False)),
    "tinyllama-1.1b": (r"tinyllama", _config("llama", 2048, 5632, 22, 32, 4, 64, 32000, False)),
    "smollm2-135m": (r"smollm2_1_135m", _config("llama", 576, 1536, 30, 9, 3, 64, 49152, True)),
    "smollm2-360m": (r"smollm2_1_360m", _config("llama", 960, 2560, 32, 15, 5, 64, 49152, True)),
    "smollm2-1.7b": (r"smollm2_1_1_7b", _config("llama", 2048, 8192, 24, 32, 32, 64, 49152, True)),
    "qwen2.5-0.5b": (r"qwen2([._]5)?[-_]0[._]5b|hammer2_1_0_5b", _config("qwen2", 896, 4864, 24, 14, 2, 64, 151936, True)),
    "qwen2.5-1.5b": (r"qwen2([._]5)?[-_]1[._]5b|hammer2_1_1_5b", _config("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, True)),
    "qwen2.5-3b": (r"qwen2_5_3b|hammer2_1_3b", _config("qwen2", 2048, 11008, 36, 16, 2, 128, 151936, True)),
    "qwen2.5-7b": (r"qwen2(_5)?_7b", _config("qwen2", 3584, 18944, 28, 28, 4, 128, 152064, False)),
    "qwen1.5-1.8b": (r"qwen1\.5-1\.8b", _config("qwen2", 2048, 5504, 24, 16, 16, 128, 151936, False)),
    "qwen3-0.6b": (r"qwen3[-_]0[._]6b", _config("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, True)),
    "qwen3-1.7b": (r"qwen3[-_]1[._]7b", _config("qwen3", 2048, 6144, 28, 16, 8, 128, 151936, True)),
    "qwen3-4b": (r"qwen3[-_]4b", _config("qwen3", 2560, 9728, 36, 32, 8, 128, 151936, True)),
    "qwen3-8b": (r"qwen3[-_]8b", _config("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False)),
}


def known_as(model: str) -> str | None:
    """The name of a row's model here; None: its configuration is not."""
    return next((name for name, (pattern, _) in MODELS.items() if re.match(pattern, model.lower())), None)


def folder_of(name: str, parent: Path) -> Path:
    """A Hugging Face folder of a model, with nothing but its configuration."""
    folder = parent / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MODELS[name][1]))
    return folder
