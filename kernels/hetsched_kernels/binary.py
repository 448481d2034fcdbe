"""Two operands, element by element, with broadcasting.

All kernels walk the merged shape of :func:`hetsched_kernels.broadcast.broadcast_plan` in blocks along its last dimension; an
operand that repeats or is strided there is first copied to a small buffer, so that one vectorised loop per function is enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from hetsched_kernels import codes as c
from hetsched_kernels.arrays import Array, InBool, InF32, InI64, InT, OutBool, OutF32, OutT
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.parts import room, span, zero_index

_BLOCK = 1024
_buffer = room(types.float32, _BLOCK)
_ZERO = np.float32(0.0)


def binary(a: Array, b: Array, out: Array, code: int, shape: Array, a_strides: Array, b_strides: Array) -> None:
    """Compute out = a ∘ b by the operands' type: :data:`binary_f32` or :data:`binary_int`."""
    (binary_f32 if a.dtype == np.float32 else binary_int)(a, b, out, code, shape, a_strides, b_strides)


@block
def next_row(index: Any, shape: Any, strides: Any, offset: Any) -> Any:
    """Advance the odometer over all dimensions but the last; returns the operand's offset after the step.

    The index array is advanced by the caller (:func:`advance`) once all operands have been moved.
    """
    axis = shape.shape[0] - 2
    while axis >= 0:
        if index[axis] + 1 < shape[axis]:
            return offset + strides[axis]
        offset -= strides[axis] * (shape[axis] - 1)
        axis -= 1
    return offset


@block
def advance(index: Any, shape: Any) -> None:
    """Step the odometer ``index`` over all dimensions of ``shape`` but the last."""
    axis = shape.shape[0] - 2
    while axis >= 0:
        index[axis] += 1
        if index[axis] < shape[axis]:
            return
        index[axis] = 0
        axis -= 1


@block
def rows_of(shape: Any) -> Any:
    """Product of all dimensions but the last."""
    n = 1
    for axis in range(shape.shape[0] - 1):
        n *= shape[axis]
    return n


@block
def fetch(source: Any, offset: Any, stride: Any, n: Any, buffer: Any, copy: Any) -> Any:
    """``n`` elements from ``offset``: the array's own memory where contiguous (and ``copy`` is false), else a filled buffer."""
    if stride == 1 and not copy:
        return span(source, offset, n)
    part = span(buffer, 0, n)
    if stride == 0:
        value = source[offset]
        for i in range(n):
            part[i] = value
    else:
        for i in range(n):
            part[i] = source[offset + i * stride]
    return part


@block
def combine_f32(out: Any, a: Any, b: Any, code: Any) -> None:
    """Compute out[i] = a[i] ∘ b[i], float32, for the codes of ``codes.BINARY``; ``out`` must not be ``a`` or ``b``."""
    n = out.shape[0]
    if code == c.ADD:
        for i in range(n):
            out[i] = a[i] + b[i]
    elif code == c.SUB:
        for i in range(n):
            out[i] = a[i] - b[i]
    elif code == c.RSUB:
        for i in range(n):
            out[i] = b[i] - a[i]
    elif code == c.MUL:
        for i in range(n):
            out[i] = a[i] * b[i]
    elif code == c.DIV:
        for i in range(n):
            out[i] = a[i] / b[i]
    elif code == c.RDIV:
        for i in range(n):
            out[i] = b[i] / a[i]
    elif code == c.MAX:
        for i in range(n):
            out[i] = a[i] if (a[i] > b[i] or a[i] != a[i]) else b[i]
    elif code == c.MIN:
        for i in range(n):
            out[i] = a[i] if (a[i] < b[i] or a[i] != a[i]) else b[i]
    elif code == c.PRELU:
        for i in range(n):
            out[i] = a[i] * b[i] if a[i] < _ZERO else a[i]
    elif code == c.POW:
        _power(out, a, b)
    else:
        _modulo(out, a, b, code)


