"""Small models, one operator or two each, whose sizes are drawn: tails, odd shapes, strides, pads, dilations, groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetsched_kernels.comparison import Draw

Array = np.ndarray[Any, Any]


@dataclass
class Case:
    """Nodes ``(type, inputs, outputs, attributes)``, inputs and constants by name. ``step``: the quantum of a quantized result."""

    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]]
    feeds: dict[str, Array]
    constants: dict[str, Array] = field(default_factory=dict)
    step: float = 0.0


@dataclass(frozen=True)
class Row:
    """An operator and how close the GPU must be to numpy, at each precision that it has."""

    name: str
    case: Callable[[Draw], Case]
    precisions: tuple[str, ...] = ("f32", "f16")


def floats(draw: Draw, *shape: int) -> Array:
    """Normal float32 values."""
    return draw.rng.standard_normal(shape).astype(np.float32)


def one(
    kind: str, feeds: dict[str, Array], constants: dict[str, Array] | None = None, inputs: list[str] | None = None, **attrs: Any
) -> Case:
    """A single node that reads all feeds and constants, in order, or ``inputs``."""
    given = inputs or [*feeds, *(constants or {})]
    return Case([(kind, given, ["y"], attrs)], feeds, constants or {})


def convolution(draw: Draw) -> Case:
    """2-D, grouped and not."""
    groups, ins, outs = draw.integer(1, 3), draw.integer(1, 5), draw.integer(1, 6)
    kh, kw, dilation = draw.integer(1, 3), draw.integer(1, 4), draw.integer(1, 2)
    h, w = draw.integer(7, 11), draw.integer(7, 12)
    x, weights = floats(draw, draw.integer(1, 2), groups * ins, h, w), floats(draw, groups * outs, ins, kh, kw)
    pads = [draw.integer(0, 2) for _ in range(4)]
    constants = {"w": weights, "b": floats(draw, groups * outs)} if draw.integer(0, 1) else {"w": weights}
    strides = [draw.integer(1, 3), draw.integer(1, 2)]
    return one("Conv", {"x": x}, constants, group=groups, pads=pads, strides=strides, dilations=[dilation] * 2)


def half_convolution(draw: Draw) -> Case:
    """A model of float16, with a function and a view behind the convolution."""
    case = convolution(draw)
    turned = {k: v.astype(np.float16) for k, v in (case.feeds | case.constants).items()}
    (kind, inputs, _, attrs), *_ = case.nodes
    nodes: list[Any] = [(kind, inputs, ["c"], attrs), ("Sigmoid", ["c"], ["s"], {}), ("Flatten", ["s"], ["y"], {})]
    return Case(nodes, {"x": turned.pop("x")}, turned)


def depthwise(draw: Draw) -> Case:
    """One input channel a group, one or two results each."""
    channels, times, k = draw.integer(2, 9), draw.integer(1, 2), draw.integer(2, 5)
    x = floats(draw, draw.integer(1, 2), channels, draw.integer(5, 9), draw.integer(5, 9))
    constants = {"w": floats(draw, channels * times, 1, k, k), "b": floats(draw, channels * times)}
    return one("Conv", {"x": x}, constants, group=channels, pads=[k // 2] * 4, strides=[draw.integer(1, 2)] * 2)


def convolution_1d(draw: Draw) -> Case:
    """1-D with a normalisation and a function behind it: one composite after the passes."""
    ins, outs = draw.integer(1, 5), draw.integer(1, 6)
    constants = {"w": floats(draw, outs, ins, 3), "scale": floats(draw, outs), "bias": floats(draw, outs), "mean": floats(draw, outs)}
    constants["var"] = np.abs(floats(draw, outs)) + 0.5
    nodes: list[Any] = [
        ("Conv", ["x", "w"], ["c"], {"pads": [1, 1]}), ("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"], {}),
        (draw.choice(["Relu", "HardSwish", "Sigmoid", "Tanh"]), ["n"], ["y"], {}),
    ]  # fmt: skip
    return Case(nodes, {"x": floats(draw, 1, ins, draw.integer(3, 13))}, constants)


def transposed(draw: Draw) -> Case:
    """Transposed convolution."""
    groups, ins, outs = draw.integer(1, 2), draw.integer(1, 4), draw.integer(1, 4)
    k, stride = draw.integer(1, 4), draw.integer(1, 3)
    x = floats(draw, draw.integer(1, 2), groups * ins, draw.integer(3, 6), draw.integer(3, 6))
    constants = {"w": floats(draw, groups * ins, outs, k, k), "b": floats(draw, groups * outs)}
    return one("ConvTranspose", {"x": x}, constants, group=groups, strides=[stride] * 2, pads=[min(k - 1, draw.integer(0, 1))] * 4)


def matmul(draw: Draw) -> Case:
    """Rows times a constant matrix."""
    rows, k, n = draw.integer(1, 19), draw.integer(1, 21), draw.integer(1, 19)
    return one("MatMul", {"x": floats(draw, draw.integer(1, 2), rows, k)}, {"w": floats(draw, k, n)})


def running_matmul(draw: Draw) -> Case:
    """Two tensors, with repeated batches."""
    m, k, n, batch = draw.integer(1, 7), draw.integer(1, 9), draw.integer(1, 7), draw.integer(1, 3)
    return one("MatMul", {"x": floats(draw, draw.choice([1, 2]), batch, m, k), "z": floats(draw, draw.choice([1, batch]), k, n)})


def gemm(draw: Draw) -> Case:
    """Either side transposed, alpha and beta."""
    m, k, n = draw.integer(1, 9), draw.integer(1, 17), draw.integer(1, 11)
    turned, other = draw.integer(0, 1), draw.integer(0, 1)
    x, w = floats(draw, *((k, m) if turned else (m, k))), floats(draw, *((n, k) if other else (k, n)))
    c = floats(draw, draw.choice([1, n]))
    factors = {"alpha": 0.5, "beta": 2.0}
    if draw.integer(0, 1):
        return one("Gemm", {"x": x}, {"w": w, "c": c}, transA=turned, transB=other, **factors)
    return one("Gemm", {"x": x, "w": w}, {"c": c}, transA=turned, transB=other, **factors)


FUNCTIONS = [
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg", "Relu", "Round",
    "Sigmoid", "Sign", "Sin", "Softplus", "Tanh",
]  # fmt: skip


def function(draw: Draw) -> Case:
    """Any function of one value."""
    return one(draw.choice(FUNCTIONS), {"x": floats(draw, draw.integer(1, 5), draw.integer(1, 30)) * 2})


def positive_function(draw: Draw) -> Case:
    """Functions of positive values."""
    return one(draw.choice(["Log", "Sqrt", "Reciprocal"]), {"x": np.abs(floats(draw, draw.integer(1, 70))) + 0.5})


def _repeated(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    whole = tuple(draw.integer(1, 4) for _ in range(draw.integer(1, 4)))
    first = draw.integer(0, len(whole) - 1)
    return whole, tuple(n if draw.integer(0, 1) else 1 for n in whole[first:])


def arithmetic(draw: Draw) -> Case:
    """Two operands, the second repeated along some axes."""
    whole, part = _repeated(draw)
    feeds = {"x": floats(draw, *whole), "z": floats(draw, *part) + 3}
    return one(draw.choice(["Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu"]), feeds)


def power(draw: Draw) -> Case:
    """Whole exponents of any base, and any exponent of positive ones."""
    exponent = draw.choice([2.0, 3.0, -1.0, 0.0])
    x = floats(draw, draw.integer(1, 40))
    x[np.abs(x) < 0.1] = 0.5
    return one("Pow", {"x": x}, {"e": np.array(exponent, np.float32)})


def chain(draw: Draw) -> Case:
    """A chain that the passes fuse."""
    whole, part = _repeated(draw)
    nodes: list[Any] = [
        ("Mul", ["x", "z"], ["a"], {}),
        ("Add", ["a", "one"], ["b"], {}),
        ("Tanh", ["b"], ["c"], {}),
        ("Sub", ["x", "c"], ["y"], {}),
    ]
    return Case(nodes, {"x": floats(draw, *whole), "z": floats(draw, *part)}, {"one": np.array([1.5], np.float32)})


def whole_numbers(draw: Draw) -> Case:
    """int64 arithmetic."""
    whole, part = _repeated(draw)
    feeds = {"x": draw.rng.integers(-50, 50, whole), "z": draw.rng.integers(-50, 50, part)}
    kind = draw.choice(["Add", "Sub", "Mul", "Max", "Min", "Div", "Mod"])
    if kind in ("Div", "Mod"):
        feeds["z"] = np.where(feeds["z"] == 0, 7, feeds["z"])
    return one(kind, feeds)


def comparison(draw: Draw) -> Case:
    """A comparison, logic on it, and a selection by it."""
    whole, part = _repeated(draw)
    nodes: list[Any] = [
        (draw.choice(["Less", "Greater", "LessOrEqual"]), ["x", "z"], ["a"], {}), ("Not", ["a"], ["b"], {}),
        (draw.choice(["And", "Or", "Xor"]), ["b", "m"], ["c"], {}), ("Where", ["c", "x", "z"], ["y"], {}),
    ]  # fmt: skip
    feeds = {"x": floats(draw, *whole), "z": floats(draw, *part), "m": draw.rng.integers(0, 2, whole).astype(bool)}
    return Case(nodes, feeds)


def cast(draw: Draw) -> Case:
    """Between whole numbers, booleans and floats."""
    source = draw.choice([np.float32, np.int64, np.int32, np.uint8, np.bool_])
    target = draw.choice([1, 6, 7, 9])
    return one("Cast", {"x": (draw.rng.integers(0, 3, draw.integer(1, 40))).astype(source)}, to=target)


def transpose(draw: Draw) -> Case:
    """Any permutation; of floats, bytes and int64."""
    shape = tuple(draw.integer(1, 5) for _ in range(draw.integer(2, 5)))
    dtype = draw.choice([np.float32, np.int64, np.uint8])
    x = draw.rng.integers(0, 100, shape).astype(dtype)
    return one("Transpose", {"x": x}, perm=[int(v) for v in draw.rng.permutation(len(shape))])


def cut(draw: Draw) -> Case:
    """Slice with steps of either sign."""
    x = draw.rng.integers(0, 100, (draw.integer(2, 6), draw.integer(3, 9))).astype(draw.choice([np.float32, np.int8]))
    step = draw.choice([1, 2, -1, -2])
    bounds = (0, 1 << 30) if step > 0 else (-1, -(1 << 30))
    constants = {k: np.array([v], np.int64) for k, v in {"starts": bounds[0], "ends": bounds[1], "axes": 1, "steps": step}.items()}
    return one("Slice", {"x": x}, constants)


def joined(draw: Draw) -> Case:
    """Concat along any axis; bytes share words."""
    shape, axis = [draw.integer(1, 4) for _ in range(3)], draw.integer(0, 2)
    dtype = draw.choice([np.float32, np.uint8, np.int64])
    feeds = {}
    for name in ("a", "b", "c"):
        shape[axis] = draw.integer(1, 5)
        feeds[name] = draw.rng.integers(0, 100, shape).astype(dtype)
    return one("Concat", feeds, axis=axis)


def split(draw: Draw) -> Case:
    """Split in two, and joined in the other order."""
    x = floats(draw, draw.integer(1, 3), draw.integer(2, 9))
    first = draw.integer(1, x.shape[1] - 1)
    sizes = np.array([first, x.shape[1] - first], np.int64)
    return Case([("Split", ["x", "s"], ["a", "b"], {"axis": 1}), ("Concat", ["b", "a"], ["y"], {"axis": 1})], {"x": x}, {"s": sizes})


def pad(draw: Draw) -> Case:
    """Every mode, on any side."""
    shape = (draw.integer(1, 2), draw.integer(3, 5), draw.integer(4, 6))
    mode = draw.choice(["constant", "reflect", "edge", "wrap"])
    pads = np.array([draw.integer(0, 2) if i % 3 else 0 for i in range(6)], np.int64)
    if mode == "constant":
        return one("Pad", {"x": floats(draw, *shape)}, {"p": pads, "v": np.array(1.5, np.float32)}, mode=mode)
    return one("Pad", {"x": floats(draw, *shape)}, {"p": pads}, mode=mode)


def gather(draw: Draw) -> Case:
    """Along any axis; negative indices count from the end."""
    shape = tuple(draw.integer(2, 5) for _ in range(3))
    axis = draw.integer(0, 2)
    indices = draw.rng.integers(-shape[axis], shape[axis], (draw.integer(1, 3), draw.integer(1, 3)))
    return one("Gather", {"x": floats(draw, *shape), "i": indices.astype(draw.choice([np.int64, np.int32]))}, axis=axis)


def gather_tuples(draw: Draw) -> Case:
    """GatherND; negative indices count from the end."""
    shape, count = tuple(draw.integer(2, 4) for _ in range(3)), draw.integer(1, 3)
    rows = draw.integer(1, 5)
    indices = np.stack([draw.rng.integers(-n, n, rows) for n in shape[:count]], -1)
    return one("GatherND", {"x": floats(draw, *shape), "i": indices})


def shuffled(draw: Draw) -> Case:
    """DepthToSpace, and a repeated copy of it."""
    x = floats(draw, 1, 4 * draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 3))
    nodes: list[Any] = [
        ("DepthToSpace", ["x"], ["a"], {"blocksize": 2, "mode": draw.choice(["DCR", "CRD"])}),
        ("Tile", ["a", "r"], ["y"], {}),
    ]
    return Case(nodes, {"x": x}, {"r": np.array([1, 2, 1, 2], np.int64)})


def layer_norm(draw: Draw) -> Case:
    """LayerNormalization over the last axes."""
    shape = (draw.integer(1, 3), draw.integer(1, 4), draw.integer(2, 80))
    axis = draw.choice([-1, 1])
    return one(
        "LayerNormalization", {"x": floats(draw, *shape)}, {"s": floats(draw, *shape[axis:]), "b": floats(draw, *shape[axis:])}, axis=axis
    )


def instance_norm(draw: Draw) -> Case:
    """InstanceNormalization."""
    c = draw.integer(1, 4)
    return one(
        "InstanceNormalization",
        {"x": floats(draw, draw.integer(1, 2), c, 5, draw.integer(2, 20))},
        {"s": floats(draw, c), "b": floats(draw, c)},
    )


def local_response(draw: Draw) -> Case:
    """LRN."""
    x = floats(draw, draw.integer(1, 2), draw.integer(1, 7), draw.integer(1, 4), 3)
    return one("LRN", {"x": x}, size=draw.integer(1, 6), alpha=0.5, beta=0.75, bias=2.0)


def softmax(draw: Draw) -> Case:
    """Along any axis, short and longer than a workgroup."""
    shape = (draw.integer(1, 3), draw.integer(1, 90), draw.integer(1, 5))
    return one(draw.choice(["Softmax", "LogSoftmax"]), {"x": floats(draw, *shape) * 4}, axis=draw.integer(0, 2))


def reduction(draw: Draw) -> Case:
    """Every reduction over neighbouring axes."""
    shape = (draw.integer(1, 4), draw.integer(1, 9), draw.integer(1, 70))
    axes = draw.choice([[0], [1], [2], [1, 2], [0, 1, 2]])
    kinds = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare"]
    return one(draw.choice(kinds), {"x": floats(draw, *shape)}, {"a": np.array(axes, np.int64)}, keepdims=draw.integer(0, 1))


def extremum(draw: Draw) -> Case:
    """ArgMax and ArgMin."""
    return one(draw.choice(["ArgMax", "ArgMin"]), {"x": floats(draw, draw.integer(1, 4), draw.integer(1, 9), 3)}, axis=draw.integer(0, 2))


def pool(draw: Draw) -> Case:
    """Largest and average of windows."""
    kind, k = draw.choice(["MaxPool", "AveragePool"]), draw.integer(2, 3)
    x = floats(draw, 1, draw.integer(1, 3), draw.integer(5, 9), draw.integer(5, 9))
    more = {"count_include_pad": draw.integer(0, 1)} if kind == "AveragePool" else {}
    attrs = {"strides": [draw.integer(1, 3)] * 2, "pads": [draw.integer(0, 1) for _ in range(4)], "ceil_mode": draw.integer(0, 1)}
    return one(kind, {"x": x}, kernel_shape=[k, k], **attrs, **more)


def global_pool(draw: Draw) -> Case:
    """Over the whole plane."""
    return one(draw.choice(["GlobalAveragePool", "GlobalMaxPool"]), {"x": floats(draw, 2, draw.integer(1, 5), draw.integer(1, 12), 9)})


def resize(draw: Draw) -> Case:
    """Nearest, linear and cubic, up and down."""
    x = floats(draw, 1, draw.integer(1, 2), draw.integer(2, 6), draw.integer(2, 6))
    sizes = np.array([1, x.shape[1], draw.integer(1, 9), draw.integer(1, 9)], np.int64)
    transform = draw.choice(["half_pixel", "asymmetric", "align_corners"])
    mode = draw.choice(["nearest", "linear", "cubic"])
    attrs = {"mode": mode, "coordinate_transformation_mode": transform}
    return one("Resize", {"x": x}, {"s": sizes}, ["x", "", "", "s"], **attrs)


# -- quantized -----------------------------------------------------------------------------------------------------------


class _Quantized:
    """Nodes of a Q/DQ model, built up."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.case = Case([], {}, {})

    def pair(self, name: str, scale: float, dtype: Any, zero: int) -> str:
        """Q then DQ of an activation; the name of the dequantized tensor."""
        self.case.constants |= {f"{name}_s": np.array(scale, np.float32), f"{name}_z": np.array(zero, dtype)}
        given = [f"{name}_s", f"{name}_z"]
        self.case.nodes += [
            ("QuantizeLinear", [name, *given], [f"{name}_q"], {}),
            ("DequantizeLinear", [f"{name}_q", *given], [f"{name}_d"], {}),
        ]
        return f"{name}_d"

    def weights(self, name: str, values: Array, axis: int, zero: int = 0) -> str:
        """DQ of constant int8; the name of the dequantized tensor."""
        scale = np.abs(values).max(axis=tuple(i for i in range(values.ndim) if i != axis)) / 120
        shape = [-1 if i == axis else 1 for i in range(values.ndim)]
        stored = np.clip(np.rint(values / scale.reshape(shape)) + zero, -128, 127).astype(np.int8)
        self.case.constants |= {f"{name}_q": stored, f"{name}_s": scale.astype(np.float32), f"{name}_z": np.full(scale.size, zero, np.int8)}
        self.case.nodes.append(("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_d"], {"axis": axis}))
        return f"{name}_d"

    def finish(self, name: str, scale: float, dtype: Any, zero: int) -> Case:
        """Quantize the result and hand it out as reals."""
        self.case.nodes.append(("Identity", [self.pair(name, scale, dtype, zero)], ["y"], {}))
        self.case.step = scale
        return self.case


