"""Sums of channels-last convolution in tile registers (:mod:`hetsched_kernels.tile_amx`): 16 positions by 16 output channels each.

A tile's rows are equally far apart in memory. In an image without padding around it, positions that follow each other are, and so
are their neighbours under each kernel tap; where a row of the image ends, the windows that would cross it are computed too and left out.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.compilation import block
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import I32P, I64P, U8P, for_range, intrinsic
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES, VECTORS
from hetsched_kernels.tile_amx import HEIGHT, TALL, A, B, instruct, permitted

#: Positions that are computed together.
TOGETHER = TALL * HEIGHT
_I = types.int64
_PARAMETERS = (I64P, _I, _I, U8P, _I, _I, _I, I32P, _I, _I)


@block
def tile_step(g: Any, pixel: Any) -> Any:
    """The step along the channels with which tiles can compute a convolution of this geometry; 0 where they cannot."""
    padded = g[9] > 0 or g[10] > 0 or g[11] > 0 or g[12] > 0
    if padded or g[7] != 1 or g[8] != 1 or pixel != g[1] or virtual_positions(g) < HEIGHT:
        return 0
    groups = (g[1] + 3) // 4
    steps = (groups + HEIGHT - 1) // HEIGHT
    return groups // steps if groups % steps == 0 and permitted() else 0


@block
def virtual_positions(g: Any) -> Any:
    """Positions of the image whose window lies in its memory, whether or not it crosses the end of a row."""
    return g[0] * g[2] * g[3] - (g[5] - 1) * g[13] * g[3] - (g[6] - 1) * g[14]


def _sums(b: Any, args: Any, tall: int, wide: int) -> None:
    """``tall`` tiles of positions by ``wide`` tiles of channels."""
    offsets, taps, base, panel, step, steps, pixel, out = args[:8]
    for tile in range(tall * wide):
        instruct(b, "tilezero", VECTORS * (tile // wide) + tile % wide)
    line = v.index(4 * LANES * wide)
    depth, inside, down = b.mul(step, line), b.mul(step, v.index(4)), b.mul(pixel, v.index(HEIGHT))
    with for_range(b, taps, intp=v.I64) as tap:
        start = b.inttoptr(b.add(base, b.load(b.gep(offsets, [tap.index]))), v.I8.as_pointer())
        weights = b.gep(panel, [b.mul(b.mul(tap.index, steps), depth)])
        with for_range(b, steps, intp=v.I64) as loop:
            left, right = b.gep(start, [b.mul(loop.index, inside)]), b.gep(weights, [b.mul(loop.index, depth)])
            for m in range(tall):
                instruct(b, "tileloadd64", A, b.gep(left, [b.mul(down, v.index(m))]), pixel)
                order = range(wide) if m % 2 == 0 else range(wide - 1, -1, -1)  # the last one of B is there already
                for place, n in enumerate(order):
                    if m == 0 or place:
                        instruct(b, "tileloadd64", B, b.gep(right, [v.index(4 * LANES * n)]), line)
                    instruct(b, "tdpbusd", VECTORS * m + n, A, B)
    to = b.bitcast(out, v.I8.as_pointer())
    for m in range(tall):
        for n in range(wide):
            instruct(b, "tilestored64", VECTORS * m + n, b.gep(to, [b.add(b.mul(line, v.index(HEIGHT * m)), v.index(4 * LANES * n))]), line)


@intrinsic
def _sums_of(
    tc: Any, offsets: Any, taps: Any, base: Any, panel: Any, step: Any, steps: Any, pixel: Any, out: Any, tall: Any, wide: Any
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        shapes = [(m, n) for m in range(1, TALL + 1) for n in range(1, VECTORS + 1)] if target().amx else []
        for height, width in shapes:
            fits = [b.icmp_signed("==", given, v.index(known)) for given, known in ((args[-2], height), (args[-1], width))]
            with b.if_then(b.and_(*fits)):
                _sums(b, args, height, width)
        return context.get_dummy_value()

    return types.none(*_PARAMETERS), codegen


@external(*_PARAMETERS)
def nhwc_sums(
    offsets: Any, taps: Any, base: Any, panel: Any, step: Any, steps: Any, pixel: Any, out: Any, tall: Any, wide: Any
) -> None:  # fmt: skip
    """out[16 · tall, LANES · wide] = Σ x (u8) · w (s8), int32, over taps and channels; the tiles are configured for ``step``.

    Args:
        offsets: int64 [taps], bytes from a position to its neighbour under each tap.
        taps: kernel elements.
        base: address of the first position.
        panel: weights [taps, groups of four channels, LANES · wide, 4].
        step: groups that a tile takes.
        steps: how many times.
        pixel: bytes from position to position.
        out: int32 [16 · tall, LANES · wide].
        tall: 1 … TALL.
        wide: 1 … VECTORS.
    """
    _sums_of(offsets, taps, base, panel, step, steps, pixel, out, tall, wide)
