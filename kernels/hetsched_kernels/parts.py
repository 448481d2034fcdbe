"""Parts of flat arrays without numba's reference counting.

A slice costs two atomic operations (its owner is counted up and down); in loops over short rows that is most of the time.
These are bare pointers with a length, valid while the kernel's arguments are, and nothing is clamped or checked.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels.compilation import block
from hetsched_kernels.lowlevel import carray, intrinsic, pointer_to


@intrinsic
def ptr(typing_context: Any, array: Any, start: Any) -> Any:
    """Pointer to ``array[start]``, of an array or of another pointer: what the external functions take, at no cost at all."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if isinstance(signature.args[0], types.Array):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
        else:
            data = args[0]
        return builder.gep(data, [args[1]])

    return pointer_to(array.dtype)(array, types.int64), codegen


@block(inline=True)
def span(array: Any, start: Any, count: Any) -> Any:
    """``array[start : start + count]``."""
    return carray(ptr(array, start), (count,))


@block(inline=True)
def onward(array: Any, start: Any) -> Any:
    """``array[start:]``."""
    return carray(ptr(array, start), (array.shape[0] - start,))
