"""The float32 tiles of channels-last convolution: general (rows of positions by columns of channels) and depthwise."""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I64P, alloca_once, for_range, intrinsic
from hetsched_kernels.nhwc_tile import store_lanes
from hetsched_kernels.tile import LANES, ROWS
from hetsched_kernels.tile_f32 import for_each_shape

#: How many channels ahead weights are fetched.
_AHEAD = 12
#: Positions and vectors of channels that the depthwise tile computes together.
_TALL, _WIDE = 4, 2


def _clamped(b: Any, x: Any, low: Any, high: Any) -> Any:
    x = b.select(b.fcmp_ordered("<", x, low), low, x)
    return b.select(b.fcmp_ordered(">", x, high), high, x)


def _rows(b: Any, addresses: Any, tap: Any, first: int, count: int) -> list[Any]:
    """Where ``count`` positions' channels of a tap start."""
    here = b.gep(addresses, [b.mul(tap, v.index(ROWS))])
    return [b.inttoptr(b.load(b.gep(here, [v.index(first + m)])), v.F32.as_pointer()) for m in range(count)]


def _micro(b: Any, args: Any, rows: int, wide: int) -> None:
    addresses, taps, depth, weights, bias, lo, hi, out, ldc, stored, cols = args
    kind = v.vector(v.F32, LANES)
    acc = [[alloca_once(b, kind) for _ in range(wide)] for _ in range(rows)]
    for n in range(wide):
        start = v.load(b, b.gep(bias, [v.index(LANES * n)]), kind, 4)
        for row in acc:
            b.store(start, row[n])
    with for_range(b, taps, intp=v.I64) as tap:
        bases = _rows(b, addresses, tap.index, 0, rows)
        panel = b.gep(weights, [b.mul(b.mul(tap.index, depth), v.index(LANES * wide))])
        with for_range(b, depth, intp=v.I64) as loop:
            source = b.gep(panel, [b.mul(loop.index, v.index(LANES * wide))])
            values = [v.load(b, b.gep(source, [v.index(LANES * n)]), kind, 4) for n in range(wide)]
            v.prefetch(b, b.gep(source, [v.index(LANES * wide * _AHEAD)]))
            for m in range(rows):
                factor = v.splat(b, b.load(b.gep(bases[m], [loop.index])), LANES)
                for n in range(wide):
                    b.store(v.multiply_add(b, factor, values[n], b.load(acc[m][n])), acc[m][n])
    low, high = v.splat(b, lo, LANES), v.splat(b, hi, LANES)
    for m in range(rows):
        with b.if_then(b.icmp_signed("<", v.index(m), stored)):
            to = b.gep(out, [b.mul(ldc, v.index(m))])
            for n in range(wide):
                x, pointer = _clamped(b, b.load(acc[m][n]), low, high), b.gep(to, [v.index(LANES * n)])
                if n + 1 < wide:
                    v.store(b, x, pointer, 4)
                else:
                    store_lanes(b, x, pointer, b.sub(cols, v.index(LANES * n)))


_TILE = (I64P, types.int64, types.int64, F32P, F32P, types.float32, types.float32, F32P, types.int64, types.int64, types.int64)


