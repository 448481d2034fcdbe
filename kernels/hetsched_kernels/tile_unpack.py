"""A panel of weights of a few bits as bytes, once for all rows that meet it (:mod:`hetsched_kernels.tile_bits` has the layout)."""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.groups import ZEROS
from hetsched_kernels.lowlevel import U8P, for_range, intrinsic
from hetsched_kernels.tile import LANES
from hetsched_kernels.tile_bits import FIELDS, wide_fields

_I = types.int64
_UNPACK = (U8P, U8P, _I, _I, _I)


@intrinsic
def _unpack(tc: Any, codes: Any, out: Any, chunks: Any, bits: Any, zero: Any) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        codes, out, chunks, have, zero = args
        quads, minus = v.vector(v.I8, 4 * LANES), v.splat(b, b.trunc(zero, v.I8), 4 * LANES)
        for bits in ZEROS:
            with b.if_then(b.icmp_signed("==", have, v.index(bits))), for_range(b, chunks, intp=v.I64) as loop:
                base, to = (b.gep(p, [b.mul(loop.index, v.index(4 * LANES * n))]) for p, n in ((codes, bits), (out, FIELDS)))
                for j, field in enumerate(wide_fields(b, base, bits)):
                    v.store(b, b.sub(b.bitcast(field, quads), minus), b.gep(to, [v.index(4 * LANES * j)]), 1)
        return context.get_dummy_value()

    return types.none(*_UNPACK), codegen


@external(*_UNPACK)
def unpack(codes: Any, out: Any, chunks: Any, bits: Any, zero: Any) -> None:
    """Out [chunks, 8, LANES, 4] = a panel's codes, a byte each, less ``zero``."""
    _unpack(codes, out, chunks, bits, zero)
