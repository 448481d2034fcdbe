"""Elementwise operators of an exported program."""

from __future__ import annotations

import math
from collections.abc import Callable

from hetsched.frontends.lowering import Attrs
from hetsched.frontends.torch_builder import Builder
from hetsched.graph import DType

Lower = Callable[[Builder], None]


def _unary(kind: str, attrs: Attrs | None = None) -> Lower:
    def lower(b: Builder) -> None:
        x = b.tensor_of("self" if b.has("self") else "input")
        dtype = b.meta().dtype
        if kind not in {"Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Relu"}:  # of integers PyTorch computes floats
            x = b.cast(x, dtype)
        if not b.dtype(x).is_float and kind in {"Floor", "Ceil", "Round"}:
            b.alias(x)
            return
        b.put(kind, (x,), attrs)

    return lower


def _test(kind: str) -> Lower:
    return lambda b: b.put(kind, (b.cast(b.tensor_of("self"), DType.BOOL) if kind == "Not" else b.tensor_of("self"),))


def _binary(kind: str) -> Lower:
    """An arithmetic operator on the type of the result; ``alpha`` scales the second operand."""

    def lower(b: Builder) -> None:
        dtype = b.meta().dtype
        right = b.operand("other", dtype)
        if b.has("alpha") and b.number_of("alpha") != 1:
            right = b.emit("Mul", (right, b.number(b.number_of("alpha"), dtype)), what="scaled")
        b.put(kind, (b.operand("self", dtype), right))

    return lower


def _reversed_sub(b: Builder) -> None:
    dtype = b.meta().dtype
    left = b.operand("self", dtype)
    if b.has("alpha") and b.number_of("alpha") != 1:
        left = b.emit("Mul", (left, b.number(b.number_of("alpha"), dtype)), what="scaled")
    b.put("Sub", (b.operand("other", dtype), left))


def _div(b: Builder) -> None:
    mode, dtype = b.text_of("rounding_mode", ""), b.meta().dtype
    operands = b.operand("self", dtype), b.operand("other", dtype)
    if not mode:
        b.put("Div", operands)
        return
    _rounded_quotient(b, operands, dtype, "floor" if mode == "floor" else "trunc")


def _floor_divide(b: Builder) -> None:
    dtype = b.meta().dtype
    _rounded_quotient(b, (b.operand("self", dtype), b.operand("other", dtype)), dtype, "floor")


def _rounded_quotient(b: Builder, operands: tuple[str, str], dtype: DType, mode: str) -> None:
    if dtype.is_float:
        quotient = b.emit("Div", operands, what="quotient")
        if mode == "floor":
            b.put("Floor", (quotient,))
        else:
            _truncate(b, quotient)
        return
    if mode == "trunc":
        b.put("Div", operands)
        return
    rest = b.emit("Mod", operands, what="rest")  # of the divisor's sign, so that what is left divides downwards
    b.put("Div", (b.emit("Sub", (operands[0], rest), what="multiple"), operands[1]))


def _truncate(b: Builder, x: str) -> None:
    size = b.emit("Floor", (b.emit("Abs", (x,), what="size"),), what="whole")
    b.put("Mul", (b.emit("Sign", (x,), what="sign"), size))


def _remainder(b: Builder) -> None:
    dtype = b.meta().dtype
    left, right = b.operand("self", dtype), b.operand("other", dtype)
    if not dtype.is_float:
        b.put("Mod", (left, right))
        return
    whole = b.emit("Floor", (b.emit("Div", (left, right), what="quotient"),), what="whole")
    b.put("Sub", (left, b.emit("Mul", (whole, right), what="multiple")))


def _c_remainder(b: Builder) -> None:
    """Of the dividend's sign, as in C."""
    dtype = b.meta().dtype
    b.put("Mod", (b.operand("self", dtype), b.operand("other", dtype)), {"fmod": 1})


def _compare(kind: str, negated: bool = False) -> Lower:
    def lower(b: Builder) -> None:
        dtype = b.common("self", "other")
        operands = b.operand("self", dtype), b.operand("other", dtype)
        if negated:
            b.put("Not", (b.emit(kind, operands, what="same"),))
        else:
            b.put(kind, operands)

    return lower


