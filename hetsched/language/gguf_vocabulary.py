"""The vocabulary inside a GGUF file."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.errors import ModelError
from hetsched.frontends.gguf_reader import GgufArray, GgufHeader, header_of
from hetsched.language.vocabulary import Vocabulary

_TEXT = 8
_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "u1", 10: "<u8", 11: "<i8", 12: "<f8"}


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary and the chat template of the GGUF file at ``path``.

    Raises:
        ModelError: the file has no vocabulary, or a damaged one.
        UnsupportedModelError: its kind is not supported.
    """
    header = header_of(path)
    fields = header.metadata
    kind = fields.get("tokenizer.ggml.model")
    if not isinstance(kind, str):
        raise ModelError(f"the GGUF file {path.name!r} has no vocabulary: text cannot be made into tokens, fetch a file that has one")
    arrays = _Arrays(header)
    template = fields.get("tokenizer.chat_template", "")
    return Vocabulary(
        kind=kind,
        pre=str(fields.get("tokenizer.ggml.pre", "default")),
        tokens=arrays.texts("tokenizer.ggml.tokens"),
        types=arrays.numbers("tokenizer.ggml.token_type"),
        merges=arrays.texts("tokenizer.ggml.merges"),
        scores=arrays.numbers("tokenizer.ggml.scores"),
        begin=_token(fields, "bos_token_id"),
        end=_token(fields, "eos_token_id"),
        unknown=_token(fields, "unknown_token_id"),
        adds_begin=bool(fields.get("tokenizer.ggml.add_bos_token", kind == "llama")),
        adds_space=bool(fields.get("tokenizer.ggml.add_space_prefix", True)),
        template=template if isinstance(template, str) else "",
    )


def whole_array(header: GgufHeader, key: str) -> tuple[Any, ...]:
    """Every element of a long array of a header.

    Raises:
        ModelError: it is no array of texts or numbers.
    """
    found, arrays = header.metadata.get(key), _Arrays(header)
    return arrays.texts(key) if isinstance(found, GgufArray) and found.kind == _TEXT else arrays.numbers(key)


def _token(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(f"tokenizer.ggml.{name}")
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else None


class _Arrays:
    """Long arrays of a header, which the reader stepped over after checking that they are whole."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header

    def texts(self, key: str) -> tuple[str, ...]:
        """An array of texts, empty where it is absent."""
        found = self.header.metadata.get(key)
        if found is None:
            return ()
        if not isinstance(found, GgufArray) or found.kind != _TEXT:
            raise ModelError(f"{key} of {self.header.path.name!r} is no array of texts: the file is damaged")
        length, at, out = struct.Struct("<Q").unpack_from, found.offset, []
        with self.header.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for _ in range(found.count):
                end = at + 8 + length(data, at)[0]
                out.append(data[at + 8 : end].decode("utf-8", "replace"))
                at = end
        return tuple(out)

    def numbers(self, key: str) -> tuple[Any, ...]:
        """An array of numbers, empty where it is absent."""
        found = self.header.metadata.get(key)
        if found is None or isinstance(found, tuple):
            return found or ()
        if not isinstance(found, GgufArray) or found.kind not in _NUMBERS:
            raise ModelError(f"{key} of {self.header.path.name!r} is no array of numbers: the file is damaged")
        values = np.fromfile(self.header.path, _NUMBERS[found.kind], found.count, offset=found.offset)
        return tuple(values.tolist())
