"""Products with weights of a few bits: they are dequantized once, when the plan is compiled, and multiplied as float32."""

from __future__ import annotations

import math

import numpy as np

from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched_kernels import gemm


def matmul_n_bits(low: Lowering) -> None:
    """MatMulNBits (A, packed weight ``[N, K]``, scales, zero points, -, bias)."""
    k, n = low.op.attr_int("K", 0), low.op.attr_int("N", 0)
    m = math.prod(low.shape(0)[:-1])

    def pack() -> Array:
        return aligned_copy(gemm.pack_b_f32(np.ascontiguousarray(low.constant_reals(1)[:, :k], np.float32), True))

    b = low.packed(low.op.inputs[1], "n bits f32", pack)
    scratch = low.scratch(gemm.gemm_f32_scratch(m, n, k), np.float32)
    low.emit(gemm.gemm_f32, low.reals(0), b, low.bias(5), low.real_output(), scratch, m, n, k, *low.activation())
