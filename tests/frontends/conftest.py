"""GGUF files written tensor by tensor."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.graph import Graph
from hetsched.reference.gguf_types import BY_NAME

WriteGguf = Callable[..., Path]
Parameters = Callable[[Graph], int]
_VALUE_TYPES: dict[type, tuple[int, str]] = {bool: (7, "B"), int: (4, "I"), float: (6, "f")}


@pytest.fixture
def write_gguf(tmp_path: Path) -> WriteGguf:
    """Write a GGUF file and return its path.

    ``tensors`` maps names to a shape and a type name, or to a float32 array; without arrays the file ends after its header, or
    is as long as its weights (a sparse file) if ``sparse``.
    """

    def write(
        metadata: Mapping[str, Any],
        tensors: Mapping[str, Any],
        name: str = "model",
        sparse: bool = False,
        version: int = 3,
    ) -> Path:
        header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
        for key, value in metadata.items():
            header += _text(key) + _value(value)
        offset, data = 0, b""
        for key, spec in tensors.items():
            array = spec if isinstance(spec, np.ndarray) else None
            shape, kind = (array.shape, "F32") if array is not None else spec
            layout = BY_NAME[kind]
            header += _text(key) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), layout.number, min(offset, 1 << 62))
            length = -(-math.prod(shape) // layout.elements) * layout.nbytes
            if array is not None:
                data = data.ljust(offset, b"\0") + array.astype("<f4").tobytes()
            offset += -(-length // 32) * 32
        start = -(-len(header) // 32) * 32
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(header.ljust(start, b"\0") + data if data else header)
        if sparse:
            with path.open("r+b") as file:
                file.truncate(start + offset)
        return path

    return write


@pytest.fixture
def parameters() -> Parameters:
    """The number of weights that a checkpoint stores, each tensor once: the loader's own constants are in memory."""
    return lambda graph: sum(t.elements for t in graph.tensors.values() if t.data is not None and t.data.array is None)


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):
        texts = bool(value) and isinstance(value[0], str)
        head = struct.pack("<IIQ", 9, 8 if texts else 5, len(value))
        return head + (b"".join(map(_text, value)) if texts else struct.pack(f"<{len(value)}i", *value))
    number, code = _VALUE_TYPES[type(value)]
    return struct.pack(f"<I{code}", number, value)
