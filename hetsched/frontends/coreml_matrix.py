"""Convolutions, matrix products, attention and pooling of ML programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hetsched.frontends.coreml_builder import MilBuilder
from hetsched.graph import AttrValue, DType

Lower = Callable[[MilBuilder], None]
_MAX_WINDOW = 1 << 20


def same_pads(size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], lower: bool) -> list[int]:
    """Padding (all begins, then all ends) with which the output has ``ceil(size / stride)`` elements; the odd one comes last."""
    begins, ends = [], []
    for n, k, s, d in zip(size, kernel, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        begins.append(total - total // 2 if lower else total // 2)
        ends.append(total - begins[-1])
    return begins + ends


def _numbers(b: MilBuilder, name: str, count: int, default: int) -> list[int]:
    values = b.ints_of(name, [default] * count)
    if len(values) != count or any(not 0 <= v < _MAX_WINDOW for v in values):
        raise b.bad(f"its argument {name!r} is {values[:8]}, and {count} numbers are expected")
    return values


def _pads(b: MilBuilder, size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    kind = b.text_of("pad_type", "valid")
    if kind == "custom":
        pairs = _numbers(b, "pad", 2 * len(kernel), 0)
        return pairs[::2] + pairs[1::2]
    if kind in {"same", "same_lower"}:
        return same_pads(size, kernel, strides, dilations, kind == "same_lower")
    if kind != "valid":
        raise b.bad(f"its pad_type is {kind[:20]!r}")
    return [0] * (2 * len(kernel))


def _conv(b: MilBuilder) -> None:
    x, weight = b.tensor_of("x"), b.tensor_of("weight")
    rank, kernel = len(b.shape(x)) - 2, b.shape(weight)[2:]
    strides, dilations = _numbers(b, "strides", rank, 1), _numbers(b, "dilations", rank, 1)
    if rank < 1 or len(kernel) != rank or 0 in strides or 0 in dilations:
        raise b.bad(f"its weight {list(b.shape(weight))} or its strides {strides} do not fit its input {list(b.shape(x))}")
    attrs: dict[str, AttrValue] = {
        "kernel_shape": tuple(kernel), "strides": tuple(strides), "dilations": tuple(dilations),
        "pads": tuple(_pads(b, b.shape(x)[2:], kernel, strides, dilations)), "group": b.int_of("groups", 1),
    }  # fmt: skip
    bias = (b.tensor_of("bias"),) if b.has("bias") else ()
    b.put("Conv", (x, weight, *bias), attrs)


def _conv_transpose(b: MilBuilder) -> None:
    x, weight = b.tensor_of("x"), b.tensor_of("weight")
    rank, kernel = len(b.shape(x)) - 2, b.shape(weight)[2:]
    strides, dilations = _numbers(b, "strides", rank, 1), _numbers(b, "dilations", rank, 1)
    if rank < 1 or len(kernel) != rank or 0 in strides:
        raise b.bad(f"its weight {list(b.shape(weight))} does not fit its input {list(b.shape(x))}")
    full = [(n - 1) * s + (k - 1) * d + 1 for n, k, s, d in zip(b.shape(x)[2:], kernel, strides, dilations, strict=True)]
    wanted = b.ints_of("output_shape", [])[-rank:]
    if not wanted and b.text_of("pad_type", "valid").startswith("same"):
        wanted = [n * s for n, s in zip(b.shape(x)[2:], strides, strict=True)]
    attrs: dict[str, AttrValue] = {
        "kernel_shape": tuple(kernel), "strides": tuple(strides), "dilations": tuple(dilations), "group": b.int_of("groups", 1),
    }  # fmt: skip
    if wanted:
        total = [f - w for f, w in zip(full, wanted, strict=True)]
        begins = [max(t, 0) // 2 for t in total]
        given = _pads(b, b.shape(x)[2:], kernel, strides, dilations)
        if [p + q for p, q in zip(given[:rank], given[rank:], strict=True)] == total:  # an output shape that says nothing new
            begins = given[:rank]
        attrs["pads"] = (*begins, *(max(t, 0) - p for t, p in zip(total, begins, strict=True)))
        attrs["output_padding"] = tuple(max(-t, 0) for t in total)
    else:
        attrs["pads"] = tuple(_pads(b, b.shape(x)[2:], kernel, strides, dilations))
    bias = (b.tensor_of("bias"),) if b.has("bias") else ()
    b.put("ConvTranspose", (x, weight, *bias), attrs)


def _pool(kind: str) -> Lower:
    def lower(b: MilBuilder) -> None:
        x = b.tensor_of("x")
        kernel = b.ints_of("kernel_sizes")
        rank, size = len(kernel), b.shape(x)[2:]
        strides = _numbers(b, "strides", rank, 1)
        if rank != len(size) or any(not 0 < k < _MAX_WINDOW for k in (*kernel, *strides)):
            raise b.bad(f"its kernel {kernel[:8]} does not fit its input {list(b.shape(x))}")
        pads = _pads(b, size, kernel, strides, [1] * rank)
        if tuple(kernel) == size and not any(pads):
            b.put(f"Global{kind}", (x,))
            return
        attrs: dict[str, AttrValue] = {
            "kernel_shape": tuple(kernel), "strides": tuple(strides), "pads": tuple(pads), "ceil_mode": int(b.flag("ceil_mode")),
        }  # fmt: skip
        if kind == "AveragePool":
            attrs["count_include_pad"] = int(not b.flag("exclude_padding_from_average"))
        b.put(kind, (x,), attrs)

    return lower


def _linear(b: MilBuilder) -> None:
    """``x @ weight.T + bias``: Gemm of a matrix; of more axes MatMul with the weight turned over, which is a view."""
    x, weight = b.tensor_of("x"), b.tensor_of("weight")
    bias = (b.tensor_of("bias"),) if b.has("bias") and not _is_zero(b, "bias") else ()
    shape, depth = b.shape(x), b.shape(weight)
    if len(depth) != 2 or not shape or shape[-1] != depth[1]:
        raise b.bad(f"its weight {list(depth)} does not fit its input {list(shape)}")
    if len(shape) == 2:
        b.put("Gemm", (x, weight, *bias), {"transB": 1})
        return
    if b.tensor(weight).is_sparse or b.tensor(weight).is_packed or not b.tensor(weight).is_constant:
        rows = b.reshape(x, (-1, depth[1]), what="rows")
        y = b.emit("Gemm", (rows, weight, *bias), {"transB": 1})
        b.alias(b.reshape(y, (*shape[:-1], depth[0]), out=b.result()[0]))
        return
    right = b.transposed(weight, (1, 0))
    if bias:
        b.put("Add", (b.emit("MatMul", (x, right)), *bias))
    else:
        b.put("MatMul", (x, right))


def _is_zero(b: MilBuilder, name: str) -> bool:
    value = b.known(name)
    return value is not None and value.array is not None and not value.array.any()


def _matmul(b: MilBuilder) -> None:
    sides = []
    for name in ("x", "y"):
        side = b.tensor_of(name)
        rank = len(b.shape(side))
        if b.flag(f"transpose_{name}") and rank > 1:
            side = b.transposed(side, (*range(rank - 2), rank - 1, rank - 2), what=f"{name}_turned")
        sides.append(side)
    b.put("MatMul", sides)


def _einsum(b: MilBuilder) -> None:
    b.put("Einsum", b.tensors_of("values"), {"equation": b.text_of("equation", "")})


def _attention(b: MilBuilder) -> None:
    """Scaled dot-product attention, as exporters write it out."""
    q, k, v = (b.tensor_of(n) for n in ("query", "key", "value"))
    rank = len(b.shape(k))
    if rank < 3 or len(b.shape(q)) != rank:
        raise b.bad(f"its query {list(b.shape(q))} and key {list(b.shape(k))} do not fit")
    turned = b.transposed(k, (*range(rank - 2), rank - 1, rank - 2), what="keys_turned")
    scores = b.emit("MatMul", (q, turned), what="scores")
    scores = b.emit("Mul", (scores, b.number(1 / math.sqrt(max(b.shape(q)[-1], 1)), b.dtype(q))), what="scaled")
    if b.has("attn_mask"):
        mask = b.tensor_of("attn_mask")
        if b.dtype(mask) is DType.BOOL:
            low = b.constant("masked_out", np.array(-np.inf, b.dtype(q).numpy))
            mask = b.emit("Where", (mask, b.number(0, b.dtype(q)), low), what="mask")
        scores = b.emit("Add", (scores, mask), what="masked")
    b.put("MatMul", (b.emit("Softmax", (scores,), {"axis": -1}), v))


LOWERINGS: dict[str, Lower] = {
    "conv": _conv, "conv_transpose": _conv_transpose, "max_pool": _pool("MaxPool"), "avg_pool": _pool("AveragePool"), "linear": _linear,
    "matmul": _matmul, "einsum": _einsum, "scaled_dot_product_attention": _attention,
}  # fmt: skip
