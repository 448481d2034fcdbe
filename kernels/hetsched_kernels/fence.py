"""Flags between pinned threads: acquire / release on an int64 array, and a bounded spin.

Put each flag on its own cache line (index steps of 8).
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import types

from hetsched_kernels.arrays import InI64, OutI64
from hetsched_kernels.compilation import kernel
from hetsched_kernels.lowlevel import intrinsic
from hetsched_kernels.target import target


def _element(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index], inbounds=True)


@intrinsic
def load_acquire(typing_context: Any, flags: Any, index: Any) -> Any:
    """Atomic load of ``flags[index]``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_element(context, builder, signature.args[0], args[0], args[1]), "acquire", 8)

    return types.int64(flags, types.int64), codegen


@intrinsic
def store_release(typing_context: Any, flags: Any, index: Any, value: Any) -> Any:
    """Atomic store to ``flags[index]``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _element(context, builder, signature.args[0], args[0], args[1]), "release", 8)
        return context.get_dummy_value()

    return types.none(flags, types.int64, types.int64), codegen


@intrinsic
def relax(typing_context: Any) -> Any:
    """Tell the core that this is a spin: ``pause`` on x86, nothing elsewhere."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if target().x86:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.globals.get("llvm.x86.sse2.pause") or ir.Function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.none(), codegen


@kernel
def load(flags: InI64, index: int) -> Any:
    """``flags[index]`` with acquire order."""
    return load_acquire(flags, index)


@kernel
def store(flags: OutI64, index: int, value: int) -> None:
    """``flags[index] = value`` with release order."""
    store_release(flags, index, value)


#: The word that fences use for the same thing.
signal = store


@kernel
def wait_ge(flags: InI64, index: int, value: int, spins: int) -> Any:
    """Spin until ``flags[index] >= value``, at most ``spins`` times; whether it happened. The GIL is not held."""
    for _ in range(spins):
        if load_acquire(flags, index) >= value:
            return True
        relax()
    return load_acquire(flags, index) >= value


@kernel
def pause(count: int) -> None:
    """``count`` spin hints."""
    for _ in range(count):
        relax()
