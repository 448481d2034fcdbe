"""The two halves of a channels-last depthwise row: bytes of four kernel rows joined into words, and the sums over its columns.

A block is 4 · LANES channels. Joining works within 128-bit lanes, so it leaves the channels of a block in four vectors in the
order of :data:`ORDER`; packing the sums back to bytes is its exact inverse and saturates on the way.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I32P, I64P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.nhwc_tile import store_lanes
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES

#: Channels of a block.
BLOCK: Final = 4 * LANES
_CELLS = LANES // 4  # 128-bit lanes of a vector
#: The channel in each place of a block's four vectors.
ORDER: Final = [16 * cell + 4 * q + e for q in range(4) for cell in range(_CELLS) for e in range(4)]
#: Bytes of one joined column of a block.
COLUMN: Final = 4 * BLOCK
#: Outputs computed together.
_WIDE = 2


def _unpack(b: Any, x: Any, y: Any, width: int, high: bool) -> Any:
    """Interleave the low or high halves of x and y, elements of ``width`` bytes, within each 128-bit lane."""
    kind = v.vector(v.I8 if width == 1 else v.I16, BLOCK // width)
    per = 16 // width
    start = per // 2 if high else 0
    order = []
    for cell in range(_CELLS):
        for i in range(start, start + per // 2):
            order += [cell * per + i, kind.count + cell * per + i]
    return b.bitcast(b.shuffle_vector(b.bitcast(x, kind), b.bitcast(y, kind), v.lanes(order)), v.vector(v.I8, BLOCK))


def _column(b: Any, starts: list[Any], pitches: list[Any], x: Any) -> list[Any]:
    """The bytes of four rows at column ``x``, side by side, in four vectors."""
    places = [b.add(s, b.mul(x, p)) for s, p in zip(starts, pitches, strict=True)]
    r = [v.load(b, b.inttoptr(p, v.I8.as_pointer()), v.vector(v.I8, BLOCK), 1) for p in places]
    pairs = [[_unpack(b, r[i], r[i + 1], 1, high) for high in (False, True)] for i in (0, 2)]
    return [_unpack(b, pairs[0][q // 2], pairs[1][q // 2], 2, bool(q % 2)) for q in range(4)]


@intrinsic
def _join(tc: Any, rows: Any, steps: Any, count: Any, out: Any) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        rows, steps, count, out = args
        starts = [b.load(b.gep(rows, [v.index(i)])) for i in range(4)]
        pitches = [b.load(b.gep(steps, [v.index(i)])) for i in range(4)]
        with for_range(b, count, intp=v.I64) as loop:
            to = b.gep(out, [b.mul(loop.index, v.index(COLUMN))])
            for q, value in enumerate(_column(b, starts, pitches, loop.index)):
                v.store(b, value, b.gep(to, [v.index(BLOCK * q)]), 1)
        return context.get_dummy_value()

    return types.none(I64P, I64P, types.int64, U8P), codegen


@external(I64P, I64P, types.int64, U8P, fast=frozenset())
def join_columns(rows: Any, steps: Any, count: Any, out: Any) -> None:
    """out[x, place] = the bytes of four rows at column x, side by side: [count, 4, LANES, 4].

    Args:
        rows: int64 [4], addresses of the block's first channel at column 0 of each row.
        steps: int64 [4], bytes from column to column; 0 repeats one.
        count: columns.
        out: uint8 [count · COLUMN].
    """
    _join(rows, steps, count, out)


_TO_WORDS = {
    16: ("llvm.x86.avx512.packssdw.512", "llvm.x86.avx512.packuswb.512"),
    8: ("llvm.x86.avx2.packssdw", "llvm.x86.avx2.packuswb"),
    4: ("llvm.x86.sse2.packssdw.128", "llvm.x86.sse2.packuswb.128"),
}


def _pack(b: Any, x: Any, y: Any, name: str, narrow: Any, least: int, most: int) -> Any:
    """Both vectors saturated to half the width, side by side within each 128-bit lane."""
    kind = v.vector(narrow, 2 * x.type.count)
    if target().x86:
        return v.call(b, name, kind, [x, y])
    halves = []
    for value in (x, y):
        value = b.select(b.icmp_signed("<", value, v.constant(value.type, least)), v.constant(value.type, least), value)
        value = b.select(b.icmp_signed(">", value, v.constant(value.type, most)), v.constant(value.type, most), value)
        halves.append(b.trunc(value, v.vector(narrow, value.type.count)))
    per = 128 // narrow.width // 2
    order = [side * x.type.count + cell * per + i for cell in range(_CELLS) for side in range(2) for i in range(per)]
    return b.shuffle_vector(halves[0], halves[1], v.lanes(order))


def _rounded(b: Any, x: Any) -> Any:
    """Float32 to the nearest int32, half to even; what is too negative becomes the most negative."""
    kind = v.vector(v.I32, LANES)
    if not target().x86:
        return v.call(b, f"llvm.fptosi.sat.v{LANES}i32.v{LANES}f32", kind, [v.call(b, f"llvm.rint.v{LANES}f32", x.type, [x])])
    if LANES == 16:
        mask, mode = v.I16(-1), v.I32(4)
        return v.call(b, "llvm.x86.avx512.mask.cvtps2dq.512", kind, [x, v.constant(kind, 0), mask, mode])
    return v.call(b, "llvm.x86.avx.cvt.ps2dq.256" if LANES == 8 else "llvm.x86.sse2.cvtps2dq", kind, [x])


def _bytes(b: Any, sums: list[Any], args: Any) -> Any:
    """Four vectors of sums as one of saturated bytes, in the channels' own order."""
    factors, shifts, high, least, most, zero = args
    floats = v.vector(v.F32, LANES)
    words = []
    for q, acc in enumerate(sums):
        factor, shift = (v.load(b, b.gep(p, [v.index(LANES * q)]), floats, 4) for p in (factors, shifts))
        x = b.fadd(b.fmul(b.sitofp(acc, floats), factor), shift)
        words.append(_rounded(b, b.select(b.fcmp_ordered("<", x, high), x, high)))
    names = _TO_WORDS.get(LANES, ("", ""))
    halves = [_pack(b, words[i], words[i + 1], names[0], v.I16, -32768, 32767) for i in (0, 2)]
    added = [v.call(b, f"llvm.sadd.sat.v{2 * LANES}i16", h.type, [h, zero]) for h in halves]
    out = _pack(b, added[0], added[1], names[1], v.I8, 0, 255)
    out = b.select(b.icmp_unsigned(">", out, least), out, least)
    return b.select(b.icmp_unsigned("<", out, most), out, most)


