"""Weights of a few bits by a few rows of int8 activations: decoded in registers, summed exactly within a group.

Layout, the same for every width: LANES columns side by side (a panel), 32 values of k together (a chunk). Field j of a chunk
holds its values 4j … 4j + 3 of every column, one 32-bit lane a column. A chunk is ``bits`` vectors:

- 8: field j is vector j.
- 4: vector t holds field 2t in the low nibbles and field 2t + 1 in the high ones.
- 2: vector t holds field 4t + i in bits 2i, 2i + 1.
- 5, 6: four vectors as for 4, then one vector whose bit j is the fifth bit of field j, or two as for 2 with the upper two bits.

Codes are unsigned. Without minima a weight is (code - ZEROS[bits]) · scale, with them code · scale + minimum; either way one
scale (and minimum) a column and group. Activations are int8 with one scale a row and group. Sums within a group are int32.

Several panels are read side by side, a group of each in turn: memory brings several streams faster than one. Each stream is
asked for ahead, and so are the scales and first codes of the panels that come after these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.few_bits import BITS, CODES_AT, GROUP, HALF, KIND, LARGER, LARGER_AT, LARGER_MINS_AT, MINS, MINS_AT, SCALED, STRIDE, K
from hetsched_kernels.groups import CHUNK, OF_HALVES, WITH_MINS, ZEROS
from hetsched_kernels.lowlevel import F32P, I32P, I64P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES

#: Fields of a chunk.
FIELDS: Final = 8
_LINE: Final = 64
#: Panels that rows meet together, and rows that meet them at most; where matrices of bytes are multiplied, that is better for more.
WIDE: Final = 8
ROWS: Final = 2 if target().i8mm else 8 if target().registers > 16 else 4
#: Bytes by which each stream is asked for ahead; hardware stops at the end of a 4 KB page.
_AHEAD: Final = 2048
_WORDS = v.vector(v.I32, LANES)
_FLOATS = v.vector(v.F32, LANES)
_I = types.int64
_PARAMETERS = (U8P, I64P, U8P, F32P, I32P, F32P, _I)


def _is_shifted(bits: int, rows: int) -> bool:
    """Whether codes are multiplied where they are in their bytes; more rows share what moving them costs."""
    return bits in (2, 4) and rows <= 2 and (target().i8mm or not target().dotprod)


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
    for t in range(FIELDS // per):
        word = _vector(b, chunk, first + t)
        fields += [b.and_(_moved(b, word, up - width * i), mask) for i in range(per)]
    return fields


def wide_fields(b: Any, chunk: Any, bits: int) -> list[Any]:
    """The eight fields of a chunk, codes in their bytes."""
    if bits == 8:
        return [_vector(b, chunk, j) for j in range(FIELDS)]
    if bits in (2, 4):
        return _narrow(b, chunk, bits, 0, 0)
    low, high = _narrow(b, chunk, 4, 0, 0), _narrow(b, chunk, bits - 4, 4, 4)
    return [b.or_(x, y) for x, y in zip(low, high, strict=True)]


def _in_place(b: Any, chunk: Any, bits: int, rows: int) -> list[tuple[Any, int]]:
    """The eight fields as (codes in their bytes, bits that they are shifted up).

    Fields of 2 and 4 bits stay where they are, which costs one operation; their sums are shifted once a group. Where only signed
    bytes can be multiplied at once, codes must be below 128 and are moved down.
    """
    if bits == 8:
        return [(_vector(b, chunk, j), 0) for j in range(FIELDS)]
    if _is_shifted(bits, rows):
        words = [_vector(b, chunk, t) for t in range(bits)]
        return [(b.and_(word, _bytes(((1 << bits) - 1) << up)), up) for word in words for up in range(0, 8, bits)]
    return [(field, 0) for field in wide_fields(b, chunk, bits)]


class Row:
    """A row of activations, and the registers that a panel's sums of it live in."""

    def __init__(self, b: Any, x: Any, scales: Any, sums: Any, ups: Sequence[int]) -> None:
        self.x, self.scales, self.sums = x, scales, sums
        self.acc = {up: alloca_once(b, _WORDS) for up in ups}


class Form:
    """A weight's descriptor, and the rows that it meets, which follow each other."""

    def __init__(self, b: Any, args: Any, bits: int, rows: int) -> None:
        self.data, shape, x, scales, sums = args[:5]
        self.bits = bits
        at = {name: b.load(b.gep(shape, [v.index(name)])) for name in range(CODES_AT + 1)}
        self.stride, self.kind, self.codes_at = at[STRIDE], at[KIND], at[CODES_AT]
        self.mins_at, self.larger_at, self.larger_mins_at = at[MINS_AT], at[LARGER_AT], at[LARGER_MINS_AT]
        self.has_mins, self.is_scaled = b.icmp_signed("!=", at[MINS], v.index(0)), b.icmp_signed("==", at[KIND], v.index(SCALED))
        self.groups, self.chunks = b.sdiv(at[K], at[GROUP]), b.sdiv(at[GROUP], v.index(CHUNK))
        self.per = b.select(b.icmp_signed(">", at[LARGER], v.index(0)), at[LARGER], v.index(1))
        self.minus = b.select(self.has_mins, v.I32(0), v.I32(-ZEROS[bits]))
        head = b.sdiv(b.add(at[CODES_AT], v.index(_AHEAD)), v.index(_LINE))
        self.asks = b.add(b.sdiv(head, self.groups), v.index(1))
        places = [(b.mul(at[K], v.index(r)), b.mul(self.groups, v.index(r))) for r in range(rows)]
        ups = range(0, 8, bits) if _is_shifted(bits, rows) else (0,)
        self.rows = [Row(b, b.gep(x, [one]), b.gep(scales, [own]), b.gep(sums, [own]), ups) for one, own in places]


