"""Elementwise operators with numpy broadcasting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import Op
from hetsched.reference.element_types import element_type
from hetsched.small_types import bfloat16_bytes, decode

Array = npt.NDArray[Any]
Inputs = Sequence[Array | None]
Function = Callable[[Op, Inputs], list[Array]]


def given(op: Op, inputs: Inputs, i: int) -> Array:
    """Input ``i``, which must be there."""
    value = inputs[i] if i < len(inputs) else None
    if value is None:
        raise ValueError(f"input {i} of {op.name!r} ({op.type}) is missing")
    return value


def optional(inputs: Inputs, i: int) -> Array | None:
    """Input ``i``, or None where it is left out."""
    return inputs[i] if i < len(inputs) else None


def erf(x: Array) -> Array:
    """Gauss error function, element by element in float64."""
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x.astype(np.float64)), np.float64).astype(x.dtype)


def sigmoid(x: Array) -> Array:
    """Logistic function; the exponent is never positive, so that nothing overflows."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def gelu(x: Array, approximate: str) -> Array:
    """GELU, exact (``none``) or with the tanh approximation."""
    y = x.astype(np.float64)
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)
        return np.asarray(0.5 * y * (1 + np.tanh(inner)), x.dtype)
    return np.asarray(0.5 * y * (1 + erf(y / math.sqrt(2))), x.dtype)


def clip(x: Array, low: Array | float | None, high: Array | float | None) -> Array:
    """Limit to ``[low, high]``; a missing bound does nothing."""
    if low is not None:
        x = np.maximum(x, np.asarray(low, x.dtype))
    if high is not None:
        x = np.minimum(x, np.asarray(high, x.dtype))
    return x


def divide(a: Array, b: Array) -> Array:
    """Division; integers truncate toward zero as in ONNX."""
    if a.dtype.kind in "iu":
        safe = np.where(b == 0, 1, b).astype(a.dtype)
        quotient = np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe)) if a.dtype.kind == "i" else a // safe
        return np.asarray(quotient, a.dtype)
    return np.asarray(np.divide(a, b))


def activate(x: Array, kind: str, alpha: float, beta: float) -> Array:
    """The activation of a fused operator (see ``docs/operators.md`` for the kinds and their parameters).

    Raises:
        ValueError: the kind is unknown.
    """
    match kind:
        case "":
            return x
        case "Relu":
            return np.asarray(np.maximum(x, x.dtype.type(0)))
        case "Clip":
            return clip(x, alpha, beta)
        case "HardSwish":
            return (x * clip(x / 6 + 0.5, 0.0, 1.0)).astype(x.dtype)
        case "HardSigmoid":
            return clip(x * x.dtype.type(alpha) + x.dtype.type(beta), 0.0, 1.0)
        case "Sigmoid":
            return sigmoid(x)
        case "LeakyRelu":
            return np.asarray(np.where(x < 0, x * x.dtype.type(alpha), x))
        case "Gelu":
            return gelu(x, "tanh" if alpha else "none")
        case "Silu":
            return (x * sigmoid(x)).astype(x.dtype)
        case "Tanh":
            return np.asarray(np.tanh(x))
    raise ValueError(f"no activation is called {kind!r}")


def _unary(f: Callable[[Array], Any]) -> Function:
    def run(op: Op, x: Inputs) -> list[Array]:
        a = given(op, x, 0)
        return [np.asarray(f(a)).astype(a.dtype, copy=False)]

    return run


def _test(f: Callable[[Array], Any]) -> Function:
    return lambda op, x: [np.asarray(f(given(op, x, 0)), np.bool_)]


def _binary(f: Callable[[Array, Array], Any]) -> Function:
    return lambda op, x: [np.asarray(f(given(op, x, 0), given(op, x, 1)))]


def _variadic(f: Callable[[Array, Array], Any]) -> Function:
    return lambda op, x: [np.asarray(functools.reduce(f, [given(op, x, i) for i in range(len(x))]))]


def _activation(kind: str, alpha: float = 0.0, beta: float = 0.0) -> Function:
    def run(op: Op, x: Inputs) -> list[Array]:
        return [activate(given(op, x, 0), kind, op.attr_float("alpha", alpha), op.attr_float("beta", beta))]

    return run


def _clip(op: Op, x: Inputs) -> list[Array]:
    return [clip(given(op, x, 0), optional(x, 1), optional(x, 2))]


