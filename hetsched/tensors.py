"""Tensors: element types, quantization, and constants that are mapped on first use, never copied."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched import small_types
from hetsched.errors import ModelError

#: Shapes beyond these are refused at the door, before anything is allocated.
MAX_RANK = 16
MAX_ELEMENTS = 1 << 40


class DType(StrEnum):
    """Element types, named as in this project's precisions."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E8M0 = "f8e8m0"
    F4E2M1 = "f4e2m1"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    I4 = "i4"
    I2 = "i2"
    U64 = "u64"
    U32 = "u32"
    U16 = "u16"
    U8 = "u8"
    U4 = "u4"
    U2 = "u2"
    BOOL = "bool"
    STRING = "string"

    @property
    def bits(self) -> int:
        """Width of one element in bits (strings count as 64)."""
        return _BITS[self]

    @property
    def is_float(self) -> bool:
        """Whether the type is a floating-point one."""
        return self.value[0] in "fb" and self is not DType.BOOL

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type that stores it.

        Raises:
            ModelError: numpy has no such type (bf16, fp8, 4 and 2 bits); these are kept packed.
        """
        if self not in _NUMPY:
            raise ModelError(f"numpy has no type for {self.value}; keep such tensors packed and decode them in the kernel")
        dtype: np.dtype[Any] = np.dtype(_NUMPY[self])
        return dtype


_BITS = {
    DType.F64: 64, DType.F32: 32, DType.F16: 16, DType.BF16: 16, DType.F8E4M3: 8, DType.F8E5M2: 8, DType.F8E4M3FNUZ: 8,
    DType.F8E5M2FNUZ: 8, DType.F8E8M0: 8, DType.F4E2M1: 4, DType.I2: 2, DType.U2: 2,
    DType.I64: 64, DType.I32: 32, DType.I16: 16, DType.I8: 8, DType.I4: 4,
    DType.U64: 64, DType.U32: 32, DType.U16: 16, DType.U8: 8, DType.U4: 4, DType.BOOL: 8, DType.STRING: 64,
}  # fmt: skip
_NUMPY: dict[DType, Any] = {
    DType.F64: np.float64, DType.F32: np.float32, DType.F16: np.float16, DType.I64: np.int64, DType.I32: np.int32,
    DType.I16: np.int16, DType.I8: np.int8, DType.U64: np.uint64, DType.U32: np.uint32, DType.U16: np.uint16,
    DType.U8: np.uint8, DType.BOOL: np.bool_,
}  # fmt: skip
_FROM_NUMPY = {np.dtype(v): k for k, v in _NUMPY.items()}


def dtype_of(array: npt.NDArray[Any]) -> DType:
    """The :class:`DType` of a numpy array."""
    if array.dtype in _FROM_NUMPY:
        return _FROM_NUMPY[array.dtype]
    if array.dtype.kind in "OUS":
        return DType.STRING
    raise ModelError(f"no tensor type corresponds to numpy's {array.dtype}")


class Role(StrEnum):
    """What a tensor is for. A KV cache or an RNN state is *state*."""

    INPUT = "input"
    WEIGHT = "weight"
    ACTIVATION = "activation"
    OUTPUT = "output"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Quantization:
    """How stored integers stand for reals: ``real = scale * (stored - zero_point)``.

    ``scale`` and ``zero_point`` are names of constant tensors in the same graph (``zero_point`` None means 0), so that
    nothing is read while planning. ``axis`` is the quantized axis for ``channel`` and ``group`` granularity;
    ``group`` is the number of consecutive elements along ``axis`` that share one scale.

    Where ``block_bytes`` is not 0, every ``group`` elements are stored with their scales in a block of that many bytes,
    ``scale`` is empty, and ``scheme`` names the layout (``gguf:Q4_K``; see :mod:`hetsched.reference.gguf_types`).
    """

    scale: str = ""
    zero_point: str | None = None
    granularity: str = "tensor"  # tensor | channel | group
    axis: int | None = None
    group: int | None = None
    scheme: str = "affine"
    block_bytes: int = 0


@dataclass(frozen=True, slots=True)
class WeightRef:
    """Where the bytes of a constant are: a range of a file, or an array already in memory (folded constants).

    Where ``order`` is not empty, the file holds the tensor with its axes in another order: axis ``i`` of the tensor is axis
    ``order[i]`` of what is stored. So a transposed weight, and a table that is also read transposed, stay one range of the file.
    ``compute`` makes the value each time it is asked for (a quantized weight), so that planning touches no weight.
    ``sparse_bytes`` is what a constant that the file stores sparsely takes there; ``compute`` makes it dense.
    """

    path: Path | None = None
    offset: int = 0
    length: int = 0
    array: npt.NDArray[Any] | None = field(default=None, compare=False, repr=False)
    compute: Callable[[], npt.NDArray[Any]] | None = field(default=None, compare=False, repr=False)
    order: tuple[int, ...] = ()
    sparse_bytes: int = 0

    @property
    def is_present(self) -> bool:
        """Whether the bytes can be read (a weightless model's files are absent, or end before the weights)."""
        if self.array is not None or self.compute is not None:
            return True
        return self.path is not None and self.path.is_file() and self.path.stat().st_size >= self.offset + self.length


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named, fully shaped tensor. ``data`` is set for constants only."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    role: Role = Role.ACTIVATION
    quantization: Quantization | None = None
    data: WeightRef | None = None

    def __post_init__(self) -> None:
        if len(self.shape) > MAX_RANK:
            raise ModelError(f"tensor {self.name!r} has {len(self.shape)} dimensions; at most {MAX_RANK} are supported")
        if any(d < 0 for d in self.shape):
            raise ModelError(f"tensor {self.name!r} has the shape {list(self.shape)}: bind its dims with --dim NAME=N")
        if math.prod(self.shape) > MAX_ELEMENTS:
            raise ModelError(
                f"tensor {self.name!r} of shape {list(self.shape)} has more than 2^40 elements: the model file is damaged or hostile"
            )

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Stored size in bytes."""
        if self.data is not None and self.data.sparse_bytes:
            return self.data.sparse_bytes
        q = self.quantization
        if q is not None and q.block_bytes:
            return self.elements // (q.group or 1) * q.block_bytes
        return (self.elements * self.dtype.bits + 7) // 8

    @property
    def stored_as(self) -> str:
        """How the elements are stored: their type, or the layout of their blocks."""
        return self.dtype.value if self.quantization is None else self.quantization.scheme

    @property
    def is_packed(self) -> bool:
        """Whether the elements have no numpy type of their own and are kept as bytes (blocks, bf16, fp8, 4 bits)."""
        return self.dtype not in _NUMPY or (self.quantization is not None and self.quantization.block_bytes > 0)

    @property
    def is_sparse(self) -> bool:
        """Whether it is a constant that its file stores sparsely."""
        return self.data is not None and self.data.sparse_bytes > 0

    @property
    def is_constant(self) -> bool:
        """Whether the value is known before running."""
        return self.data is not None

    def numpy(self) -> npt.NDArray[Any]:
        """The constant's value, mapped read-only where it lies in a file; the bytes, as ``uint8``, of a packed one.

        Raises:
            ModelError: the tensor is not a constant, or its file is absent or too short.
        """
        if self.data is None:
            raise ModelError(f"tensor {self.name!r} is not a constant: it has no value before the model runs")
        if self.data.array is not None:
            return self.data.array
        if self.data.compute is not None:
            value = self.data.compute()
            return value if self.is_packed else value.reshape(self.shape)
        path = self.data.path
        if path is None or not path.is_file():
            raise ModelError(f"the weights of {self.name!r} are absent ({path}): a weightless model can be planned but not run")
        if self.elements == 0:
            return np.zeros(self.shape, np.uint8 if self.is_packed else self.dtype.numpy)
        if path.stat().st_size < self.data.offset + self.nbytes or self.data.length < self.nbytes:
            raise ModelError(f"the file {path} is too short for the weights of {self.name!r}: it is truncated")
        if self.is_packed:
            return np.memmap(path, np.uint8, "r", self.data.offset, (self.nbytes,))
        order = self.data.order or tuple(range(len(self.shape)))
        stored = tuple(self.shape[order.index(axis)] for axis in range(len(order)))
        return np.memmap(path, self.dtype.numpy, "r", self.data.offset, stored).transpose(order)

    def values(self) -> npt.NDArray[Any]:
        """The constant's value with one array element each: small floats as float32, small integers as int8 or uint8.

        Raises:
            ModelError: as :meth:`numpy`, or the tensor is stored in blocks (:mod:`hetsched.reference.gguf_types` decodes those).
        """
        raw = self.numpy()
        if self.dtype in _NUMPY and not self.is_packed:
            return raw
        if self.dtype is DType.STRING:
            return raw
        if self.quantization is not None and self.quantization.block_bytes:
            raise ModelError(f"tensor {self.name!r} is stored in blocks ({self.quantization.scheme}): decode its rows instead")
        return small_types.decode(np.ascontiguousarray(raw).reshape(-1), self.dtype.value, self.elements).reshape(self.shape)