@intrinsic
def _tile(
    tc: Any, addresses: Any, taps: Any, depth: Any, weights: Any, bias: Any, lo: Any, hi: Any, out: Any, ldc: Any, rows: Any, cols: Any
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        for_each_shape(b, args[-2], args[-1], lambda height, wide: _micro(b, args, height, wide))
        return context.get_dummy_value()

    return types.none(*_TILE), codegen


@external(*_TILE)
def nhwc_tile_f32(
    addresses: Any, taps: Any, depth: Any, weights: Any, bias: Any, lo: Any, hi: Any, out: Any, ldc: Any, rows: Any, cols: Any
) -> None:  # fmt: skip
    """out[r · ldc + c] = clamp(bias[c] + Σ x · w, lo, hi).

    Args:
        addresses: int64 [taps, ROWS], where the row of each tap starts; all ROWS are readable.
        taps: kernel elements.
        depth: channels.
        weights: [taps, depth, columns rounded up to LANES].
        bias: [columns rounded up to LANES].
        lo: lower clamp, -inf for none.
        hi: upper clamp, inf for none.
        out: first element of the result.
        ldc: its row stride.
        rows: 1 … ROWS.
        cols: 1 … COLS.
    """
    _tile(addresses, taps, depth, weights, bias, lo, hi, out, ldc, rows, cols)


def _depthwise_block(b: Any, args: Any, at: Any, first: int, tall: int) -> None:
    """_WIDE vectors of channels from ``at`` of ``tall`` positions from ``first``."""
    addresses, taps, width, weights, bias, lo, hi, out, channels, stored = args
    kind = v.vector(v.F32, LANES)
    acc = [[alloca_once(b, kind) for _ in range(_WIDE)] for _ in range(tall)]
    for n in range(_WIDE):
        start = v.load(b, b.gep(bias, [b.add(at, v.index(LANES * n))]), kind, 4)
        for row in acc:
            b.store(start, row[n])
    with for_range(b, taps, intp=v.I64) as tap:
        bases = _rows(b, addresses, tap.index, first, tall)
        line = b.gep(weights, [b.add(b.mul(tap.index, width), at)])
        for n in range(_WIDE):
            weight = v.load(b, b.gep(line, [v.index(LANES * n)]), kind, 4)
            for m in range(tall):
                value = v.load(b, b.gep(bases[m], [b.add(at, v.index(LANES * n))]), kind, 4)
                b.store(v.multiply_add(b, value, weight, b.load(acc[m][n])), acc[m][n])
    low, high = v.splat(b, lo, LANES), v.splat(b, hi, LANES)
    left = b.sub(channels, at)
    for m in range(tall):
        with b.if_then(b.icmp_signed("<", v.index(first + m), stored)):
            to = b.gep(out, [b.add(b.mul(channels, v.index(first + m)), at)])
            for n in range(_WIDE):
                rest = b.sub(left, v.index(LANES * n))
                with b.if_then(b.icmp_signed(">", rest, v.index(0))):
                    store_lanes(b, _clamped(b, b.load(acc[m][n]), low, high), b.gep(to, [v.index(LANES * n)]), rest)


_DEPTHWISE = (I64P, types.int64, types.int64, F32P, F32P, types.float32, types.float32, F32P, types.int64, types.int64)


@intrinsic
def _depthwise(
    tc: Any, addresses: Any, taps: Any, width: Any, weights: Any, bias: Any, lo: Any, hi: Any, out: Any, channels: Any, rows: Any
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        step = LANES * _WIDE
        blocks = b.sdiv(b.add(args[-2], v.index(step - 1)), v.index(step))
        with for_range(b, blocks, intp=v.I64) as loop:
            for first in range(0, ROWS, _TALL):
                with b.if_then(b.icmp_signed(">", args[-1], v.index(first))):
                    _depthwise_block(b, args, b.mul(loop.index, v.index(step)), first, min(_TALL, ROWS - first))
        return context.get_dummy_value()

    return types.none(*_DEPTHWISE), codegen


#: Channels to which the depthwise tile's weights and bias are padded.
DEPTHWISE_CHANNELS = LANES * _WIDE


@external(*_DEPTHWISE)
def nhwc_depthwise_f32(
    addresses: Any, taps: Any, width: Any, weights: Any, bias: Any, lo: Any, hi: Any, out: Any, channels: Any, rows: Any
) -> None:  # fmt: skip
    """out[r, c] = clamp(bias[c] + Σ_k x[address[k, r], c] · w[k, c], lo, hi).

    Args:
        addresses: int64 [taps, ROWS], where the row of each tap starts; readable up to ``width`` channels.
        taps: kernel elements.
        width: channels rounded up to DEPTHWISE_CHANNELS.
        weights: [taps, width].
        bias: [width].
        lo: lower clamp, -inf for none.
        hi: upper clamp, inf for none.
        out: [rows, channels].
        channels: channels.
        rows: 1 … ROWS.
    """
    _depthwise(addresses, taps, width, weights, bias, lo, hi, out, channels, rows)
