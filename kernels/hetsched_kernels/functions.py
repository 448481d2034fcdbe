"""Scalar float32 functions that LLVM can vectorise: no branches, no calls.

Polynomials are this project's own minimax fits (Lawson iterations on Chebyshev nodes); relative errors are below 3e-7
(2-3 units in the last place) over the whole range. NaN stays NaN, overflow goes to infinity.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types

from hetsched_kernels.compilation import block
from hetsched_kernels.lowlevel import intrinsic

_MAGIC = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer, half to even
_MAGIC_BITS = np.int32(0x4B400000)
#: Where e^x is just above the least normal float32.
_TINY = np.float32(-87.33)
_LOG2E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_ONE = np.float32(1.0)
_HALF = np.float32(0.5)
_ZERO = np.float32(0.0)
_TWO = np.float32(2.0)
_SQRT_HALF = np.float32(0.7071067811865476)


@intrinsic
def bits_to_float(typing_context: Any, bits: Any) -> Any:
    """Reinterpret an int32 as a float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def float_to_bits(typing_context: Any, value: Any) -> Any:
    """Reinterpret a float32 as an int32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), codegen


def _float_intrinsic(name: str, doc: str) -> Any:
    def typing(typing_context: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            function = builder.module.declare_intrinsic(f"llvm.{name}", [ir.FloatType()])
            return builder.call(function, args)

        return types.float32(types.float32), codegen

    typing.__doc__ = doc
    return intrinsic(typing)


round_even = _float_intrinsic("rint", "Nearest integer, half to even.")
floor = _float_intrinsic("floor", "Largest integer not above.")
ceil = _float_intrinsic("ceil", "Smallest integer not below.")
square_root = _float_intrinsic("sqrt", "Square root.")
absolute = _float_intrinsic("fabs", "Absolute value.")


@block(inline=True)
def exp(x: Any) -> Any:
    """e^x; 0 below the least normal number, because arithmetic with what lies between is slow (and masks of softmax are full of it)."""
    tiny = x < _TINY
    x = np.float32(89.0) if x > np.float32(89.0) else x
    x = _TINY if tiny else x
    shifted = x * _LOG2E + _MAGIC
    n = shifted - _MAGIC
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = np.float32(0.0013950599823147058)
    p = p * r + np.float32(0.008368954062461853)
    p = p * r + np.float32(0.04166620597243309)
    p = p * r + np.float32(0.166665181517601)
    p = p * r + _HALF
    p = p * r * r + r + _ONE
    power = np.int32(float_to_bits(shifted) - _MAGIC_BITS)
    first = np.int32(power >> np.int32(1))
    second = np.int32(power - first)
    scale = bits_to_float(np.int32((first + np.int32(127)) << np.int32(23)))
    return np.float32(0.0) if tiny else p * scale * bits_to_float(np.int32((second + np.int32(127)) << np.int32(23)))


@block(inline=True)
def log(x: Any) -> Any:
    """Natural logarithm; -inf at 0, NaN below."""
    tiny = x < np.float32(1.17549435e-38)
    y = x * np.float32(8388608.0) if tiny else x
    bits = float_to_bits(y)
    exponent = np.int32(((bits >> np.int32(23)) & np.int32(255)) - np.int32(126))
    mantissa = bits_to_float(np.int32((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000)))
    low = mantissa < _SQRT_HALF
    f = (mantissa + mantissa if low else mantissa) - _ONE
    e = np.float32(np.int32(exponent - np.int32(1)) if low else exponent)
    e = e - np.float32(23.0) if tiny else e
    p = np.float32(0.06915368139743805)
    p = p * f + np.float32(-0.11789807677268982)
    p = p * f + np.float32(0.11872976273298264)
    p = p * f + np.float32(-0.1238434836268425)
    p = p * f + np.float32(0.14218658208847046)
    p = p * f + np.float32(-0.16669251024723053)
    p = p * f + np.float32(0.20002226531505585)
    p = p * f + np.float32(-0.24999986588954926)
    p = p * f + np.float32(0.3333331048488617)
    square = f * f
    result = p * f * square + e * _LN2_LOW - _HALF * square + f + e * _LN2_HIGH
    result = np.float32(-np.inf) if x == _ZERO else result
    result = np.float32(np.nan) if x < _ZERO else result
    return x if (x == np.float32(np.inf) or x != x) else result


@block(inline=True)
def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x)."""
    return _ONE / (_ONE + exp(-x))


@block(inline=True)
def tanh(x: Any) -> Any:
    """Hyperbolic tangent: a polynomial near 0, else 1 - 2/(e^2|x| + 1) with the sign of x."""
    a = absolute(x)
    u = x * x
    p = np.float32(-0.005717036779969931)
    p = p * u + np.float32(0.020650578662753105)
    p = p * u + np.float32(-0.05374349653720856)
    p = p * u + np.float32(0.13331490755081177)
    p = p * u + np.float32(-0.3333328366279602)
    near = x + x * u * p
    far = _ONE - _TWO / (exp(a + a) + _ONE)
    far = -far if x < _ZERO else far
    return near if a < np.float32(0.625) else far


@block(inline=True)
def erf(x: Any) -> Any:
    """Error function: an odd polynomial below 1, else 1 - e^-q(|x|) with the sign of x."""
    a = absolute(x)
    u = x * x
    p = np.float32(7.889119297033176e-05)
    p = p * u + np.float32(-0.0008020841050893068)
    p = p * u + np.float32(0.005189535208046436)
    p = p * u + np.float32(-0.026854444295167923)
    p = p * u + np.float32(0.11283600330352783)
    p = p * u + np.float32(-0.3761262595653534)
    p = p * u + np.float32(1.1283791065216064)
    b = np.float32(4.0) if a > np.float32(4.0) else a
    q = np.float32(1.6974566108274303e-07)
    q = q * b + np.float32(1.9262737623648718e-05)
    q = q * b + np.float32(-0.0004265054303687066)
    q = q * b + np.float32(0.004153776448220015)
    q = q * b + np.float32(-0.025101762264966965)
    q = q * b + np.float32(0.10827848315238953)
    q = q * b + np.float32(0.6333328485488892)
    q = q * b + np.float32(1.1295273303985596)
    q = q * b + np.float32(-0.00017812417354434729)
    far = _ONE - exp(-q)
    far = -far if x < _ZERO else far
    return x * p if a < _ONE else far


@block(inline=True)
def gelu(x: Any) -> Any:
    """x·Φ(x), erf form."""
    return _HALF * x * (_ONE + erf(x * _SQRT_HALF))


@block(inline=True)
def gelu_tanh(x: Any) -> Any:
    """x·Φ(x), tanh approximation."""
    inner = np.float32(0.7978845608028654) * (x + np.float32(0.044715) * x * x * x)
    return _HALF * x * (_ONE + tanh(inner))


@block(inline=True)
def clip(x: Any, low: Any, high: Any) -> Any:
    """The nearest value in [low, high]; NaN stays NaN; high wins where low > high (as ONNX and numpy)."""
    x = low if x < low else x
    return high if x > high else x


@block(inline=True)
def softplus(x: Any) -> Any:
    """log(1 + e^x), without overflow."""
    positive = x if x > _ZERO else _ZERO
    e = exp(-absolute(x))
    u = _ONE + e  # log1p(e) = log(u) * e / (u - 1), exact where u rounds to 1
    small = u == _ONE
    safe = _TWO if small else u
    value = e if small else log(safe) * e / (safe - _ONE)
    result = positive + value
    return x if x != x else result
