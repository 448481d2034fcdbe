"""Loops that LLVM vectorises, in registers of full width.

On processors whose predecessors lowered their clock for 512-bit instructions LLVM takes half of a register. Loops that are
bound by arithmetic gain up to twice from the whole; the register tiles use it anyway.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels.lowlevel import intrinsic
from hetsched_kernels.target import target

_ATTRIBUTE = '"prefer-vector-width"="512"'


@intrinsic
def full_width(typing_context: Any) -> Any:
    """Let the loops of the function that calls this, and of what is inlined into it, use whole registers."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if target().avx512:
            set.add(builder.function.attributes, _ATTRIBUTE)  # llvmlite's own method knows plain attributes only
        return context.get_dummy_value()

    return types.none(), codegen
