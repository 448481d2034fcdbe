"""Small decoders in GGUF files, with weights in blocks where their rows are whole blocks, and a small vocabulary."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.reference.gguf_types import BY_NAME

WriteDecoder = Callable[..., Path]
_SPEC = spec_from_file_location("small_decoders_of_language", Path(__file__).parents[1] / "frontends" / "small_decoders.py")
assert _SPEC is not None and _SPEC.loader is not None
small = module_from_spec(_SPEC)
_SPEC.loader.exec_module(small)


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):
        kind = {str: 8, int: 5, float: 6}[type(value[0])]
        body = b"".join(map(_text, value)) if kind == 8 else struct.pack(f"<{len(value)}{'i' if kind == 5 else 'f'}", *value)
        return struct.pack("<IIQ", 9, kind, len(value)) + body
    number, code = {bool: (7, "B"), int: (4, "I"), float: (6, "f")}[type(value)]
    return struct.pack(f"<I{code}", number, value)


def q8_0(x: np.ndarray[Any, Any]) -> bytes:
    """Rows of whole blocks as Q8_0."""
    parts = x.reshape(-1, 32)
    scales = (np.abs(parts).max(1, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(parts / np.maximum(scales.astype(np.float32), 1e-9)).astype(np.int8)
    return np.concatenate([scales.view(np.uint8), codes.view(np.uint8)], 1).tobytes()


def q4_1(x: np.ndarray[Any, Any]) -> bytes:
    """Rows of whole blocks as Q4_1."""
    parts = x.reshape(-1, 32)
    low = parts.min(1, keepdims=True).astype(np.float16)
    scales = ((parts.max(1, keepdims=True) - low.astype(np.float32)) / 15).astype(np.float16)
    codes = np.clip(np.rint((parts - low.astype(np.float32)) / scales.astype(np.float32)), 0, 15).astype(np.uint8)
    return np.concatenate([scales.view(np.uint8), low.view(np.uint8), codes[:, :16] | codes[:, 16:] << 4], 1).tobytes()


def write_file(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, np.ndarray[Any, Any]], blocks: str) -> Path:
    """A GGUF file; matrices whose rows are whole blocks are stored as ``blocks``, the embedding as Q8_0."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    header += b"".join(_text(k) + _value(v) for k, v in metadata.items())
    data = b""
    for name, array in tensors.items():
        whole = blocks and array.ndim == 2 and array.shape[1] % 32 == 0
        kind = ("Q8_0" if name.startswith("token_embd") else blocks) if whole else "F32"
        raw = {"Q8_0": q8_0, "Q4_1": q4_1, "F32": lambda x: x.astype("<f4").tobytes()}[kind](array.astype(np.float32))
        data = data.ljust(-(-len(data) // 32) * 32, b"\0")
        header += _text(name) + struct.pack(f"<I{array.ndim}QIQ", array.ndim, *reversed(array.shape), BY_NAME[kind].number, len(data))
        data += raw
    path.write_bytes(header.ljust(-(-len(header) // 32) * 32, b"\0") + data)
    return path


def vocabulary_fields() -> dict[str, Any]:
    """A byte-pair vocabulary of as many tokens as the small decoders have."""
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words = [chr(c) for c in range(ord("a"), ord("z") + 1)] + ["Ġ", "Ċ", ".", "?", "th", "he", "Ġa"]
    tokens = control + words + [f"<unused{i}>" for i in range(small.VOCAB - len(control) - len(words))]
    turns = "{% for m in messages %}<|im_start|>{{ m.role[0] }}{{ m.content }}<|im_end|>{% endfor %}"
    template = turns + "{% if add_generation_prompt %}<|im_start|>a{% endif %}"
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if t in control else 1 for t in tokens], "tokenizer.ggml.merges": ["t h", "h e", "Ġ a"],
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": template,
    }  # fmt: skip


@pytest.fixture
def write_decoder(tmp_path: Path) -> WriteDecoder:
    """Write a small decoder of a family and return its path; ``blocks`` is Q8_0, Q4_1 or empty (all float32)."""

    def write(family: str = "llama", blocks: str = "", vocabulary: bool = False, without: tuple[str, ...] = ()) -> Path:
        metadata, shapes = small.family_model(family)
        shapes = {name: shape for name, shape in shapes.items() if name not in without}
        fields = metadata | (vocabulary_fields() if vocabulary else {})
        return write_file(tmp_path / f"{family}{blocks}.gguf", fields, small.seeded(shapes), blocks)

    return write


@pytest.fixture
def write_model() -> Callable[..., Path]:
    """:func:`write_file`."""
    return write_file


@pytest.fixture
def small_llama() -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Metadata and arrays of a small llama, as a GGUF file holds them."""
    metadata, shapes = small.family_model("llama")
    return metadata, small.seeded(shapes)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed weights go to a folder of the test's own."""
    monkeypatch.setattr("hetsched.language.weights.weights_folder", lambda: tmp_path / "cache" / "weights")