def _logical(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        if b.meta().dtype is not DType.BOOL:
            raise b.unsupported("bits of integers are not supported")
        b.put(kind, (b.operand("self", DType.BOOL), b.operand("other", DType.BOOL)))

    return lower


def _bitwise_not(b: Builder) -> None:
    if b.meta().dtype is not DType.BOOL:
        raise b.unsupported("bits of integers are not supported")
    b.put("Not", (b.tensor_of("self"),))


def _power(b: Builder) -> None:
    dtype = b.meta().dtype
    if b.is_tensor("self") and not b.is_tensor("exponent") and b.number_of("exponent") == 0.5:
        b.put("Sqrt", (b.operand("self", dtype),))
        return
    b.put("Pow", (b.operand("self", dtype), b.operand("exponent", dtype)))


def _clamp(low: float | None = None, high: float | None = None, names: tuple[str, str] = ("min", "max")) -> Lower:
    def lower(b: Builder) -> None:
        dtype = b.meta().dtype
        bounds = [
            b.operand(n, dtype) if b.has(n) else "" if d is None else b.number(d, dtype) for n, d in zip(names, (low, high), strict=True)
        ]
        x = b.operand("self", dtype)
        if any(i and b.shape(i) for i in bounds):
            for kind, bound in zip(("Max", "Min"), bounds, strict=True):
                x = b.emit(kind, (x, bound), what=kind.lower()) if bound else x
            b.alias(x)
            return
        b.put("Clip", (x, *bounds) if bounds[1] else (x, *bounds[:1]))

    return lower


def _silu(b: Builder) -> None:
    x = b.tensor_of("self")
    b.put("Mul", (x, b.emit("Sigmoid", (x,))))


def _gelu(b: Builder) -> None:
    b.put("Gelu", (b.tensor_of("self"),), {"approximate": b.text_of("approximate", "none")})


def _elu(b: Builder) -> None:
    if b.number_of("scale", 1.0) != 1 or b.number_of("input_scale", 1.0) != 1:
        raise b.unsupported("an ELU with scales is not supported")
    b.put("Elu", (b.tensor_of("self"),), {"alpha": float(b.number_of("alpha", 1.0))})


def _prelu(b: Builder) -> None:
    x, slope = b.tensor_of("self"), b.tensor_of("weight")
    if b.shape(slope) and b.shape(slope) != (1,):
        slope = b.reshape(slope, (-1, *[1] * (len(b.shape(x)) - 2)), what="slope")
    b.put("PRelu", (x, slope))


def _softplus(b: Builder) -> None:
    x, beta = b.tensor_of("self"), float(b.number_of("beta", 1.0))
    if beta == 1:
        b.put("Softplus", (x,))
        return
    factor = b.number(beta, b.dtype(x))
    b.put("Div", (b.emit("Softplus", (b.emit("Mul", (x, factor), what="scaled"),)), factor))


def _after(kind: str, second: str) -> Lower:
    """``kind``, then ``second``."""
    return lambda b: b.put(second, (b.emit(kind, (b.operand("self", b.meta().dtype),)),))


def _shifted(kind: str, before: float, after: float) -> Lower:
    def lower(b: Builder) -> None:
        dtype = b.meta().dtype
        x = b.operand("self", dtype)
        if before:
            b.put(kind, (b.emit("Add", (x, b.number(before, dtype)), what="shifted"),))
        else:
            b.put("Add", (b.emit(kind, (x,)), b.number(after, dtype)))

    return lower


def _logarithm(base: float) -> Lower:
    def lower(b: Builder) -> None:
        dtype = b.meta().dtype
        b.put("Mul", (b.emit("Log", (b.operand("self", dtype),)), b.number(1 / math.log(base), dtype)))

    return lower


def _square(b: Builder) -> None:
    b.put("Mul", (b.tensor_of("self"), b.tensor_of("self")))


def _where(b: Builder) -> None:
    dtype = b.meta().dtype
    b.put("Where", (b.operand("condition", DType.BOOL), b.operand("self", dtype), b.operand("other", dtype)))


def _masked_fill(b: Builder) -> None:
    x = b.tensor_of("self")
    b.put("Where", (b.tensor_of("mask"), b.operand("value", b.dtype(x)), x))


def _add_product(kind: str) -> Lower:
    """``self + value * (tensor1 * tensor2)`` (addcmul) or with a quotient (addcdiv)."""

    def lower(b: Builder) -> None:
        dtype = b.meta().dtype
        part = b.emit(kind, (b.operand("tensor1", dtype), b.operand("tensor2", dtype)))
        if b.number_of("value", 1) != 1:
            part = b.emit("Mul", (part, b.number(b.number_of("value"), dtype)), what="scaled")
        b.put("Add", (b.operand("self", dtype), part))

    return lower


def _to(b: Builder) -> None:
    b.alias(b.cast(b.tensor_of("self"), b.meta().dtype))


def _same(b: Builder) -> None:
    b.alias(b.tensor_of("self" if b.has("self") else "input"))


_UNARY = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "abs": "Abs", "neg": "Neg",
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "sin": "Sin", "cos": "Cos", "tan": "Tan", "atan": "Atan", "asin": "Asin",
    "acos": "Acos", "sinh": "Sinh", "cosh": "Cosh", "erf": "Erf", "reciprocal": "Reciprocal", "sign": "Sign", "mish": "Mish",
    "hardswish": "HardSwish", "selu": "Selu", "sgn": "Sign",
}  # fmt: skip
_SAME = (
    "clone", "contiguous", "detach", "alias", "lift_fresh_copy", "dropout", "native_dropout", "lift", "alpha_dropout",
    "feature_dropout", "conj", "resolve_conj", "resolve_neg", "positive", "detach_copy",
)  # fmt: skip
LOWERINGS: dict[str, Lower] = {
    **{name: _unary(kind) for name, kind in _UNARY.items()},
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(("to", "_to_copy", "type_as", "float", "half", "int", "long", "bool", "_to_cpu"), _to),
    "hardsigmoid": _unary("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "leaky_relu": lambda b: b.put("LeakyRelu", (b.tensor_of("self"),), {"alpha": float(b.number_of("negative_slope", 0.01))}),
    "celu": lambda b: b.put("Celu", (b.tensor_of("self"),), {"alpha": float(b.number_of("alpha", 1.0))}),
    "logical_not": _test("Not"), "isnan": _test("IsNaN"), "isinf": _test("IsInf"), "bitwise_not": _bitwise_not,
    "add": _binary("Add"), "sub": _binary("Sub"), "mul": _binary("Mul"), "maximum": _binary("Max"), "minimum": _binary("Min"),
    "rsub": _reversed_sub, "div": _div, "divide": _div, "true_divide": _div, "floor_divide": _floor_divide,
    "remainder": _remainder, "fmod": _c_remainder,
    "multiply": _binary("Mul"), "subtract": _binary("Sub"),
    "eq": _compare("Equal"), "ne": _compare("Equal", negated=True), "lt": _compare("Less"), "gt": _compare("Greater"),
    "le": _compare("LessOrEqual"), "ge": _compare("GreaterOrEqual"),
    "logical_and": _logical("And"), "logical_or": _logical("Or"), "logical_xor": _logical("Xor"),
    "bitwise_and": _logical("And"), "bitwise_or": _logical("Or"), "bitwise_xor": _logical("Xor"),
    "__and__": _logical("And"), "__or__": _logical("Or"), "__xor__": _logical("Xor"),
    "pow": _power, "square": _square, "rsqrt": _after("Sqrt", "Reciprocal"),
    "clamp": _clamp(), "clamp_min": _clamp(), "clamp_max": _clamp(), "relu6": _clamp(0, 6),
    "hardtanh": _clamp(-1, 1, ("min_val", "max_val")), "clip": _clamp(),
    "silu": _silu, "gelu": _gelu, "elu": _elu, "prelu": _prelu, "softplus": _softplus,
    "log1p": _shifted("Log", 1.0, 0.0), "expm1": _shifted("Exp", 0.0, -1.0), "log2": _logarithm(2), "log10": _logarithm(10),
    "where": _where, "masked_fill": _masked_fill, "addcmul": _add_product("Mul"), "addcdiv": _add_product("Div"),
    "trunc": lambda b: _truncate(b, b.tensor_of("self")),
    "logaddexp": lambda b: b.put("Log", (b.emit("Add", tuple(b.emit("Exp", (b.tensor_of(n),)) for n in ("self", "other"))),)),
}  # fmt: skip
