"""MatMul and Gemm, plain and fused, in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.language_rules import in_groups
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched.runtime.lower.matrix_groups import block_product
from hetsched.runtime.lower.matrix_int8 import integer_gemm, integer_matmul
from hetsched.runtime.lower.splitting import MANY
from hetsched_kernels import gemm
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.tile import COLS, ROWS


def promoted(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of a MatMul's operands with vectors made into matrices."""
    return (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b


def matmul(low: Lowering) -> None:
    """MatMul and FusedMatMul (A, B, bias)."""
    if low.precision == "w8a8":
        integer_matmul(low)
        return
    a_shape, b_shape = promoted(low.shape(0), low.shape(1))
    m, k, n = a_shape[-2], a_shape[-1], b_shape[-1]
    a, bias = low.reals(0), low.bias(2)
    if low.tensor(1).is_constant and math.prod(b_shape[:-2]) == 1:
        _packed_product(low, a, bias, math.prod(a_shape[:-1]), n, k, transposed=False, factor=1.0)
        return
    b, out = low.reals(1), low.real_output()
    offsets = gemm.batch_offsets(a_shape, b_shape)

    emit_pairs(low, a, b, bias, out, offsets, gemm.matmul_shape(m, n, k))


def emit_pairs(low: Lowering, a: Array, b: Array, bias: Array, out: Array, offsets: tuple[Array, Array], shape: Array) -> None:
    """Products of matrices by pairs, divided by pairs; a single one by rows."""
    m, n, k, row = (int(v) for v in shape[:4])

    def pairs(first: int, last: int) -> tuple[Any, ...]:
        scratch = low.scratch(gemm.matmul_f32_scratch(m, n, k), np.float32)
        at = (a, offsets[0][first:last], b, offsets[1][first:last], bias, out[first * m * n : last * m * n], scratch)
        return *at, shape, *low.activation()

    def rows(first: int, last: int) -> tuple[Any, ...]:
        scratch, own = low.scratch(gemm.matmul_f32_scratch(last - first, n, k), np.float32), shape.copy()
        own[0] = last - first
        return a, offsets[0] + first * row, b, offsets[1], bias, out[first * n : last * n], scratch, own, *low.activation()

    if offsets[0].size == 1:
        low.emit_split(gemm.matmul_f32, m, ROWS, rows)
    else:
        low.emit_split(gemm.matmul_f32, offsets[0].size, 1, pairs)


def _packed_product(low: Lowering, a: Array, bias: Array, m: int, n: int, k: int, transposed: bool, factor: float) -> None:
    """A times a constant matrix that is packed once."""

    def pack() -> Array:
        weights = low.constant_reals(1)
        matrix = (weights * np.float32(factor)).reshape((n, k) if transposed else (k, n))
        return aligned_copy(gemm.pack_b_f32(np.ascontiguousarray(matrix, np.float32), transposed))

    b = low.packed(low.op.inputs[1], f"gemm f32 {transposed} {factor}", pack)
    out = low.real_output()
    emit_rows(low, a, b, bias, out, m, n, k, low.activation())


def emit_rows(
    low: Lowering, a: Array, b: Array, bias: Array, out: Array, m: int, n: int, k: int, activation: tuple[int, float, float]
) -> None:  # fmt: skip
    """Rows of ``a`` times a packed matrix, divided by rows; a single row by columns."""
    if m == 1:
        emit_columns(low, a, b, bias, out, n, k, activation)
        return

    def part(first: int, last: int) -> tuple[Any, ...]:
        rows = last - first
        scratch = low.scratch(gemm.gemm_f32_scratch(rows, n, k), np.float32)
        return a[first * k : last * k], b, bias, out[first * n : last * n], scratch, rows, n, k, *activation

    low.emit_split(gemm.gemm_f32, m, ROWS, part)


def emit_columns(
    low: Lowering, a: Array, b: Array, bias: Array, out: Array, n: int, k: int, activation: tuple[int, float, float]
) -> None:  # fmt: skip
    """A single row times a packed matrix, divided by columns."""

    def part(first: int, last: int) -> tuple[Any, ...]:
        scratch = low.scratch(gemm.gemm_f32_scratch(1, last - first, k), np.float32)
        return a, b[first * k :], bias[first:last], out[first:last], scratch, 1, last - first, k, *activation

    low.emit_split(gemm.gemm_f32, n, COLS * -(-MANY // (k * COLS)), part)


def gemm_bias(low: Lowering, n: int) -> Array:
    """Gemm's third input, times beta, as a vector of ``n``; or the empty array."""
    if not low.has(2):
        return NO_F32
    if not low.tensor(2).is_constant:
        return low.reals(2)
    beta = np.float32(low.op.attr_float("beta", 1.0))
    return aligned_copy(np.broadcast_to(low.constant_reals(2).reshape(-1) * beta, (n,)))


def general_matrix_product(low: Lowering) -> None:
    """Gemm and FusedGemm: ``alpha A B + beta C``."""
    if low.precision == "w8a8" and in_groups(low.op, low.graph):
        block_product(low, low.output().shape[-1], gemm_bias(low, low.output().shape[-1]))
        return
    if low.precision == "w8a8":
        integer_gemm(low)
        return
    m, n = low.output().shape
    trans_a, trans_b = bool(low.op.attr_int("transA", 0)), bool(low.op.attr_int("transB", 0))
    k = low.shape(0)[0] if trans_a else low.shape(0)[1]
    alpha = low.op.attr_float("alpha", 1.0)
    a, bias = low.reals(0), gemm_bias(low, n)
    if low.tensor(1).is_constant and not trans_a:
        _packed_product(low, a, bias, m, n, k, trans_b, alpha)
        return
    b = low.reals(1)
    if alpha != 1.0:
        a = _scaled(low, a, alpha)
    strides = gemm.matmul_shape(m, n, k, (1, m) if trans_a else (k, 1), (1, k) if trans_b else (n, 1))
    offsets = np.zeros(1, np.int64)
    emit_pairs(low, a, b, bias, low.real_output(), (offsets, offsets), strides)


def _scaled(low: Lowering, a: Array, factor: float) -> Array:
    """``a * factor`` in scratch."""
    from hetsched.runtime.lower.elementwise import emit_binary

    out = low.scratch(a.size, np.float32)
    emit_binary(low, "Mul", a, np.full(1, factor, np.float32), out, (a.size,), (1,), (a.size,))
    return out
