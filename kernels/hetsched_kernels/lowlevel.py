"""Numba's names below the decorator, under one roof (their own annotations do not describe how intrinsics are called)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.core import compiler_lock as numba_lock
from numba.extending import intrinsic as numba_intrinsic
from numba.np import arrayobj

_numba: Any = numba
#: An array over a C pointer, inside a kernel.
carray: Any = _numba.carray
#: A stack slot in the entry block (LLVM turns it into a register).
alloca_once: Any = cgutils.alloca_once
alloca_once_value: Any = cgutils.alloca_once_value
#: A counted loop in IR.
for_range: Any = cgutils.for_range
pack_array: Any = cgutils.pack_array
memset: Any = cgutils.memset
#: Fill an array structure.
populate_array: Any = arrayobj.populate_array
#: Held by whoever compiles.
compiler_lock: Any = numba_lock.global_compiler_lock
#: The type of a C pointer to a numba type.
pointer_to: Any = types.CPointer

F32P: Any = pointer_to(types.float32)
I32P: Any = pointer_to(types.int32)
I64P: Any = pointer_to(types.int64)
U8P: Any = pointer_to(types.uint8)
I8P: Any = pointer_to(types.int8)


def intrinsic(function: Callable[..., Any]) -> Any:
    """Mark a typing function, which returns a signature and a code generator, as a function for kernels."""
    return numba_intrinsic(function)
