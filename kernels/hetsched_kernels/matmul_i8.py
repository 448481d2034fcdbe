"""8-bit products of two activations (attention in a QDQ model): both sides per tensor, any zero points, batched, strided."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate
from hetsched_kernels.arrays import InI64, InU8, OutF32, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.gemm_i8 import correct_row, split_scratch
from hetsched_kernels.quantize import quantize_run
from hetsched_kernels.tile import COLS, ROWS, TILE
from hetsched_kernels.tile_i8 import tile_u8s8

_TILE_CALL = tile_u8s8.call
_EXACT: frozenset[str] = frozenset()


def matmul_i8_scratch(m: int, n: int, k: int) -> int:
    """Bytes of scratch (uint8) that the kernels of this module want."""
    width = -(-k // 4) * 4
    return width * 2 + TILE * 8 + m * width + m * 4 + COLS * width + COLS * 4 + 512


@block
def _pack_left(a: Any, rs: Any, cs: Any, m: Any, k: Any, width: Any, flip: Any, packed: Any, sums: Any) -> None:
    """Rows of whole groups of u8 and their sums."""
    for r in range(m):
        target, source = packed[r * width : (r + 1) * width], a[r * rs :]
        if cs == 1:
            for i in range(k):
                target[i] = source[i] ^ flip
        else:
            for i in range(k):
                target[i] = source[i * cs] ^ flip
        for i in range(k, width):
            target[i] = 0
        total = np.int32(0)
        for i in range(k):
            total += np.int32(target[i])
        sums[r] = total


@block
def _pack_right(b: Any, rs: Any, cs: Any, k: Any, cols: Any, flip: Any, panel: Any, sums: Any) -> None:
    """A panel [K/4, COLS, 4] of s8 and the sums of its columns; ``flip`` turns u8 into s8."""
    width = (k + 3) // 4 * 4
    for j in range(COLS):
        sums[j] = 0
    for i in range(width):
        base = (i // 4) * COLS * 4 + i % 4
        for j in range(COLS):
            value = np.uint8(0)
            if i < k and j < cols:
                value = np.uint8(b[i * rs + j * cs] ^ flip)
            panel[base + j * 4] = value
            sums[j] += np.int32(np.int8(value))


@block(fast=_EXACT)
def _product_rows(
    left: Any,
    width: Any,
    panel: Any,
    table: Any,
    acc: Any,
    r0: Any,
    rows: Any,
    cols: Any,
    za: Any,
    zb: Any,
    sums: Any,
    row_sums: Any,
    k: Any,
) -> None:
    """One tile of Σ (a - za)(b - zb)."""
    _TILE_CALL(left[r0 * width :], width, panel, table, table.shape[0], acc, rows, cols)
    none = sums[:0]
    for r in range(rows):
        row = acc[r * COLS : r * COLS + cols]
        correct_row(row, za, sums, none, np.int32(0), k)
        constant = np.int32(zb * np.int32(np.int32(k) * za - row_sums[r0 + r]))
        for j in range(cols):
            row[j] += constant


@block
def _parts(scratch: Any, m: Any, k: Any) -> Any:
    """Scratch: table, int32 tile, float tile, packed left, its sums, packed right panel, its sums."""
    groups = (k + 3) // 4
    table, acc, tile, rest = split_scratch(scratch, groups)
    width = groups * 4
    row_sums = rest[: m * 4].view(np.int32)
    sums = rest[m * 4 : m * 4 + COLS * 4].view(np.int32)
    left = rest[m * 4 + COLS * 4 : m * 4 + COLS * 4 + m * width]
    panel = rest[m * 4 + COLS * 4 + m * width : m * 4 + COLS * 4 + m * width + COLS * width]
    return table, acc, tile, left, row_sums, panel, sums


@kernel(needs=(tile_u8s8, ACTIVATE), fast=_EXACT)
def matmul_i8_f32(
    a: InU8,
    a_offsets: InI64,
    b: InU8,
    b_offsets: InI64,
    out: OutF32,
    scratch: OutU8,
    shape: InI64,
    scale: float,
    a_zero: int,
    b_zero: int,
    a_signed: bool,
    b_signed: bool,
    activation: int,
    alpha: float,
    beta: float,
) -> None:
    """Compute out[i] = activation((a[i] - za)·(b[i] - zb) · scale) for every matrix of a batch.

    Args:
        a: 8-bit left matrices as uint8.
        a_offsets: int64 [batch], where each one starts (:func:`hetsched_kernels.gemm.batch_offsets`).
        b: 8-bit right matrices as uint8.
        b_offsets: int64 [batch].
        out: [batch · m · n].
        scratch: uint8 [:func:`matmul_i8_scratch`].
        shape: :func:`hetsched_kernels.gemm.matmul_shape`.
        scale: sa · sb.
        a_zero: zero point of a, in its own type.
        b_zero: zero point of b.
        a_signed: a's bits are int8.
        b_signed: b's bits are int8.
        activation: one of ``codes.ACTIVATION``.
        alpha: the activation's first parameter.
        beta: its second.
    """
    m, n, k = shape[0], shape[1], shape[2]
    table, acc, _, left, row_sums, panel, sums = _parts(scratch, m, k)
    width = table.shape[0] * 4
    a_flip, b_flip = np.uint8(128 if a_signed else 0), np.uint8(0 if b_signed else 128)
    za, zb = np.int32(a_zero + (128 if a_signed else 0)), np.int32(b_zero - (0 if b_signed else 128))
    for item in range(a_offsets.shape[0]):
        _pack_left(a[a_offsets[item] :], shape[3], shape[4], m, k, width, a_flip, left, row_sums)
        for c0 in range(0, n, COLS):
            cols = min(COLS, n - c0)
            _pack_right(b[b_offsets[item] + c0 * shape[6] :], shape[5], shape[6], k, cols, b_flip, panel, sums)
            for r0 in range(0, m, ROWS):
                rows = min(ROWS, m - r0)
                _product_rows(left, width, panel, table, acc, r0, rows, cols, za, zb, sums, row_sums, k)
                for r in range(rows):
                    target = out[(item * m + r0 + r) * n + c0 : (item * m + r0 + r) * n + c0 + cols]
                    row = acc[r * COLS : r * COLS + cols]
                    for j in range(cols):
                        target[j] = np.float32(row[j]) * scale
                    if activation != 0:
                        activate(target, activation, alpha, beta)


@kernel(needs=(tile_u8s8, ACTIVATE), fast=_EXACT)
def matmul_i8_q8(
    a: InU8,
    a_offsets: InI64,
    b: InU8,
    b_offsets: InI64,
    out: OutU8,
    scratch: OutU8,
    shape: InI64,
    scale: float,
    a_zero: int,
    b_zero: int,
    a_signed: bool,
    b_signed: bool,
    activation: int,
    alpha: float,
    beta: float,
    out_scale: float,
    out_zero: int,
    out_signed: bool,
) -> None:
    """As :data:`matmul_i8_f32`, then quantized: saturate(round_half_even(value / out_scale) + out_zero).

    Args:
        a: as there.
        a_offsets: as there.
        b: as there.
        b_offsets: as there.
        out: [batch · m · n] 8-bit as uint8.
        scratch: as there.
        shape: as there.
        scale: sa · sb.
        a_zero: zero point of a.
        b_zero: zero point of b.
        a_signed: a's bits are int8.
        b_signed: b's bits are int8.
        activation: applied before quantizing.
        alpha: its first parameter.
        beta: its second.
        out_scale: the result's scale.
        out_zero: the result's zero point, in its own type.
        out_signed: the result is int8.
    """
    m, n, k = shape[0], shape[1], shape[2]
    table, acc, tile, left, row_sums, panel, sums = _parts(scratch, m, k)
    width = table.shape[0] * 4
    a_flip, b_flip = np.uint8(128 if a_signed else 0), np.uint8(0 if b_signed else 128)
    za, zb = np.int32(a_zero + (128 if a_signed else 0)), np.int32(b_zero - (0 if b_signed else 128))
    for item in range(a_offsets.shape[0]):
        _pack_left(a[a_offsets[item] :], shape[3], shape[4], m, k, width, a_flip, left, row_sums)
        for c0 in range(0, n, COLS):
            cols = min(COLS, n - c0)
            _pack_right(b[b_offsets[item] + c0 * shape[6] :], shape[5], shape[6], k, cols, b_flip, panel, sums)
            for r0 in range(0, m, ROWS):
                rows = min(ROWS, m - r0)
                _product_rows(left, width, panel, table, acc, r0, rows, cols, za, zb, sums, row_sums, k)
                for r in range(rows):
                    row, value = acc[r * COLS : r * COLS + cols], tile[:cols]
                    for j in range(cols):
                        value[j] = np.float32(row[j]) * scale
                    if activation != 0:
                        activate(value, activation, alpha, beta)
                    to = (item * m + r0 + r) * n + c0
                    quantize_run(value, out[to : to + cols], out_scale, np.int32(out_zero), out_signed)
