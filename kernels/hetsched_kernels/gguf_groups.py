"""GGUF's block layouts as grouped weights: codes and scales are moved, never rounded.

Layouts: the structures ``block_q4_0`` … ``block_tq2_0`` of ``ggml-common.h`` of the ggml project. Every function takes
``uint8 [n, blocks, bytes of a block]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from hetsched_kernels.arrays import Array
from hetsched_kernels.groups import Groups

#: Weights and bytes of a block of each kind.
BLOCKS: Final[Mapping[str, tuple[int, int]]] = {
    "Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q4_K": (256, 144), "Q5_K": (256, 176),
    "Q6_K": (256, 210), "TQ2_0": (256, 66),
}  # fmt: skip


def gguf_groups(kind: str, raw: Array, n: int, k: int) -> Groups:
    """A weight of ``n`` rows of ``k`` values stored as blocks of ``kind``.

    Args:
        kind: ggml's name, one of :data:`BLOCKS`.
        raw: uint8, the blocks row after row.
        n: rows.
        k: values of a row, whole blocks.

    Raises:
        ValueError: there is no kernel for the kind, or the bytes are not ``n`` rows of whole blocks.
    """
    if kind not in BLOCKS:
        raise ValueError(f"there is no kernel for weights stored as {kind}; there is one for {', '.join(BLOCKS)}")
    elements, nbytes = BLOCKS[kind]
    if k % elements or raw.size != n * (k // elements) * nbytes:
        raise ValueError(f"{raw.size} bytes are not {n} rows of {k} values in blocks of {kind} ({elements} in {nbytes} bytes)")
    return _READERS[kind](raw.reshape(n, k // elements, nbytes))


def _half(b: Array, at: int) -> Array:
    """The float16 at byte ``at`` of every block, [n, blocks]."""
    return np.asarray(np.ascontiguousarray(b[:, :, at : at + 2]).view("<f2")[:, :, 0])


def _rows(codes: Array) -> Array:
    return codes.reshape(codes.shape[0], -1)


def _nibbles(b: Array) -> Array:
    """Low halves of all bytes of a block, then the high halves."""
    return np.concatenate([b & 15, b >> 4], 2)


def _fifths(b: Array, at: int) -> Array:
    """Bit j of the 32-bit word at byte ``at`` of a block, times 16, for its weight j."""
    bits = np.unpackbits(np.ascontiguousarray(b[:, :, at : at + 4]), axis=2, bitorder="little")
    return np.asarray(bits << np.uint8(4))


def _q8_0(b: Array) -> Groups:
    return Groups(_rows(b[:, :, 2:] ^ np.uint8(128)), 8, 32, _half(b, 0))


def _q4_0(b: Array) -> Groups:
    return Groups(_rows(_nibbles(b[:, :, 2:])), 4, 32, _half(b, 0))


def _q4_1(b: Array) -> Groups:
    return Groups(_rows(_nibbles(b[:, :, 4:])), 4, 32, _half(b, 0), _half(b, 2))


def _q5_0(b: Array) -> Groups:
    return Groups(_rows(_nibbles(b[:, :, 6:]) | _fifths(b, 2)), 5, 32, _half(b, 0))


def _q5_1(b: Array) -> Groups:
    return Groups(_rows(_nibbles(b[:, :, 8:]) | _fifths(b, 4)), 5, 32, _half(b, 0), _half(b, 2))


def _halves(b: Array) -> Array:
    """Of every 32 bytes the low halves, then the high halves: [n, blocks, 8, 32]."""
    parts = b.reshape(*b.shape[:2], -1, 32)
    return np.stack([parts & 15, parts >> 4], 3).reshape(*b.shape[:2], -1, 32)


def _six_bits(b: Array) -> tuple[Array, Array, Array]:
    """Scales and minima of the sub-blocks of Q4_K and Q5_K, int8 [n, 8 · blocks], and the float16 that they are times."""
    first, second, third = b[:, :, 4:8], b[:, :, 8:12], b[:, :, 12:16]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], 2)
    mins = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], 2)
    return _rows(scales).view(np.int8), _rows(mins).view(np.int8), np.stack([_half(b, 0), _half(b, 2)])


def _q4_k(b: Array) -> Groups:
    scales, mins, larger = _six_bits(b)
    return Groups(_rows(_halves(b[:, :, 16:])), 4, 32, scales, mins, larger)


def _q5_k(b: Array) -> Groups:
    scales, mins, larger = _six_bits(b)
    fifth = b[:, :, None, 16:48] >> np.arange(8, dtype=np.uint8).reshape(8, 1) & 1
    return Groups(_rows(_halves(b[:, :, 48:]) | fifth << 4), 5, 32, scales, mins, larger)


def _two_bits(b: Array) -> Array:
    """Of every 32 bytes bits 0-1, then bits 2-3, 4-5, 6-7: [n, blocks, values]."""
    parts = b.reshape(*b.shape[:2], -1, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(4, 1) & 3
    return np.asarray(parts).reshape(*b.shape[:2], -1)


def _q6_k(b: Array) -> Groups:
    parts = b[:, :, :128].reshape(*b.shape[:2], 2, 1, 64) >> np.array([0, 4], np.uint8).reshape(2, 1) & 15
    codes = parts.reshape(*b.shape[:2], 256) | _two_bits(b[:, :, 128:192]) << 4
    scales = np.ascontiguousarray(b[:, :, 192:208]).view(np.int8)
    return Groups(_rows(codes), 6, 16, _rows(scales), None, _half(b, 208)[None])


def _tq2_0(b: Array) -> Groups:
    return Groups(_rows(_two_bits(b[:, :, :64])), 2, 256, _half(b, 64))


_READERS: Mapping[str, Callable[[Any], Groups]] = {
    "Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k,
    "TQ2_0": _tq2_0,
}  # fmt: skip
