"""Products with weights of a few bits, in float32: they are dequantized once, when the plan is compiled."""

from __future__ import annotations

import math

import numpy as np

from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched.runtime.lower.matrix import emit_rows
from hetsched.runtime.lower.matrix_groups import n_bits_product
from hetsched_kernels import gemm


def matmul_n_bits(low: Lowering) -> None:
    """MatMulNBits (A, packed weight ``[N, K]``, scales, zero points, -, bias)."""
    if low.precision == "w8a8":
        n_bits_product(low)
        return
    k, n = low.op.attr_int("K", 0), low.op.attr_int("N", 0)
    m = math.prod(low.shape(0)[:-1])

    def pack() -> Array:
        return aligned_copy(gemm.pack_b_f32(np.ascontiguousarray(low.constant_reals(1)[:, :k], np.float32), True))

    b = low.packed(low.op.inputs[1], "n bits f32", pack)
    emit_rows(low, low.reals(0), b, low.bias(5), low.real_output(), m, n, k, low.activation())
