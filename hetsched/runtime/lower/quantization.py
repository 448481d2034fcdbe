"""QuantizeLinear and DequantizeLinear that stand on their own."""

from __future__ import annotations

import numpy as np

from hetsched.runtime.lower.lowering import Affine, Lowering, affine
from hetsched.runtime.lower.splitting import emit_affine
from hetsched_kernels import quantize


def _own_affine(low: Lowering) -> Affine:
    zero = low.constant(2) if low.has(2) else None
    return affine(low.shape(0), low.constant(1), zero, low.op.attr_int("axis", 1))


def quantize_linear(low: Lowering) -> None:
    """float32 to 8 bits: half to even, saturating."""
    a, out = _own_affine(low), low.raw_output()
    emit_affine(low, quantize.quantize_linear, low.raw(0), out.view(np.uint8), a, (out.dtype == np.int8,))


def dequantize_linear(low: Lowering) -> None:
    """8- to 32-bit integers to float32."""
    a, x = _own_affine(low), low.raw(0)
    emit_affine(low, quantize.dequantize_linear, x, low.raw_output(), a, dtypes=(x.dtype,))
