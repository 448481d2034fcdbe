"""Float32 matrix products: activations by packed weights, and activations by activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hetsched_kernels import codes
from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.arrays import Array, InF32, InI64, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.parts import as_i64, onward, ptr, span
from hetsched_kernels.tile import COLS, ROWS, TILE
from hetsched_kernels.tile_f32 import COL_BIAS, NO_BIAS, tile_f32

_TILE_CALL = tile_f32.call
_INF = np.float32(np.inf)
_ZERO = np.float32(0.0)


def pack_b_f32(b: Array, transposed: bool = False) -> Array:
    """Weights in the order the register tile reads them: panels of COLS columns, each [K, COLS], zero-padded.

    Args:
        b: [K, N], or [N, K] where ``transposed``.
        transposed: as ONNX Gemm's transB.

    Returns:
        Flat float32 [ceil(N / COLS) · K · COLS].
    """
    b = np.asarray(b, np.float32).T if transposed else np.asarray(b, np.float32)
    k, n = b.shape
    panels = -(-n // COLS)
    padded = np.zeros((k, panels * COLS), np.float32)
    padded[:, :n] = b
    return np.ascontiguousarray(padded.reshape(k, panels, COLS).transpose(1, 0, 2)).reshape(-1)


def gemm_f32_scratch(m: int, n: int, k: int) -> int:
    """Float32 elements of scratch that :data:`gemm_f32` wants."""
    return 2 * (k + 1) + TILE + COLS + 16


@block
def clamp_of(activation: Any, alpha: Any, beta: Any) -> Any:
    """The clamp that stands for the activation, and whether that is all of it (Relu, Clip, none)."""
    if activation == codes.RELU:
        return _ZERO, _INF, True
    if activation == codes.CLIP:
        return alpha, beta, True
    return -_INF, _INF, activation == codes.NONE


@block
def panel_bias(bias: Any, start: Any, cols: Any, spare: Any) -> Any:
    """``cols`` biases from ``start``, padded to a whole panel."""
    if cols == COLS:
        return span(bias, start, COLS)
    for i in range(COLS):
        spare[i] = bias[start + i] if i < cols else _ZERO
    return spare


@kernel(needs=(tile_f32, ACTIVATE))
def gemm_f32(
    a: InF32, b: InF32, bias: InF32, out: OutF32, scratch: OutF32, m: int, n: int, k: int, activation: int, alpha: float, beta: float
) -> None:
    """Compute out = activation(a · b + bias).

    Args:
        a: [m · k].
        b: :func:`pack_b_f32` of [k, n].
        bias: [n], or empty.
        out: [m · n].
        scratch: [:func:`gemm_f32_scratch`].
        m: rows.
        n: columns.
        k: depth.
        activation: one of ``codes.ACTIVATION``.
        alpha: the activation's first parameter.
        beta: its second.
    """
    table = as_i64(scratch, 0, 2 * k)
    spare = span(scratch, 2 * k, TILE)
    spare_bias = span(scratch, 2 * k + TILE, COLS)
    for i in range(k):
        table[i] = i * COLS
    lo, hi, clamps = clamp_of(activation, alpha, beta)
    mode = COL_BIAS if bias.shape[0] > 0 else NO_BIAS
    for c0 in range(0, n, COLS):
        cols = min(COLS, n - c0)
        panel = span(b, c0 * k, k * COLS)
        part = panel_bias(bias, c0, cols, spare_bias) if mode == COL_BIAS else bias
        for r0 in range(0, m, ROWS):
            rows = min(ROWS, m - r0)
            _TILE_CALL(ptr(a, r0 * k), k, 1, panel, table, k, ptr(out, r0 * n + c0), n, part, mode, lo, hi, rows, cols, spare)
            if not clamps:
                for r in range(r0, r0 + rows):
                    activate_at(ptr(out, r * n + c0), cols, activation, alpha, beta)


def matmul_shape(m: int, n: int, k: int, a_strides: Sequence[int] | None = None, b_strides: Sequence[int] | None = None) -> Array:
    """The int64 descriptor of :data:`matmul_f32`: [m, n, k, a_row, a_col, b_row, b_col] (strides in elements).

    Args:
        m: rows.
        n: columns.
        k: depth.
        a_strides: (row, column) strides of each left matrix; contiguous by default.
        b_strides: the same on the right; (1, k) reads a contiguous [n, k] as its transpose.
    """
    return np.array([m, n, k, *(a_strides or (k, 1)), *(b_strides or (n, 1))], np.int64)


def batch_offsets(a_shape: Sequence[int], b_shape: Sequence[int]) -> tuple[Array, Array]:
    """Element offsets of every matrix of a stacked, broadcast product.

    Args:
        a_shape: [..., m, k].
        b_shape: [..., k, n].

    Returns:
        Two int64 arrays, one offset for each matrix of the result, in order.

    Raises:
        ValueError: the leading dimensions do not broadcast.
    """
    batch = np.broadcast_shapes(tuple(a_shape[:-2]), tuple(b_shape[:-2]))

    def offsets(shape: Sequence[int]) -> Array:
        lead, size = tuple(shape[:-2]), int(np.prod(shape[-2:], dtype=np.int64))
        index = np.arange(int(np.prod(lead, dtype=np.int64)), dtype=np.int64).reshape(lead) * size
        return np.ascontiguousarray(np.broadcast_to(index, batch)).reshape(-1)

    return offsets(a_shape), offsets(b_shape)


def matmul_f32_scratch(m: int, n: int, k: int) -> int:
    """Float32 elements of scratch that :data:`matmul_f32` wants."""
    return 2 * (k + 1) + TILE + COLS + k * COLS + 16


@block
def pack_panel(b: Any, row_stride: Any, col_stride: Any, k: Any, cols: Any, panel: Any) -> None:
    """Copy [k, cols] of a strided matrix to a [k, COLS] panel, zero-padded."""
    if col_stride == 1:
        for i in range(k):
            source, target = span(b, i * row_stride, cols), span(panel, i * COLS, COLS)
            for j in range(cols):
                target[j] = source[j]
    else:
        for j in range(cols):
            source = onward(b, j * col_stride)
            for i in range(k):
                panel[i * COLS + j] = source[i * row_stride]
    if cols < COLS:
        for i in range(k):
            for j in range(cols, COLS):
                panel[i * COLS + j] = _ZERO


@kernel(needs=(tile_f32, ACTIVATE))
def matmul_f32(
    a: InF32,
    a_offsets: InI64,
    b: InF32,
    b_offsets: InI64,
    bias: InF32,
    out: OutF32,
    scratch: OutF32,
    shape: InI64,
    activation: int,
    alpha: float,
    beta: float,
) -> None:
    """Compute out[i] = activation(a[i] · b[i] + bias) for every matrix of a batch.

    Args:
        a: left matrices.
        a_offsets: int64 [batch], where each one starts.
        b: right matrices.
        b_offsets: int64 [batch].
        bias: [n], or empty.
        out: [batch · m · n].
        scratch: [:func:`matmul_f32_scratch`].
        shape: :func:`matmul_shape`.
        activation: one of ``codes.ACTIVATION``.
        alpha: the activation's first parameter.
        beta: its second.
    """
    m, n, k = shape[0], shape[1], shape[2]
    table = as_i64(scratch, 0, 2 * k)
    spare = span(scratch, 2 * k, TILE)
    spare_bias = span(scratch, 2 * k + TILE, COLS)
    panel = span(scratch, 2 * k + TILE + COLS, k * COLS)
    for i in range(k):
        table[i] = i * COLS
    lo, hi, clamps = clamp_of(activation, alpha, beta)
    mode = COL_BIAS if bias.shape[0] > 0 else NO_BIAS
    for item in range(a_offsets.shape[0]):
        left, base = onward(a, a_offsets[item]), item * m * n
        for c0 in range(0, n, COLS):
            cols = min(COLS, n - c0)
            pack_panel(onward(b, b_offsets[item] + c0 * shape[6]), shape[5], shape[6], k, cols, panel)
            part = panel_bias(bias, c0, cols, spare_bias) if mode == COL_BIAS else bias
            for r0 in range(0, m, ROWS):
                rows = min(ROWS, m - r0)
                target = ptr(out, base + r0 * n + c0)
                _TILE_CALL(left[r0 * shape[3] :], shape[3], shape[4], panel, table, k, target, n, part, mode, lo, hi, rows, cols, spare)
                if not clamps:
                    for r in range(rows):
                        activate_at(ptr(target, r * n), cols, activation, alpha, beta)
