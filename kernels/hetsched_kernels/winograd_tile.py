"""Winograd's transforms of tiles of a channels-last image, for kernels of 3 x 3: vectors of channels, straight-line code.

A tile of m x m results needs (m + 2)² products a channel instead of 9 m². The matrices are those of interpolation at 0, ±1 (and ±2
for m = 4) and infinity: S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin, S. Gray, arXiv:1509.09308.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.arrays import Array
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I64P, for_range, intrinsic
from hetsched_kernels.nhwc_tile import store_lanes
from hetsched_kernels.nhwc_tile_f32 import BIAS, clamped
from hetsched_kernels.tile import LANES

_INPUT: Final = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0), (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
    ),
}  # fmt: skip
_OUTPUT: Final = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}
_WEIGHTS: Final = {
    2: ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6), (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
    ),
}  # fmt: skip
_KIND = v.vector(v.F32, LANES)


def transformed_weights(w: Array, m: int) -> Array:
    """Weights [M, C, 3, 3] as [(m + 2)², C, M], in float64."""
    g = np.array(_WEIGHTS[m], np.float64)
    values: Array = np.einsum("ia,jb,mcab->ijcm", g, g, w.astype(np.float64)).reshape((m + 2) ** 2, w.shape[1], w.shape[0])
    return values


def _combined(b: Any, row: tuple[int, ...], values: list[Any]) -> Any:
    """Σ row[i] · values[i]."""
    total = None
    for factor, value in sorted(((f, x) for f, x in zip(row, values, strict=True) if f), key=lambda pair: pair[0] != 1):
        if total is None:
            total = value if factor == 1 else b.fmul(value, v.constant(_KIND, factor))
        elif abs(factor) == 1:
            total = b.fadd(total, value) if factor == 1 else b.fsub(total, value)
        else:
            total = v.multiply_add(b, value, v.constant(_KIND, factor), total)
    return total


def _both_ways(b: Any, matrix: tuple[tuple[int, ...], ...], grid: list[list[Any]]) -> list[list[Any]]:
    """The product matrix · grid · matrixᵀ."""
    columns = [[_combined(b, row, list(column)) for row in matrix] for column in zip(*grid, strict=True)]
    return [[_combined(b, row, list(line)) for row in matrix] for line in zip(*columns, strict=True)]


def _transform_input(m: int) -> Any:
    def typing(tc: Any, addresses: Any, to: Any, step: Any, count: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            addresses, to, step, count = args
            side = m + 2
            sources = [b.inttoptr(b.load(b.gep(addresses, [v.index(i)])), v.F32.as_pointer()) for i in range(side * side)]
            with for_range(b, count, intp=v.I64) as loop:
                at = b.mul(loop.index, v.index(LANES))
                values = [v.load(b, b.gep(source, [at]), _KIND, 4) for source in sources]
                grid = _both_ways(b, _INPUT[m], [values[side * i : side * (i + 1)] for i in range(side)])
                for i, value in enumerate(value for line in grid for value in line):
                    v.store(b, value, b.gep(to, [b.add(b.mul(step, v.index(i)), at)]), 4)
            return context.get_dummy_value()

        return types.none(I64P, F32P, types.int64, types.int64), codegen

    return intrinsic(typing)


_OUT = (F32P, types.int64, F32P, F32P, types.int64, types.float32, types.float32, F32P, *[types.int64] * 5)


def _transform_output(m: int) -> Any:
    def typing(
        tc: Any, source: Any, step: Any, origin: Any, bias: Any, mode: Any, lo: Any, hi: Any, out: Any, line: Any, pixel: Any,
        channels: Any, rows: Any, cols: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            channels = args[10]
            with for_range(b, b.sdiv(b.add(channels, v.index(LANES - 1)), v.index(LANES)), intp=v.I64) as loop:
                _finish(b, args, m, b.mul(loop.index, v.index(LANES)))
            return context.get_dummy_value()

        return types.none(*_OUT), codegen

    return intrinsic(typing)


def _finish(b: Any, args: Any, m: int, at: Any) -> None:
    """A vector of channels of a tile's results."""
    source, step, origin, bias, mode, lo, hi, out, line, pixel, channels, rows, cols = args
    side, left = m + 2, b.sub(channels, at)
    values = [v.load(b, b.gep(source, [b.add(b.mul(step, v.index(i)), at)]), _KIND, 4) for i in range(side * side)]
    grid = _both_ways(b, _OUTPUT[m], [values[side * i : side * (i + 1)] for i in range(side)])
    start, low, high = v.load(b, b.gep(bias, [at]), _KIND, 4), v.splat(b, lo, LANES), v.splat(b, hi, LANES)
    more = b.icmp_signed("!=", mode, v.index(BIAS))
    for y, x in [(y, x) for y in range(m) for x in range(m)]:
        inside = b.and_(b.icmp_signed("<", v.index(y), rows), b.icmp_signed("<", v.index(x), cols))
        with b.if_then(inside):
            place = b.add(b.add(b.mul(line, v.index(y)), b.mul(pixel, v.index(x))), at)
            total = b.fadd(grid[y][x], start)
            before = b.block
            with b.if_then(more):
                given = b.fadd(total, v.load(b, b.gep(origin, [place]), _KIND, 4))
                inner = b.block
            value = b.phi(_KIND)
            value.add_incoming(total, before)
            value.add_incoming(given, inner)
            store_lanes(b, clamped(b, value, low, high), b.gep(out, [place]), left)


_input_2, _input_4, _output_2, _output_4 = _transform_input(2), _transform_input(4), _transform_output(2), _transform_output(4)


@external(I64P, F32P, types.int64, types.int64, types.int64)
def winograd_input(addresses: Any, to: Any, step: Any, count: Any, m: Any) -> None:
    """A tile of the image, transformed.

    Args:
        addresses: int64 [(m + 2)²]: where each position's channels start.
        to: its first element; element i of the transform of channel c goes to i · step + c.
        step: from element to element.
        count: vectors of channels; they are readable.
        m: 2 or 4.
    """
    if m == 2:
        _input_2(addresses, to, step, count)
    else:
        _input_4(addresses, to, step, count)


@external(*_OUT, types.int64)
def winograd_output(
    source: Any, step: Any, origin: Any, bias: Any, mode: Any, lo: Any, hi: Any, out: Any, line: Any, pixel: Any, channels: Any, rows: Any,
    cols: Any, m: Any,
) -> None:  # fmt: skip
    """A tile of the result: out = clamp(origin + bias + what ``source`` is the transform of).

    Args:
        source: element i of the transform of channel c is at i · step + c; whole vectors are readable.
        step: from element to element.
        origin: as ``out``.
        bias: [channels rounded up to LANES].
        mode: BIAS, or BIAS + ORIGIN where ``origin`` is added.
        lo: lower clamp, -inf for none.
        hi: upper clamp, inf for none.
        out: the tile's first result.
        line: elements from row to row of the result.
        pixel: elements from position to position.
        channels: channels.
        rows: rows of the tile that exist.
        cols: columns of it that exist.
        m: 2 or 4.
    """
    if m == 2:
        _output_2(source, step, origin, bias, mode, lo, hi, out, line, pixel, channels, rows, cols)
    else:
        _output_4(source, step, origin, bias, mode, lo, hi, out, line, pixel, channels, rows, cols)