@block
def _power(out: Any, a: Any, b: Any) -> None:
    """Squares, roots and cubes without a library call; the rest by ``powf``."""
    n = out.shape[0]
    same = True
    for i in range(n):
        same = same and b[i] == b[0]
    if n > 0 and same and b[0] == np.float32(2.0):
        for i in range(n):
            out[i] = a[i] * a[i]
    elif n > 0 and same and b[0] == np.float32(0.5):
        for i in range(n):
            out[i] = np.sqrt(a[i])
    elif n > 0 and same and b[0] == np.float32(3.0):
        for i in range(n):
            out[i] = a[i] * a[i] * a[i]
    else:
        for i in range(n):
            out[i] = a[i] ** b[i]


@block
def _modulo(out: Any, a: Any, b: Any, code: Any) -> None:
    n = out.shape[0]
    for i in range(n):
        r = (
            a[i] - b[i] * np.float32(np.trunc(a[i] / b[i]))
            if abs(a[i]) < abs(b[i]) * np.float32(4194304.0)
            else np.float32(np.fmod(a[i], b[i]))
        )
        if code == c.MOD and r != _ZERO and (r < _ZERO) != (b[i] < _ZERO):
            r += b[i]
        out[i] = r


@kernel
def binary_f32(a: InF32, b: InF32, out: OutF32, code: int, shape: InI64, a_strides: InI64, b_strides: InI64) -> None:
    """Compute out = a ∘ b with broadcasting.

    Args:
        a: first operand, flat; may be ``out`` itself where it has out's shape.
        b: second operand, flat; the same.
        out: result, contiguous in ``shape``.
        code: one of ``codes.BINARY``.
        shape: merged shape of the result (:func:`broadcast_plan`).
        a_strides: element strides of ``a`` in it.
        b_strides: element strides of ``b`` in it.
    """
    rank = shape.shape[0]
    inner = shape[rank - 1]
    index = zero_index()
    a_buffer, b_buffer = _buffer(), _buffer()
    a_same, b_same = a.ctypes.data == out.ctypes.data, b.ctypes.data == out.ctypes.data
    ao, bo, oo = 0, 0, 0
    sa, sb = a_strides[rank - 1], b_strides[rank - 1]
    for _ in range(rows_of(shape)):
        for start in range(0, inner, _BLOCK):
            n = min(_BLOCK, inner - start)
            xa = fetch(a, ao + start * sa, sa, n, a_buffer, a_same)
            xb = fetch(b, bo + start * sb, sb, n, b_buffer, b_same)
            combine_f32(span(out, oo + start, n), xa, xb, code)
        oo += inner
        ao = next_row(index, shape, a_strides, ao)
        bo = next_row(index, shape, b_strides, bo)
        advance(index, shape)


@block
def _combine_int(a: Any, b: Any, code: Any) -> Any:
    if code == c.ADD:
        return a + b
    if code == c.SUB:
        return a - b
    if code == c.RSUB:
        return b - a
    if code == c.MUL:
        return a * b
    if code == c.MAX:
        return max(a, b)
    if code == c.MIN:
        return min(a, b)
    if code == c.RDIV:
        a, b = b, a
    if b == 0:
        return a * 0
    if code in (c.DIV, c.RDIV):  # towards zero, as ONNX
        q = a // b
        return q + 1 if q < 0 and q * b != a else q
    if code == c.MOD:
        return a % b
    r = a % b  # FMod: sign of the dividend
    return r - b if r != 0 and (r < 0) != (a < 0) else r


@block
def _power_int(a: Any, b: Any) -> Any:
    if b < 0:
        return a * 0 + (1 if a == 1 else 0)
    result = a * 0 + 1
    while b > 0:
        if b & 1:
            result = result * a
        a = a * a
        b = b >> 1
    return result


