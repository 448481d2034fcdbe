"""The header of a safetensors file: names, types, shapes and places of the weights, which stay where they are.

Format: 8 bytes of header length (little-endian), then JSON, then the weights
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.graph import MAX_ELEMENTS, DType, Role, Tensor, WeightRef

#: The format's own limit on the header.
MAX_HEADER_BYTES = 100_000_000
_TYPES = {
    "F64": DType.F64, "F32": DType.F32, "F16": DType.F16, "BF16": DType.BF16, "F8_E4M3": DType.F8E4M3, "F8_E5M2": DType.F8E5M2,
    "I64": DType.I64, "I32": DType.I32, "I16": DType.I16, "I8": DType.I8, "U64": DType.U64, "U32": DType.U32, "U16": DType.U16,
    "U8": DType.U8, "BOOL": DType.BOOL,
}  # fmt: skip


def looks_like_safetensors(head: bytes) -> bool:
    """Whether ``head`` may begin a safetensors file."""
    return len(head) > 9 and head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= MAX_HEADER_BYTES


def read_safetensors(path: Path, data: Path | None = None) -> tuple[dict[str, Tensor], bytes]:
    """The weights that the file at ``path`` describes, and the bytes of its header.

    Args:
        path: a safetensors file; it may end after its header.
        data: the file that holds (or would hold) the weights, where it is not ``path``.

    Raises:
        ModelError: the header is damaged.
        UnsupportedModelError: a weight has a type that is not known.
    """
    raw = _header_bytes(path)
    start = 8 + len(raw)
    described = parse_json(raw, f"the header of {str(path)!r}")
    tensors = {name: _tensor(name, info, data or path, start) for name, info in described.items() if name != "__metadata__"}
    return tensors, raw


def _header_bytes(path: Path) -> bytes:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 10 or length > min(size - 8, MAX_HEADER_BYTES):
            raise ModelError(f"the safetensors file {str(path)!r} is truncated: it says that its header has {length} bytes")
        return file.read(length)


def parse_json(raw: bytes, where: str) -> dict[str, Any]:
    """The JSON object in ``raw``.

    Raises:
        ModelError: it is not one, or a key is in an object twice.
    """

    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key is there twice")
        return found

    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{where} is damaged: it is not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelError(f"{where} is damaged: it is not a JSON object")
    return value


def _tensor(name: str, info: object, path: Path, start: int) -> Tensor:
    damaged = ModelError(f"the weight {name!r} in {str(path)!r} has no valid description: the header is damaged")
    if not isinstance(info, Mapping):
        raise damaged
    kind, shape, span = info.get("dtype"), _whole(info.get("shape")), _whole(info.get("data_offsets"))
    if not isinstance(kind, str) or shape is None or span is None or len(span) != 2:
        raise damaged
    if kind not in _TYPES:
        raise UnsupportedModelError(f"the weight {name!r} in {str(path)!r} has the type {kind[:20]!r}, which is not supported")
    if any(d > MAX_ELEMENTS for d in shape):
        raise damaged
    length = (math.prod(shape) * _TYPES[kind].bits + 7) // 8
    if span[1] - span[0] != length or span[1] >= 1 << 62:
        raise ModelError(f"the weight {name!r} in {str(path)!r} of shape {shape} needs {length} bytes and has {span[1] - span[0]}: damaged")
    return Tensor(name, tuple(shape), _TYPES[kind], Role.WEIGHT, None, WeightRef(path, start + span[0], length))


def _whole(value: object) -> list[int] | None:
    """A short list of whole numbers; None where it is something else."""
    if not isinstance(value, list) or len(value) > 16 or not all(type(v) is int and 0 <= v < 1 << 63 for v in value):
        return None
    return value
