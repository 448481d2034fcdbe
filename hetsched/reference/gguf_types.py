"""GGML's tensor types: their block layouts, exactly, and lazy decoding to float32.

A quantized GGML tensor is a row of blocks along its last axis; each block holds ``elements`` weights together with their
scales in ``nbytes`` bytes. Numbers, sizes and layouts are those of ``ggml.h`` and ``ggml-common.h`` of the ggml
project (the enumeration ``ggml_type``, the structures ``block_*``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.graph import DType, Quantization, Tensor
from hetsched.reference import gguf_blocks, gguf_superblocks

#: Prefix of ``Quantization.scheme`` of a tensor in one of these layouts.
SCHEME = "gguf:"
_Decoder = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class GgufType:
    """One tensor type.

    Attributes:
        name: ggml's name (``Q4_K``).
        number: ggml's number, as stored in the file.
        elements: weights in one block; 1 for plain types.
        nbytes: bytes of one block.
        dtype: the plain type, or the integer type nearest in width to the stored codes.
    """

    name: str
    number: int
    elements: int
    nbytes: int
    dtype: DType

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of one weight, scales included."""
        return self.nbytes * 8 / self.elements

    @property
    def is_blocked(self) -> bool:
        """Whether weights are stored in blocks with scales of their own."""
        return self.elements > 1

    @property
    def quantization(self) -> Quantization | None:
        """How a tensor of this type is described in a graph; None for plain types."""
        if not self.is_blocked:
            return None
        return Quantization(granularity="group", axis=-1, group=self.elements, scheme=SCHEME + self.name, block_bytes=self.nbytes)


_ROWS: tuple[tuple[str, int, int, int, DType], ...] = (
    ("F32", 0, 1, 4, DType.F32), ("F16", 1, 1, 2, DType.F16), ("BF16", 30, 1, 2, DType.BF16), ("F64", 28, 1, 8, DType.F64),
    ("I8", 24, 1, 1, DType.I8), ("I16", 25, 1, 2, DType.I16), ("I32", 26, 1, 4, DType.I32), ("I64", 27, 1, 8, DType.I64),
    ("Q4_0", 2, 32, 18, DType.I4), ("Q4_1", 3, 32, 20, DType.U4), ("Q5_0", 6, 32, 22, DType.I8), ("Q5_1", 7, 32, 24, DType.U8),
    ("Q8_0", 8, 32, 34, DType.I8), ("Q2_K", 10, 256, 84, DType.U4), ("Q3_K", 11, 256, 110, DType.I4), ("Q4_K", 12, 256, 144, DType.U4),
    ("Q5_K", 13, 256, 176, DType.U8), ("Q6_K", 14, 256, 210, DType.I8), ("IQ2_XXS", 16, 256, 66, DType.I4),
    ("IQ2_XS", 17, 256, 74, DType.I4), ("IQ3_XXS", 18, 256, 98, DType.I4), ("IQ1_S", 19, 256, 50, DType.I4),
    ("IQ4_NL", 20, 32, 18, DType.I4), ("IQ3_S", 21, 256, 110, DType.I4), ("IQ2_S", 22, 256, 82, DType.I4),
    ("IQ4_XS", 23, 256, 136, DType.I4), ("IQ1_M", 29, 256, 56, DType.I4), ("TQ1_0", 34, 256, 54, DType.I4),
    ("TQ2_0", 35, 256, 66, DType.I4), ("MXFP4", 39, 32, 17, DType.I4),
)  # fmt: skip
TYPES: tuple[GgufType, ...] = tuple(GgufType(*row) for row in _ROWS)
BY_NUMBER = {t.number: t for t in TYPES}
BY_NAME = {t.name: t for t in TYPES}

_DECODERS: dict[str, _Decoder] = {**gguf_blocks.DECODERS, **gguf_superblocks.DECODERS}
#: Types whose weights can be decoded; the others can be planned only.
DECODABLE = frozenset({"F32", "F16", "BF16", *_DECODERS})


def decode(kind: str, blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """The weights of whole blocks.

    Args:
        kind: name of the type.
        blocks: ``uint8``, any shape; the number of bytes is a multiple of the block's.

    Returns:
        ``float32`` of one dimension.

    Raises:
        UnsupportedModelError: there is no decoder for the type.
        ModelError: the bytes are not whole blocks.
    """
    if kind not in DECODABLE:
        raise UnsupportedModelError(f"weights of the type {kind!r} can be planned but not decoded: convert the model to one of {_names()}")
    layout = BY_NAME[kind]
    if blocks.size % layout.nbytes:
        raise ModelError(f"{blocks.size} bytes are not whole blocks of {kind} ({layout.nbytes} bytes each): the file is damaged")
    raw = np.ascontiguousarray(blocks).reshape(-1)
    if kind == "F32":
        return raw.view("<f4").astype(np.float32)
    if kind == "F16":
        return raw.view("<f2").astype(np.float32)
    if kind == "BF16":
        return bfloat16(raw)
    with np.errstate(invalid="ignore", over="ignore"):
        return _DECODERS[kind](raw.reshape(-1, layout.nbytes)).reshape(-1)


def decode_rows(tensor: Tensor, start: int = 0, stop: int | None = None) -> npt.NDArray[np.float32]:
    """Rows ``start`` to ``stop`` of a packed constant (its last axis is a row), reading only their bytes.

    Returns:
        ``float32``, shape ``[stop - start, last axis]``.

    Raises:
        ModelError: the constant's bytes are absent or too few.
        UnsupportedModelError: there is no decoder for its type.
    """
    kind = kind_of(tensor)
    row = tensor.shape[-1] if tensor.shape else 1
    rows = math.prod(tensor.shape[:-1])
    begin, end, _ = slice(start, stop).indices(rows)
    layout = BY_NAME[kind]
    bytes_per_row = row // layout.elements * layout.nbytes
    raw = tensor.numpy().reshape(-1)[begin * bytes_per_row : max(begin, end) * bytes_per_row]
    return decode(kind, raw).reshape(-1, row)


def kind_of(tensor: Tensor) -> str:
    """The type's name of a packed tensor (``BF16`` or a block layout).

    Raises:
        UnsupportedModelError: it is packed in another way.
    """
    q = tensor.quantization
    if q is not None and q.scheme.startswith(SCHEME):
        return q.scheme.removeprefix(SCHEME)
    if q is None and tensor.dtype is DType.BF16:
        return "BF16"
    raise UnsupportedModelError(f"the packed constant {tensor.name!r} ({tensor.dtype.value}) cannot be decoded here")


def constant_value(tensor: Tensor) -> npt.NDArray[Any]:
    """A constant's value as a numpy array, decoded to float32 where it is packed in a way that is known here."""
    q = tensor.quantization
    if tensor.is_packed and tensor.data is not None and q is not None and q.block_bytes:
        return decode_rows(tensor).reshape(tensor.shape)
    return tensor.values()


def bfloat16(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Bfloat16 bytes as float32 (the upper half of a float32)."""
    wide: npt.NDArray[Any] = raw.view("<u2").astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)


def _names() -> str:
    return ", ".join(t.name for t in TYPES if t.name in DECODABLE)
