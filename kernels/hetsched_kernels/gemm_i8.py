"""8-bit matrix products with exact int32 sums, and what follows them: dequantization, bias, activation, requantization.

With A = (a - za)·sa and B = (b - zb)·sb the product needs only Σ a·b and the sums of rows and columns:
Σ (a-za)(b-zb) = Σ ab - za·Σb - zb·Σa + K·za·zb. A is used as u8 and B as s8; the other kinds are shifted by 128 with their zero
points, which changes nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate
from hetsched_kernels.arrays import Array, InF32, InI32, InU8, OutF32, OutI32, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.quantize import quantize_run
from hetsched_kernels.tile import COLS, ROWS, TILE
from hetsched_kernels.tile_i8 import tile_u8s8

_TILE_CALL = tile_u8s8.call
_EXACT: frozenset[str] = frozenset()


class PackedB(NamedTuple):
    """Weights for :data:`gemm_i8_f32` and its siblings.

    Attributes:
        data: uint8 bits of s8, panels [K/4, COLS, 4].
        sums: int32 [N], the sum of each column.
        zeros: int32 [N], the columns' zero points, or empty where all are 0.
    """

    data: Array
    sums: Array
    zeros: Array


def signed_weights(w: Array, zero_points: Array | None, count: int) -> tuple[Array, Array]:
    """8-bit weights as int8, and their zero points (empty where all are 0): uint8 ones are shifted by 128."""
    zeros = np.zeros(count, np.int32)
    if zero_points is not None and np.size(zero_points):
        zeros = np.broadcast_to(np.asarray(zero_points).astype(np.int32).reshape(-1), (count,)).copy()
    if w.dtype == np.uint8:
        w, zeros = (w ^ np.uint8(128)).view(np.int8), zeros - 128
    return w, zeros.astype(np.int32) if zeros.any() else np.zeros(0, np.int32)


def pack_b_i8(b: Array, transposed: bool = False, zero_points: Array | None = None) -> PackedB:
    """Pack 8-bit weights once.

    Args:
        b: int8 or uint8 [K, N] (or [N, K] where ``transposed``).
        transposed: as ONNX Gemm's transB.
        zero_points: per tensor or per column, in b's own type; none means 0.
    """
    b = np.asarray(b).T if transposed else np.asarray(b)
    k, n = b.shape
    b, zeros = signed_weights(b, zero_points, n)
    panels, groups = -(-n // COLS), -(-k // 4)
    padded = np.zeros((groups * 4, panels * COLS), np.int8)
    padded[:k, :n] = b
    data = np.ascontiguousarray(padded.reshape(groups, 4, panels, COLS).transpose(2, 0, 3, 1)).reshape(-1)
    return PackedB(data.view(np.uint8), padded.sum(0, dtype=np.int32)[:n], zeros)


def _room(k: int) -> int:
    return -(-k // 4) * 8 + TILE * 8 + 256


def gemm_i8_scratch(m: int, n: int, k: int) -> int:
    """Bytes of scratch (uint8) that the kernels of this module want."""
    return _room(k) + m * (-(-k // 4) * 4) + m * 4 + 64


@block
def split_scratch(scratch: Any, groups: Any) -> Any:
    """The parts of the scratch: depth table, int32 tile, float tile, the rest."""
    first = (groups * 8 + 63) // 64 * 64
    table = scratch[: groups * 8].view(np.int64)
    acc = scratch[first : first + TILE * 4].view(np.int32)
    tile = scratch[first + TILE * 4 : first + TILE * 8].view(np.float32)
    for i in range(groups):
        table[i] = i * COLS * 4
    return table, acc, tile, scratch[first + TILE * 8 :]


@block
def pack_rows(a: Any, m: Any, k: Any, width: Any, flip: Any, packed: Any, sums: Any, wants_sums: Any) -> None:
    """Copy [m, k] to rows of ``width`` bytes, sign bit flipped where asked, zero-padded; row sums on request."""
    for r in range(m):
        source, target = a[r * k : (r + 1) * k], packed[r * width : (r + 1) * width]
        for i in range(k):
            target[i] = source[i] ^ flip
        for i in range(k, width):
            target[i] = 0
        if wants_sums:
            total = np.int32(0)
            for i in range(k):
                total += np.int32(target[i])
            sums[r] = total


@block
def correct_row(acc: Any, za: Any, sums: Any, zeros: Any, row_sum: Any, k: Any) -> None:
    """Turn Σ ab into Σ (a - za)(b - zb) for one row of a tile; the slices start at the tile's first column."""
    for j in range(acc.shape[0]):
        acc[j] -= np.int32(za * sums[j])
    if zeros.shape[0] > 0:
        constant = np.int32(np.int32(k) * za - row_sum)
        for j in range(acc.shape[0]):
            acc[j] += np.int32(zeros[j] * constant)


