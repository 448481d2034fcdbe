"""MIL operations for arithmetic, functions of one tensor, comparisons and reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Op
from hetsched.lowering.mil import Lowering, MilBuild, builder

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


def _binary(operation: str, b: MilBuild, op: Op) -> Sequence[Any]:
    if (op.type == "Div" and not _is_float(b, op.inputs[0])) or (op.type == "Mod" and op.attr_int("fmod", 0)):
        raise UnsupportedModelError("Core ML rounds quotients of integers, and takes the sign of remainders, in another way than ONNX")
    out = b.read(op.inputs[0])
    for name in op.inputs[1:]:
        other = b.read(name)
        if op.type == "Pow" and isinstance(other, np.ndarray) and _is_float(b, op.inputs[0]):
            other = other.astype(b.graph.tensors[op.inputs[0]].dtype.numpy)
        out = getattr(builder(), operation)(x=out, y=other)
    return [out]


def _is_float(b: MilBuild, name: str) -> bool:
    return b.graph.tensors[name].dtype.is_float


def _unary(operation: str, b: MilBuild, op: Op) -> Sequence[Any]:
    return [getattr(builder(), operation)(x=b.read(op.inputs[0]))]


def _reduce(operation: str, b: MilBuild, op: Op) -> Sequence[Any]:
    axes = b.optional(op, 1)
    named = tuple(b.whole(axes)) if axes else op.attr_ints("axes", ())
    rank = len(b.shape(op.inputs[0]))
    if not named and op.attr_int("noop_with_empty_axes", 0):
        return [builder().identity(x=b.read(op.inputs[0]))]
    keep = bool(op.attr_int("keepdims", 1))
    return [getattr(builder(), operation)(x=b.read(op.inputs[0]), axes=list(named or range(rank)), keep_dims=keep)]


def _neg(b: MilBuild, op: Op) -> Sequence[Any]:
    x = b.read(op.inputs[0])
    return [builder().mul(x=x, y=b.number(-1, x))]


def _log(b: MilBuild, op: Op) -> Sequence[Any]:
    x = b.read(op.inputs[0])
    return [builder().log(x=x, epsilon=b.number(0, x))]


def _reciprocal(b: MilBuild, op: Op) -> Sequence[Any]:
    x = b.read(op.inputs[0])
    return [builder().real_div(x=b.number(1, x), y=x)]


def _clip(b: MilBuild, op: Op) -> Sequence[Any]:
    least, most = (b.optional(op, i) for i in (1, 2))
    low = float(b.constant(least).item()) if least else op.attr_float("min", float("-inf"))
    high = float(b.constant(most).item()) if most else op.attr_float("max", float("inf"))
    x = b.read(op.inputs[0])
    if _is_float(b, op.inputs[0]) and low == 0 and high in {6, float("inf")}:
        return [builder().relu6(x=x) if high == 6 else builder().relu(x=x)]
    if low > float("-inf"):
        x = builder().maximum(x=x, y=b.number(low, x))
    if high < float("inf"):
        x = builder().minimum(x=x, y=b.number(high, x))
    return [x if low > float("-inf") or high < float("inf") else builder().identity(x=x)]


def _leaky(b: MilBuild, op: Op) -> Sequence[Any]:
    x = b.read(op.inputs[0])
    return [builder().leaky_relu(x=x, alpha=b.number(op.attr_float("alpha", 0.01), x))]


def _elu(b: MilBuild, op: Op) -> Sequence[Any]:
    x = b.read(op.inputs[0])
    return [builder().elu(x=x, alpha=b.number(op.attr_float("alpha", 1.0), x))]


def _prelu(b: MilBuild, op: Op) -> Sequence[Any]:
    x, slope = b.read(op.inputs[0]), b.constant(op.inputs[1])
    negative = builder().mul(x=builder().minimum(x=x, y=b.number(0, x)), y=slope)
    return [builder().add(x=builder().relu(x=x), y=negative)]


def _hard_sigmoid(b: MilBuild, op: Op) -> Sequence[Any]:
    x = b.read(op.inputs[0])
    slope, shift = b.number(op.attr_float("alpha", 0.2), x), b.number(op.attr_float("beta", 0.5), x)
    return [builder().sigmoid_hard(x=x, alpha=slope, beta=shift)]


def _hard_swish(b: MilBuild, op: Op) -> Sequence[Any]:
    x = b.read(op.inputs[0])
    return [builder().mul(x=x, y=builder().sigmoid_hard(x=x, alpha=b.number(1 / 6, x), beta=b.number(0.5, x)))]


def _silu(b: MilBuild, op: Op) -> Sequence[Any]:
    x = b.read(op.inputs[0])
    scaled = builder().mul(x=x, y=b.number(op.attr_float("alpha", 1.0), x))
    return [builder().mul(x=x, y=builder().sigmoid(x=scaled))]


def _gelu(b: MilBuild, op: Op) -> Sequence[Any]:
    fast = op.attr_str("approximate", "none") == "tanh"
    return [builder().gelu(x=b.read(op.inputs[0]), mode="TANH_APPROXIMATION" if fast else "EXACT")]


def _softmax(b: MilBuild, op: Op) -> Sequence[Any]:
    return [builder().softmax(x=b.read(op.inputs[0]), axis=op.attr_int("axis", -1))]


def _where(b: MilBuild, op: Op) -> Sequence[Any]:
    condition, x, y = (b.read(n) for n in op.inputs)
    return [builder().select(cond=condition, a=x, b=y)]


def _cast(b: MilBuild, op: Op) -> Sequence[Any]:
    to = op.attr_int("to", 1)
    if to not in _CASTS:
        raise UnsupportedModelError(f"Core ML has no cast to ONNX's element type {to}")
    return [builder().cast(x=b.read(op.inputs[0]), dtype=_CASTS[to])]


def _arg(operation: str, b: MilBuild, op: Op) -> Sequence[Any]:
    if op.attr_int("select_last_index", 0):
        raise UnsupportedModelError("Core ML gives the first index of equal values, and the last is asked for")
    keep = bool(op.attr_int("keepdims", 1))
    return [getattr(builder(), operation)(x=b.read(op.inputs[0]), axis=op.attr_int("axis", 0), keep_dims=keep)]


LOWERINGS: Mapping[str, Lowering] = {
    **{name: partial(_binary, operation) for name, operation in _BINARY.items()},
    **{name: partial(_unary, operation) for name, operation in _UNARY.items()},
    **{name: partial(_reduce, operation) for name, operation in _REDUCE.items()},
    "Neg": _neg, "Log": _log, "Reciprocal": _reciprocal, "Clip": _clip, "LeakyRelu": _leaky, "Elu": _elu, "PRelu": _prelu,
    "HardSigmoid": _hard_sigmoid, "HardSwish": _hard_swish, "Swish": _silu, "Gelu": _gelu,
    "Softmax": _softmax, "Where": _where, "Cast": _cast, "ArgMax": partial(_arg, "reduce_argmax"),
    "ArgMin": partial(_arg, "reduce_argmin"),
}  # fmt: skip