def _types(draw: Draw) -> tuple[Any, int, Any, int]:
    kinds = [(np.uint8, 120), (np.int8, -3), (np.uint8, 0)]
    return (*draw.choice(kinds), *draw.choice(kinds))


def quantized_convolution(draw: Draw) -> Case:
    """Groups, depthwise and not, signed and unsigned bytes."""
    q, (x_type, x_zero, y_type, y_zero) = _Quantized(draw), _types(draw)
    groups, ins, outs = draw.integer(1, 3), draw.integer(1, 6), draw.integer(1, 5)
    k, size = draw.integer(1, 3), draw.integer(5, 8)
    q.case.feeds["x"] = floats(draw, draw.integer(1, 2), groups * ins, size, size + 1)
    x, w = q.pair("x", 0.03, x_type, x_zero), q.weights("w", floats(draw, groups * outs, ins, k, k), 0)
    q.case.nodes.append(("Conv", [x, w], ["c"], {"group": groups, "pads": [draw.integer(0, 1)] * 4, "strides": [draw.integer(1, 2)] * 2}))
    return q.finish("c", 0.1, y_type, y_zero)


def quantized_depthwise(draw: Draw) -> Case:
    """One channel a group."""
    q, (x_type, x_zero, y_type, y_zero) = _Quantized(draw), _types(draw)
    channels = draw.integer(2, 7)
    q.case.feeds["x"] = floats(draw, 1, channels, draw.integer(4, 7), draw.integer(4, 7))
    x, w = q.pair("x", 0.03, x_type, x_zero), q.weights("w", floats(draw, channels, 1, 3, 3), 0, draw.choice([0, 5]))
    q.case.nodes.append(("Conv", [x, w], ["c"], {"group": channels, "pads": [1] * 4}))
    return q.finish("c", 0.1, y_type, y_zero)


