"""8-bit depthwise convolution: bytes stay one beside the other, and four taps are joined in registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.activation import activate_at
from hetsched_kernels.compilation import block
from hetsched_kernels.conv import phase_count
from hetsched_kernels.depthwise import depthwise_row_i8
from hetsched_kernels.finish_i8 import store_tile
from hetsched_kernels.gemm import clamp_of
from hetsched_kernels.parts import as_f32, as_i8, as_i64, onward, ptr, span
from hetsched_kernels.spans import spread_row
from hetsched_kernels.tile import COLS

_ROW = depthwise_row_i8.call


@block
def byte_table(g: Any, blocks: Any, high: Any, wide: Any, table: Any) -> None:
    """Byte offset of each tap (channel block, ky, kx) of output position 0 in the padded copy."""
    rows, cols = phase_count(g[5], g[7], g[13]), phase_count(g[6], g[8], g[14])
    k = 0
    for c in range(blocks):
        for ky in range(g[5]):
            y = ky * g[13]
            for kx in range(g[6]):
                x = kx * g[14]
                image = (c * rows + y % g[7]) * cols + x % g[8]
                table[k] = ((image * high + y // g[7]) * wide + x // g[8]) * 4
                k += 1


@block
def _pad_bytes(g: Any, x: Any, high: Any, wide: Any, source: Any, zero: Any, flip: Any) -> None:
    """Copy one channel, sign bits flipped where asked, into padded phase images of bytes."""
    rows, cols = phase_count(g[5], g[7], g[13]), phase_count(g[6], g[8], g[14])
    h, w = g[2], g[3]
    fill = np.uint8(np.uint8(zero) ^ flip)
    for py in range(rows):
        for px in range(cols):
            for y in range(high):
                iy = y * g[7] + py - g[9]
                target = span(source, ((py * cols + px) * high + y) * wide, wide)
                if 0 <= iy < h:
                    spread_row(target, span(x, iy * w, w), px - g[10], g[8], fill)
                else:
                    for i in range(wide):
                        target[i] = fill
                for i in range(wide):
                    target[i] ^= flip


@block
def _byte_taps(table: Any, w: Any, taps: Any, fours: Any, packed: Any) -> None:
    """Byte offsets of the taps, padded to fours with taps of weight 0, and one channel's weights in fours."""
    for k in range(taps):
        packed[k] = np.int8(w[4 * k])
    for k in range(taps, 4 * fours):
        table[k], packed[k] = table[0], np.int8(0)


@block
def convolve_depthwise(
    x: Any, w: Any, w_sums: Any, scales: Any, bias: Any, out: Any, q: Any, scratch: Any, g: Any, x_zero: Any, x_signed: Any, code: Any,
    alpha: Any,
    beta: Any, quantize: Any, scale: Any, out_zero: Any, signed: Any,
) -> None:  # fmt: skip
    """Each output channel reads one input channel: bytes stay bytes, four taps are joined in registers."""
    taps, oh, ow, per = g[5] * g[6], g[16], g[17], g[4] // g[15]
    high, wide = (g[2] + g[9] + g[11] + g[7] - 1) // g[7], (g[3] + g[10] + g[12] + g[8] - 1) // g[8]
    fours = (taps + 3) // 4
    table, rest = as_i64(scratch, 0, fours * 32), onward(scratch, fours * 32)
    packed, spare, line = as_i8(rest, 0, fours * 4), span(rest, fours * 4, COLS), onward(rest, fours * 4 + COLS)
    row, room = as_f32(line, 0, (ow + COLS) * 4), onward(line, (ow + COLS) * 4)
    byte_table(g, 1, high, wide, table)
    for k in range(taps):
        table[k] = table[k] // 4
    zero, flip = np.int32(x_zero + (128 if x_signed else 0)), np.uint8(128 if x_signed else 0)
    lo, hi, clamps = clamp_of(code, alpha, beta)
    for item in range(g[0] * g[1]):
        _pad_bytes(g, onward(x, item * g[2] * g[3]), high, wide, room, zero, flip)
        for m in range(per):
            channel = item % g[1] * per + m
            _byte_taps(table, onward(w, channel * taps * 4), taps, fours, packed)
            shift = bias[channel] if bias.shape[0] > 0 else np.float32(0.0)
            for oy in range(oh):
                source = ptr(room, oy * wide)
                _ROW(source, table, fours, packed, np.int32(zero * w_sums[channel]), scales[channel], shift, lo, hi, row, ow)
                if not clamps:
                    activate_at(ptr(row, 0), ow, code, alpha, beta)
                at = ((item * per + m) * oh + oy) * ow
                for x0 in range(0, ow, COLS):
                    cols = min(COLS, ow - x0)
                    part, to = ptr(row, x0), at + x0
                    store_tile(part, ptr(out, to), ptr(q, to), ow, 1, 0, cols, quantize, scale, out_zero, signed, spare)
