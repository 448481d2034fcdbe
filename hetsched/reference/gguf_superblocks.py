"""Decoders of GGML's super-blocks of 256 weights (the K types): sub-blocks whose scales are themselves quantized.

Every function takes ``uint8 [n, bytes of a block]`` and gives ``float32 [n, 256]``. Layouts: the structures
``block_q2_K`` … ``block_q6_K`` of ``ggml-common.h``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hetsched.reference.gguf_blocks import Bytes, Floats, half

_TWO_BITS = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)


def q2_k(b: Bytes) -> Floats:
    """``d s q - dmin m``: 16 sub-blocks of 16, scales and minima of 4 bits."""
    scales, quants = b[:, :16], b[:, 16:80]
    q = (quants.reshape(-1, 2, 1, 32) >> _TWO_BITS & 3).reshape(-1, 16, 16).astype(np.float32)
    d, low = half(b, 80) * (scales & 15), half(b, 82) * (scales >> 4)
    return (d[:, :, None] * q - low[:, :, None]).reshape(-1, 256)


def q3_k(b: Bytes) -> Floats:
    """``d (s - 32) (q - 4)``: 16 sub-blocks of 16, scales of 6 bits, the third bits of the weights apart."""
    high, quants, packed = b[:, :32], b[:, 32:96], b[:, 96:108]
    low = (quants.reshape(-1, 2, 1, 32) >> _TWO_BITS & 3).reshape(-1, 256)
    third = (high[:, None, :] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1).reshape(-1, 256)
    q = (low | third << 2).astype(np.float32) - 4
    four = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], 1)
    two = (packed[:, None, 8:] >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 4, 1) & 3).reshape(-1, 16)
    scale = half(b, 108) * ((four | two << 4).astype(np.float32) - 32)
    return np.asarray(scale[:, :, None] * q.reshape(-1, 16, 16), np.float32).reshape(-1, 256)


def q4_k(b: Bytes) -> Floats:
    """``d s q - dmin m``: 8 sub-blocks of 32, scales and minima of 6 bits."""
    scale, low = _six_bits(b)
    q = _halves(b[:, 16:]).astype(np.float32)
    return (scale[:, :, None] * q - low[:, :, None]).reshape(-1, 256)


def q5_k(b: Bytes) -> Floats:
    """As Q4_K, with the fifth bits of the weights apart."""
    scale, low = _six_bits(b)
    fifth = b[:, None, 16:48] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1
    q = (_halves(b[:, 48:]) | fifth << 4).astype(np.float32)
    return (scale[:, :, None] * q - low[:, :, None]).reshape(-1, 256)


def q6_k(b: Bytes) -> Floats:
    """``d s (q - 32)``: 16 sub-blocks of 16, scales of 8 bits, two upper bits of the weights apart."""
    low, high, scales = b[:, :128], b[:, 128:192], b[:, 192:208]
    four = low.reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1) & 15
    two = high.reshape(-1, 2, 1, 32) >> _TWO_BITS & 3
    q = (four.reshape(-1, 256) | two.reshape(-1, 256) << 4).astype(np.float32) - 32
    scale = half(b, 208) * scales.view(np.int8)
    return (scale[:, :, None] * q.reshape(-1, 16, 16)).reshape(-1, 256)


def _halves(quants: Bytes) -> npt.NDArray[np.uint8]:
    """``[n, 8, 32]``: of every 32 bytes the low halves, then the high halves."""
    return np.asarray(quants.reshape(-1, 4, 1, 32) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1) & 15, np.uint8).reshape(-1, 8, 32)


def _six_bits(b: Bytes) -> tuple[Floats, Floats]:
    """Scales ``d s`` and minima ``dmin m`` of Q4_K and Q5_K, ``[n, 8]`` each, from 12 bytes."""
    first, second, third = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scale = np.concatenate([first & 63, third & 15 | first >> 6 << 4], 1)
    low = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], 1)
    return half(b, 0) * scale, half(b, 2) * low


DECODERS: dict[str, Callable[[Bytes], Floats]] = {"Q2_K": q2_k, "Q3_K": q3_k, "Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k}
