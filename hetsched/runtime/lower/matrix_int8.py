"""MatMul and Gemm on 8-bit integers: static, or dynamic with one scale a row (per token)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.lower.convolution_int8 import quantized_per_channel
from hetsched.runtime.lower.lowering import Array, Lowering, affine_of
from hetsched.runtime.lower.splitting import MANY
from hetsched_kernels import gemm, gemm_i8, matmul_i8, quantize
from hetsched_kernels.tile import COLS, ROWS


def integer_matmul(low: Lowering) -> None:
    """MatMul and FusedMatMul with a constant matrix, or of two activations that are quantized in the model."""
    from hetsched.runtime.lower.matrix import promoted

    a_shape, b_shape = promoted(low.shape(0), low.shape(1))
    m, k, n = math.prod(a_shape[:-1]), a_shape[-1], b_shape[-1]
    if low.tensor(1).is_constant:
        _with_weights(low, m, n, k, low.bias(2), transposed=False, factor=1.0)
    else:
        _of_activations(low, a_shape, b_shape)


def integer_gemm(low: Lowering) -> None:
    """Gemm and FusedGemm without transA."""
    from hetsched.runtime.lower.matrix import gemm_bias

    (m, n), k = low.output().shape, low.shape(0)[1]
    transposed = bool(low.op.attr_int("transB", 0))
    _with_weights(low, m, n, k, gemm_bias(low, n), transposed, low.op.attr_float("alpha", 1.0))


def _weights(low: Lowering, n: int, transposed: bool, factor: float) -> tuple[tuple[Array, ...], Array]:
    """Packed ``(data, sums, zeros)`` and the scale of each column, times ``factor``."""
    tensor = low.tensor(1)
    if tensor.quantization is None:
        codes, scales = quantized_per_channel(low.constant_reals(1), 0 if transposed else 1)
        zeros = None
    else:
        a = affine_of(low.graph, tensor)
        codes, scales = low.constant(1), a.scales
        zeros = np.broadcast_to(a.zeros, (n,)).copy() if a.zeros.any() else None
    packed = gemm_i8.pack_b_i8(np.ascontiguousarray(codes), transposed, zeros)
    return (packed.data, packed.sums, packed.zeros), aligned_copy(np.broadcast_to(scales * np.float32(factor), (n,)))


def _with_weights(low: Lowering, m: int, n: int, k: int, bias: Array, transposed: bool, factor: float) -> None:
    weights, b_scales = low.packed(low.op.inputs[1], f"gemm i8 {transposed} {factor}", lambda: _weights(low, n, transposed, factor))
    if low.tensor(0).quantization is None:
        x = low.reals(0)
        rows = 1 if low.op.attr_int("dynamic", 0) else m  # as the model says, or a scale for each token
        a, scales, zeros = low.scratch(m * k, np.uint8), low.scratch(rows, np.float32), low.scratch(rows, np.int32)
        _quantize(low, x, a, scales, zeros)
        signed = False
    else:
        stored, q = low.raw(0), affine_of(low.graph, low.tensor(0))
        a, scales, zeros, signed = stored.view(np.uint8), q.scales, q.zeros, stored.dtype == np.int8
    out = low.output()
    kernel, target, tail = gemm_i8.gemm_i8_f32, low.raw_output(), tuple[Any, ...](low.activation())
    if out.quantization is not None:
        o, is_signed = affine_of(low.graph, out), target.dtype == np.int8
        kernel, target, tail = gemm_i8.gemm_i8_q8, target.view(np.uint8), (*tail, o.scale, o.zero, is_signed)

    def rows_of(first: int, last: int) -> tuple[Any, ...]:
        own = slice(first, last) if scales.size > 1 else slice(None)
        reads = (a[first * k : last * k], scales[own], zeros[own], *weights, b_scales, bias)
        scratch = low.scratch(gemm_i8.gemm_i8_scratch(last - first, n, k), np.uint8)
        return *reads, target[first * n : last * n], scratch, last - first, n, k, signed, *tail

    def columns_of(first: int, last: int) -> tuple[Any, ...]:
        data, sums, b_zeros = weights
        own = (data[first * width :], sums[first:last], b_zeros[first:last], b_scales[first:last], bias[first:last])
        scratch = low.scratch(gemm_i8.gemm_i8_scratch(1, last - first, k), np.uint8)
        return a, scales, zeros, *own, target[first:last], scratch, 1, last - first, k, signed, *tail

    width = -(-k // 4) * 4
    if m == 1:
        low.emit_split(kernel, n, COLS * -(-MANY // (k * COLS)), columns_of)
    else:
        low.emit_split(kernel, m, ROWS, rows_of)


def _quantize(low: Lowering, x: Array, codes: Array, scales: Array, zeros: Array) -> None:
    """Rows of floats to bytes, each row with a scale of its own."""
    cols = x.size // scales.size

    def part(first: int, last: int) -> tuple[Any, ...]:
        at, rows = slice(first * cols, last * cols), slice(first, last)
        return x[at], codes[at], scales[rows], zeros[rows], last - first, cols, False, False

    low.emit_split(quantize.quantize_rows, scales.size, -(-MANY // cols), part)


def _of_activations(low: Lowering, a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> None:
    """Two stacks of matrices, both quantized per tensor in the model."""
    m, k, n = a_shape[-2], a_shape[-1], b_shape[-1]
    left, right = (affine_of(low.graph, low.tensor(i)) for i in (0, 1))
    a, b = low.raw(0), low.raw(1)
    a_offsets, b_offsets = gemm.batch_offsets(a_shape, b_shape)
    scale = float(np.float32(left.scale) * np.float32(right.scale))
    middle = (gemm.matmul_shape(m, n, k), scale, left.zero, right.zero, a.dtype == np.int8, b.dtype == np.int8, *low.activation())
    kernel, target, tail, out = matmul_i8.matmul_i8_f32, low.raw_output(), tuple[Any, ...](), low.output()
    if out.quantization is not None:
        o, is_signed = affine_of(low.graph, out), target.dtype == np.int8
        kernel, target, tail = matmul_i8.matmul_i8_q8, target.view(np.uint8), (o.scale, o.zero, is_signed)

    def part(first: int, last: int) -> tuple[Any, ...]:
        reads = (a.view(np.uint8), a_offsets[first:last], b.view(np.uint8), b_offsets[first:last])
        scratch = low.scratch(matmul_i8.matmul_i8_scratch(m, n, k), np.uint8)
        return *reads, target[first * m * n : last * m * n], scratch, *middle, *tail

    low.emit_split(kernel, a_offsets.size, 1, part)