def _halves(b: Any, pointer: Any) -> Any:
    """LANES float16 as float32."""
    return v.half_to_float(b, v.load(b, pointer, v.vector(v.I16, LANES), 2))


class Group:
    """What all panels share of one group: its number, the larger group that it is in, and each row's scale and sum."""

    def __init__(self, b: Any, form: Form, number: Any) -> None:
        self.number, self.larger = number, b.sdiv(number, form.per)
        wholes = [b.load(b.gep(row.sums, [number])) for row in form.rows]
        self.scales = [b.load(b.gep(row.scales, [number])) for row in form.rows]
        self.starts = [b.mul(whole, form.minus) for whole in wholes]
        self.shares = [b.fmul(scale, b.sitofp(whole, v.F32)) for scale, whole in zip(self.scales, wholes, strict=True)]


class Panel:
    """One panel of a weight: where its parts are, and what its rows have summed so far."""

    def __init__(self, b: Any, form: Form, number: Any, totals: Any) -> None:
        self.form, self.totals = form, totals
        self.base = b.gep(form.data, [b.mul(number, form.stride)])
        self.codes = b.gep(self.base, [form.codes_at])
        self.next = b.gep(self.base, [b.mul(form.stride, v.index(WIDE))])

    def ask(self, b: Any, group: Any) -> None:
        """Ask for this group's share of the head of the panel that comes next: its scales and first codes."""
        with for_range(b, self.form.asks, intp=v.I64) as loop:
            at = b.add(b.mul(group, self.form.asks), loop.index)
            v.prefetch(b, b.gep(self.next, [b.mul(at, v.index(_LINE))]))

    def scales(self, b: Any, group: Any, larger: Any, at: Any, larger_at: Any) -> Any:
        """The scales (or minima) of a group as float32."""
        form, slot = self.form, alloca_once(b, _FLOATS)
        place, start = b.mul(group, v.index(LANES)), b.gep(self.base, [at])
        with b.if_else(b.icmp_signed("==", form.kind, v.index(HALF))) as (half, other):
            with half:
                b.store(_halves(b, b.gep(start, [b.mul(place, v.index(2))])), slot)
            with other, b.if_else(b.icmp_signed("==", form.kind, v.index(SCALED))) as (scaled, whole):
                with scaled:
                    small = b.sext(v.load(b, b.gep(start, [place]), v.vector(v.I8, LANES), 1), _WORDS)
                    factor = _halves(b, b.gep(self.base, [b.add(larger_at, b.mul(larger, v.index(2 * LANES)))]))
                    b.store(b.fmul(b.sitofp(small, _FLOATS), factor), slot)
                with whole:
                    b.store(v.load(b, b.gep(start, [b.mul(place, v.index(4))]), _FLOATS, 4), slot)
        return b.load(slot)

    def begin(self, b: Any, group: Group) -> None:
        """Start a group's sums at -zero · Σx."""
        for row, start in zip(self.form.rows, group.starts, strict=True):
            for slot in row.acc.values():
                b.store(v.constant(_WORDS, 0), slot)
            b.store(v.splat(b, start, LANES), row.acc[0])

    def chunk(self, b: Any, number: Any, fields: range) -> Any:
        """Where a chunk lies; at its first field the one that comes later is asked for."""
        size = 4 * LANES * self.form.bits
        base = b.gep(self.codes, [b.mul(number, v.index(size))])
        for line in range(0, size, _LINE) if fields.start == 0 else ():
            v.prefetch(b, b.gep(base, [v.index(_AHEAD + line)]))
        return base

    def add_chunk(self, b: Any, chunk: Any, fields: range) -> None:
        """Fields ``fields`` of a chunk."""
        form = self.form
        base, at = self.chunk(b, chunk, fields), b.mul(chunk, v.index(CHUNK))
        small = form.bits < 8 and not _is_shifted(form.bits, len(form.rows))
        for j, (field, up) in enumerate(_in_place(b, base, form.bits, len(form.rows))):
            for row in form.rows if j in fields else ():
                four = v.splat(b, v.load(b, b.gep(row.x, [b.add(at, v.index(4 * j))]), v.I32, 1), LANES)
                acc = row.acc[up]
                b.store(v.dot4(b, b.load(acc), field, four, small=small), acc)

    def end(self, b: Any, group: Group) -> None:
        """Add the group's sums times its scales."""
        form = self.form
        scale = self.scales(b, group.number, group.larger, v.index(0), form.larger_at)
        for row, own, total in zip(form.rows, group.scales, self.totals, strict=True):
            whole = b.load(row.acc[0])
            for up, slot in row.acc.items():
                whole = b.add(whole, b.ashr(b.load(slot), v.constant(_WORDS, up))) if up else whole
            factor = b.fmul(scale, v.splat(b, own, LANES))
            b.store(v.multiply_add(b, b.sitofp(whole, _FLOATS), factor, b.load(total)), total)
        if form.bits in WITH_MINS:
            self.add_minimum(b, group)

    def add_minimum(self, b: Any, group: Any) -> None:
        """Add the group's minimum times the sum of the activations, where there is one."""
        form = self.form
        with b.if_then(form.has_mins):
            low = self.scales(b, group.number, group.larger, form.mins_at, form.larger_mins_at)
            low = b.select(form.is_scaled, b.fneg(low), low)
            for share, total in zip(group.shares, self.totals, strict=True):
                b.store(v.multiply_add(b, low, v.splat(b, share, LANES), b.load(total)), total)


