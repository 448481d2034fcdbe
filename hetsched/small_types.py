"""Element types that numpy does not have: bfloat16, 8- and 4-bit floats, 4- and 2-bit integers.

Integers narrower than a byte are packed as ONNX packs them: the first element in the lowest bits. The 8-bit floats are
those of Micikevicius et al., "FP8 Formats for Deep Learning" (2022), and of the OCP MX specification v1.0; tables of all
256 codes are computed from their definitions.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Name of a float type -> exponent bits, mantissa bits, exponent bias.
_LAYOUT = {"f8e4m3": (4, 3, 7), "f8e4m3fnuz": (4, 3, 8), "f8e5m2": (5, 2, 15), "f8e5m2fnuz": (5, 2, 16), "f4e2m1": (2, 1, 1)}
_INTEGER_BITS = {"u4": 4, "i4": 4, "u2": 2, "i2": 2}


def decode(raw: npt.NDArray[np.uint8], dtype: str, elements: int) -> Array:
    """The elements of packed bytes: floats as float32, integers as int8 or uint8.

    Args:
        raw: the bytes, flat.
        dtype: the type's name (:class:`hetsched.tensors.DType`).
        elements: how many there are; the last byte may be filled up.

    Raises:
        ValueError: the type is not one of these.

    Examples:
        >>> decode(np.array([0x21, 0x0F], np.uint8), "u4", 3).tolist(), decode(np.array([0x0F], np.uint8), "i4", 2).tolist()
        ([1, 2, 15], [-1, 0])
        >>> decode(np.array([0x80, 0x3F], np.uint8), "bf16", 1).tolist()
        [1.0]
    """
    if dtype == "bf16":
        return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype in _INTEGER_BITS:
        return _integers(raw, dtype, elements)
    if dtype == "f4e2m1":
        return _table(dtype)[unpack(raw, 4, elements)]
    return _table(dtype)[raw]


def unpack(raw: npt.NDArray[np.uint8], bits: int, elements: int) -> npt.NDArray[np.uint8]:
    """Codes of ``bits`` (1, 2, 4 or 8) each, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (raw[:, None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.ascontiguousarray(codes.reshape(-1)[:elements].astype(np.uint8))


def pack(codes: Array, bits: int) -> npt.NDArray[np.uint8]:
    """The inverse of :func:`unpack`; integers of either sign, the last byte filled up with zeros."""
    per_byte = 8 // bits
    flat = np.asarray(codes).reshape(-1).astype(np.int64) & ((1 << bits) - 1)
    flat = np.pad(flat, (0, -flat.size % per_byte)).reshape(-1, per_byte)
    return np.asarray((flat << np.arange(0, 8, bits)).sum(1), np.uint8)


def bfloat16_bytes(values: Array) -> npt.NDArray[np.uint8]:
    """float32 values rounded to bfloat16 (half to even), as bytes."""
    codes = np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint32)
    rounded = (codes.astype(np.uint64) + 0x7FFF + ((codes >> np.uint32(16)) & np.uint32(1))) >> np.uint64(16)
    rounded = np.where(np.isnan(codes.view(np.float32)), np.uint64(0x7FC0), rounded)
    return rounded.astype("<u2").view(np.uint8)


def nearest(values: Array, dtype: str) -> npt.NDArray[np.float32]:
    """The values that a small float type has nearest to ``values``: ties to the even code, the largest finite one beyond it.

    Examples:
        >>> nearest(np.array([0.3, 2.5, 1e9, -0.1]), "f4e2m1").tolist()
        [0.5, 2.0, 6.0, -0.0]
    """
    table = _table(dtype)
    grid = np.sort(np.unique(table[np.isfinite(table) & ~np.signbit(table)])).astype(np.float64)
    sizes = np.minimum(np.abs(values.astype(np.float64)), grid[-1])
    above = np.clip(np.searchsorted(grid, sizes), 1, grid.size - 1)
    low, high = sizes - grid[above - 1], grid[above] - sizes
    chosen = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    out = np.copysign(grid[chosen], values).astype(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), out)


def _integers(raw: npt.NDArray[np.uint8], dtype: str, elements: int) -> Array:
    bits = _INTEGER_BITS[dtype]
    codes = unpack(raw, bits, elements)
    if dtype[0] == "u":
        return codes
    shift = np.int8(8 - bits)
    return (codes.view(np.int8) << shift) >> shift


@functools.lru_cache(maxsize=8)
def _table(dtype: str) -> npt.NDArray[np.float32]:
    if dtype == "f8e8m0":
        return np.array([2.0 ** (code - 127) for code in range(255)] + [math.nan]).astype(np.float32)
    if dtype not in _LAYOUT:
        raise ValueError(f"there is no small element type {dtype!r}")
    exponent_bits, mantissa_bits, bias = _LAYOUT[dtype]
    codes = range(1 << (1 + exponent_bits + mantissa_bits))
    return np.array([_value(code, dtype, exponent_bits, mantissa_bits, bias) for code in codes], np.float32)


def _value(code: int, dtype: str, exponent_bits: int, mantissa_bits: int, bias: int) -> float:
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = code & ((1 << mantissa_bits) - 1)
    if dtype.endswith("fnuz"):
        if code == 0x80:
            return math.nan
    elif exponent == (1 << exponent_bits) - 1 and dtype == "f8e5m2":
        return sign * math.inf if mantissa == 0 else math.nan
    elif dtype == "f8e4m3" and exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
