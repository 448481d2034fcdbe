"""8-bit products of two activations (attention in a QDQ model): both sides per tensor, any zero points, batched, strided."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.arrays import NO_F32, NO_U8, InI64, InU8, OutF32, OutU8
from hetsched_kernels.compilation import block, kernel, variant
from hetsched_kernels.finish_i8 import set_row, split_terms, store_tile, term_bytes
from hetsched_kernels.gemm import clamp_of
from hetsched_kernels.gemm_i8 import depth_table
from hetsched_kernels.parts import onward, ptr, span
from hetsched_kernels.tile import COLS, ROWS
from hetsched_kernels.tile_f32 import scatter_rows_f32
from hetsched_kernels.tile_i8 import HAS_T, quantize_tile, tile_u8s8

_TILE_CALL = tile_u8s8.call
_EXACT: frozenset[str] = frozenset()


def matmul_i8_scratch(m: int, n: int, k: int) -> int:
    """Bytes of scratch (uint8) that the kernels of this module want."""
    width = -(-k // 4) * 4
    return width * 2 + term_bytes(m) + m * width + COLS * width + 256


@block
def _pack_left(
    a: Any, rs: Any, cs: Any, m: Any, k: Any, width: Any, flip: Any, packed: Any, za: Any, scale: Any, row_ints: Any, row_floats: Any
) -> None:
    """Rows of whole groups of u8, and their terms."""
    for r in range(m):
        target, source = span(packed, r * width, width), onward(a, r * rs)
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
        set_row(row_ints, row_floats, r, za, np.int32(total - np.int32(k) * za), scale, np.float32(0.0))


@block
def _pack_right(b: Any, rs: Any, cs: Any, k: Any, cols: Any, flip: Any, panel: Any, col_ints: Any) -> None:
    """A panel [K/4, COLS, 4] of s8 and the sums of its columns; ``flip`` turns u8 into s8."""
    for i in range(panel.shape[0]):
        panel[i] = 0
    if cs == 1:
        for j in range(COLS):
            col_ints[j] = 0
        for i in range(k):
            row, base = span(b, i * rs, cols), (i // 4) * COLS * 4 + i % 4
            for j in range(cols):
                value = np.uint8(row[j] ^ flip)
                panel[base + j * 4] = value
                col_ints[j] += np.int32(np.int8(value))
        return
    for j in range(cols):
        column, total = onward(b, j * cs), np.int32(0)
        for i in range(k):
            value = np.uint8(column[i * rs] ^ flip)
            panel[(i // 4) * COLS * 4 + j * 4 + i % 4] = value
            total += np.int32(np.int8(value))
        col_ints[j] = total


_NEEDS = (tile_u8s8, scatter_rows_f32, quantize_tile, ACTIVATE)


@kernel(needs=_NEEDS, fast=_EXACT)
def _products(
    a: InU8, a_offsets: InI64, b: InU8, b_offsets: InI64, out: OutF32, q: OutU8, scratch: OutU8, shape: InI64, scale: float, a_zero: int,
    b_zero: int, a_signed: bool, b_signed: bool, code: int, alpha: float, beta: float, quantize: bool, out_scale: float, out_zero: int,
    out_signed: bool
) -> None:  # fmt: skip
    """Both kernels of this module: float32 to ``out`` or 8-bit to ``q``."""
    m, n, k = shape[0], shape[1], shape[2]
    groups = (k + 3) // 4
    width = groups * 4
    table, rest = depth_table(scratch, groups)
    row_ints, row_floats, col_ints, col_floats, tile, spare, rest = split_terms(rest, m)
    left, panel = span(rest, 0, m * width), span(rest, m * width, COLS * width)
    a_flip, b_flip = np.uint8(128 if a_signed else 0), np.uint8(0 if b_signed else 128)
    za, zb = np.int32(a_zero + (128 if a_signed else 0)), np.int32(b_zero - (0 if b_signed else 128))
    for j in range(COLS):
        col_ints[COLS + j], col_floats[j], col_floats[COLS + j] = zb, np.float32(1.0), np.float32(0.0)
    lo, hi, clamps = clamp_of(code, alpha, beta)
    for item in range(a_offsets.shape[0]):
        _pack_left(onward(a, a_offsets[item]), shape[3], shape[4], m, k, width, a_flip, left, za, scale, row_ints, row_floats)
        for c0 in range(0, n, COLS):
            cols = min(COLS, n - c0)
            _pack_right(onward(b, b_offsets[item] + c0 * shape[6]), shape[5], shape[6], k, cols, b_flip, panel, col_ints)
            for r0 in range(0, m, ROWS):
                rows = min(ROWS, m - r0)
                ints, floats = ptr(row_ints, 2 * r0), ptr(row_floats, 2 * r0)
                _TILE_CALL(
                    ptr(left, r0 * width), width, panel, table, groups, tile, COLS, ints, floats, col_ints, col_floats, HAS_T, lo, hi,
                    rows, cols
                )  # fmt: skip
                if not clamps:
                    activate_at(ptr(tile, 0), rows * COLS, code, alpha, beta)
                at = (item * m + r0) * n + c0
                store_tile(ptr(tile, 0), ptr(out, at), ptr(q, at), n, rows, 0, cols, quantize, out_scale, out_zero, out_signed, spare)


@variant(_products)
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
) -> tuple[Any, ...]:
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
    return (
        a, a_offsets, b, b_offsets, out, NO_U8, scratch, shape, scale, a_zero, b_zero, a_signed, b_signed, activation, alpha, beta, False,
        1.0, 0,
        False,
    )  # fmt: skip


@variant(_products)
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
) -> tuple[Any, ...]:
    """As :data:`matmul_i8_f32`, then quantized: saturate(round_half_even(value · (1 / out_scale)) + out_zero).

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
    return (
        a, a_offsets, b, b_offsets, NO_F32, out, scratch, shape, scale, a_zero, b_zero, a_signed, b_signed, activation, alpha, beta, True,
        out_scale,
        out_zero, out_signed,
    )  # fmt: skip
