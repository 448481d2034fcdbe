"""Weights of a few bits by one row of int8 activations: decoded in registers, summed exactly within a group.

Layout, the same for every width: LANES columns side by side (a panel), 32 values of k together (a chunk). Field j of a chunk
holds its values 4j … 4j + 3 of every column, one 32-bit lane a column. A chunk is ``bits`` vectors:

- 8: field j is vector j.
- 4: vector t holds field 2t in the low nibbles and field 2t + 1 in the high ones.
- 2: vector t holds field 4t + i in bits 2i, 2i + 1.
- 5, 6: four vectors as for 4, then one vector whose bit j is the fifth bit of field j, or two as for 2 with the upper two bits.

Codes are unsigned. Without minima a weight is (code - ZEROS[bits]) · scale, with them code · scale + minimum; either way one
scale (and minimum) a column and group. Activations are int8 with one scale a row and group. Sums within a group are int32.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.groups import CHUNK, OF_HALVES, WITH_MINS, ZEROS
from hetsched_kernels.lowlevel import F32P, I32P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES

_FIELDS, _LINE = 8, 64
#: Widths whose codes are multiplied where they are in their bytes.
_SHIFTED = () if target().dotprod and not target().i8mm else (2, 4)
#: Panels that a row meets together: memory brings several streams faster than one.
WIDE: Final = 4
#: Bytes by which each stream is asked for ahead; hardware stops at the end of a 4 KB page.
_AHEAD: Final = 2048
_WORDS = v.vector(v.I32, LANES)
_FLOATS = v.vector(v.F32, LANES)
_I = types.int64
_PARAMETERS = (U8P, _I, U8P, F32P, I32P, F32P, F32P, _I, _I, F32P, _I)


def _bytes(value: int) -> Any:
    """A vector of which every byte is ``value``."""
    return v.constant(_WORDS, int.from_bytes(bytes([value] * 4), "little", signed=True))


def _vector(b: Any, chunk: Any, t: int) -> Any:
    return v.load(b, b.gep(chunk, [v.index(4 * LANES * t)]), _WORDS, 1)


def _moved(b: Any, word: Any, by: int) -> Any:
    """Bits moved up (or down) within 32-bit lanes."""
    if by == 0:
        return word
    return b.shl(word, v.constant(_WORDS, by)) if by > 0 else b.lshr(word, v.constant(_WORDS, -by))


def _narrow(b: Any, chunk: Any, width: int, first: int, up: int) -> list[Any]:
    """All fields of planes of ``width`` bits that begin at vector ``first``, moved to bit ``up`` of their bytes."""
    per = 8 // width
    mask = _bytes(((1 << width) - 1) << up)
    fields = []
    for t in range(_FIELDS // per):
        word = _vector(b, chunk, first + t)
        fields += [b.and_(_moved(b, word, up - width * i), mask) for i in range(per)]
    return fields


def _wide(b: Any, chunk: Any, bits: int) -> list[Any]:
    """The eight fields of a chunk, codes in their bytes."""
    if bits in (2, 4):
        return _narrow(b, chunk, bits, 0, 0)
    low, high = _narrow(b, chunk, 4, 0, 0), _narrow(b, chunk, bits - 4, 4, 4)
    return [b.or_(x, y) for x, y in zip(low, high, strict=True)]


def _in_place(b: Any, chunk: Any, bits: int) -> list[tuple[Any, int]]:
    """The eight fields as (codes in their bytes, bits that they are shifted up).

    Fields of 2 and 4 bits stay where they are, which costs one operation; their sums are shifted once a group. Where only signed
    bytes can be multiplied at once, codes must be below 128 and are moved down.
    """
    if bits == 8:
        return [(_vector(b, chunk, j), 0) for j in range(_FIELDS)]
    if bits in _SHIFTED:
        words = [_vector(b, chunk, t) for t in range(bits)]
        return [(b.and_(word, _bytes(((1 << bits) - 1) << up)), up) for word in words for up in range(0, 8, bits)]
    return [(field, 0) for field in _wide(b, chunk, bits)]


class _Sums:
    """The sums of a row by a panel: integers of one group, floats of those before."""

    def __init__(self, b: Any, args: Any, panel: int, bits: int, with_mins: bool) -> None:
        codes, stride, self.x, self.x_scales, self.x_sums, scales, mins, groups, *_ = args
        aside = b.mul(groups, v.index(panel * LANES))
        self.codes, self.scales = b.gep(codes, [b.mul(stride, v.index(panel))]), b.gep(scales, [aside])
        self.mins: Any = b.gep(mins, [aside]) if with_mins else None
        self.zero = 0 if with_mins else ZEROS[bits]
        self.total = alloca_once(b, _FLOATS)
        b.store(v.constant(_FLOATS, 0.0), self.total)
        self.acc = {up: alloca_once(b, _WORDS) for up in (range(0, 8, bits) if bits in _SHIFTED else (0,))}

    def begin(self, b: Any, group: Any) -> None:
        """Start a group's sums at -zero · Σx."""
        for slot in self.acc.values():
            b.store(v.constant(_WORDS, 0), slot)
        if self.zero:
            start = b.mul(b.load(b.gep(self.x_sums, [group])), v.I32(-self.zero))
            b.store(v.splat(b, start, LANES), self.acc[0])

    def add(self, b: Any, at: Any, field: Any, up: int, small: bool) -> None:
        """Four more values of k, whose activations begin at ``at``."""
        four = v.splat(b, v.load(b, b.gep(self.x, [at]), v.I32, 1), LANES)
        b.store(v.dot4(b, b.load(self.acc[up]), field, four, small), self.acc[up])

    def end(self, b: Any, group: Any) -> None:
        """Add the group's sums times its scales."""
        whole = b.load(self.acc[0])
        for up, slot in self.acc.items():
            whole = b.add(whole, b.ashr(b.load(slot), v.constant(_WORDS, up))) if up else whole
        at = b.mul(group, v.index(LANES))
        own, scale = b.load(b.gep(self.x_scales, [group])), v.load(b, b.gep(self.scales, [at]), _FLOATS, 4)
        value = v.multiply_add(b, b.sitofp(whole, _FLOATS), b.fmul(scale, v.splat(b, own, LANES)), b.load(self.total))
        if self.mins is not None:
            share = b.fmul(own, b.sitofp(b.load(b.gep(self.x_sums, [group])), v.F32))
            value = v.multiply_add(b, v.load(b, b.gep(self.mins, [at]), _FLOATS, 4), v.splat(b, share, LANES), value)
        b.store(value, self.total)


