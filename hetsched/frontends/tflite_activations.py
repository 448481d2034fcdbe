"""Operators of one tensor, element by element, and the activations that others have built in."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hetsched.frontends.tflite_builder import NCHW, Attrs, Builder, Stage
from hetsched.frontends.tflite_model import Stored

Lower = Callable[[Builder], None]

_PLAIN = {
    "RELU": "Relu", "TANH": "Tanh", "LOGISTIC": "Sigmoid", "HARD_SWISH": "HardSwish", "ELU": "Elu", "ABS": "Abs", "NEG": "Neg",
    "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "SIN": "Sin", "COS": "Cos", "FLOOR": "Floor", "CEIL": "Ceil", "ROUND": "Round",
    "SIGN": "Sign", "LOGICAL_NOT": "Not",
}  # fmt: skip
_CLIPS = {"RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}


def stages(b: Builder, activation: str) -> list[Stage]:
    """The operator that an activation is, to follow another: type, inputs after the first, attributes."""
    if not activation:
        return []
    if activation in _CLIPS:
        low, high = _CLIPS[activation]
        return [("Clip", (b.scalar(low), b.scalar(high)), {})]
    return [(_PLAIN[activation], (), {})]


def is_implied(activation: str, stored: Stored) -> bool:
    """Whether the quantization of a result cannot say anything that its activation would take away."""
    bounds = {"RELU": (0.0, math.inf), **_CLIPS}.get(activation)
    if bounds is None or len(stored.scales) != 1:
        return False
    low, high = bounds
    scale, zero, info = stored.scales[0], stored.zero_points[0], np.iinfo(stored.element_type().numpy)
    return bool(round(low / scale) + zero <= info.min and (math.isinf(high) or round(high / scale) + zero >= info.max))


def elementwise(kind: str, attrs: Callable[[Builder], Attrs] = lambda b: {}) -> Lower:
    """The lowering of an operator of one tensor, in whatever order its axes are."""

    def lower(b: Builder) -> None:
        x = b.value(0)
        b.write(kind, (b.real(x, x.order),), attrs(b), order=x.order)

    return lower


def _clip(name: str) -> Lower:
    def lower(b: Builder) -> None:
        x = b.value(0)
        low, high = _CLIPS[name]
        b.write("Clip", (b.real(x, x.order), b.scalar(low), b.scalar(high)), order=x.order)

    return lower


def _square(b: Builder) -> None:
    x = b.value(0)
    real = b.real(x, x.order)
    b.write("Mul", (real, real), order=x.order)


def _rsqrt(b: Builder) -> None:
    x = b.value(0)
    b.write("Reciprocal", (b.emit("Sqrt", (b.real(x, x.order),), "sqrt"),), order=x.order)


def _cast(b: Builder) -> None:
    from hetsched.reference.element_types import NUMBER_OF

    x, target = b.value(0), b.result()
    b.write("Cast", (b.raw(x, x.order),), {"to": NUMBER_OF[target.element_type()]}, order=x.order, raw=True)


def _dequantize(b: Builder) -> None:
    from hetsched.reference.element_types import NUMBER_OF

    x = b.value(0)
    name, tensor = b.raw(x, x.order), b.tensors[x.name]
    if tensor.quantization is None:
        if not tensor.dtype.is_float:
            raise b.bad(f"its input {tensor.name!r} has no scale")
        b.write("Cast", (name,), {"to": NUMBER_OF[b.result().element_type()]}, order=x.order)
        return
    q = tensor.quantization
    zero = () if q.zero_point is None else (q.zero_point,)
    b.write("DequantizeLinear", (name, q.scale, *zero), {} if q.axis is None else {"axis": q.axis}, order=x.order)


def _quantize(b: Builder) -> None:
    x = b.value(0)
    b.quantize(b.real(x, x.order), b.result(), x.order)


def _softmax(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        x = b.value(0)
        if not x.order:
            raise b.bad("its input has no axes")
        real = b.real(x, x.order)
        beta = b.option_float("beta") if kind == "Softmax" else 1.0
        if beta != 1.0:
            real = b.emit("Mul", (real, b.scalar(beta)), "scaled")
        b.write(kind, (real,), {"axis": x.axis(len(x.order) - 1)}, order=x.order)

    return lower


def _prelu(b: Builder) -> None:
    x = b.value(0)
    b.write("PRelu", (b.real(x, x.order), b.dequantized(b.like(1, x))), order=x.order)


def _l2_normalization(b: Builder) -> None:
    """``x / max(sqrt(sum(x^2)), 1e-6)`` along the last axis."""
    x = b.value(0)
    if not x.order:
        raise b.bad("its input has no axes")
    real = b.real(x, x.order)
    norm = b.emit("ReduceL2", (real, b.ints("axes", [x.axis(len(x.order) - 1)])), "norm", {"keepdims": 1})
    b.write("Div", (real, b.emit("Max", (norm, b.scalar(1e-6)), "bounded")), order=x.order, activation=b.activation)


def _lrn(b: Builder) -> None:
    """``x / (bias + alpha * sum over 2 radius + 1 channels of x^2)^beta``; ONNX divides alpha by that number."""
    size = 2 * b.option("radius") + 1
    if not 0 < size < 1 << 16:
        raise b.bad(f"its window is {size} channels")
    attrs = {"size": size, "alpha": b.option_float("alpha") * size, "beta": b.option_float("beta"), "bias": b.option_float("bias")}
    b.write("LRN", (b.real(b.value(0), NCHW),), attrs, order=NCHW)


LOWERINGS: dict[str, Lower] = {
    **{name: elementwise(kind) for name, kind in _PLAIN.items()},
    **{name: _clip(name) for name in _CLIPS},
    "LEAKY_RELU": elementwise("LeakyRelu", lambda b: {"alpha": b.option_float("alpha")}),
    "GELU": elementwise("Gelu", lambda b: {"approximate": "tanh" if b.option("approximate") else "none"}),
    "SQUARE": _square,
    "RSQRT": _rsqrt,
    "CAST": _cast,
    "DEQUANTIZE": _dequantize,
    "QUANTIZE": _quantize,
    "SOFTMAX": _softmax("Softmax"),
    "LOG_SOFTMAX": _softmax("LogSoftmax"),
    "PRELU": _prelu,
    "L2_NORMALIZATION": _l2_normalization,
    "LOCAL_RESPONSE_NORMALIZATION": _lrn,
}
