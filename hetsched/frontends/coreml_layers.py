"""Layers of classic neural networks on images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hetsched.frontends.coreml_elementwise import without_threshold
from hetsched.frontends.coreml_layer_builder import LayerBuilder
from hetsched.frontends.coreml_windows import MAX_WINDOW, borders
from hetsched.frontends.coreml_wire import Message
from hetsched.graph import AttrValue

Lower = Callable[[LayerBuilder, Message], None]


def _activation(b: LayerBuilder, p: Message) -> None:
    x, kind = b.given(), p.which()
    f, dtype = p.message(kind) if kind else p, b.dtype(x)
    if kind in _PLAIN:
        b.give(_PLAIN[kind], (x,))
    elif kind in _SLOPES:
        b.give(_SLOPES[kind][0], (x,), {n: f.real(n) for n in _SLOPES[kind][1]})
    elif kind == "linear" and (f.real("alpha"), f.real("beta")) == (1, 0):
        b.same(x)
    elif kind == "linear":
        scaled = b.emit("Mul", (x, b.number(f.real("alpha"), dtype)), what="scaled")
        b.give("Add", (scaled, b.number(f.real("beta"), dtype)))
    elif kind == "scaledTanh":
        inner = b.emit("Mul", (x, b.number(f.real("beta"), dtype)), what="scaled")
        b.give("Mul", (b.emit("Tanh", (inner,)), b.number(f.real("alpha"), dtype)))
    elif kind == "PReLU":
        channels = b.shape(x)[-3]
        weights = f.message("alpha")
        count = channels if len(weights.reals("floatValue")) != 1 else 1
        b.give("PRelu", (x, b.weights(weights, "slope", (count, 1, 1))))
    else:
        raise b.unsupported(f"the activation {kind or 'without a kind'} is not supported")


_PLAIN = {"ReLU": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "softsign": "Softsign", "softplus": "Softplus"}
_SLOPES = {
    "leakyReLU": ("LeakyRelu", ("alpha",)), "ELU": ("Elu", ("alpha",)), "thresholdedReLU": ("ThresholdedRelu", ("alpha",)),
    "sigmoidHard": ("HardSigmoid", ("alpha", "beta")),
}  # fmt: skip


def _batchnorm(b: LayerBuilder, p: Message) -> None:
    x, channels = b.given(), p.integer("channels")
    gamma, beta = (b.weights(p.message(n), n, (channels,)) for n in ("gamma", "beta"))
    attrs = {"epsilon": p.real("epsilon") or 1e-5}
    if p.flag("instanceNormalization") or p.flag("computeMeanVar"):
        b.give("InstanceNormalization", (x, gamma, beta), attrs)
        return
    mean, variance = (b.weights(p.message(n), n, (channels,)) for n in ("mean", "variance"))
    b.give("BatchNormalization", (x, gamma, beta, mean, variance), attrs)


def _binary(kind: str) -> Lower:
    """Sum, product, …: of all inputs, or of one and ``alpha``."""

    def lower(b: LayerBuilder, p: Message) -> None:
        parts = b.given_all()
        if len(parts) == 1:
            parts.append(b.number(p.real("alpha"), b.dtype(parts[0])))
        x = parts[0]
        for part in parts[1:-1]:
            x = b.emit(kind, (x, part))
        b.give(kind, without_threshold(b, (x, parts[-1])) if kind == "Mul" else (x, parts[-1]))

    return lower


def _average(b: LayerBuilder, p: Message) -> None:
    b.give("Mean", b.given_all())


def _extreme(kind: str) -> Lower:
    return lambda b, p: b.give(kind, b.given_all())


def _softmax(b: LayerBuilder, p: Message) -> None:
    """Over the channels."""
    x = b.given()
    if not b.exact and b.shape(x)[2:] == (1, 1) and x in b.flat:
        b.give_rows(b.emit("Softmax", (b.flat[x],), {"axis": 1}))
        return
    b.give("Softmax", (x,), {"axis": max(len(b.shape(x)) - 3, 0)})


def _concat(b: LayerBuilder, p: Message) -> None:
    if p.flag("sequenceConcat"):
        raise b.unsupported("joining sequences is not supported")
    parts = b.given_all()
    b.give("Concat", parts, {"axis": len(b.shape(parts[0])) - 3})


def _flatten(b: LayerBuilder, p: Message) -> None:
    x = b.image()
    if p.integer("mode") == 1:
        x = b.transposed(x, (0, 2, 3, 1), what="channels_last")
    matrix = b.emit("Flatten", (x,), {"axis": 1}, what="rows")
    image = b.reshape(matrix, (*b.shape(matrix), 1, 1), what="image")
    b.flat[image] = matrix
    b.same(image)


def _reshape(b: LayerBuilder, p: Message) -> None:
    x, shape = b.given(), p.integers("targetShape")
    if p.integer("mode") == 1:
        raise b.unsupported("reshaping with the channels last is not supported")
    if len(shape) not in {3, 4} or (len(shape) == 4 and shape[0] != 1):
        raise b.unsupported(f"reshaping to {shape[:8]} is not supported")
    b.same(b.reshape(x, (b.shape(x)[0], *shape[-3:])))


def _permute(b: LayerBuilder, p: Message) -> None:
    axes = p.integers("axis")
    if len(axes) != 4 or axes[0] != 0 or sorted(axes) != [0, 1, 2, 3]:
        raise b.unsupported(f"the order of axes {axes[:8]} is not supported")
    b.same(b.transposed(b.image(), axes))


def _padding(b: LayerBuilder, p: Message) -> None:
    x = b.image()
    top, left, bottom, right = borders(b, p.message("paddingAmounts"))
    mode = {"constant": "constant", "reflection": "reflect", "replication": "edge"}[
        p.which("constant", "reflection", "replication") or "constant"
    ]
    inputs = [x, b.ints("pads", [0, 0, top, left, 0, 0, bottom, right])]
    if mode == "constant":
        inputs.append(b.number(p.message("constant").real("value"), b.dtype(x)))
    b.give("Pad", inputs, {"mode": mode})


def _upsample(b: LayerBuilder, p: Message) -> None:
    x, factors = b.image(), p.integers("scalingFactor") or [1, 1]
    if p.has("fractionalScalingFactor"):
        factors_real = [float(f) for f in p.reals("fractionalScalingFactor")]
    else:
        factors_real = [float(f) for f in factors]
    sizes = [int(n * f) for n, f in zip(b.shape(x)[2:], factors_real, strict=True)]
    corners = p.integer("linearUpsampleMode")
    mode = "linear" if p.integer("mode") == 1 else "nearest"
    _resize(b, x, sizes, mode, "asymmetric" if mode == "nearest" or not corners else "align_corners" if corners == 1 else "half_pixel")


def _resize(b: LayerBuilder, x: str, sizes: Sequence[int], mode: str, coordinates: str) -> None:
    if len(sizes) != 2 or any(not 0 < s < MAX_WINDOW for s in sizes):
        raise b.bad(f"it scales to {list(sizes)[:8]}")
    attrs: dict[str, AttrValue] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attrs["nearest_mode"] = "floor"
    b.give("Resize", (x, "", "", b.ints("sizes", (*b.shape(x)[:2], *sizes))), attrs)


def _resize_bilinear(b: LayerBuilder, p: Message) -> None:
    method = p.message("mode").integer("samplingMethod")
    if method > 2:
        raise b.unsupported(f"the sampling method {method} is not supported")
    _resize(b, b.image(), p.integers("targetSize") or [1, 1], "linear", "asymmetric" if method == 2 else "align_corners")


def _unary(b: LayerBuilder, p: Message) -> None:
    """``f(scale * x + shift)``."""
    x, kind = b.given(), p.integer("type")
    dtype, scale, shift = b.dtype(x), p.real("scale"), p.real("shift")
    if scale not in {0.0, 1.0}:
        x = b.emit("Mul", (x, b.number(scale, dtype)), what="scaled")
    if shift:
        x = b.emit("Add", (x, b.number(shift, dtype)), what="shifted")
    plain = {0: "Sqrt", 4: "Exp", 5: "Log", 6: "Abs"}
    if kind in plain:
        b.give(plain[kind], (x,))
    elif kind in {1, 2}:
        x = b.emit("Add", (x, b.number(p.real("epsilon") or 1e-6, dtype)), what="epsilon")
        b.give("Reciprocal", (b.emit("Sqrt", (x,)) if kind == 1 else x,))
    else:
        b.give("Pow" if kind == 3 else "Max", (x, b.number(p.real("alpha"), dtype)))


def _with_weights(kind: str, name: str, shape_name: str) -> Lower:
    """Scale or bias by weights of the shape ``[channels]``, ``[1]`` or ``[channels, height, width]``."""

    def lower(b: LayerBuilder, p: Message) -> None:
        x = b.given()
        if kind == "Mul" and p.flag("hasBias"):
            scaled = b.emit("Mul", (x, _column(b, p, name, shape_name)), what="scaled")
            b.give("Add", (scaled, _column(b, p, "bias", "shapeBias")))
        else:
            b.give(kind, (x, _column(b, p, name, shape_name)))

    return lower


def _column(b: LayerBuilder, p: Message, name: str, shape_name: str) -> str:
    shape = p.integers(shape_name)
    return b.weights(p.message(name), name, (*shape, 1, 1) if len(shape) == 1 else shape)


def _lrn(b: LayerBuilder, p: Message) -> None:
    attrs = {"size": p.integer("localSize"), "alpha": p.real("alpha"), "beta": p.real("beta"), "bias": p.real("k", 1.0)}
    b.give("LRN", (b.image(),), attrs)


def _reduce(b: LayerBuilder, p: Message) -> None:
    kinds = ("Sum", "Mean", "Prod", "LogSum", "SumSquare", "L1", "L2", "Max", "Min")
    axes = {0: [1, 2, 3], 1: [2, 3], 2: [1], 3: [2], 4: [3]}.get(p.integer("axis"))
    if not 0 <= p.integer("mode") < len(kinds) or axes is None:
        raise b.unsupported(f"the reduction number {p.integer('mode')} is not supported")
    b.give(f"Reduce{kinds[p.integer('mode')]}", (b.image(), b.ints("axes", axes)), {"keepdims": 1})


def _split(b: LayerBuilder, p: Message) -> None:
    x, count = b.given(), b.results
    if count == 1:
        b.same(x)
        return
    for k, part in enumerate(b.emit_many("Split", (x,), count, {"axis": len(b.shape(x)) - 3, "num_outputs": count})):
        b.same(part, k)


def _slice(b: LayerBuilder, p: Message) -> None:
    """Along channels, height or width; a negative end counts from the back."""
    x = b.image()
    axis, start, stop = 1 + p.integer("axis"), p.integer("startIndex"), p.integer("endIndex")
    stop = b.shape(x)[axis] + stop + 1 if stop < 0 else stop
    named = (("starts", start), ("ends", stop), ("axes", axis), ("steps", p.integer("stride") or 1))
    b.give("Slice", (x, *(b.ints(n, [v]) for n, v in named)))


def _crop(b: LayerBuilder, p: Message) -> None:
    x = b.image()
    if b.count > 1:
        offset, size = p.integers("offset") or [0, 0], b.shape(b.image(1))[2:]
        starts, ends = offset, [o + n for o, n in zip(offset, size, strict=True)]
    else:
        top, left, bottom, right = borders(b, p.message("cropAmounts"))
        starts, ends = [top, left], [b.shape(x)[2] - bottom, b.shape(x)[3] - right]
    b.give("Slice", (x, b.ints("starts", starts), b.ints("ends", ends), b.ints("axes", [2, 3])))


def _reorganize(b: LayerBuilder, p: Message) -> None:
    kinds: dict[int, tuple[str, dict[str, AttrValue]]] = {
        0: ("SpaceToDepth", {}), 1: ("DepthToSpace", {"mode": "DCR"}), 2: ("DepthToSpace", {"mode": "CRD"}),
    }  # fmt: skip
    kind, attrs = kinds[p.integer("mode")]
    b.give(kind, (b.image(),), {"blocksize": p.integer("blockSize"), **attrs})


def _constant(b: LayerBuilder, p: Message) -> None:
    shape = p.integers("shape")
    b.same(b.weights(p.message("data"), "data", shape if b.exact or len(shape) > 3 else (1, *shape)))


def _normalize(b: LayerBuilder, p: Message) -> None:
    """``x / sqrt(sum(x²) + epsilon)`` of each image."""
    x = b.given()
    axes = b.ints("axes", list(range(max(len(b.shape(x)) - 3, 0), len(b.shape(x)))))
    total = b.emit("ReduceSumSquare", (x, axes), {"keepdims": 1}, what="sum")
    shifted = b.emit("Add", (total, b.number(p.real("epsilon") or 1e-6, b.dtype(x))), what="shifted")
    b.give("Div", (x, b.emit("Sqrt", (shifted,))))


def _mean_variance(b: LayerBuilder, p: Message) -> None:
    x = b.image()
    if not p.flag("normalizeVariance"):
        axes = b.ints("axes", [1, 2, 3] if p.flag("acrossChannels") else [2, 3])
        b.give("Sub", (x, b.emit("ReduceMean", (x, axes), {"keepdims": 1})))
        return
    shape, groups = b.shape(x), 1 if p.flag("acrossChannels") else b.shape(x)[1]
    ones, zeros = (b.constant(n, np.full(groups, v, np.float32)) for n, v in (("ones", 1), ("zeros", 0)))
    flat = x if groups > 1 else b.reshape(x, (shape[0], 1, math.prod(shape[1:])), what="flat")
    y = b.emit("InstanceNormalization", (flat, ones, zeros), {"epsilon": p.real("epsilon") or 1e-5})
    b.same(y if groups > 1 else b.reshape(y, shape))


LOWERINGS: dict[str, Lower] = {
    "activation": _activation, "batchnorm": _batchnorm,
    "add": _binary("Add"), "multiply": _binary("Mul"), "average": _average, "max": _extreme("Max"), "min": _extreme("Min"),
    "softmax": _softmax, "concat": _concat, "flatten": _flatten, "reshape": _reshape, "permute": _permute, "padding": _padding,
    "upsample": _upsample, "resizeBilinear": _resize_bilinear, "unary": _unary, "scale": _with_weights("Mul", "scale", "shapeScale"),
    "bias": _with_weights("Add", "bias", "shape"), "lrn": _lrn, "reduce": _reduce, "split": _split, "slice": _slice, "crop": _crop,
    "reorganizeData": _reorganize, "loadConstant": _constant, "loadConstantND": _constant, "l2normalize": _normalize,
    "mvn": _mean_variance,
}  # fmt: skip
