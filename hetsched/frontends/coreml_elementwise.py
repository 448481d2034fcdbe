"""Elementwise operations, activations, reductions and normalisations of ML programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hetsched.frontends.coreml_builder import MilBuilder
from hetsched.frontends.coreml_mil import NAMES
from hetsched.graph import DType

Lower = Callable[[MilBuilder], None]


def _unary(kind: str) -> Lower:
    return lambda b: b.put(kind, (b.tensor_of("x"),))


def _scalar(b: MilBuilder, name: str, default: float, like: str) -> str:
    return b.number(b.number_of(name, default), b.dtype(like))


def _after_epsilon(kind: str, default: float, root: bool = False) -> Lower:
    """``kind`` of the input plus a small number (log, inverse, rsqrt)."""

    def lower(b: MilBuilder) -> None:
        x, epsilon = b.tensor_of("x"), b.number_of("epsilon", default)
        if epsilon > 1e-30:
            x = b.emit("Add", (x, b.number(epsilon, b.dtype(x))), what="shifted")
        b.put(kind, (b.emit("Sqrt", (x,), what="root") if root else x,))

    return lower


def _binary(kind: str) -> Lower:
    return lambda b: b.put(kind, _operands(b))


def _operands(b: MilBuilder) -> tuple[str, str]:
    return b.tensor_of("x"), b.tensor_of("y")


def without_threshold(b: MilBuilder, sides: Sequence[str]) -> tuple[str, ...]:
    """The operands of a product, without a threshold that does nothing.

    coremltools writes hard-swish as ``t * hardsigmoid(t)`` of ``t = thresholded_relu(x, -3)``; the hard sigmoid is 0 where the
    threshold cuts, so the product is the same of ``x``, which is what other exporters write and the passes know.
    """
    made = {o.outputs[0]: o for o in b.ops[-8:] if o.type in {"ThresholdedRelu", "HardSigmoid"}}
    for first, second in (sides, sides[::-1]) if len(sides) == 2 else ():
        cut, gate = made.get(first), made.get(second)
        if cut is None or gate is None or cut.type != "ThresholdedRelu" or gate.type != "HardSigmoid" or gate.inputs[0] != first:
            continue
        if gate.attr_float("alpha", 0.2) * cut.attr_float("alpha", 1.0) + gate.attr_float("beta", 0.5) <= 1e-6:
            x = cut.inputs[0]
            return x, b.emit("HardSigmoid", (x,), gate.attrs, what="gate")
    return tuple(sides)


def _mul(b: MilBuilder) -> None:
    b.put("Mul", without_threshold(b, _operands(b)))


def _not_equal(b: MilBuilder) -> None:
    b.put("Not", (b.emit("Equal", _operands(b), what="same"),))


def _floor_div(b: MilBuilder) -> None:
    x, y = _operands(b)
    if b.dtype(x).is_float:
        b.put("Floor", (b.emit("Div", (x, y), what="quotient"),))
    else:
        b.put("Div", (b.emit("Sub", (x, b.emit("Mod", (x, y), what="rest")), what="multiple"), y))


def _mod(b: MilBuilder) -> None:
    x, y = _operands(b)
    if not b.dtype(x).is_float:
        b.put("Mod", (x, y))
        return
    whole = b.emit("Floor", (b.emit("Div", (x, y), what="quotient"),), what="whole")
    b.put("Sub", (x, b.emit("Mul", (whole, y), what="multiple")))


def _cast(b: MilBuilder) -> None:
    wanted = b.text_of("dtype" if b.has("dtype") else "output_dtype", "")
    if wanted not in NAMES:
        raise b.unsupported(f"the type {wanted[:20]!r} is not supported")
    b.alias(b.cast(b.tensor_of("x" if b.has("x") else "source_val"), NAMES[wanted], what="cast"))


def _clip(b: MilBuilder) -> None:
    x = b.tensor_of("x")
    b.put("Clip", (x, _scalar(b, "alpha", 0, x), _scalar(b, "beta", 1, x)))


def _relu6(b: MilBuilder) -> None:
    x = b.tensor_of("x")
    b.put("Clip", (x, b.number(0, b.dtype(x)), b.number(6, b.dtype(x))))


def _threshold(b: MilBuilder) -> None:
    x = b.tensor_of("x")
    b.put("Max", (x, _scalar(b, "alpha", 0, x)))


def _gelu(b: MilBuilder) -> None:
    x, mode = b.tensor_of("x"), b.text_of("mode", "EXACT")
    if mode == "SIGMOID_APPROXIMATION":
        inner = b.emit("Mul", (x, b.number(1.702, b.dtype(x))), what="scaled")
        b.put("Mul", (x, b.emit("Sigmoid", (inner,))))
        return
    b.put("Gelu", (x,), {"approximate": "tanh" if mode == "TANH_APPROXIMATION" else "none"})


def _silu(b: MilBuilder) -> None:
    x = b.tensor_of("x")
    b.put("Mul", (x, b.emit("Sigmoid", (x,))))


def _with_slopes(kind: str, **defaults: float) -> Lower:
    """An activation with ``alpha`` (and ``beta``) as attributes."""
    return lambda b: b.put(kind, (b.tensor_of("x"),), {n: b.number_of(n, d) for n, d in defaults.items()})


def _prelu(b: MilBuilder) -> None:
    x, slope = b.tensor_of("x"), b.tensor_of("alpha")
    b.put("PRelu", (x, b.reshape(slope, (-1, *[1] * (len(b.shape(x)) - 2)), what="slope")))


def _linear_activation(b: MilBuilder) -> None:
    x = b.tensor_of("x")
    scaled = b.emit("Mul", (x, _scalar(b, "alpha", 1, x)), what="scaled")
    b.put("Add", (scaled, _scalar(b, "beta", 0, x)))


def _clamped_relu(b: MilBuilder) -> None:
    """``x`` above 0 up to ``beta``, ``alpha * x`` below."""
    x = b.tensor_of("x")
    leaky = b.emit("LeakyRelu", (x,), {"alpha": b.number_of("alpha", 0)})
    b.put("Min", (leaky, _scalar(b, "beta", 0, x)))


def _scaled_tanh(b: MilBuilder) -> None:
    x = b.tensor_of("x")
    inner = b.emit("Mul", (x, _scalar(b, "beta", 1, x)), what="scaled")
    b.put("Mul", (b.emit("Tanh", (inner,)), _scalar(b, "alpha", 1, x)))


def _thresholded(b: MilBuilder) -> None:
    b.put("ThresholdedRelu", (b.tensor_of("x"),), {"alpha": b.number_of("alpha", 1)})


def _square(b: MilBuilder) -> None:
    b.put("Mul", (b.tensor_of("x"), b.tensor_of("x")))


def _exp2(b: MilBuilder) -> None:
    x = b.tensor_of("x")
    b.put("Pow", (b.number(2, b.dtype(x)), x))


def _axes(b: MilBuilder, name: str = "axes") -> list[int]:
    """Axes counted from the front; all where none are given."""
    rank = len(b.shape(b.tensor_of("x")))
    return sorted(b.axis(a, rank) for a in b.ints_of(name, range(rank)))


def _reduce(kind: str) -> Lower:
    def lower(b: MilBuilder) -> None:
        x = b.tensor_of("x")
        if kind == "ReduceLogSum" and b.number_of("epsilon", 0) > 1e-30:
            x = b.emit("Add", (x, b.number(b.number_of("epsilon"), b.dtype(x))), what="shifted")
        b.put(kind, (x, b.ints("axes", _axes(b))), {"keepdims": int(b.flag("keep_dims"))})

    return lower


def _arg(kind: str) -> Lower:
    def lower(b: MilBuilder) -> None:
        x = b.tensor_of("x")
        axis = b.axis(b.int_of("axis", -1), len(b.shape(x)))
        b.alias(b.emit(kind, (x,), {"axis": axis, "keepdims": int(b.flag("keep_dims"))}))

    return lower


def _softmax(b: MilBuilder) -> None:
    x = b.tensor_of("x")
    b.put("Softmax", (x,), {"axis": b.axis(b.int_of("axis", -1), len(b.shape(x)))})


def _vector(b: MilBuilder, name: str, count: int, value: float, dtype: DType) -> str:
    """A weight per channel, or a constant vector in its place."""
    return b.maybe(name) or b.constant(name, np.full(count, value, dtype.numpy))


def _batch_norm(b: MilBuilder) -> None:
    x, mean = b.tensor_of("x"), b.tensor_of("mean")
    count, dtype = b.shape(mean)[0], b.dtype(mean)
    inputs = (x, _vector(b, "gamma", count, 1, dtype), _vector(b, "beta", count, 0, dtype), mean, b.tensor_of("variance"))
    b.put("BatchNormalization", inputs, {"epsilon": b.number_of("epsilon", 1e-5)})


def _instance_norm(b: MilBuilder) -> None:
    x = b.tensor_of("x")
    count, dtype = b.shape(x)[1], b.dtype(x)
    inputs = (x, _vector(b, "gamma", count, 1, dtype), _vector(b, "beta", count, 0, dtype))
    b.put("InstanceNormalization", inputs, {"epsilon": b.number_of("epsilon", 1e-5)})


def _layer_norm(b: MilBuilder) -> None:
    """Over the last axes LayerNormalization; over others the same with those brought to the end (as of channels of an image)."""
    x, axes = b.tensor_of("x"), _axes(b)
    rank = len(b.shape(x))
    order = [a for a in range(rank) if a not in axes] + axes
    last = order == list(range(rank))
    shape, dtype = [b.shape(x)[a] for a in axes], b.dtype(x)
    scale = b.maybe("gamma") or b.constant("scale", np.ones(shape, dtype.numpy))
    bias = (b.tensor_of("beta"),) if b.has("beta") else ()
    source = x if last else b.transposed(x, order, what="turned")
    attrs = {"axis": rank - len(axes), "epsilon": b.number_of("epsilon", 1e-5)}
    if last:
        b.put("LayerNormalization", (source, scale, *bias), attrs)
        return
    normal = b.emit("LayerNormalization", (source, scale, *bias), attrs)
    b.alias(b.transposed(normal, [order.index(a) for a in range(rank)], what="back"))


def _l2_norm(b: MilBuilder) -> None:
    """``x / sqrt(sum(x²) + epsilon)`` over the last three axes."""
    x = b.tensor_of("x")
    axes = list(range(max(len(b.shape(x)) - 3, 0), len(b.shape(x))))
    total = b.emit("ReduceSumSquare", (x, b.ints("axes", axes)), {"keepdims": 1}, what="sum")
    root = b.emit("Sqrt", (b.emit("Add", (total, _scalar(b, "epsilon", 1e-6, x)), what="shifted"),), what="root")
    b.put("Div", (x, root))


def _local_response(b: MilBuilder) -> None:
    attrs = {"size": b.int_of("size"), "alpha": b.number_of("alpha", 1e-4), "beta": b.number_of("beta", 0.75), "bias": b.number_of("k", 1)}
    b.put("LRN", (b.tensor_of("x"),), attrs)


def _cumsum(b: MilBuilder) -> None:
    x = b.tensor_of("x")
    axis = b.constant("axis", np.array(b.axis(b.int_of("axis", 0), len(b.shape(x))), np.int64))
    b.put("CumSum", (x, axis), {"exclusive": int(b.flag("exclusive")), "reverse": int(b.flag("reverse"))})


def _top_k(b: MilBuilder) -> None:
    x = b.tensor_of("x")
    axis = b.axis(b.int_of("axis", -1), len(b.shape(x)))
    attrs = {"axis": axis, "largest": int(not b.flag("ascending")), "sorted": 1}
    values, indices = b.emit_many("TopK", (x, b.ints("k", [b.int_of("k", 1)])), 2, attrs)
    b.alias(values)
    if len(b.current.outputs) > 1:
        b.alias(indices, 1)


def _where(b: MilBuilder) -> None:
    b.put("Where", (b.tensor_of("cond"), b.tensor_of("a"), b.tensor_of("b")))


_UNARY: dict[str, str] = {
    "abs": "Abs", "ceil": "Ceil", "floor": "Floor", "round": "Round", "exp": "Exp", "sqrt": "Sqrt", "sign": "Sign", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "tanh": "Tanh", "atan": "Atan", "asin": "Asin", "acos": "Acos", "sinh": "Sinh", "cosh": "Cosh",
    "erf": "Erf", "relu": "Relu", "sigmoid": "Sigmoid", "softplus": "Softplus", "softsign": "Softsign", "logical_not": "Not",
}  # fmt: skip
_BINARY: dict[str, str] = {
    "add": "Add", "sub": "Sub", "real_div": "Div", "maximum": "Max", "minimum": "Min", "pow": "Pow", "equal": "Equal",
    "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual", "logical_and": "And",
    "logical_or": "Or", "logical_xor": "Xor",
}  # fmt: skip
_REDUCTIONS: Sequence[tuple[str, str]] = (
    ("max", "Max"), ("mean", "Mean"), ("min", "Min"), ("sum", "Sum"), ("prod", "Prod"), ("l1_norm", "L1"), ("l2_norm", "L2"),
    ("log_sum", "LogSum"), ("log_sum_exp", "LogSumExp"), ("sum_square", "SumSquare"),
)  # fmt: skip
LOWERINGS: dict[str, Lower] = {
    **{name: _unary(kind) for name, kind in _UNARY.items()},
    **{name: _binary(kind) for name, kind in _BINARY.items()},
    **{f"reduce_{name}": _reduce(f"Reduce{kind}") for name, kind in _REDUCTIONS},
    "reduce_argmax": _arg("ArgMax"), "reduce_argmin": _arg("ArgMin"), "mul": _mul, "not_equal": _not_equal,
    "floor_div": _floor_div, "mod": _mod,
    "identity": lambda b: b.alias(b.tensor_of("x")), "cast": _cast, "constexpr_cast": _cast, "clip": _clip, "relu6": _relu6,
    "threshold": _threshold, "gelu": _gelu, "silu": _silu, "sigmoid_hard": _with_slopes("HardSigmoid", alpha=0.2, beta=0.5),
    "leaky_relu": _with_slopes("LeakyRelu", alpha=0.01), "elu": _with_slopes("Elu", alpha=1.0), "prelu": _prelu,
    "linear_activation": _linear_activation, "clamped_relu": _clamped_relu, "scaled_tanh": _scaled_tanh,
    "thresholded_relu": _thresholded, "square": _square, "exp2": _exp2, "log": _after_epsilon("Log", 0),
    "inverse": _after_epsilon("Reciprocal", 1e-4), "rsqrt": _after_epsilon("Reciprocal", 1e-12, root=True), "softmax": _softmax,
    "batch_norm": _batch_norm, "instance_norm": _instance_norm, "layer_norm": _layer_norm, "l2_norm": _l2_norm,
    "local_response_norm": _local_response, "cumsum": _cumsum, "topk": _top_k, "select": _where,
}  # fmt: skip
