"""One, two or three operands, element by element: functions, arithmetic, comparisons, logic, selection, casts."""

from __future__ import annotations

import numpy as np

from hetsched.errors import UnsupportedModelError
from hetsched.graph import DType, Op
from hetsched.runtime.lower.lowering import Array, Lowering, bits
from hetsched.runtime.lower.splitting import MANY, emit_elements
from hetsched.runtime.stored import absorbs
from hetsched_kernels import binary, broadcast, cast, codes, elementwise

#: Parameters that ONNX gives a function when its attributes are left out: (alpha, beta).
_DEFAULTS = {"HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01, 0.0), "Elu": (1.0, 0.0)}
_UNBOUNDED = float(np.finfo(np.float32).max)


def function_of(op: Op) -> tuple[int, float, float]:
    """Code and parameters of an op with one operand (``codes.UNARY``), Clip excepted."""
    kind = "GeluTanh" if op.type == "Gelu" and op.attr_str("approximate", "none") == "tanh" else op.type
    alpha, beta = _DEFAULTS.get(op.type, (0.0, 0.0))
    return codes.UNARY[kind], op.attr_float("alpha", alpha), op.attr_float("beta", beta)


def is_integer(low: Lowering, slot: int = 0) -> bool:
    """Whether an input holds integers that are numbers, not reals in disguise."""
    tensor = low.tensor(slot)
    return tensor.quantization is None and not tensor.dtype.is_float


def unary(low: Lowering) -> None:
    """Any function of ``codes.UNARY``."""
    code, alpha, beta = function_of(low.op)
    if is_integer(low):
        x = low.raw(0)
        low.emit(elementwise.unary_int, x, low.raw_output(), code, dtypes=(x.dtype,))
        return
    x, out = low.reals(0), low.real_output()
    emit_function(low, x, out, code, alpha, beta)


def emit_function(low: Lowering, x: Array, out: Array, code: int, alpha: float, beta: float) -> None:
    """A function of every element, in parts for each of the queue's threads."""
    low.emit_split(
        elementwise.unary_f32, x.size, MANY, lambda first, last: (x[first:last], out[first:last], code, alpha, beta)
    )  # fmt: skip


def clip_bounds(low: Lowering, op: Op) -> tuple[float, float]:
    """Clip's bounds, from its inputs or (before operator set 11) its attributes."""
    bounds = [op.attr_float("min", -_UNBOUNDED), op.attr_float("max", _UNBOUNDED)]
    for i in (1, 2):
        if len(op.inputs) > i and op.inputs[i]:
            tensor = low.graph.tensors[op.inputs[i]]
            if not tensor.is_constant:
                raise UnsupportedModelError(f"node {op.name!r} (Clip): its bound {tensor.name!r} must be a constant")
            bounds[i - 1] = float(tensor.numpy().reshape(()))
    return bounds[0], bounds[1]


def clip(low: Lowering) -> None:
    """Clip to constant bounds."""
    x, out = low.reals(0), low.real_output()
    emit_function(low, x, out, codes.UNARY["Clip"], *clip_bounds(low, low.op))


def emit_binary(
    low: Lowering, kind: str, a: Array, b: Array, out: Array, a_shape: tuple[int, ...], b_shape: tuple[int, ...], out_shape: tuple[int, ...]
) -> None:
    """``out = a kind b`` with broadcasting, for arrays of one type (float32, int64 or int32)."""
    shape, strides = broadcast.broadcast_plan(a_shape, b_shape, out_shape)
    kernel, dtypes = (binary.binary_f32, ()) if a.dtype == np.float32 else (binary.binary_int, (a.dtype,))
    emit_elements(low, kernel, (a, b), out, (codes.BINARY[kind],), shape, strides[:2], dtypes)


def arithmetic(low: Lowering) -> None:
    """Add, Sub, Mul, Div, Pow, Mod, PRelu, and Max and Min of any number of operands."""
    op = low.op
    kind = "FMod" if op.type == "Mod" and op.attr_int("fmod", 0) else op.type
    integer = is_integer(low)
    operands = [low.raw(i) if integer else low.reals(i) for i in range(len(op.inputs))]
    out = low.raw_output() if integer else low.real_output()
    shape = low.result_shape()
    if len(operands) == 1:
        kind, operands = "Max", operands * 2
    shapes = [low.shape(min(i, len(op.inputs) - 1)) for i in range(len(operands))]
    emit_binary(low, kind, operands[0], operands[1], out, shapes[0], shapes[1], shape)
    for operand, its in zip(operands[2:], shapes[2:], strict=True):
        emit_binary(low, kind, out, operand, out, shape, its, shape)


def comparison(low: Lowering) -> None:
    """Equal, Less, LessOrEqual, Greater, GreaterOrEqual."""
    integer = is_integer(low)
    a, b = (low.raw(i) if integer else low.reals(i) for i in (0, 1))
    shape, strides = broadcast.broadcast_plan(low.shape(0), low.shape(1))
    emit_elements(low, binary.compare, (a, b), low.raw_output(), (codes.COMPARE[low.op.type],), shape, strides, (a.dtype,))


def logic(low: Lowering) -> None:
    """And, Or, Xor."""
    shape, strides = broadcast.broadcast_plan(low.shape(0), low.shape(1))
    emit_elements(low, binary.logical, (low.raw(0), low.raw(1)), low.raw_output(), (codes.LOGICAL[low.op.type],), shape, strides)


def negation(low: Lowering) -> None:
    """Not."""
    low.emit(elementwise.logical_not, low.raw(0), low.raw_output())


def selection(low: Lowering) -> None:
    """Where, for elements of any type; stored integers that stand for different reals are compared as reals."""
    real = any(t.quantization is not None for t in (low.tensor(1), low.tensor(2), low.output()))
    a, b = (low.reals(i) if real else low.raw(i) for i in (1, 2))
    out = low.real_output() if real else low.raw_output()
    shape, strides = broadcast.broadcast_plan(low.shape(0), low.shape(1), low.shape(2))
    kind = bits(out).dtype
    emit_elements(low, binary.where, (low.raw(0), bits(a), bits(b)), bits(out), (), shape, strides, (kind,))


def conversion(low: Lowering) -> None:
    """Cast. float16 goes through float32; integers are cast as the reals that they stand for where the op holds their Q or DQ."""
    x = low.reals(0) if absorbs(low.op, low.op.inputs[0]) else low.raw(0)
    out = low.real_output() if absorbs(low.op, low.op.outputs[0]) else low.raw_output()
    if low.tensor(0).dtype is DType.F16:
        wide = out if out.dtype == np.float32 else low.scratch(x.size, np.float32)
        low.emit(cast.f16_to_f32, x.view(np.uint16), wide)
        x = wide
        if wide is out:
            return
    if low.output().dtype is DType.F16:
        narrow = x if x.dtype == np.float32 else low.scratch(x.size, np.float32)
        if narrow is not x:
            low.emit(cast.cast, x, narrow, dtypes=(x.dtype, narrow.dtype))
        low.emit(cast.f32_to_f16, narrow, out.view(np.uint16))
        return
    low.emit(cast.cast, x, out, dtypes=(x.dtype, out.dtype))
