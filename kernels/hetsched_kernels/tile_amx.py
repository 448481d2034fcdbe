"""Products of bytes in tile registers (AMX), where the target has them and the process may use them.

A tile is 16 rows of 64 bytes. One instruction adds the products of 16 rows of A (unsigned) and 16 columns of B (signed) over up to 16
groups of four bytes along the depth. A is read as it lies, B as the panels [depth / 4, COLS, 4] that the register tile reads too.

The tile state of a process is off until it asks for it (Linux, ``arch_prctl``); :data:`permitted` asks, which is a system call of a
tenth of a microsecond, and where the answer is no the register tile does the work. Tiles keep their shape from :data:`configure` on, in
the thread that called it, until :data:`release`.
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numpy as np
from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.compilation import block
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import I32P, U8P, for_range, intrinsic
from hetsched_kernels.parts import as_i32, ptr, span
from hetsched_kernels.target import target
from hetsched_kernels.tile import COLS

#: Rows of a tile, and tiles of rows that are summed at once.
HEIGHT: Final = 16
TALL: Final = 2
#: Rows of a block of sums.
BLOCK: Final = TALL * HEIGHT
#: Bytes of a configuration, and with a block of sums.
CONFIGURATION: Final = 64
TILE_ROOM: Final = CONFIGURATION + BLOCK * COLS * 4
_LINE = 64
_WIDE = 3  # tiles of a panel: COLS columns where there are 512-bit vectors, and there are wherever there are tiles
#: The tiles of the operands; those before them hold sums.
A, B = TALL * _WIDE, TALL * _WIDE + 1
#: arch_prctl, ARCH_REQ_XCOMP_PERM, and the number of the tile data's state.
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
_I = types.int64
llvm.initialize_native_asmparser()  # for the system call; here, since what holds it may come from the cache
_PARAMETERS = (U8P, _I, U8P, _I, _I, I32P, _I)


def instruct(b: Any, name: str, *args: Any) -> None:
    """An instruction on tiles: whole numbers are tile numbers."""
    values = [ir.Constant(v.I8, a) if isinstance(a, int) else a for a in args]
    full = f"llvm.x86.{name}"
    kind = ir.FunctionType(ir.VoidType(), [a.type for a in values])
    b.call(b.module.globals.get(full) or ir.Function(b.module, kind, full), values)


@intrinsic
def permitted(tc: Any) -> Any:
    """1 where the target has tiles and the process may use them: it asks."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if not target().amx:
            return v.index(0)
        kind = ir.FunctionType(v.I64, [v.I64] * 3)
        constraint = "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"
        answer = b.asm(kind, "syscall", constraint, [v.index(n) for n in (_ARCH_PRCTL, _REQUEST, _TILE_DATA)], True)
        return b.zext(b.icmp_signed("==", answer, v.index(0)), v.I64)

    return types.int64(), codegen


@intrinsic
def _load_configuration(tc: Any, pointer: Any) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if target().amx:
            instruct(b, "ldtilecfg", args[0])
        return context.get_dummy_value()

    return types.none(U8P), codegen


@intrinsic
def release(tc: Any) -> Any:
    """Give the tiles up: a thread that holds them is slower to switch."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if target().amx:
            instruct(b, "tilerelease")
        return context.get_dummy_value()

    return types.none(), codegen


@block
def depth_step(groups: Any) -> Any:
    """Groups of four that a tile takes at once so that ``groups`` is whole steps; 0 where that would leave tiles half empty."""
    steps = (groups + HEIGHT - 1) // HEIGHT
    step = groups // max(steps, 1)
    return step if step * steps == groups and 2 * step >= HEIGHT else 0


@block
def configure_rows(room: Any, rows: Any, step: Any) -> None:
    """Shape the tiles for ``rows`` rows and steps of ``step`` groups; ``room``: uint8 [CONFIGURATION]."""
    for i in range(CONFIGURATION):
        room[i] = np.uint8(0)
    room[0] = np.uint8(1)
    for tile in range(B + 1):
        room[16 + 2 * tile], room[48 + tile] = np.uint8(_LINE), np.uint8(rows)
    room[16 + 2 * A], room[48 + B] = np.uint8(4 * step), np.uint8(step)
    _load_configuration(ptr(room, 0))


@block
def configure(room: Any, step: Any) -> None:
    """The same for all the rows that a tile has."""
    configure_rows(room, HEIGHT, step)


@block
def start_tiles(room: Any, m: Any, groups: Any) -> Any:
    """Rows of ``m`` that tiles take, whole tiles (configured then), their step, and room for a block's sums.

    Args:
        room: uint8 [TILE_ROOM].
        m: rows.
        groups: groups of four along the depth.
    """
    step = depth_step(groups)
    wholes = m // HEIGHT * HEIGHT if step else 0
    if wholes and not permitted():
        wholes = 0
    if wholes:
        configure(span(room, 0, CONFIGURATION), step)
    return wholes, step, as_i32(room, CONFIGURATION, BLOCK * COLS * 4)


def _sums(b: Any, args: Any, tall: int) -> None:
    """``tall`` tiles of rows by the tiles of a panel."""
    a, lda, panel, step, steps, out = args[:6]
    for tile in range(tall * _WIDE):
        instruct(b, "tilezero", tile)
    wide, down = v.index(4 * COLS), b.mul(lda, v.index(HEIGHT))
    with for_range(b, steps, intp=v.I64) as loop:
        left = b.gep(a, [b.mul(loop.index, b.mul(step, v.index(4)))])
        right = b.gep(panel, [b.mul(loop.index, b.mul(step, v.index(4 * COLS)))])
        for m in range(tall):
            instruct(b, "tileloadd64", A, b.gep(left, [b.mul(down, v.index(m))]), lda)
            order = range(_WIDE) if m % 2 == 0 else range(_WIDE - 1, -1, -1)  # the last one of B is there already
            for place, n in enumerate(order):
                if m == 0 or place:
                    instruct(b, "tileloadd64", B, b.gep(right, [v.index(_LINE * n)]), wide)
                instruct(b, "tdpbusd", m * _WIDE + n, A, B)
    to = b.bitcast(out, v.I8.as_pointer())
    for m in range(tall):
        for n in range(_WIDE):
            instruct(b, "tilestored64", m * _WIDE + n, b.gep(to, [v.index(4 * COLS * HEIGHT * m + _LINE * n)]), wide)


@intrinsic
def _sums_of(tc: Any, a: Any, lda: Any, panel: Any, step: Any, steps: Any, out: Any, tall: Any) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        for height in range(1, TALL + 1) if target().amx else ():
            with b.if_then(b.icmp_signed("==", args[-1], v.index(height))):
                _sums(b, args, height)
        return context.get_dummy_value()

    return types.none(*_PARAMETERS), codegen


@external(*_PARAMETERS)
def sums_u8s8(a: Any, lda: Any, panel: Any, step: Any, steps: Any, out: Any, tall: Any) -> None:
    """out[16 · tall, COLS] = Σ A (u8) · B (s8), int32; the tiles are configured for ``step``.

    Args:
        a: first byte of A.
        lda: its row stride in bytes.
        panel: B, [depth / 4, COLS, 4].
        step: groups of four that a tile takes.
        steps: how many times.
        out: int32 [16 · tall, COLS].
        tall: 1 … TALL.
    """
    _sums_of(a, lda, panel, step, steps, out, tall)
