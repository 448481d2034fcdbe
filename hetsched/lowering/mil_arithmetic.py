"""MIL operations for arithmetic, functions of one tensor, comparisons and reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Op
from hetsched.lowering.mil import Lowering, MilBuild

_BINARY: Mapping[str, str] = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "real_div", "Pow": "pow", "Max": "maximum", "Min": "minimum", "Mod": "mod",
    "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal",
    "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor",
}  # fmt: skip
_UNARY: Mapping[str, str] = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Erf": "erf", "Sqrt": "sqrt", "Exp": "exp", "Abs": "abs", "Sin": "sin",
    "Cos": "cos", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sign": "sign", "Softsign": "softsign", "Not": "logical_not",
    "Identity": "identity", "Softplus": "softplus",
}  # fmt: skip
_REDUCE: Mapping[str, str] = {
    "ReduceMean": "reduce_mean", "ReduceSum": "reduce_sum", "ReduceMax": "reduce_max", "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod", "ReduceL2": "reduce_l2_norm", "ReduceL1": "reduce_l1_norm", "ReduceSumSquare": "reduce_sum_square",
}  # fmt: skip
_CASTS: Mapping[int, str] = {1: "fp32", 10: "fp16", 6: "int32", 7: "int32", 9: "bool"}


def _mb() -> Any:
    from coremltools.converters.mil import Builder

    return Builder


def _binary(operation: str, b: MilBuild, op: Op) -> Sequence[Any]:
    out = b.read(op.inputs[0])
    for name in op.inputs[1:]:
        out = getattr(_mb(), operation)(x=out, y=b.read(name))
    return [out]


def _unary(operation: str, b: MilBuild, op: Op) -> Sequence[Any]:
    return [getattr(_mb(), operation)(x=b.read(op.inputs[0]))]


def _reduce(operation: str, b: MilBuild, op: Op) -> Sequence[Any]:
    axes = b.optional(op, 1)
    named = tuple(int(a) for a in b.constant(axes)) if axes else op.attr_ints("axes", ())
    rank = len(b.shape(op.inputs[0]))
    if not named and op.attr_int("noop_with_empty_axes", 0):
        return [_mb().identity(x=b.read(op.inputs[0]))]
    keep = bool(op.attr_int("keepdims", 1))
    return [getattr(_mb(), operation)(x=b.read(op.inputs[0]), axes=list(named or range(rank)), keep_dims=keep)]


def _neg(b: MilBuild, op: Op) -> Sequence[Any]:
    return [_mb().mul(x=b.read(op.inputs[0]), y=np.float32(-1))]


def _log(b: MilBuild, op: Op) -> Sequence[Any]:
    return [_mb().log(x=b.read(op.inputs[0]), epsilon=np.float32(0))]


def _reciprocal(b: MilBuild, op: Op) -> Sequence[Any]:
    return [_mb().real_div(x=np.float32(1), y=b.read(op.inputs[0]))]


def _clip(b: MilBuild, op: Op) -> Sequence[Any]:
    least, most = (b.optional(op, i) for i in (1, 2))
    low = float(b.constant(least).item()) if least else op.attr_float("min", float("-inf"))
    high = float(b.constant(most).item()) if most else op.attr_float("max", float("inf"))
    x = b.read(op.inputs[0])
    if low == 0 and high == float("inf"):
        return [_mb().relu(x=x)]
    if low == 0 and high == 6:
        return [_mb().relu6(x=x)]
    largest = float(np.finfo(np.float16).max)
    return [_mb().clip(x=x, alpha=np.float32(max(low, -largest)), beta=np.float32(min(high, largest)))]


def _leaky(b: MilBuild, op: Op) -> Sequence[Any]:
    return [_mb().leaky_relu(x=b.read(op.inputs[0]), alpha=np.float32(op.attr_float("alpha", 0.01)))]


def _elu(b: MilBuild, op: Op) -> Sequence[Any]:
    return [_mb().elu(x=b.read(op.inputs[0]), alpha=np.float32(op.attr_float("alpha", 1.0)))]


def _prelu(b: MilBuild, op: Op) -> Sequence[Any]:
    x, slope = b.read(op.inputs[0]), b.constant(op.inputs[1])
    negative = _mb().mul(x=_mb().minimum(x=x, y=np.float32(0)), y=slope)
    return [_mb().add(x=_mb().relu(x=x), y=negative)]


def _hard_sigmoid(b: MilBuild, op: Op) -> Sequence[Any]:
    slope, shift = np.float32(op.attr_float("alpha", 0.2)), np.float32(op.attr_float("beta", 0.5))
    return [_mb().sigmoid_hard(x=b.read(op.inputs[0]), alpha=slope, beta=shift)]


def _hard_swish(b: MilBuild, op: Op) -> Sequence[Any]:
    x = b.read(op.inputs[0])
    return [_mb().mul(x=x, y=_mb().sigmoid_hard(x=x, alpha=np.float32(1 / 6), beta=np.float32(0.5)))]


def _silu(b: MilBuild, op: Op) -> Sequence[Any]:
    x = b.read(op.inputs[0])
    scaled = _mb().mul(x=x, y=np.float32(op.attr_float("alpha", 1.0)))
    return [_mb().mul(x=x, y=_mb().sigmoid(x=scaled))]


def _gelu(b: MilBuild, op: Op) -> Sequence[Any]:
    fast = op.type == "FastGelu" or op.attr_str("approximate", "none") == "tanh"
    x = b.read(op.inputs[0])
    if b.optional(op, 1):
        x = _mb().add(x=x, y=b.read(op.inputs[1]))
    return [_mb().gelu(x=x, mode="TANH_APPROXIMATION" if fast else "EXACT")]


def _softmax(b: MilBuild, op: Op) -> Sequence[Any]:
    return [_mb().softmax(x=b.read(op.inputs[0]), axis=op.attr_int("axis", -1))]


def _where(b: MilBuild, op: Op) -> Sequence[Any]:
    condition, x, y = (b.read(n) for n in op.inputs)
    return [_mb().select(cond=condition, a=x, b=y)]


def _cast(b: MilBuild, op: Op) -> Sequence[Any]:
    to = op.attr_int("to", 1)
    if to not in _CASTS:
        raise UnsupportedModelError(f"Core ML has no cast to ONNX's element type {to}")
    return [_mb().cast(x=b.read(op.inputs[0]), dtype=_CASTS[to])]


def _arg(operation: str, b: MilBuild, op: Op) -> Sequence[Any]:
    if op.attr_int("select_last_index", 0):
        raise UnsupportedModelError("Core ML gives the first index of equal values, and the last is asked for")
    keep = bool(op.attr_int("keepdims", 1))
    return [getattr(_mb(), operation)(x=b.read(op.inputs[0]), axis=op.attr_int("axis", 0), keep_dims=keep)]


LOWERINGS: Mapping[str, Lowering] = {
    **{name: partial(_binary, operation) for name, operation in _BINARY.items()},
    **{name: partial(_unary, operation) for name, operation in _UNARY.items()},
    **{name: partial(_reduce, operation) for name, operation in _REDUCE.items()},
    "Neg": _neg, "Log": _log, "Reciprocal": _reciprocal, "Clip": _clip, "LeakyRelu": _leaky, "Elu": _elu, "PRelu": _prelu,
    "HardSigmoid": _hard_sigmoid, "HardSwish": _hard_swish, "Swish": _silu, "QuickGelu": _silu, "Gelu": _gelu, "FastGelu": _gelu,
    "Softmax": _softmax, "Where": _where, "Cast": _cast, "ArgMax": partial(_arg, "reduce_argmax"),
    "ArgMin": partial(_arg, "reduce_argmin"),
}  # fmt: skip
