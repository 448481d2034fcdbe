"""Twins of the elementwise kernels, normalisations, softmax, reductions and quantizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from hetsched_kernels import binary, cast, chain, codes, elementwise, norm, quantize, reduce, softmax
from hetsched_kernels.arrays import Array
from hetsched_kernels.broadcast import broadcast_plan
from hetsched_kernels.comparison import Comparison, Draw, flat, floats, poisoned

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(v: Array) -> Any:
    return 1 / (1 + np.exp(-v))


def _gelu_tanh(v: Array) -> Any:
    return 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


def _softplus(v: Array) -> Any:
    return np.logaddexp(0.0, v)


#: Float64 twins; alpha is 0.3 and beta 0.6.
_UNARY: dict[str, Callable[[Array], Array]] = {
    "Relu": lambda v: np.maximum(v, 0), "Clip": lambda v: np.clip(v, np.float32(0.3), np.float32(0.6)),
    "HardSwish": lambda v: v * np.clip(v / 6 + 0.5, 0, 1), "HardSigmoid": lambda v: np.clip(0.3 * v + 0.6, 0, 1), "Sigmoid": _sigmoid,
    "LeakyRelu": lambda v: np.where(v < 0, 0.3 * v, v), "Gelu": lambda v: 0.5 * v * (1 + _erf(v / math.sqrt(2))), "GeluTanh": _gelu_tanh,
    "Silu": lambda v: v * _sigmoid(v), "Tanh": np.tanh, "Erf": _erf, "Exp": np.exp, "Log": lambda v: np.log(v),
    "Sqrt": lambda v: np.sqrt(v),
    "Neg": np.negative, "Abs": np.abs, "Reciprocal": lambda v: 1 / v, "Elu": lambda v: np.where(v < 0, 0.3 * np.expm1(v), v),
    "Softplus": _softplus, "Sin": np.sin, "Cos": np.cos, "Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Sign": np.sign,
    "Mish": lambda v: v * np.tanh(_softplus(v)), "Identity": lambda v: v,
}  # fmt: skip


def _unary(name: str, draw: Draw) -> tuple[Array, Array]:
    x = floats(draw, draw.integer(0, 3000), scale=float(draw.choice([0.01, 1.0, 8.0])))
    x = np.concatenate([x, np.array([0.0, -0.0, 1.0, -1.0, 0.625, 20.0, -20.0, np.nan], np.float32)])
    out = x.copy() if draw.choice([True, False]) else poisoned(x.size)
    elementwise.unary_f32(out if np.array_equal(out, x, equal_nan=True) else x, out, codes.UNARY[name], 0.3, 0.6)
    with np.errstate(all="ignore"):
        return out, _UNARY[name](x.astype(np.float64))


_SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((4, 5), (4, 5)), ((2, 3, 4, 5), (1, 3, 1, 1)), ((7,), ()), ((), ()), ((4, 1, 3), (1, 5, 3)), ((5, 1), (1, 6)), ((2100,), (1,)),
    ((3, 1, 2), (3, 4, 1)), ((0, 3), (3,)), ((6, 1025), (1025,)),
)  # fmt: skip

_FLOAT_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum, "Mod": np.mod,
    "FMod": np.fmod, "Pow": np.power, "PRelu": lambda a, b: np.where(a < 0, a * b, a), "RSub": lambda a, b: b - a, "RDiv": lambda a,
    b: b / a,
}  # fmt: skip


def _operands(draw: Draw, dtype: Any) -> tuple[Array, Array, tuple[Any, ...]]:
    shapes = draw.choice(_SHAPES)
    first, second = shapes if draw.choice([True, False]) else shapes[::-1]
    a, b = (floats(draw, *s, scale=9.0) for s in (first, second))
    shape, strides = broadcast_plan(first, second)
    return a.astype(dtype), b.astype(dtype), (shape, *strides)


def _binary_f32(name: str, draw: Draw) -> tuple[Array, Array]:
    a, b, plan = _operands(draw, np.float32)
    if name == "Pow":
        a, b = np.abs(a), np.full_like(b, draw.choice([2.0, 0.5, 3.0, -1.3]))
    expected = _FLOAT_BINARY[name](a, b)
    in_place = a.shape == expected.shape and draw.choice([True, False])
    left = flat(a).copy()
    out = left if in_place else poisoned(expected.size)
    binary.binary_f32(left, flat(b), out, codes.BINARY[name], *plan)
    return out.reshape(expected.shape), expected


def _truncated(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, (np.abs(a) // np.maximum(np.abs(b), 1)) * np.sign(a) * np.sign(b))


_INT_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": _truncated, "Max": np.maximum, "Min": np.minimum,
    "Mod": lambda a, b: np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))), "RSub": lambda a, b: b - a,
}  # fmt: skip


def _binary_int(draw: Draw) -> tuple[Array, Array]:
    a, b, plan = _operands(draw, draw.choice([np.int64, np.int32]))
    name = draw.choice(sorted(_INT_BINARY))
    expected = _INT_BINARY[name](a, b)
    out = poisoned(expected.size, a.dtype)
    binary.binary_int(flat(a), flat(b), out, codes.BINARY[name], *plan)
    return out.reshape(expected.shape), expected


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Equal": np.equal, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal,
}  # fmt: skip


def _compare(draw: Draw) -> tuple[Array, Array]:
    a, b, plan = _operands(draw, draw.choice([np.float32, np.int64]))
    name = draw.choice(sorted(_COMPARE))
    expected = _COMPARE[name](a, b)
    out = np.zeros(expected.size, np.bool_)
    binary.compare(flat(a), flat(b), out, codes.COMPARE[name], *plan)
    return out.reshape(expected.shape), expected


def _logical(draw: Draw) -> tuple[Array, Array]:
    a, b, plan = _operands(draw, np.int64)
    a, b = a > 0, b > 0
    name, function = draw.choice([("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor)])
    out = np.zeros(function(a, b).size, np.bool_)
    binary.logical(flat(a), flat(b), out, codes.LOGICAL[name], *plan)
    return out.reshape(function(a, b).shape), function(a, b)


def _where(draw: Draw) -> tuple[Array, Array]:
    first, second = draw.choice(_SHAPES)
    condition, a, b = floats(draw, *first) > 0, floats(draw, *second), floats(draw, 1)
    shape, strides = broadcast_plan(first, second, (1,))
    expected = np.where(condition, a, b)
    out = poisoned(expected.size)
    binary.where(flat(condition), flat(a).view(np.uint32), b.view(np.uint32), out.view(np.uint32), shape, *strides)
    return out.reshape(expected.shape), expected


def _cast(draw: Draw) -> tuple[Array, Array]:
    source = draw.choice([np.float32, np.int64, np.int32, np.bool_, np.uint8, np.int8])
    target = draw.choice([np.float32, np.int64, np.int32, np.bool_, np.uint8, np.int8])
    x: Array = np.abs(floats(draw, draw.integer(0, 200), scale=40.0)).clip(0, 120).astype(source)
    out: Array = np.zeros(x.size, target)
    cast.cast(x, out)
    return out, x.astype(target)


def _half(draw: Draw) -> tuple[Array, Array]:
    x = floats(draw, draw.integer(0, 200), scale=float(draw.choice([1e-7, 1.0, 1e4])))
    bits, back = poisoned(x.size, np.uint16), poisoned(x.size)
    cast.f32_to_f16(x, bits)
    cast.f16_to_f32(bits, back)
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    return np.concatenate([bits.view(np.float16).astype(np.float32), back]), np.concatenate([expected, expected]).astype(np.float32)


def _chain(draw: Draw) -> tuple[Array, Array]:
    shape = draw.choice([(2, 3, 5, 7), (1, 8, 33, 41), (4, 1, 1, 1), (1, 2, 1500, 1)])
    x, per_channel, scalar, row = floats(draw, *shape), floats(draw, 1, shape[1], 1, 1), floats(draw), floats(draw, shape[3])
    inputs = [x, per_channel, scalar, row]
    operands = [chain.operand_of(v.shape, shape) for v in inputs]
    steps = [
        chain.Step(codes.ADD, (0, 1)), chain.Step(codes.TANH, (4,)), chain.Step(codes.MUL, (5, 2)), chain.Step(codes.SUB, (3, 6)),
        chain.Step(codes.MUL, (7, 7)), chain.Step(codes.ADD, (8, 5)), chain.Step(codes.CLIP, (9,), -0.5, 2.0),
    ]  # fmt: skip
    program = chain.compile_chain(steps, [o for o in operands if o is not None])
    arrays = [flat(v).copy() for v in inputs]
    out = arrays[0] if draw.choice([True, False]) else poisoned(x.size)
    chain.chain_f32(program.program, program.parameters, chain.addresses(arrays), out, poisoned(program.scratch))
    t = np.tanh(x.astype(np.float64) + per_channel)
    return out.reshape(shape), np.clip((row - t * scalar) ** 2 + t, -0.5, 2.0)


def _soft(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    soft: Array = e / e.sum(axis, keepdims=True)
    return soft


def _softmax(draw: Draw) -> tuple[Array, Array]:
    shape = (draw.integer(1, 3), draw.integer(1, 3), draw.integer(1, 4), draw.integer(1, 70))
    x = floats(draw, *shape, scale=4.0)
    mask_shape = draw.choice([(), (shape[0], 1, 1, shape[3]), shape, (shape[2], 1)])
    mask = floats(draw, *mask_shape)
    out = flat(x).copy()
    plan = softmax.mask_plan(mask_shape, shape)
    softmax.softmax_f32(out, flat(mask), out, x.size // shape[3], shape[3], 0.3, plan)
    return out.reshape(shape), _soft(x.astype(np.float64) * 0.3 + mask, -1)


def _softmax_axis(draw: Draw) -> tuple[Array, Array]:
    outer, axis, inner = draw.integer(1, 3), draw.integer(1, 20), draw.integer(1, 40)
    x = floats(draw, outer, axis, inner, scale=4.0)
    out = poisoned(x.size)
    softmax.softmax_axis_f32(flat(x), out, poisoned(2 * inner), outer, axis, inner, 0.5)
    return out.reshape(x.shape), _soft(x.astype(np.float64) * 0.5, 1)


def _log_softmax(draw: Draw) -> tuple[Array, Array]:
    x = floats(draw, draw.integer(1, 4), draw.integer(1, 70), scale=4.0)
    out = poisoned(x.size)
    softmax.log_softmax_f32(flat(x), out, *x.shape)
    return out.reshape(x.shape), np.log(_soft(x.astype(np.float64), -1))


def _layer_norm(draw: Draw) -> tuple[Array, Array]:
    rows, cols = draw.integer(1, 5), draw.integer(1, 100)
    x, scale, bias = floats(draw, rows, cols, scale=3.0) + 2, floats(draw, cols), floats(draw, draw.choice([0, cols]))
    out = flat(x).copy()
    norm.layer_norm_f32(out, scale, bias, out, rows, cols, 1e-3)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-3) * scale
    return out.reshape(rows, cols), expected + (bias if bias.size else 0)


def _rms_norm(draw: Draw) -> tuple[Array, Array]:
    rows, cols = draw.integer(1, 5), draw.integer(1, 100)
    x, scale = floats(draw, rows, cols, scale=3.0), floats(draw, cols)
    out = poisoned(x.size)
    norm.rms_norm_f32(flat(x), scale, out, rows, cols, 1e-3)
    return out.reshape(rows, cols), x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-3) * scale


def _batch_norm(draw: Draw) -> tuple[Array, Array]:
    outer, channels, inner = draw.integer(1, 2), draw.integer(1, 5), draw.integer(1, 70)
    x, scale, bias, mean = floats(draw, outer, channels, inner), *(floats(draw, channels) for _ in range(3))
    variance = np.abs(floats(draw, channels))
    out = poisoned(x.size)
    norm.batch_norm_f32(flat(x), scale, bias, mean, variance, out, outer, channels, inner, 1e-2)
    c = [v.astype(np.float64).reshape(1, -1, 1) for v in (scale, bias, mean, variance)]
    return out.reshape(x.shape), (x - c[2]) / np.sqrt(c[3] + 1e-2) * c[0] + c[1]


def _instance_norm(draw: Draw) -> tuple[Array, Array]:
    outer, channels, inner = draw.integer(1, 2), draw.integer(1, 5), draw.integer(2, 70)
    x, scale, bias = floats(draw, outer, channels, inner), floats(draw, channels), floats(draw, channels)
    out = poisoned(x.size)
    norm.instance_norm_f32(flat(x), scale, bias, out, outer, channels, inner, 1e-2)
    wide = x.astype(np.float64)
    value = (wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-2)
    return out.reshape(x.shape), value * scale.reshape(1, -1, 1) + bias.reshape(1, -1, 1)


def _log_sum_exp(x: Array, axis: tuple[int, ...]) -> Array:
    result: Array = np.log(np.exp(x).sum(axis=axis))
    return result


_REDUCE: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "ReduceSum": lambda x, axis: x.sum(axis=axis), "ReduceMean": lambda x, axis: x.mean(axis=axis), "ReduceMax": lambda x,
    axis: x.max(axis=axis),
    "ReduceMin": lambda x, axis: x.min(axis=axis), "ReduceProd": lambda x, axis: x.prod(axis=axis),
    "ReduceL1": lambda x, axis: np.abs(x).sum(axis=axis), "ReduceL2": lambda x, axis: np.sqrt((x * x).sum(axis=axis)),
    "ReduceSumSquare": lambda x, axis: (x * x).sum(axis=axis), "ReduceLogSumExp": _log_sum_exp,
}  # fmt: skip
_AXES: Sequence[tuple[int, ...]] = ((-1,), (0,), (1, 2), (0, 2), (0, 1, 2, 3), (1, 3), (2, 3))


def _reduce_f32(draw: Draw) -> tuple[Array, Array]:
    shape = (*(draw.integer(1, 4) for _ in range(3)), draw.integer(1, 40))
    x, axes, name = floats(draw, *shape), draw.choice(_AXES), draw.choice(sorted(_REDUCE))
    passes = reduce.reduce_plan(shape, axes)
    current = flat(x)
    for (outer, axis, inner), code in zip(passes, reduce.pass_codes(codes.REDUCE[name], len(passes)), strict=True):
        out = poisoned(outer * inner)
        reduce.reduce_f32(current, out, code, outer, axis, inner)
        current = out
    expected = np.asarray(_REDUCE[name](x.astype(np.float64), axes))
    return current.reshape(expected.shape), expected


def _reduce_int(draw: Draw) -> tuple[Array, Array]:
    outer, axis, inner = draw.integer(1, 3), draw.integer(1, 9), draw.integer(1, 5)
    x = floats(draw, outer, axis, inner, scale=5.0).astype(draw.choice([np.int64, np.int32]))
    name = draw.choice(["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"])
    out = poisoned(outer * inner, x.dtype)
    reduce.reduce_int(flat(x), out, codes.REDUCE[name], outer, axis, inner)
    return out.reshape(outer, inner), _REDUCE[name](x, (1,)).astype(x.dtype)


def _quantize_rows(draw: Draw) -> tuple[Array, Array]:
    rows, cols = draw.integer(1, 5), draw.integer(1, 90)
    symmetric, signed = draw.choice([True, False]), draw.choice([True, False])
    x = floats(draw, rows, cols, scale=float(draw.choice([0.0, 1.0, 50.0])))
    out, scales, zeros = poisoned(x.size, np.uint8), poisoned(rows), poisoned(rows, np.int32)
    quantize.quantize_rows(flat(x), out, scales, zeros, rows, cols, symmetric, signed)
    got = (out.view(np.int8 if signed else np.uint8).reshape(rows, cols).astype(np.float64) - zeros.reshape(-1, 1)) * scales.reshape(-1, 1)
    span = np.abs(x).max(1) * 2 if symmetric else np.maximum(x.max(1), 0) - np.minimum(x.min(1), 0)
    step = span / (254 if symmetric else 255)
    return np.abs(got - x) <= step.reshape(-1, 1) * 0.5001 + 1e-12, np.ones(x.shape, np.bool_)


def _quantize_linear(draw: Draw) -> tuple[Array, Array]:
    outer, channels, inner = draw.integer(1, 3), draw.integer(1, 4), draw.integer(1, 50)
    signed = draw.choice([True, False])
    x = floats(draw, outer, channels, inner, scale=10.0)
    x.reshape(-1)[0] = draw.choice([np.inf, -np.inf, 1e30, 0.0])
    scales, zeros = (draw.rng.random(channels) * 0.2 + 0.01).astype(np.float32), draw.rng.integers(-9, 9, channels).astype(np.int32)
    out = poisoned(x.size, np.uint8)
    quantize.quantize_linear(flat(x), out, scales, zeros, outer, channels, inner, signed)
    low = -128 if signed else 0
    with np.errstate(over="ignore"):
        expected = np.clip(np.rint(x / scales.reshape(1, -1, 1)) + zeros.reshape(1, -1, 1), low, low + 255)
    return out.view(np.int8 if signed else np.uint8).reshape(x.shape), expected.astype(np.int8 if signed else np.uint8)


def _dequantize_linear(draw: Draw) -> tuple[Array, Array]:
    outer, channels, inner = draw.integer(1, 3), draw.integer(1, 4), draw.integer(1, 50)
    x = floats(draw, outer, channels, inner, scale=20.0).astype(draw.choice([np.int8, np.int32, np.int16]))
    scales, zeros = floats(draw, channels), draw.rng.integers(-9, 9, channels).astype(np.int32)
    out = poisoned(x.size)
    quantize.dequantize_linear(flat(x), out, scales, zeros, outer, channels, inner)
    return out.reshape(x.shape), (x.astype(np.int32) - zeros.reshape(1, -1, 1)).astype(np.float32) * scales.reshape(1, -1, 1)


TABLE = [
    *(Comparison(f"unary_f32 {name}", partial(_unary, name), 4e-7, 5e-7) for name in sorted(_UNARY)),
    *(Comparison(f"binary_f32 {name}", partial(_binary_f32, name), 1e-6, 1e-5 if "Mod" in name else 0.0) for name in sorted(_FLOAT_BINARY)),
    Comparison("binary_int", _binary_int), Comparison("compare", _compare), Comparison("logical", _logical), Comparison("where", _where),
    Comparison("cast", _cast), Comparison("f16", _half), Comparison("chain_f32", _chain, 1e-5, 1e-5),
    Comparison("softmax_f32", _softmax, 1e-6, 1e-7), Comparison("softmax_axis_f32", _softmax_axis, 1e-6, 1e-7),
    Comparison("log_softmax_f32", _log_softmax, 1e-6, 1e-5), Comparison("layer_norm_f32", _layer_norm, 1e-5, 1e-4),
    Comparison("rms_norm_f32", _rms_norm, 1e-5, 1e-5), Comparison("batch_norm_f32", _batch_norm, 1e-5, 1e-5),
    Comparison("instance_norm_f32", _instance_norm, 1e-5, 1e-4), Comparison("reduce_f32", _reduce_f32, 1e-5, 1e-5),
    Comparison("reduce_int", _reduce_int), Comparison("quantize_rows", _quantize_rows), Comparison("quantize_linear", _quantize_linear),
    Comparison("dequantize_linear", _dequantize_linear),
]  # fmt: skip