@intrinsic
def _row(
    tc: Any, columns: Any, offsets: Any, steps: Any, pitch: Any, weights: Any, starts: Any, factors: Any, shifts: Any, hi: Any, least: Any,
    most: Any, zero: Any, out: Any, ldc: Any, count: Any, channels: Any,
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        columns, offsets, steps, pitch, weights, starts, factors, shifts, hi, least, most, zero, out, ldc, count, channels = args
        kind = v.vector(v.I32, LANES)
        low, high = (v.splat(b, b.trunc(x, v.I8), BLOCK) for x in (least, most))
        middle = v.splat(b, b.trunc(zero, v.I16), 2 * LANES)
        finish = (factors, shifts, v.splat(b, hi, LANES), low, high, middle)
        slots = [[alloca_once(b, kind) for _ in range(4)] for _ in range(_WIDE)]

        def emit(at: Any, wide: int) -> None:
            for q in range(4):
                start = v.load(b, b.gep(starts, [v.index(LANES * q)]), kind, 4)
                for row in slots[:wide]:
                    b.store(start, row[q])
            first = b.gep(columns, [b.mul(at, pitch)])
            with for_range(b, steps, intp=v.I64) as loop:
                here = b.gep(first, [b.load(b.gep(offsets, [loop.index]))])
                line = b.gep(weights, [b.mul(loop.index, v.index(COLUMN))])
                for q in range(4):
                    weight = v.load(b, b.gep(line, [v.index(BLOCK * q)]), kind, 1)
                    for i, row in enumerate(slots[:wide]):
                        place = b.gep(here, [b.add(b.mul(pitch, v.index(i)), v.index(BLOCK * q))])
                        b.store(v.dot4(b, b.load(row[q]), v.load(b, place, kind, 1), weight), row[q])
            for i, row in enumerate(slots[:wide]):
                to = b.gep(out, [b.mul(b.add(at, v.index(i)), ldc)])
                store_lanes(b, _bytes(b, [b.load(slot) for slot in row], finish), to, channels)

        pairs = b.sdiv(count, v.index(_WIDE))
        with for_range(b, pairs, intp=v.I64) as loop:
            emit(b.mul(loop.index, v.index(_WIDE)), _WIDE)
        done = b.mul(pairs, v.index(_WIDE))
        with for_range(b, b.sub(count, done), intp=v.I64) as loop:
            emit(b.add(done, loop.index), 1)
        return context.get_dummy_value()

    return types.none(*_ROW), codegen


_ROW = (
    U8P, I64P, types.int64, types.int64, U8P, I32P, F32P, F32P, types.float32, types.int64, types.int64, types.int64, U8P, types.int64,
    types.int64, types.int64,
)  # fmt: skip


@external(*_ROW, fast=frozenset())
def depthwise_row(
    columns: Any, offsets: Any, steps: Any, pitch: Any, weights: Any, starts: Any, factors: Any, shifts: Any, hi: Any, least: Any,
    most: Any, zero: Any, out: Any, ldc: Any, count: Any, channels: Any,
) -> None:  # fmt: skip
    """One block of channels of one output row: sums over joined columns, scaled, rounded half to even, saturated; nothing fused.

    Args:
        columns: what :data:`join_columns` wrote, from the first output's first column.
        offsets: int64 [steps], byte offset of each step's column.
        steps: joined columns per output.
        pitch: bytes from one output's first column to the next one's.
        weights: s8 [steps · COLUMN].
        starts: int32 [BLOCK] in ORDER, what the sums start at.
        factors: float32 [BLOCK] in ORDER.
        shifts: float32 [BLOCK] in ORDER.
        hi: upper clamp before rounding, below 2^31.
        least: smallest byte of the result.
        most: largest byte of the result.
        zero: its zero point.
        out: first byte of the block in the row's first position.
        ldc: bytes from position to position.
        count: positions.
        channels: channels of the block that exist.
    """
    _row(columns, offsets, steps, pitch, weights, starts, factors, shifts, hi, least, most, zero, out, ldc, count, channels)


#: Kernel widths and strides whose columns are kept in registers from output to output.
WINDOWS: Final = ((3, 1), (3, 2), (5, 1), (5, 2))


def _sweep(b: Any, args: Any, kw: int, stride: int) -> None:
    """One block of output rows: each column is joined once and kept as long as outputs read it."""
    ends, lines, offset, width, left, blank, weights, starts, factors, shifts, hi, least, most, zero, out, ldc, count, channels = args
    kind, bytes_ = v.vector(v.I32, LANES), v.vector(v.I8, BLOCK)
    low, high = (v.splat(b, b.trunc(x, v.I8), BLOCK) for x in (least, most))
    finish = (factors, shifts, v.splat(b, hi, LANES), low, high, v.splat(b, b.trunc(zero, v.I16), 2 * LANES))
    padding = v.splat(b, b.trunc(blank, v.I8), BLOCK)
    window = [[alloca_once(b, bytes_) for _ in range(4)] for _ in range(kw)]

    def fetch(rows: tuple[list[Any], list[Any]], x: Any, slots: list[Any]) -> None:
        with b.if_else(b.icmp_unsigned("<", x, width)) as (inside, outside):
            with inside:
                for slot, value in zip(slots, _column(b, rows[0], rows[1], x), strict=True):
                    b.store(value, slot)
            with outside:
                for slot in slots:
                    b.store(padding, slot)

    with for_range(b, lines, intp=v.I64) as line:
        here, to = b.gep(ends, [b.mul(line.index, v.index(8))]), b.gep(out, [b.mul(line.index, b.mul(count, ldc))])
        firsts = [b.add(offset, b.load(b.gep(here, [v.index(i)]))) for i in range(4)]
        pitches = [b.load(b.gep(here, [v.index(4 + i)])) for i in range(4)]
        for j in range(kw - stride):
            fetch((firsts, pitches), b.sub(v.index(j), left), window[j])
        with for_range(b, count, intp=v.I64) as loop:
            x = b.sub(b.mul(loop.index, v.index(stride)), left)
            for j in range(kw - stride, kw):
                fetch((firsts, pitches), b.add(x, v.index(j)), window[j])
            sums = []
            for q in range(4):
                acc = v.load(b, b.gep(starts, [v.index(LANES * q)]), kind, 4)
                for j in range(kw):
                    weight = v.load(b, b.gep(weights, [v.index(COLUMN * j + BLOCK * q)]), kind, 1)
                    acc = v.dot4(b, acc, b.bitcast(b.load(window[j][q]), kind), weight)
                sums.append(acc)
            for j in range(kw - stride):
                for slot, source in zip(window[j], window[j + stride], strict=True):
                    b.store(b.load(source), slot)
            store_lanes(b, _bytes(b, sums, finish), b.gep(to, [b.mul(loop.index, ldc)]), channels)


_SWEEP = (
    I64P, *[types.int64] * 5, U8P, I32P, F32P, F32P, types.float32, *[types.int64] * 3, U8P, *[types.int64] * 3
)  # fmt: skip


@intrinsic
def _swept(
    tc: Any, ends: Any, lines: Any, offset: Any, width: Any, left: Any, blank: Any, weights: Any, starts: Any, factors: Any, shifts: Any,
    hi: Any, least: Any, most: Any, zero: Any, out: Any, ldc: Any, count: Any, channels: Any, kw: Any, stride: Any,
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        *most_args, kw, stride = args
        for known, step in WINDOWS:
            with b.if_then(b.and_(b.icmp_signed("==", kw, v.index(known)), b.icmp_signed("==", stride, v.index(step)))):
                _sweep(b, most_args, known, step)
        return context.get_dummy_value()

    return types.none(*_SWEEP, types.int64, types.int64), codegen


@external(*_SWEEP, types.int64, types.int64, fast=frozenset())
def depthwise_sweep(
    ends: Any, lines: Any, offset: Any, width: Any, left: Any, blank: Any, weights: Any, starts: Any, factors: Any, shifts: Any, hi: Any,
    least: Any, most: Any, zero: Any, out: Any, ldc: Any, count: Any, channels: Any, kw: Any, stride: Any,
) -> None:  # fmt: skip
    """As :data:`join_columns` and :data:`depthwise_row` together, for kernels of one of WINDOWS and up to four rows, undilated.

    Args:
        ends: int64 [lines, 2, 4], for each output row the addresses of the first channel at column 0 of the rows that it reads, and
            the bytes from column to column; 0 repeats one.
        lines: output rows; they follow each other in memory.
        offset: the block's first channel.
        width: columns of a row.
        left: columns of padding before them.
        blank: byte of which padding consists.
        weights: s8 [kw · COLUMN].
        starts: int32 [BLOCK] in ORDER, what the sums start at.
        factors: float32 [BLOCK] in ORDER.
        shifts: float32 [BLOCK] in ORDER.
        hi: upper clamp before rounding, below 2^31.
        least: smallest byte of the result.
        most: largest byte of the result.
        zero: its zero point.
        out: first byte of the block in the row's first position.
        ldc: bytes from position to position.
        count: positions.
        channels: channels of the block that exist.
        kw: kernel width.
        stride: columns from output to output.
    """
    _swept(
        ends, lines, offset, width, left, blank, weights, starts, factors, shifts, hi, least, most, zero, out, ldc, count, channels, kw,
        stride,
    )  # fmt: skip