def _add_chunk(b: Any, sums: _Sums, outer: Any, chunk: Any, bits: int) -> None:
    """A chunk of one panel; where it holds two groups, both from beginning to end."""
    halves = bits in OF_HALVES
    base, at = b.gep(sums.codes, [b.mul(chunk, v.index(4 * LANES * bits))]), b.mul(chunk, v.index(CHUNK))
    for line in range(0, 4 * LANES * bits, _LINE):
        v.prefetch(b, b.gep(base, [v.index(_AHEAD + line)]))
    for j, (field, up) in enumerate(_in_place(b, base, bits)):
        group = b.add(b.mul(outer, v.index(2)), v.index(j // 4))
        if halves and j % 4 == 0:
            sums.begin(b, group)
        sums.add(b, b.add(at, v.index(4 * j)), field, up, small=bits < 8 and bits not in _SHIFTED)
        if halves and j % 4 == 3:
            sums.end(b, group)


def emit_row(b: Any, args: Any, bits: int, with_mins: bool, wide: int) -> None:
    """The product of a row and ``wide`` panels; ``args`` as :data:`row_4`, without its last."""
    *_, groups, chunks, out = args
    halves, panels = bits in OF_HALVES, [_Sums(b, args, p, bits, with_mins) for p in range(wide)]
    with for_range(b, b.sdiv(groups, v.index(2)) if halves else groups, intp=v.I64) as outer:
        if not halves:
            for sums in panels:
                sums.begin(b, outer.index)
        with for_range(b, chunks, intp=v.I64) as inner:
            chunk = b.add(b.mul(outer.index, chunks), inner.index)
            for sums in panels:
                _add_chunk(b, sums, outer.index, chunk, bits)
        if not halves:
            for sums in panels:
                sums.end(b, outer.index)
    for p, sums in enumerate(panels):
        v.store(b, b.load(sums.total), b.gep(out, [v.index(LANES * p)]), 4)


def _row(bits: int, with_mins: bool) -> Any:
    def typing(
        tc: Any, codes: Any, stride: Any, x: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, groups: Any, chunks: Any, out: Any,
        panels: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            with b.if_else(b.icmp_signed("==", args[-1], v.index(WIDE))) as (together, alone):
                with together:
                    emit_row(b, args[:-1], bits, with_mins, WIDE)
                with alone:
                    emit_row(b, args[:-1], bits, with_mins, 1)
            return context.get_dummy_value()

        return types.none(*_PARAMETERS), codegen

    return intrinsic(typing)


_row_2, _row_4, _row_5, _row_6, _row_8 = (_row(bits, False) for bits in (2, 4, 5, 6, 8))
_row_4_min, _row_5_min = (_row(bits, True) for bits in WITH_MINS)


@external(*_PARAMETERS)
def row_4(
    codes: Any, stride: Any, x: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, groups: Any, chunks: Any, out: Any, panels: Any
) -> None:  # fmt: skip
    """out[panels, LANES] = Σ over groups of (code - zero) · scale times activations; 4-bit codes.

    Args:
        codes: the first panel's codes.
        stride: bytes from panel to panel.
        x: int8 activations, ``groups · chunks · 32``.
        x_scales: float32 scales of the activations, one a group.
        x_sums: int32 sums of the activations, one a group.
        scales: float32 [panels, groups, LANES].
        mins: float32 minima [panels, groups, LANES], read by the variants that have them.
        groups: groups along k.
        chunks: chunks of a group (1 where a group is half a chunk).
        out: the result.
        panels: WIDE, or 1.
    """
    _row_4(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)


@external(*_PARAMETERS)
def row_4_min(
    codes: Any, stride: Any, x: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, groups: Any, chunks: Any, out: Any, panels: Any
) -> None:  # fmt: skip
    """As :data:`row_4`, of code · scale + minimum."""
    _row_4_min(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)


@external(*_PARAMETERS)
def row_5(
    codes: Any, stride: Any, x: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, groups: Any, chunks: Any, out: Any, panels: Any
) -> None:  # fmt: skip
    """As :data:`row_4`, of 5-bit codes."""
    _row_5(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)


@external(*_PARAMETERS)
def row_5_min(
    codes: Any, stride: Any, x: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, groups: Any, chunks: Any, out: Any, panels: Any
) -> None:  # fmt: skip
    """As :data:`row_4`, of 5-bit codes, code · scale + minimum."""
    _row_5_min(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)


@external(*_PARAMETERS)
def row_2(
    codes: Any, stride: Any, x: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, groups: Any, chunks: Any, out: Any, panels: Any
) -> None:  # fmt: skip
    """As :data:`row_4`, of 2-bit codes (ternary weights)."""
    _row_2(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)


@external(*_PARAMETERS)
def row_6(
    codes: Any, stride: Any, x: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, groups: Any, chunks: Any, out: Any, panels: Any
) -> None:  # fmt: skip
    """As :data:`row_4`, of 6-bit codes in groups of 16."""
    _row_6(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)


@external(*_PARAMETERS)
def row_8(
    codes: Any, stride: Any, x: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, groups: Any, chunks: Any, out: Any, panels: Any
) -> None:  # fmt: skip
    """As :data:`row_4`, of 8-bit codes."""
    _row_8(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)


_UNPACK = (U8P, U8P, _I)


def _unpacked(bits: int) -> Any:
    def typing(tc: Any, codes: Any, out: Any, chunks: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            codes, out, chunks = args
            with for_range(b, chunks, intp=v.I64) as loop:
                base, to = (b.gep(p, [b.mul(loop.index, v.index(4 * LANES * n))]) for p, n in ((codes, bits), (out, _FIELDS)))
                for j, field in enumerate(_wide(b, base, bits)):
                    v.store(b, field, b.gep(to, [v.index(4 * LANES * j)]), 1)
            return context.get_dummy_value()

        return types.none(*_UNPACK), codegen

    return intrinsic(typing)


_unpack_2, _unpack_4, _unpack_5, _unpack_6 = (_unpacked(bits) for bits in (2, 4, 5, 6))


@external(*_UNPACK, _I)
def unpack(codes: Any, out: Any, chunks: Any, bits: Any) -> None:
    """Out [chunks, 8, LANES, 4] = a panel's codes of 2, 4, 5 or 6 bits, a byte each."""
    if bits == 2:
        _unpack_2(codes, out, chunks)
    elif bits == 4:
        _unpack_4(codes, out, chunks)
    elif bits == 5:
        _unpack_5(codes, out, chunks)
    else:
        _unpack_6(codes, out, chunks)