def _cast(op: Op, x: Inputs) -> list[Array]:
    target = element_type(op.attr_int("to", 0), f"the target of node {op.name!r}")
    a = given(op, x, 0)
    if target.value == "bf16":  # held as float32 of that precision
        return [decode(bfloat16_bytes(a), "bf16", a.size).reshape(a.shape)]
    with np.errstate(invalid="ignore", over="ignore"):
        return [a.astype(target.numpy)]


def _is_inf(op: Op, x: Inputs) -> list[Array]:
    a = given(op, x, 0)
    up, down = (bool(op.attr_int(f"detect_{sign}", 1)) for sign in ("positive", "negative"))
    return [np.isinf(a) & (((a > 0) & up) | ((a < 0) & down))]


def _power(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.power(a, b).astype(a.dtype)


def _mod(op: Op, x: Inputs) -> list[Array]:
    a, b = given(op, x, 0), given(op, x, 1)
    return [np.fmod(a, b) if op.attr_int("fmod", 0) else np.mod(a, b)]


def _bit_shift(op: Op, x: Inputs) -> list[Array]:
    shift = np.right_shift if op.attr_str("direction", "") == "RIGHT" else np.left_shift
    return [np.asarray(shift(given(op, x, 0), given(op, x, 1)))]


def _elu(op: Op, x: Inputs) -> list[Array]:
    a = given(op, x, 0)
    return [np.where(a < 0, a.dtype.type(op.attr_float("alpha", 1.0)) * np.expm1(np.minimum(a, 0)), a).astype(a.dtype)]


def _prelu(op: Op, x: Inputs) -> list[Array]:
    a = given(op, x, 0)
    return [np.where(a < 0, a * given(op, x, 1), a).astype(a.dtype)]


def _mean(op: Op, x: Inputs) -> list[Array]:
    total = functools.reduce(np.add, [given(op, x, i) for i in range(len(x))])
    return [(total / len(x)).astype(total.dtype)]


def _thresholded(op: Op, inputs: Inputs) -> list[Array]:
    x = given(op, inputs, 0)
    return [np.where(x > op.attr_float("alpha", 1.0), x, 0).astype(x.dtype)]


OPS: dict[str, Function] = {
    "Abs": _unary(np.abs), "Neg": _unary(np.negative), "Sqrt": _unary(np.sqrt), "Exp": _unary(np.exp), "Log": _unary(np.log),
    "Erf": _unary(erf), "Tanh": _unary(np.tanh), "Sigmoid": _unary(sigmoid), "Reciprocal": _unary(lambda a: 1 / a),
    "Floor": _unary(np.floor), "Ceil": _unary(np.ceil), "Round": _unary(np.rint), "Sign": _unary(np.sign), "Sin": _unary(np.sin),
    "Cos": _unary(np.cos), "Tan": _unary(np.tan), "Atan": _unary(np.arctan), "Softsign": _unary(lambda a: a / (1 + np.abs(a))),
    "ThresholdedRelu": _thresholded,
    "Softplus": _unary(lambda a: np.logaddexp(a, 0)), "Mish": _unary(lambda a: a * np.tanh(np.logaddexp(a, 0))),
    "Not": _test(np.logical_not), "IsNaN": _test(np.isnan), "IsInf": _is_inf,
    "Add": _binary(np.add), "Sub": _binary(np.subtract), "Mul": _binary(np.multiply), "Div": _binary(divide), "Pow": _binary(_power),
    "Equal": _binary(np.equal), "Less": _binary(np.less), "Greater": _binary(np.greater), "LessOrEqual": _binary(np.less_equal),
    "GreaterOrEqual": _binary(np.greater_equal), "And": _binary(np.logical_and), "Or": _binary(np.logical_or),
    "Xor": _binary(np.logical_xor), "Max": _variadic(np.maximum), "Min": _variadic(np.minimum), "Sum": _variadic(np.add),
    "Mean": _mean, "Mod": _mod, "Clip": _clip, "Cast": _cast, "Elu": _elu, "PRelu": _prelu,
    "Relu": _activation("Relu"), "HardSwish": _activation("HardSwish"), "HardSigmoid": _activation("HardSigmoid", 0.2, 0.5),
    "LeakyRelu": _activation("LeakyRelu", 0.01), "Silu": _activation("Silu"),
    "Gelu": lambda op, x: [gelu(given(op, x, 0), op.attr_str("approximate", "none"))],
    "BitShift": _bit_shift, "BitwiseAnd": _binary(np.bitwise_and), "BitwiseOr": _binary(np.bitwise_or),
    "BitwiseXor": _binary(np.bitwise_xor), "BitwiseNot": _unary(np.bitwise_not),
    "Where": lambda op, x: [np.where(given(op, x, 0), given(op, x, 1), given(op, x, 2))],
}  # fmt: skip