@block(fast=_EXACT)
def scale_row(acc: Any, out: Any, sa: Any, scales: Any, first: Any, bias: Any) -> None:
    """out[j] = acc[j] · (sa · sb[j]) + bias[j], in that order, without fusing."""
    n = acc.shape[0]
    if scales.shape[0] == 1:
        factor = np.float32(sa * scales[0])
        for j in range(n):
            out[j] = np.float32(acc[j]) * factor
    else:
        part = scales[first : first + n]
        for j in range(n):
            out[j] = np.float32(acc[j]) * np.float32(sa * part[j])
    if bias.shape[0] > 0:
        shift = bias[first : first + n]
        for j in range(n):
            out[j] = out[j] + shift[j]


@block
def _prepare(a: Any, m: Any, k: Any, a_signed: Any, zeros: Any, scratch: Any) -> Any:
    """A in rows of whole groups, its row sums, and the scratch parts."""
    groups = (k + 3) // 4
    table, acc, tile, rest = split_scratch(scratch, groups)
    width = groups * 4
    sums = rest[: m * 4].view(np.int32)
    wants_sums = zeros.shape[0] > 0
    if a_signed or width != k or wants_sums:
        packed = rest[m * 4 : m * 4 + m * width]
        pack_rows(a, m, k, width, np.uint8(128 if a_signed else 0), packed, sums, wants_sums)
        return table, acc, tile, sums, packed, width
    return table, acc, tile, sums, a[: m * k], width


@block
def _tile_rows(data: Any, width: Any, b: Any, table: Any, acc: Any, r0: Any, rows: Any, c0: Any, cols: Any) -> None:
    depth = table.shape[0]
    _TILE_CALL(data[r0 * width :], width, b[c0 * depth * 4 :], table, depth, acc, rows, cols)


@block
def _corrected(
    acc: Any, r: Any, r0: Any, c0: Any, cols: Any, a_zeros: Any, a_signed: Any, sums: Any, zeros: Any, row_sums: Any, k: Any
) -> Any:
    """One row of the tile, corrected."""
    row = acc[(r - r0) * COLS : (r - r0) * COLS + cols]
    za = np.int32(a_zeros[r if a_zeros.shape[0] > 1 else 0] + np.int32(128 if a_signed else 0))
    if zeros.shape[0] > 0:
        correct_row(row, za, sums[c0 : c0 + cols], zeros[c0 : c0 + cols], row_sums[r], k)
    else:
        correct_row(row, za, sums[c0 : c0 + cols], zeros, np.int32(0), k)
    return row


@kernel(needs=(tile_u8s8, ACTIVATE), fast=_EXACT)
def gemm_i8_f32(
    a: InU8,
    a_scales: InF32,
    a_zeros: InI32,
    b_data: InU8,
    b_sums: InI32,
    b_zeros: InI32,
    b_scales: InF32,
    bias: InF32,
    out: OutF32,
    scratch: OutU8,
    m: int,
    n: int,
    k: int,
    a_signed: bool,
    activation: int,
    alpha: float,
    beta: float,
) -> None:
    """Compute out = activation((a - za)·(b - zb) · sa·sb + bias): int32 sums, then float32 in exactly that order.

    Args:
        a: [m · k] 8-bit activations as uint8.
        a_scales: [m] (per token) or [1].
        a_zeros: int32 [m] or [1], in a's own type.
        b_data: :attr:`PackedB.data`.
        b_sums: :attr:`PackedB.sums`.
        b_zeros: :attr:`PackedB.zeros`.
        b_scales: [n] or [1].
        bias: float32 [n], or empty.
        out: [m · n].
        scratch: uint8 [:func:`gemm_i8_scratch`].
        m: rows.
        n: columns.
        k: depth, at most 2^16 (int32 sums then cannot overflow).
        a_signed: a's bits are int8.
        activation: one of ``codes.ACTIVATION``.
        alpha: the activation's first parameter.
        beta: its second.
    """
    table, acc, _, row_sums, data, width = _prepare(a, m, k, a_signed, b_zeros, scratch)
    for c0 in range(0, n, COLS):
        cols = min(COLS, n - c0)
        for r0 in range(0, m, ROWS):
            rows = min(ROWS, m - r0)
            _tile_rows(data, width, b_data, table, acc, r0, rows, c0, cols)
            for r in range(r0, r0 + rows):
                row = _corrected(acc, r, r0, c0, cols, a_zeros, a_signed, b_sums, b_zeros, row_sums, k)
                target = out[r * n + c0 : r * n + c0 + cols]
                scale_row(row, target, a_scales[r if a_scales.shape[0] > 1 else 0], b_scales, c0, bias)
                if activation != 0:
                    activate(target, activation, alpha, beta)


