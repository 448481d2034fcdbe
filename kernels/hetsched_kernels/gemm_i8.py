"""8-bit matrix products with exact int32 sums, and what follows them: dequantization, bias, activation, requantization.

With A = (a - za)·sa and B = (b - zb)·sb the product needs only Σ a·b and the sums of rows and columns:
Σ (a-za)(b-zb) = Σ ab - za·Σb - zb·Σa + K·za·zb. A is used as u8 and B as s8; the other kinds are shifted by 128 with their zero
points, which changes nothing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.ahead import ask_for
from hetsched_kernels.arrays import NO_F32, NO_U8, Array, InF32, InI32, InU8, OutF32, OutI32, OutU8
from hetsched_kernels.compilation import block, kernel, variant
from hetsched_kernels.finish_i8 import set_row, split_terms, store_tile, term_bytes
from hetsched_kernels.gemm import clamp_of
from hetsched_kernels.parts import as_i32, as_i64, onward, ptr, span
from hetsched_kernels.tile import COLS, LANES, ROWS
from hetsched_kernels.tile_amx import BLOCK, HEIGHT, TILE_ROOM, release, start_tiles, sums_u8s8
from hetsched_kernels.tile_f32 import scatter_rows_f32
from hetsched_kernels.tile_i8 import HAS_T, RAW, finish_u8s8, quantize_tile, tile_u8s8

_TILE_CALL, _FINISH, _SUMS = tile_u8s8.call, finish_u8s8.call, sums_u8s8.call
_LINE: Final = 64
#: Bytes of rows that meet all columns before the next rows do: they stay in the second cache.
_NEAR: Final = 1 << 19
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


def gemm_i8_scratch(m: int, n: int, k: int) -> int:
    """Bytes of scratch (uint8) that the kernels of this module want."""
    groups = -(-k // 4)
    return groups * 8 + term_bytes(m) + m * groups * 4 + m * 4 + TILE_ROOM + 512


@block
def pack_rows(a: Any, m: Any, k: Any, width: Any, flip: Any, packed: Any, sums: Any, wants_sums: Any) -> None:
    """Copy [m, k] to rows of ``width`` bytes, sign bit flipped where asked, zero-padded; row sums on request."""
    for r in range(m):
        source, target = span(a, r * k, k), span(packed, r * width, width)
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
def depth_table(scratch: Any, groups: Any) -> Any:
    """Where each group of four lies in a packed panel, and the rest of the scratch."""
    table = as_i64(scratch, 0, groups * 8)
    for i in range(groups):
        table[i] = i * COLS * 4
    return table, onward(scratch, groups * 8)


@block(fast=_EXACT)
def _row_terms(m: Any, k: Any, a_scales: Any, a_zeros: Any, a_signed: Any, sums: Any, has_t: Any, row_ints: Any, row_floats: Any) -> None:
    for r in range(m):
        za = np.int32(a_zeros[r if a_zeros.shape[0] > 1 else 0] + (128 if a_signed else 0))
        p = np.int32(sums[r] - np.int32(k) * za) if has_t else np.int32(0)
        scale = a_scales[r if a_scales.shape[0] > 1 else 0] if a_scales.shape[0] > 0 else np.float32(1.0)
        set_row(row_ints, row_floats, r, za, p, scale, np.float32(0.0))


@block
def _col_terms(c0: Any, cols: Any, sums: Any, zeros: Any, scales: Any, bias: Any, col_ints: Any, col_floats: Any) -> None:
    for j in range(COLS):
        at = c0 + min(j, cols - 1)
        col_ints[j] = sums[at]
        col_ints[COLS + j] = zeros[at] if zeros.shape[0] > 0 else np.int32(0)
        col_floats[j] = scales[at if scales.shape[0] > 1 else 0] if scales.shape[0] > 0 else np.float32(1.0)
        col_floats[COLS + j] = bias[at] if bias.shape[0] > 0 else np.float32(0.0)


_NEEDS = (tile_u8s8, finish_u8s8, sums_u8s8, scatter_rows_f32, quantize_tile, ACTIVATE)


@kernel(needs=_NEEDS, fast=_EXACT)
def _product(
    a: InU8, a_scales: InF32, a_zeros: InI32, b: InU8, b_sums: InI32, b_zeros: InI32, b_scales: InF32, bias: InF32, out: OutF32, q: OutU8,
    scratch: OutU8, m: int, n: int, k: int, a_signed: bool, raw: bool, code: int, alpha: float, beta: float, quantize: bool, scale: float,
    zero: int, signed: bool
) -> None:  # fmt: skip
    """All kernels of this module: float32 to ``out``, or 8-bit to ``q``, or int32 sums as the bits of ``out``."""
    groups = (k + 3) // 4
    width = groups * 4
    table, rest = depth_table(scratch, groups)
    row_ints, row_floats, col_ints, col_floats, tile, spare, rest = split_terms(rest, m)
    room = (m * 4 + _LINE - 1) // _LINE * _LINE
    sums, packed, rest = as_i32(rest, 0, m * 4), span(rest, room, m * width), onward(rest, room + m * width)
    has_t = b_zeros.shape[0] > 0
    data = a
    if a_signed or width != k or has_t:
        pack_rows(a, m, k, width, np.uint8(128 if a_signed else 0), packed, sums, has_t)
        data = packed
    _row_terms(m, k, a_scales, a_zeros, a_signed, sums, has_t, row_ints, row_floats)
    lo, hi, clamps = clamp_of(code, alpha, beta)
    flags = (HAS_T if has_t else 0) + (RAW if raw else 0)
    wholes, step, block_sums = start_tiles(rest, m, groups)
    block = max(_NEAR // width // BLOCK, 1) * BLOCK
    parts = (n + COLS - 1) // COLS
    for turn in range((m + block - 1) // block * parts):
        begin, c0 = turn // parts * block, turn % parts * COLS
        end = min(begin + block, m)
        share = COLS * width // ((end - begin + ROWS - 1) // ROWS) if m > ROWS else 0
        cols = min(COLS, n - c0)
        _col_terms(c0, cols, b_sums, b_zeros, b_scales, bias, col_ints, col_floats)
        panel = ptr(b, c0 * width)
        straight = clamps and not quantize and cols % LANES == 0
        for r0 in range(begin, end, ROWS):
            rows = min(ROWS, m - r0)
            left, ints, floats = ptr(data, r0 * width), ptr(row_ints, 2 * r0), ptr(row_floats, 2 * r0)
            ask_for(ptr(b, (c0 + COLS) * width + (r0 - begin) // ROWS * share), share)
            to, ldc = (ptr(out, r0 * n + c0), n) if straight else (ptr(tile, 0), COLS)
            if r0 < wholes:
                if r0 % BLOCK == 0:
                    _SUMS(left, width, panel, step, groups // step, ptr(block_sums, 0), min(wholes - r0, BLOCK) // HEIGHT)
                own = ptr(block_sums, r0 % BLOCK * COLS)
                _FINISH(own, to, ldc, ints, floats, col_ints, col_floats, flags, lo, hi, rows, cols)
            else:
                _TILE_CALL(left, width, panel, table, groups, to, ldc, ints, floats, col_ints, col_floats, flags, lo, hi, rows, cols)
            if straight:
                continue
            if not clamps:
                activate_at(ptr(tile, 0), rows * COLS, code, alpha, beta)
            at = r0 * n + c0
            store_tile(ptr(tile, 0), ptr(out, at), ptr(q, at), n, rows, 0, cols, quantize, scale, zero, signed, spare)
    if wholes:
        release()


@variant(_product)
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
) -> tuple[Any, ...]:
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
    return (
        a, a_scales, a_zeros, b_data, b_sums, b_zeros, b_scales, bias, out, NO_U8, scratch, m, n, k, a_signed, False, activation, alpha,
        beta, False, 1.0, 0, False,
    )  # fmt: skip


@variant(_product)
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
) -> tuple[Any, ...]:
    """As :data:`gemm_i8_f32`, then quantized: saturate(round_half_even(value · (1 / out_scale)) + out_zero).

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
    return (
        a, a_scales, a_zeros, b_data, b_sums, b_zeros, b_scales, bias, NO_F32, out, scratch, m, n, k, a_signed, False, activation, alpha,
        beta, True, out_scale, out_zero, out_signed,
    )  # fmt: skip


@variant(_product)
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
) -> tuple[Any, ...]:
    """Compute out = (a - za)·(b - zb) in int32, exact (ONNX MatMulInteger); arguments as :data:`gemm_i8_f32`."""
    return (
        a, NO_F32, a_zeros, b_data, b_sums, b_zeros, NO_F32, NO_F32, out.view(np.float32), NO_U8, scratch, m, n, k, a_signed, True, 0,
        0.0, 0.0, False, 1.0, 0, False,
    )  # fmt: skip