def quantized_matmul(draw: Draw) -> Case:
    """Rows of bytes times int8 columns, with and without zero points."""
    q, (x_type, x_zero, y_type, y_zero) = _Quantized(draw), _types(draw)
    rows, k, n = draw.integer(1, 9), draw.integer(1, 19), draw.integer(1, 9)
    q.case.feeds["x"] = floats(draw, rows, k)
    x, w = q.pair("x", 0.03, x_type, x_zero), q.weights("w", floats(draw, k, n), 1, draw.choice([0, -4]))
    q.case.nodes.append(("MatMul", [x, w], ["c"], {}))
    return q.finish("c", 0.1, y_type, y_zero)


def quantized_sum(draw: Draw) -> Case:
    """Bytes of different scales, added."""
    q, (x_type, x_zero, y_type, y_zero) = _Quantized(draw), _types(draw)
    shape = (draw.integer(1, 3), draw.integer(1, 9))
    q.case.feeds |= {"x": floats(draw, *shape), "z": floats(draw, *shape)}
    q.case.nodes.append(("Add", [q.pair("x", 0.03, x_type, x_zero), q.pair("z", 0.02, np.int8, 4)], ["c"], {}))
    return q.finish("c", 0.05, y_type, y_zero)


TABLE = [
    Row("conv", convolution), Row("conv_half", half_convolution, ("f16",)), Row("depthwise", depthwise), Row("conv_1d", convolution_1d),
    Row("conv_transpose", transposed), Row("matmul", matmul), Row("matmul_running", running_matmul), Row("gemm", gemm),
    Row("function", function), Row("positive_function", positive_function), Row("arithmetic", arithmetic), Row("power", power),
    Row("chain", chain), Row("int64", whole_numbers, ("f32",)), Row("comparison", comparison, ("f32",)), Row("cast", cast, ("f32",)),
    Row("transpose", transpose), Row("slice", cut), Row("concat", joined), Row("split", split), Row("pad", pad), Row("gather", gather),
    Row("gather_nd", gather_tuples), Row("depth_to_space", shuffled), Row("layer_norm", layer_norm), Row("instance_norm", instance_norm),
    Row("lrn", local_response), Row("softmax", softmax), Row("reduction", reduction), Row("arg_max", extremum, ("f32",)),
    Row("pool", pool), Row("global_pool", global_pool), Row("resize", resize), Row("conv_i8", quantized_convolution, ("w8a8", "f32")),
    Row("depthwise_i8", quantized_depthwise, ("w8a8", "f32")), Row("matmul_i8", quantized_matmul, ("w8a8", "f32")),
    Row("add_i8", quantized_sum, ("w8a8",)),
]  # fmt: skip
