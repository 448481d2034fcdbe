"""Element type conversions, as ONNX Cast.

float16 is stored as uint16 (numba has no float16 arrays) and converted through LLVM's ``half``, bit-exact.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import types

from hetsched_kernels.arrays import InF32, InS, InU16, OutF32, OutT, OutU16
from hetsched_kernels.compilation import kernel
from hetsched_kernels.lowlevel import intrinsic

_TYPES = ("float32", "float64", "int64", "int32", "int16", "uint16", "int8", "uint8", "bool")


@intrinsic
def half_to_float(typing_context: Any, bits: Any) -> Any:
    """A float16, given as uint16 bits, as float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


@intrinsic
def float_to_half(typing_context: Any, value: Any) -> Any:
    """A float32 rounded to float16, as uint16 bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), codegen


@kernel(S=_TYPES, T=_TYPES)
def cast(x: InS, out: OutT) -> None:
    """Compute out = x in out's type; floats truncate towards zero, anything but 0 is true, integers wrap.

    Args:
        x: [n] input.
        out: [n] result.
    """
    for i in range(x.shape[0]):
        out[i] = x[i]


@kernel
def f16_to_f32(x: InU16, out: OutF32) -> None:
    """Compute out = x; x holds float16 bits."""
    for i in range(x.shape[0]):
        out[i] = half_to_float(x[i])


@kernel
def f32_to_f16(x: InF32, out: OutU16) -> None:
    """Compute out = x rounded to float16 (half to even, overflow to infinity), as bits."""
    for i in range(x.shape[0]):
        out[i] = float_to_half(x[i])
