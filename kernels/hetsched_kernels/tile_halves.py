"""One row of activations by a panel of weights in 16 bits: C[cols] = Σ_k a[k] · B[k, col], widened in registers.

Four values of k have accumulators of their own, so that no sum waits for the one before it.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.halves import BRAIN
from hetsched_kernels.lowlevel import F32P, alloca_once, for_range, intrinsic, pointer_to
from hetsched_kernels.tile import COLS, LANES, VECTORS

_U16P: Any = pointer_to(types.uint16)
#: Values of k in flight, and how many bytes ahead of them memory is asked for.
_FLIGHT, _AHEAD = 4, 2048
_FLOATS, _HALVES = v.vector(v.F32, LANES), v.vector(v.I16, LANES)


def _wide(b: Any, bits: Any, brain: bool) -> Any:
    """Sixteen bits as float32."""
    if not brain:
        return v.half_to_float(b, bits)
    words = v.vector(v.I32, LANES)
    return b.bitcast(b.shl(b.zext(bits, words), v.constant(words, 16)), _FLOATS)


def _step(b: Any, a: Any, panel: Any, at: Any, acc: Any, brain: bool) -> None:
    """Add the products of one value of k."""
    factor = v.splat(b, b.load(b.gep(a, [at])), LANES)
    row = b.gep(panel, [b.mul(at, v.index(COLS))])
    for n, slot in enumerate(acc):
        bits = v.load(b, b.gep(row, [v.index(LANES * n)]), _HALVES, 2)
        b.store(v.multiply_add(b, factor, _wide(b, bits, brain), b.load(slot)), slot)
    v.prefetch(b, b.gep(row, [v.index(_AHEAD // 2)]))


def _row(b: Any, a: Any, panel: Any, depth: Any, out: Any, brain: bool) -> None:
    """The whole row."""
    acc = [[alloca_once(b, _FLOATS) for _ in range(VECTORS)] for _ in range(_FLIGHT)]
    for slot in [slot for slots in acc for slot in slots]:
        b.store(v.constant(_FLOATS, 0.0), slot)
    whole = b.sdiv(depth, v.index(_FLIGHT))
    with for_range(b, whole, intp=v.I64) as loop:
        for i, slots in enumerate(acc):
            _step(b, a, panel, b.add(b.mul(loop.index, v.index(_FLIGHT)), v.index(i)), slots, brain)
    done = b.mul(whole, v.index(_FLIGHT))
    with for_range(b, b.sub(depth, done), intp=v.I64) as loop:
        _step(b, a, panel, b.add(done, loop.index), acc[0], brain)
    for n in range(VECTORS):
        pairs = [b.fadd(b.load(acc[i][n]), b.load(acc[i + 1][n])) for i in range(0, _FLIGHT, 2)]
        v.store(b, b.fadd(*pairs), b.gep(out, [v.index(LANES * n)]), 4)


@intrinsic
def _row_halves(tc: Any, a: Any, panel: Any, depth: Any, form: Any, out: Any) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        a, panel, depth, form, out = args
        with b.if_else(b.icmp_signed("==", form, v.index(BRAIN))) as (brain, half):
            with brain:
                _row(b, a, panel, depth, out, True)
            with half:
                _row(b, a, panel, depth, out, False)
        return context.get_dummy_value()

    return types.none(F32P, _U16P, types.int64, types.int64, F32P), codegen


@external(F32P, _U16P, types.int64, types.int64, F32P)
def row_halves(a: Any, panel: Any, depth: Any, form: Any, out: Any) -> None:
    """out[col] = Σ_k a[k] · panel[k, col].

    Args:
        a: float32 [depth].
        panel: uint16 [depth, COLS].
        depth: K.
        form: ``halves.HALF`` or ``halves.BRAIN``.
        out: float32 [COLS].
    """
    _row_halves(a, panel, depth, form, out)