@kernel(needs=(tile_u8s8, ACTIVATE), fast=_EXACT)
def gemm_i8_q8(
    a: InU8,
    a_scales: InF32,
    a_zeros: InI32,
    b_data: InU8,
    b_sums: InI32,
    b_zeros: InI32,
    b_scales: InF32,
    bias: InF32,
    out: OutU8,
    scratch: OutU8,
    m: int,
    n: int,
    k: int,
    a_signed: bool,
    activation: int,
    alpha: float,
    beta: float,
    out_scale: float,
    out_zero: int,
    out_signed: bool,
) -> None:
    """As :data:`gemm_i8_f32`, then quantized: saturate(round_half_even(value / out_scale) + out_zero).

    Args:
        a: as there.
        a_scales: as there.
        a_zeros: as there.
        b_data: as there.
        b_sums: as there.
        b_zeros: as there.
        b_scales: as there.
        bias: as there; an int32 bias is ``bias · sa · sb`` in float32.
        out: [m · n] 8-bit as uint8.
        scratch: as there.
        m: rows.
        n: columns.
        k: depth.
        a_signed: a's bits are int8.
        activation: one of ``codes.ACTIVATION``, applied before quantizing.
        alpha: its first parameter.
        beta: its second.
        out_scale: the result's scale.
        out_zero: the result's zero point, in its own type.
        out_signed: the result is int8.
    """
    table, acc, tile, row_sums, data, width = _prepare(a, m, k, a_signed, b_zeros, scratch)
    for c0 in range(0, n, COLS):
        cols = min(COLS, n - c0)
        for r0 in range(0, m, ROWS):
            rows = min(ROWS, m - r0)
            _tile_rows(data, width, b_data, table, acc, r0, rows, c0, cols)
            for r in range(r0, r0 + rows):
                row = _corrected(acc, r, r0, c0, cols, a_zeros, a_signed, b_sums, b_zeros, row_sums, k)
                value = tile[:cols]
                scale_row(row, value, a_scales[r if a_scales.shape[0] > 1 else 0], b_scales, c0, bias)
                if activation != 0:
                    activate(value, activation, alpha, beta)
                quantize_run(value, out[r * n + c0 : r * n + c0 + cols], out_scale, np.int32(out_zero), out_signed)


@kernel(needs=(tile_u8s8,), fast=_EXACT)
def gemm_i8_i32(
    a: InU8,
    a_zeros: InI32,
    b_data: InU8,
    b_sums: InI32,
    b_zeros: InI32,
    out: OutI32,
    scratch: OutU8,
    m: int,
    n: int,
    k: int,
    a_signed: bool,
) -> None:
    """Compute out = (a - za)·(b - zb) in int32, exact (ONNX MatMulInteger); arguments as :data:`gemm_i8_f32`."""
    table, acc, _, row_sums, data, width = _prepare(a, m, k, a_signed, b_zeros, scratch)
    for c0 in range(0, n, COLS):
        cols = min(COLS, n - c0)
        for r0 in range(0, m, ROWS):
            rows = min(ROWS, m - r0)
            _tile_rows(data, width, b_data, table, acc, r0, rows, c0, cols)
            for r in range(r0, r0 + rows):
                row = _corrected(acc, r, r0, c0, cols, a_zeros, a_signed, b_sums, b_zeros, row_sums, k)
                target = out[r * n + c0 : r * n + c0 + cols]
                for j in range(cols):
                    target[j] = row[j]
