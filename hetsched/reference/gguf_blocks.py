"""Decoders of GGML's blocks of 32 weights, and of its ternary blocks.

Every function takes ``uint8 [n, bytes of a block]`` and gives ``float32 [n, weights of a block]``. Layouts: the
structures ``block_q4_0`` … ``block_tq2_0`` of ``ggml-common.h``; scales are little-endian float16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

#: Code -> value of IQ4_NL (``kvalues_iq4nl``).
IQ4_NL_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def half(b: Bytes, at: int) -> Floats:
    """The float16 at byte ``at`` of every block, shape ``[n, 1]``."""
    pair: npt.NDArray[Any] = np.ascontiguousarray(b[:, at : at + 2]).view("<f2")
    return pair.astype(np.float32)


def _nibbles(b: Bytes) -> npt.NDArray[np.uint8]:
    """The low halves of all bytes, then the high halves."""
    return np.concatenate([b & 15, b >> 4], 1)


def _fifth_bits(b: Bytes, at: int) -> npt.NDArray[np.uint8]:
    """Bit ``j`` of the 32-bit word at byte ``at``, times 16, for every weight ``j``."""
    word: npt.NDArray[Any] = np.ascontiguousarray(b[:, at : at + 4]).view("<u4")
    bits = (word >> np.arange(32, dtype=np.uint32)) & 1
    return (bits << 4).astype(np.uint8)


def q4_0(b: Bytes) -> Floats:
    """``d (q - 8)``."""
    return half(b, 0) * (_nibbles(b[:, 2:]).astype(np.float32) - 8)


def q4_1(b: Bytes) -> Floats:
    """``d q + m``."""
    return half(b, 0) * _nibbles(b[:, 4:]).astype(np.float32) + half(b, 2)


def q5_0(b: Bytes) -> Floats:
    """``d (q - 16)`` with the fifth bits apart."""
    return half(b, 0) * ((_nibbles(b[:, 6:]) | _fifth_bits(b, 2)).astype(np.float32) - 16)


def q5_1(b: Bytes) -> Floats:
    """``d q + m`` with the fifth bits apart."""
    return half(b, 0) * (_nibbles(b[:, 8:]) | _fifth_bits(b, 4)).astype(np.float32) + half(b, 2)


def q8_0(b: Bytes) -> Floats:
    """``d q``."""
    return half(b, 0) * b[:, 2:].view(np.int8).astype(np.float32)


def iq4_nl(b: Bytes) -> Floats:
    """``d values[q]``."""
    return half(b, 0) * IQ4_NL_VALUES[_nibbles(b[:, 2:])]


def tq1_0(b: Bytes) -> Floats:
    """Ternary digits in base 3: five to a byte in the first 48 bytes, four to a byte in the next four.

    Digit ``k`` of byte ``q`` is ``(q * 3^k mod 256) * 3 >> 8``; the digits of 32, 16 and 4 neighbouring bytes are interleaved.
    """
    parts = [_digits(b[:, 0:32], 5), _digits(b[:, 32:48], 5), _digits(b[:, 48:52], 4)]
    return half(b, 52) * (np.concatenate(parts, 1).astype(np.float32) - 1)


def _digits(b: Bytes, count: int) -> npt.NDArray[np.uint16]:
    power = np.array([1, 3, 9, 27, 81], np.uint16)[:count]
    shifted = (b[:, None, :].astype(np.uint16) * power[:, None]) & 255
    return np.asarray(shifted * 3 >> 8, np.uint16).reshape(len(b), count * b.shape[1])


def tq2_0(b: Bytes) -> Floats:
    """Ternary digits, two bits each: 32 bytes hold 4 x 32 weights."""
    q = b[:, :64].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3
    return half(b, 64) * (q.reshape(len(b), 256).astype(np.float32) - 1)


DECODERS: dict[str, Callable[[Bytes], Floats]] = {
    "Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q5_1": q5_1, "Q8_0": q8_0, "IQ4_NL": iq4_nl, "TQ1_0": tq1_0, "TQ2_0": tq2_0,
}  # fmt: skip