@kernel(T=("int64", "int32"))
def binary_int(a: InT, b: InT, out: OutT, code: int, shape: InI64, a_strides: InI64, b_strides: InI64) -> None:
    """Compute out = a ∘ b on integers with broadcasting; arguments as :data:`binary_f32`. Division by zero gives 0."""
    rank = shape.shape[0]
    inner = shape[rank - 1]
    index = zero_index()
    ao, bo, oo = 0, 0, 0
    sa, sb = a_strides[rank - 1], b_strides[rank - 1]
    for _ in range(rows_of(shape)):
        for i in range(inner):
            x, y = a[ao + i * sa], b[bo + i * sb]
            out[oo + i] = _power_int(x, y) if code == c.POW else _combine_int(x, y, code)
        oo += inner
        ao = next_row(index, shape, a_strides, ao)
        bo = next_row(index, shape, b_strides, bo)
        advance(index, shape)


@kernel(T=("float32", "int64", "int32", "bool"))
def compare(a: InT, b: InT, out: OutBool, code: int, shape: InI64, a_strides: InI64, b_strides: InI64) -> None:
    """Compute out = a ∘ b, a comparison of ``codes.COMPARE``; arguments as :data:`binary_f32`, ``out`` bool."""
    rank = shape.shape[0]
    inner = shape[rank - 1]
    index = zero_index()
    ao, bo, oo = 0, 0, 0
    sa, sb = a_strides[rank - 1], b_strides[rank - 1]
    for _ in range(rows_of(shape)):
        for i in range(inner):
            x, y = a[ao + i * sa], b[bo + i * sb]
            if code == c.EQUAL:
                out[oo + i] = x == y
            elif code == c.LESS:
                out[oo + i] = x < y
            elif code == c.LESS_EQUAL:
                out[oo + i] = x <= y
            elif code == c.GREATER:
                out[oo + i] = x > y
            else:
                out[oo + i] = x >= y
        oo += inner
        ao = next_row(index, shape, a_strides, ao)
        bo = next_row(index, shape, b_strides, bo)
        advance(index, shape)


@kernel
def logical(a: InBool, b: InBool, out: OutBool, code: int, shape: InI64, a_strides: InI64, b_strides: InI64) -> None:
    """Compute out = a ∘ b on bool, ``codes.LOGICAL``; arguments as :data:`binary_f32`."""
    rank = shape.shape[0]
    inner = shape[rank - 1]
    index = zero_index()
    ao, bo, oo = 0, 0, 0
    sa, sb = a_strides[rank - 1], b_strides[rank - 1]
    for _ in range(rows_of(shape)):
        for i in range(inner):
            x, y = a[ao + i * sa], b[bo + i * sb]
            if code == c.AND:
                out[oo + i] = x and y
            elif code == c.OR:
                out[oo + i] = x or y
            else:
                out[oo + i] = x != y
        oo += inner
        ao = next_row(index, shape, a_strides, ao)
        bo = next_row(index, shape, b_strides, bo)
        advance(index, shape)


@kernel(T=("uint8", "uint16", "uint32", "uint64"))
def where(condition: InBool, a: InT, b: InT, out: OutT, shape: InI64, c_strides: InI64, a_strides: InI64, b_strides: InI64) -> None:
    """Compute out = a where condition else b, with broadcasting; any element type through its unsigned view.

    Args:
        condition: bool operand, flat.
        a: taken where true.
        b: taken where false.
        out: result, contiguous in ``shape``.
        shape: merged shape of the result (:func:`broadcast_plan` of all three).
        c_strides: strides of ``condition`` in it.
        a_strides: strides of ``a``.
        b_strides: strides of ``b``.
    """
    rank = shape.shape[0]
    inner = shape[rank - 1]
    index = zero_index()
    co, ao, bo, oo = 0, 0, 0, 0
    sc, sa, sb = c_strides[rank - 1], a_strides[rank - 1], b_strides[rank - 1]
    for _ in range(rows_of(shape)):
        for i in range(inner):
            x, y = a[ao + i * sa], b[bo + i * sb]
            out[oo + i] = x if condition[co + i * sc] else y
        oo += inner
        co = next_row(index, shape, c_strides, co)
        ao = next_row(index, shape, a_strides, ao)
        bo = next_row(index, shape, b_strides, bo)
        advance(index, shape)
