"""QuantizeLinear and DequantizeLinear that stand on their own."""

from __future__ import annotations

import numpy as np

from hetsched.runtime.lower.lowering import Affine, Lowering, affine
from hetsched_kernels import quantize


def _own_affine(low: Lowering) -> Affine:
    zero = low.constant(2) if low.has(2) else None
    return affine(low.shape(0), low.constant(1), zero, low.op.attr_int("axis", 1))


def quantize_linear(low: Lowering) -> None:
    """float32 to 8 bits: half to even, saturating."""
    a, out = _own_affine(low), low.raw_output()
    args = (out.view(np.uint8), a.scales, a.zeros, a.outer, a.channels, a.inner, out.dtype == np.int8)
    low.emit(quantize.quantize_linear, low.raw(0), *args)


def dequantize_linear(low: Lowering) -> None:
    """8- to 32-bit integers to float32."""
    a, x = _own_affine(low), low.raw(0)
    low.emit(quantize.dequantize_linear, x, low.raw_output(), a.scales, a.zeros, a.outer, a.channels, a.inner, dtypes=(x.dtype,))