def _sums_of_group(b: Any, form: Form, panel: Panel, first: Any, groups: list[Group]) -> None:
    """A group of one panel; the two groups of one chunk where that is how they lie."""
    if len(groups) > 1:
        chunk = b.sdiv(first, v.index(2))
        for i, group in enumerate(groups):
            panel.begin(b, group)
            panel.add_chunk(b, chunk, range(4 * i, 4 * i + 4))
            panel.end(b, group)
        return
    panel.begin(b, groups[0])
    with for_range(b, form.chunks, intp=v.I64) as inner:
        panel.add_chunk(b, b.add(b.mul(first, form.chunks), inner.index), range(FIELDS))
    panel.end(b, groups[0])


def emit_row(b: Any, args: Any, bits: int, group_of: Any = Group, panel_of: Any = Panel, rows: int = 1) -> None:
    """The product of a few rows and panels of ``bits`` a code; ``args`` as :data:`few_rows`, without the rows.

    ``group_of`` and ``panel_of`` make what stands for a group and for a panel.
    """
    *_, out, panels = args
    form, per = Form(b, args, bits, rows), 2 if bits in OF_HALVES else 1
    totals = [alloca_once(b, _FLOATS) for _ in range(rows)]

    def places(panel: Any) -> list[Any]:
        return [b.gep(out, [b.mul(b.add(panel, v.index(WIDE * r)), v.index(LANES))]) for r in range(rows)]

    with for_range(b, panels, intp=v.I64) as loop:
        for to in places(loop.index):
            v.store(b, v.constant(_FLOATS, 0.0), to, 4)
    with for_range(b, b.sdiv(form.groups, v.index(per)), intp=v.I64) as outer:
        first = b.mul(outer.index, v.index(per))
        groups = [group_of(b, form, b.add(first, v.index(i))) for i in range(per)]
        with for_range(b, panels, intp=v.I64) as loop:
            panel = panel_of(b, form, loop.index, totals)
            for to, total in zip(places(loop.index), totals, strict=True):
                b.store(v.load(b, to, _FLOATS, 4), total)
            panel.ask(b, outer.index)
            _sums_of_group(b, form, panel, first, groups)
            for to, total in zip(places(loop.index), totals, strict=True):
                v.store(b, b.load(total), to, 4)


@intrinsic
def _rows(tc: Any, data: Any, shape: Any, x: Any, x_scales: Any, x_sums: Any, out: Any, panels: Any, rows: Any) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        have = b.load(b.gep(args[1], [v.index(BITS)]))
        for bits in ZEROS:
            with b.if_then(b.icmp_signed("==", have, v.index(bits))):
                for height in range(1, ROWS + 1):
                    with b.if_then(b.icmp_signed("==", args[-1], v.index(height))):
                        emit_row(b, args[:-1], bits, rows=height)
        return context.get_dummy_value()

    return types.none(*_PARAMETERS, _I), codegen


@external(*_PARAMETERS, _I)
def few_rows(data: Any, shape: Any, x: Any, x_scales: Any, x_sums: Any, out: Any, panels: Any, rows: Any) -> None:
    """out[rows, WIDE, LANES] = Σ over groups of ((code - zero) · scale, or code · scale + minimum) times activations.

    Args:
        data: the first panel.
        shape: :attr:`hetsched_kernels.few_bits.PackedGroups.shape`.
        x: int8 activations, ``shape[K]`` a row.
        x_scales: float32 scales of the activations, one a row and group.
        x_sums: int32 sums of the activations, one a row and group.
        out: the result; only the first ``panels`` panels of a row are written.
        panels: up to WIDE.
        rows: 1 … ROWS.
    """
    _rows(data, shape, x, x_scales, x_sums, out, panels, rows)
