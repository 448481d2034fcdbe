"""Element type conversions, as ONNX Cast.

float16 is stored as uint16 (numba has no float16 arrays) and converted through LLVM's ``half``, bit-exact.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types

from hetsched_kernels.arrays import InF32, InS, InU16, OutF32, OutT, OutU16
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.functions import bits_to_float, float_to_bits
from hetsched_kernels.lowlevel import intrinsic
from hetsched_kernels.target import target

_TYPES = ("float32", "float64", "int64", "int32", "int16", "uint16", "int8", "uint8", "bool")


@intrinsic
def _half_to_float(typing_context: Any, bits: Any) -> Any:
    """A float16, given as uint16 bits, as float32, by an instruction."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


@intrinsic
def _float_to_half(typing_context: Any, value: Any) -> Any:
    """A float32 rounded to float16, as uint16 bits, by an instruction."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), codegen


@block(inline=True)
def _unpack(bits: Any) -> Any:
    """The same by integer arithmetic: the exponent is moved by a multiplication, which also normalises subnormals."""
    magnitude = np.int32(np.int32(bits & 0x7FFF) << 13)
    value = bits_to_float(magnitude) * bits_to_float(np.int32(0x77800000))  # 2^112
    special = bits_to_float(np.int32(magnitude | 0x7F800000))
    value = special if (bits & 0x7FFF) >= 0x7C00 else value
    return -value if bits & 0x8000 else value


@block(inline=True)
def _pack(value: Any) -> Any:
    """The same by integer arithmetic: half to even by adding half of the dropped bits, subnormals by adding a constant."""
    bits = float_to_bits(value)
    magnitude = np.int32(bits & 0x7FFFFFFF)
    small = np.int32(float_to_bits(bits_to_float(magnitude) + np.float32(0.5)) - np.int32(0x3F000000))
    normal = np.int32(np.int32(magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13)
    result = small if magnitude < 0x38800000 else normal
    result = np.int32(0x7C00) if magnitude >= 0x47800000 else result
    result = np.int32(0x7E00) if magnitude > 0x7F800000 else result
    return np.uint16(result | ((bits >> 16) & 0x8000))


#: A float16, given as uint16 bits, as float32.
half_to_float = _half_to_float if target().half else _unpack
#: A float32 rounded to float16, as uint16 bits.
float_to_half = _float_to_half if target().half else _pack


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
