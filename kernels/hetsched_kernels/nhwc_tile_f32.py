"""The float32 tiles of channels-last convolution: general (rows of positions by columns of channels) and depthwise."""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I64P, alloca_once, for_range, intrinsic
from hetsched_kernels.nhwc_tile import store_lanes
from hetsched_kernels.tile import LANES, ROWS
from hetsched_kernels.tile_f32 import for_each_shape, row_within

#: Bits of the tile's ``mode``: what the sums start at.
BIAS, ORIGIN = 1, 2
#: Elements of a cache line.
LINE = 16
#: Positions and vectors of channels that the depthwise tile computes together.
_TALL, _WIDE = 4, 2


def clamped(b: Any, x: Any, low: Any, high: Any) -> Any:
    """A vector within bounds."""
    x = b.select(b.fcmp_ordered("<", x, low), low, x)
    return b.select(b.fcmp_ordered(">", x, high), high, x)


def _rows(b: Any, addresses: Any, tap: Any, first: int, count: int) -> list[Any]:
    """Where ``count`` positions' channels of a tap start."""
    here = b.gep(addresses, [b.mul(tap, v.index(ROWS))])
    return [b.inttoptr(b.load(b.gep(here, [v.index(first + m)])), v.F32.as_pointer()) for m in range(count)]


def _starts(b: Any, args: Any, rows: int, wide: int) -> list[list[Any]]:
    """Registers that start at what is given: a matrix of the result's shape, a value a column, both or neither."""
    origin, bias, mode, ldc, stored = args
    kind = v.vector(v.F32, LANES)
    acc = [[alloca_once(b, kind) for _ in range(wide)] for _ in range(rows)]
    with b.if_else(b.icmp_signed("!=", b.and_(mode, v.index(ORIGIN)), v.index(0))) as (given, otherwise):
        with given:
            for m, row in enumerate(acc):
                line = b.gep(origin, [b.mul(ldc, row_within(b, m, stored))])
                for n, slot in enumerate(row):
                    b.store(v.load(b, b.gep(line, [v.index(LANES * n)]), kind, 4), slot)
        with otherwise:
            for slot in [slot for row in acc for slot in row]:
                b.store(v.constant(kind, 0.0), slot)
    with b.if_then(b.icmp_signed("!=", b.and_(mode, v.index(BIAS)), v.index(0))):
        for n in range(wide):
            start = v.load(b, b.gep(bias, [v.index(LANES * n)]), kind, 4)
            for row in acc:
                b.store(b.fadd(b.load(row[n]), start), row[n])
    return acc


def _micro(b: Any, args: Any, rows: int, wide: int) -> None:
    addresses, taps, depth, offset, weights, ahead, origin, bias, mode, lo, hi, out, ldc, stored, cols = args
    kind = v.vector(v.F32, LANES)
    acc = _starts(b, (origin, bias, mode, ldc, stored), rows, wide)
    with for_range(b, taps, intp=v.I64) as tap:
        bases = [b.gep(row, [offset]) for row in _rows(b, addresses, tap.index, 0, rows)]
        before = b.mul(tap.index, depth)
        panel, soon = b.gep(weights, [b.mul(before, v.index(LANES * wide))]), b.gep(ahead, [b.mul(before, v.index(LINE))])
        with for_range(b, depth, intp=v.I64) as loop:
            source = b.gep(panel, [b.mul(loop.index, v.index(LANES * wide))])
            values = [v.load(b, b.gep(source, [v.index(LANES * n)]), kind, 4) for n in range(wide)]
            v.prefetch(b, b.gep(soon, [b.mul(loop.index, v.index(LINE))]))
            for m in range(rows):
                factor = v.splat(b, b.load(b.gep(bases[m], [loop.index])), LANES)
                for n in range(wide):
                    b.store(v.multiply_add(b, factor, values[n], b.load(acc[m][n])), acc[m][n])
    low, high = v.splat(b, lo, LANES), v.splat(b, hi, LANES)
    for m in range(rows):
        with b.if_then(b.icmp_signed("<", v.index(m), stored)):
            to = b.gep(out, [b.mul(ldc, v.index(m))])
            for n in range(wide):
                x, pointer = clamped(b, b.load(acc[m][n]), low, high), b.gep(to, [v.index(LANES * n)])
                if n + 1 < wide:
                    v.store(b, x, pointer, 4)
                else:
                    store_lanes(b, x, pointer, b.sub(cols, v.index(LANES * n)))


_I = types.int64
_TILE = (I64P, _I, _I, _I, F32P, F32P, F32P, F32P, _I, types.float32, types.float32, F32P, _I, _I, _I)


@intrinsic
def _tile(
    tc: Any, addresses: Any, taps: Any, depth: Any, offset: Any, weights: Any, ahead: Any, origin: Any, bias: Any, mode: Any, lo: Any,
    hi: Any, out: Any, ldc: Any, rows: Any, cols: Any,
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        for_each_shape(b, args[-2], args[-1], lambda height, wide: _micro(b, args, height, wide))
        return context.get_dummy_value()

    return types.none(*_TILE), codegen


@external(*_TILE)
def nhwc_tile_f32(
    addresses: Any, taps: Any, depth: Any, offset: Any, weights: Any, ahead: Any, origin: Any, bias: Any, mode: Any, lo: Any, hi: Any,
    out: Any, ldc: Any, rows: Any, cols: Any,
) -> None:  # fmt: skip
    """out[r · ldc + c] = clamp(origin[r · ldc + c] + bias[c] + Σ x · w, lo, hi).

    Args:
        addresses: int64 [taps, ROWS], where the row of each tap starts; all ROWS are readable.
        taps: kernel elements.
        depth: channels.
        offset: channels to skip in each row.
        weights: [taps, depth, columns rounded up to LANES].
        ahead: where weights that will be wanted soon start: a cache line is fetched for each channel of each tap.
        origin: as ``out``, and may be the same memory; readable up to the next multiple of LANES columns.
        bias: [columns rounded up to LANES].
        mode: ORIGIN, BIAS, their sum, or 0: what there is.
        lo: lower clamp, -inf for none.
        hi: upper clamp, inf for none.
        out: first element of the result.
        ldc: its row stride.
        rows: 1 … ROWS.
        cols: 1 … COLS.
    """
    _tile(addresses, taps, depth, offset, weights, ahead, origin, bias, mode, lo, hi, out, ldc, rows, cols)


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
                    store_lanes(b, clamped(b, b.load(acc[m][n]), low, high), b.gep(to, [v.index(LANES * n)]), rest)


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
