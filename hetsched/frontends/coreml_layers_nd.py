"""Layers of classic neural networks on arrays of any rank (Core ML 3 and newer)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hetsched.frontends.coreml_elementwise import without_threshold
from hetsched.frontends.coreml_layer_builder import LayerBuilder
from hetsched.frontends.coreml_wire import Message
from hetsched.graph import DType

Lower = Callable[[LayerBuilder, Message], None]


def _rank(b: LayerBuilder) -> int:
    return len(b.shape(b.given()))


def _unary(kind: str) -> Lower:
    return lambda b, p: b.give(kind, (b.given(),))


def _binary(kind: str) -> Lower:
    def lower(b: LayerBuilder, p: Message) -> None:
        parts = b.given_all()
        if len(parts) < 2:
            raise b.bad("it has one input")
        x = parts[0]
        for part in parts[1:-1]:
            x = b.emit(kind, (x, part))
        b.give(kind, without_threshold(b, (x, parts[-1])) if kind == "Mul" else (x, parts[-1]))

    return lower


def _softmax(b: LayerBuilder, p: Message) -> None:
    b.give("Softmax", (b.given(),), {"axis": b.axis(p.integer("axis"), _rank(b))})


def _concat(b: LayerBuilder, p: Message) -> None:
    if p.flag("interleave"):
        raise b.unsupported("interleaved joining is not supported")
    b.give("Concat", b.given_all(), {"axis": b.axis(p.integer("axis"), _rank(b))})


def _stack(b: LayerBuilder, p: Message) -> None:
    axis = b.axis(p.integer("axis"), _rank(b) + 1)
    wide = [b.emit("Unsqueeze", (x, b.ints("axis", [axis])), what=f"part{k}") for k, x in enumerate(b.given_all())]
    b.give("Concat", wide, {"axis": axis})


def _split(b: LayerBuilder, p: Message) -> None:
    x, axis = b.given(), b.axis(p.integer("axis"), _rank(b))
    sizes = p.integers("splitSizes") or [b.shape(x)[axis] // b.results] * b.results
    if len(sizes) != b.results or sum(sizes) != b.shape(x)[axis]:
        raise b.bad(f"it splits {b.shape(x)[axis]} elements into {sizes[:8]}")
    for k, part in enumerate(b.emit_many("Split", (x, b.ints("sizes", sizes)), b.results, {"axis": axis}) if b.results > 1 else [x]):
        b.same(part, k)


def _transpose(b: LayerBuilder, p: Message) -> None:
    axes = p.integers("axes")
    if sorted(axes) != list(range(_rank(b))):
        raise b.bad(f"its order of axes is {axes[:8]}")
    b.same(b.transposed(b.given(), axes))


def _squeeze(b: LayerBuilder, p: Message) -> None:
    shape = b.shape(b.given())
    axes = [k for k, n in enumerate(shape) if n == 1] if p.flag("squeezeAll") else [b.axis(a, len(shape)) for a in p.integers("axes")]
    b.give("Squeeze", (b.given(), b.ints("axes", axes)))


def _expand(b: LayerBuilder, p: Message) -> None:
    axes = p.integers("axes")
    b.give("Unsqueeze", (b.given(), b.ints("axes", [b.axis(a, _rank(b) + len(axes)) for a in axes])))


def _reshape(b: LayerBuilder, p: Message) -> None:
    b.same(b.reshape(b.given(), p.integers("targetShape")))


def _flatten(b: LayerBuilder, p: Message) -> None:
    b.give("Flatten", (b.given(),), {"axis": b.axis(p.integer("axis"), _rank(b) + 1)})


def _slice(b: LayerBuilder, p: Message) -> None:
    x = b.given()
    rank, shape = _rank(b), b.shape(x)
    begin, end, step = p.integers("beginIds"), p.integers("endIds"), p.integers("strides") or [1] * rank
    first, last, dropped = (p.integers(n) or [0] * rank for n in ("beginMasks", "endMasks", "squeezeMasks"))
    if any(len(v) != rank for v in (begin, end, step, first, last, dropped)) or 0 in step:
        raise b.bad(f"it slices {rank} axes from {begin[:8]} to {end[:8]}")
    rows = []
    for k, n in enumerate(shape):
        at = begin[k] + n if begin[k] < 0 else begin[k]
        cut = slice(at, at + 1, 1) if dropped[k] else slice(None if first[k] else begin[k], None if last[k] else end[k], step[k])
        start, stop, stride = cut.indices(n)
        rows.append((start, stop if stride > 0 or stop >= 0 else -(1 << 62), k, stride))
    named = zip(("starts", "ends", "axes", "steps"), zip(*rows, strict=True), strict=True)
    y = b.emit("Slice", (x, *(b.ints(n, v) for n, v in named)))
    gone = [k for k in range(rank) if dropped[k]]
    b.same(b.emit("Squeeze", (y, b.ints("dropped", gone))) if gone else y)


def _reduce(kind: str) -> Lower:
    def lower(b: LayerBuilder, p: Message) -> None:
        rank = _rank(b)
        axes = list(range(rank)) if p.flag("reduceAll") else sorted(b.axis(a, rank) for a in p.integers("axes") or [-1])
        b.give(kind, (b.given(), b.ints("axes", axes)), {"keepdims": int(p.flag("keepDims"))})

    return lower


def _arg(kind: str) -> Lower:
    def lower(b: LayerBuilder, p: Message) -> None:
        attrs = {"axis": b.axis(p.integer("axis"), _rank(b)), "keepdims": int(not p.flag("removeDim"))}
        b.give(kind, (b.given(),), attrs)

    return lower


def _matmul(b: LayerBuilder, p: Message) -> None:
    sides = b.given_all()
    if len(sides) == 1:
        rows, columns = p.integer("weightMatrixFirstDimension"), p.integer("weightMatrixSecondDimension")
        sides.append(b.weights(p.message("weights"), "weights", (rows, columns)))
    for k, name in enumerate(("transposeA", "transposeB")):
        rank = len(b.shape(sides[k]))
        if p.flag(name) and rank > 1:
            sides[k] = b.transposed(sides[k], (*range(rank - 2), rank - 1, rank - 2), what=name)
    if p.flag("hasBias"):
        product = b.emit("MatMul", sides)
        b.give("Add", (product, b.weights(p.message("bias"), "bias", (b.shape(product)[-1],))))
    else:
        b.give("MatMul", sides)


def _embedding(b: LayerBuilder, p: Message) -> None:
    """Rows of a table; the file has it as ``[embedding, vocabulary]``, and an index is a float of one element."""
    size, width = p.integer("vocabSize"), p.integer("embeddingSize")
    table = b.transposed(b.weights(p.message("weights"), "weights", (width, size)), (1, 0))
    index = b.cast(b.given(), DType.I32)
    if b.shape(index)[-1:] == (1,):
        index = b.emit("Squeeze", (index, b.ints("last", [len(b.shape(index)) - 1])), what="index")
    if p.flag("hasBias"):
        rows = b.emit("Gather", (table, index), {"axis": 0})
        b.give("Add", (rows, b.weights(p.message("bias"), "bias", (width,))))
    else:
        b.give("Gather", (table, index), {"axis": 0})


def _gather(b: LayerBuilder, p: Message) -> None:
    b.give("Gather", (b.given(), b.cast(b.given(1), DType.I32)), {"axis": b.axis(p.integer("axis"), _rank(b))})


def _layer_norm(b: LayerBuilder, p: Message) -> None:
    shape = p.integers("normalizedShape")
    gamma, beta = (b.weights(p.message(n), n, shape) for n in ("gamma", "beta"))
    b.give("LayerNormalization", (b.given(), gamma, beta), {"axis": -len(shape), "epsilon": p.real("eps") or 1e-5})


def _clip(b: LayerBuilder, p: Message) -> None:
    x = b.given()
    b.give("Clip", (x, b.number(p.real("minVal"), b.dtype(x)), b.number(p.real("maxVal"), b.dtype(x))))


def _gelu(b: LayerBuilder, p: Message) -> None:
    x, mode = b.given(), p.integer("mode")
    if mode == 2:
        inner = b.emit("Mul", (x, b.number(1.702, b.dtype(x))), what="scaled")
        b.give("Mul", (x, b.emit("Sigmoid", (inner,))))
    else:
        b.give("Gelu", (x,), {"approximate": "tanh" if mode == 1 else "none"})


def _pad(b: LayerBuilder, p: Message) -> None:
    x, amounts = b.given(), p.integers("padAmounts")
    if p.flag("padToGivenOutputSizeMode") or len(amounts) != 2 * _rank(b) or any(not 0 <= a < 1 << 31 for a in amounts):
        raise b.unsupported(f"padding by {amounts[:16]} is not supported")
    b.give("Pad", (x, b.ints("pads", amounts[::2] + amounts[1::2]), b.number(p.real("value"), b.dtype(x))), {"mode": "constant"})


def _tile(b: LayerBuilder, p: Message) -> None:
    b.give("Tile", (b.given(), b.ints("repeats", p.integers("reps"))))


def _top_k(b: LayerBuilder, p: Message) -> None:
    attrs = {"axis": b.axis(p.integer("axis"), _rank(b)), "largest": int(not p.flag("useBottomK")), "sorted": 1}
    count = b.constant("k", np.array([p.integer("K")], np.int64))
    for k, part in enumerate(b.emit_many("TopK", (b.given(), count), 2, attrs)[: b.results]):
        b.same(part, k)


_REDUCTIONS = ("Max", "Min", "Sum", "Prod", "Mean", "L1", "L2")
_UNARY = ("ceil", "floor", "sign", "round", "sin", "cos", "tanh", "erf")
_BINARY = {"min": "Min", "max": "Max", "add": "Add", "pow": "Pow", "divide": "Div", "multiply": "Mul", "subtract": "Sub"}
LOWERINGS: dict[str, Lower] = {
    **{name: _unary(name.capitalize()) for name in _UNARY},
    **{f"{name}Broadcastable": _binary(kind) for name, kind in _BINARY.items()},
    **{f"reduce{kind}": _reduce(f"Reduce{kind}") for kind in _REDUCTIONS},
    "softmaxND": _softmax, "concatND": _concat, "stack": _stack, "splitND": _split, "transpose": _transpose, "squeeze": _squeeze,
    "expandDims": _expand, "reshapeStatic": _reshape, "rankPreservingReshape": _reshape, "flattenTo2D": _flatten, "sliceStatic": _slice,
    "argMax": _arg("ArgMax"), "argMin": _arg("ArgMin"), "batchedMatmul": _matmul, "embeddingND": _embedding, "gather": _gather,
    "layerNormalization": _layer_norm, "clip": _clip, "gelu": _gelu, "constantPad": _pad, "tile": _tile, "topK": _top_k,
    "copy": lambda b, p: b.same(b.given()),
}  # fmt: skip
