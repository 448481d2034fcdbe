"""One input, one output, element by element."""

from __future__ import annotations

from hetsched_kernels import codes as c
from hetsched_kernels.activation import ACTIVATE, apply_unary
from hetsched_kernels.arrays import InBool, InF32, InT, OutBool, OutF32, OutT
from hetsched_kernels.compilation import kernel
from hetsched_kernels.parts import span

_BLOCK = 2048


@kernel(needs=(ACTIVATE,))
def unary_f32(x: InF32, out: OutF32, code: int, alpha: float, beta: float) -> None:
    """Compute out = f(x), f one of ``codes.UNARY``.

    Args:
        x: [n] input; may be ``out`` itself.
        out: [n] result.
        code: the function.
        alpha: its first parameter (Clip min, HardSigmoid alpha, LeakyRelu alpha, Elu alpha).
        beta: its second parameter (Clip max, HardSigmoid beta).
    """
    n = x.shape[0]
    same = x.ctypes.data == out.ctypes.data
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        part = span(out, start, stop - start)
        if not same:
            source = span(x, start, stop - start)
            for i in range(stop - start):
                part[i] = source[i]
        apply_unary(part, code, alpha, beta)


@kernel(T=("int64", "int32"))
def unary_int(x: InT, out: OutT, code: int) -> None:
    """Compute out = f(x) on integers: Neg, Abs, Sign, Relu, Identity.

    Args:
        x: [n] input; may be ``out`` itself.
        out: [n] result.
        code: one of ``codes.UNARY``; others copy.
    """
    for i in range(x.shape[0]):
        v = x[i]
        if code == c.NEG:
            v = -v
        elif code == c.ABS:
            v = abs(v)
        elif code == c.SIGN:
            v = (v > 0) - (v < 0)
        elif code == c.RELU:
            v = max(v, 0)
        out[i] = v


@kernel
def logical_not(x: InBool, out: OutBool) -> None:
    """Compute out = not x, on bool arrays [n]."""
    for i in range(x.shape[0]):
        out[i] = not x[i]
