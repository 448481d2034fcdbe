"""Asking memory for what will be read soon."""

from __future__ import annotations

from typing import Any, Final

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.lowlevel import U8P, for_range, intrinsic

_LINE: Final = 64


@intrinsic
def ask_for(tc: Any, pointer: Any, count: Any) -> Any:
    """Ask for ``count`` bytes into the second cache, rounded down to whole cache lines; addresses that are nobody's do no harm."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        with for_range(b, b.sdiv(args[1], v.index(_LINE)), intp=v.I64) as loop:
            v.prefetch(b, b.gep(args[0], [b.mul(loop.index, v.index(_LINE))]), 2)
        return context.get_dummy_value()

    return types.none(U8P, types.int64), codegen
