"""Convolutions, matrix products, attention and pooling of an exported program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hetsched.frontends.torch_builder import Builder
from hetsched.graph import AttrValue, DType

Lower = Callable[[Builder], None]


def _spatial(b: Builder, weight: str) -> int:
    rank = len(b.shape(weight)) - 2
    if rank not in {1, 2, 3}:
        raise b.bad(f"its weight has {rank + 2} dimensions")
    return rank


def _batched(b: Builder, x: str, rank: int) -> tuple[str, bool]:
    """The input with a batch axis, and whether that had to be added."""
    if len(b.shape(x)) == rank + 2:
        return x, False
    if len(b.shape(x)) != rank + 1:
        raise b.bad(f"its input has {len(b.shape(x))} dimensions")
    return b.emit("Unsqueeze", (x, b.ints("batch", [0])), what="batched"), True


def _finish(b: Builder, kind: str, inputs: Sequence[str], attrs: dict[str, AttrValue], added: bool) -> None:
    if added:
        b.put("Squeeze", (b.emit(kind, inputs, attrs), b.ints("unbatched", [0])))
    else:
        b.put(kind, inputs, attrs)


def _convolution(b: Builder) -> None:
    """``conv1d``, ``conv2d``, ``conv3d`` and their ``.padding`` forms, ``convolution``, ``conv_transpose*``."""
    weight = b.tensor_of("weight")
    rank = _spatial(b, weight)
    x, added = _batched(b, b.tensor_of("input"), rank)
    kernel, group = b.shape(weight)[2:], b.int_of("groups", 1)
    strides, dilations = b.pair_of("stride", rank, [1]), b.pair_of("dilation", rank, [1])
    transposed = b.flag("transposed") or "conv_transpose" in b.kind
    if b.has("padding") and "as_string" in b.current.args["padding"]:
        pads = _named_padding(b, kernel, dilations)
    else:
        pads = b.pair_of("padding", rank, [0]) * 2
    attrs: dict[str, AttrValue] = {
        "kernel_shape": tuple(kernel), "strides": tuple(strides), "dilations": tuple(dilations), "pads": tuple(pads), "group": group,
    }  # fmt: skip
    if any(v < 1 for v in (*strides, *dilations, group)) or any(p < 0 for p in pads):
        raise b.bad(f"its strides are {strides}, its dilations {dilations}, its padding {pads} and its groups {group}")
    if transposed:
        attrs["output_padding"] = tuple(b.pair_of("output_padding", rank, [0]))
    bias = (b.tensor_of("bias"),) if b.has("bias") else ()
    _finish(b, "ConvTranspose" if transposed else "Conv", (x, weight, *bias), attrs, added)


def _named_padding(b: Builder, kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    name = b.text_of("padding", "valid")
    if name not in {"same", "valid"}:
        raise b.bad(f"its padding is {name[:20]!r}")
    total = [(k - 1) * d if name == "same" else 0 for k, d in zip(kernel, dilations, strict=True)]
    return [t // 2 for t in total] + [t - t // 2 for t in total]


def _linear(b: Builder) -> None:
    """``x @ W.T + bias``: Gemm of a matrix; of more axes MatMul with the weight turned over, which is a view."""
    x, weight = b.tensor_of("input"), b.tensor_of("weight")
    bias = b.maybe("bias")
    if len(b.shape(weight)) != 2:
        raise b.bad(f"its weight has {len(b.shape(weight))} dimensions")
    if len(b.shape(x)) == 2:
        b.put("Gemm", (x, weight, bias) if bias else (x, weight), {"transB": 1})
        return
    if b.tensor(weight).is_packed and b.tensor(weight).is_constant:
        shape = b.shape(x)
        rows = b.reshape(x, (-1, shape[-1]), what="rows")
        y = b.emit("Gemm", (rows, weight, bias) if bias else (rows, weight), {"transB": 1})
        b.alias(b.reshape(y, (*shape[:-1], b.shape(weight)[0]), out=b.result_name()))
        return
    right = _turned(b, weight)
    if bias:
        b.put("Add", (b.emit("MatMul", (x, right)), bias))
    else:
        b.put("MatMul", (x, right))


def _turned(b: Builder, weight: str) -> str:
    """``weight`` transposed; of a dequantized constant the constant is, so that it stays next to the product."""
    producer = next((op for op in reversed(b.ops) if weight in op.outputs), None)
    if producer is None or producer.type != "DequantizeLinear" or not b.tensor(producer.inputs[0]).is_constant:
        return b.transposed(weight, (1, 0))
    stored = b.transposed(producer.inputs[0], (1, 0))
    attrs = dict(producer.attrs)
    if len(b.shape(producer.inputs[1])) == 1:
        attrs["axis"] = 1 - producer.attr_int("axis", 1) % 2
    return b.emit("DequantizeLinear", (stored, *producer.inputs[1:]), attrs, what="weight")


def _add_product(b: Builder) -> None:
    """``beta * self + alpha * mat1 @ mat2`` (addmm, baddbmm)."""
    names = ("mat1", "mat2") if b.has("mat1") else ("batch1", "batch2")
    left, right, c = b.tensor_of(names[0]), b.tensor_of(names[1]), b.tensor_of("self")
    alpha, beta = float(b.number_of("alpha", 1)), float(b.number_of("beta", 1))
    if len(b.shape(left)) == 2 and b.dtype(left).is_float:
        attrs: dict[str, AttrValue] = {}
        right, flipped = _unturned(b, right)
        attrs.update({"transB": 1} if flipped else {}, **({"alpha": alpha} if alpha != 1 else {}), **({"beta": beta} if beta != 1 else {}))
        b.put("Gemm", (left, right, c), attrs)
        return
    product = b.emit("MatMul", (left, right))
    for factor, which in ((alpha, "product"), (beta, "c")):
        if factor != 1:
            scaled = b.emit("Mul", (product if which == "product" else c, b.number(factor, b.dtype(left))), what="scaled")
            product, c = (scaled, c) if which == "product" else (product, scaled)
    b.put("Add", (product, c))


def _unturned(b: Builder, right: str) -> tuple[str, bool]:
    """The weight that was transposed before the product (``addmm(b, x, w.t())``), and whether it was."""
    producer = next((op for op in reversed(b.ops) if right in op.outputs), None)
    if producer is not None and producer.type == "Transpose" and producer.attr_ints("perm", ()) == (1, 0):
        return producer.inputs[0], True
    return right, False


def _product(left: str, right: str) -> Lower:
    return lambda b: b.put("MatMul", (b.tensor_of(left), b.tensor_of(right)))


def _outer(b: Builder) -> None:
    dtype, name = b.meta().dtype, "vec2" if b.has("vec2") else "other"
    b.put("Mul", (b.reshape(b.operand("self", dtype), (-1, 1), what="column"), b.operand(name, dtype)))


def _einsum(b: Builder) -> None:
    b.put("Einsum", b.tensors_of("tensors"), {"equation": b.text_of("equation", "")})


def _attention(b: Builder) -> None:
    """Scaled dot-product attention, as exporters write it out: MatMul, Mul, Add, Softmax, MatMul."""
    q, k, v = (b.tensor_of(n) for n in ("query", "key", "value"))
    if min(len(b.shape(t)) for t in (q, k, v)) < 2 or len(b.shape(q)) != len(b.shape(k)):
        raise b.bad("its query, key and value have different numbers of axes")
    if float(b.number_of("dropout_p", 0.0)) > 0:
        raise b.unsupported("attention with dropout is not supported: export the model for inference")
    heads, kv_heads = (b.shape(q)[-3], b.shape(k)[-3]) if len(b.shape(q)) > 3 else (1, 1)
    if heads != kv_heads:
        if not b.flag("enable_gqa") or kv_heads == 0 or heads % kv_heads:
            raise b.bad(f"it has {heads} query heads and {kv_heads} key heads")
        k, v = _repeated(b, k, heads // kv_heads, "keys"), _repeated(b, v, heads // kv_heads, "values")
    scale = float(b.number_of("scale", 1 / math.sqrt(max(b.shape(q)[-1], 1))))
    order = list(range(len(b.shape(k))))
    scores = b.emit("MatMul", (q, b.transposed(k, (*order[:-2], order[-1], order[-2]), what="keys_turned")), what="scores")
    scores = b.emit("Mul", (scores, b.number(scale, b.dtype(q))), what="scaled")
    mask = _mask(b, b.shape(scores), b.dtype(q))
    if mask:
        scores = b.emit("Add", (scores, mask), what="masked")
    b.put("MatMul", (b.emit("Softmax", (scores,), {"axis": -1}), v))


def _repeated(b: Builder, x: str, times: int, what: str) -> str:
    """Each head ``times`` times in a row."""
    shape = b.shape(x)
    wide = b.emit("Unsqueeze", (x, b.ints("axis", [len(shape) - 2])), what=f"{what}_5d")
    target = (*shape[:-2], times, *shape[-2:])
    return b.reshape(b.emit("Expand", (wide, b.ints("repeats", target)), what=f"{what}_repeated"),
                     (*shape[:-3], shape[-3] * times, *shape[-2:]), what=what)  # fmt: skip


def _mask(b: Builder, scores: tuple[int, ...], dtype: DType) -> str:
    """What is added to the scores; ``""`` for nothing. A mask of truth values says which are kept."""
    name = "attn_mask" if b.has("attn_mask") else "attn_bias"
    if b.flag("is_causal"):
        if scores[-1] * scores[-2] > 1 << 26:
            raise b.unsupported(f"its causal mask has {scores[-2]} x {scores[-1]} elements, which is too many")
        kept = np.tril(np.ones(scores[-2:], np.bool_))
        if not dtype.is_float or dtype is DType.BF16:
            raise b.unsupported(f"a causal mask of {dtype.value} is not supported")
        return b.constant("causal", np.where(kept, dtype.numpy.type(0), dtype.numpy.type(-np.inf)))
    if not b.has(name):
        return ""
    mask = b.tensor_of(name)
    if b.dtype(mask) is DType.BOOL:
        return b.emit("Where", (mask, b.number(0.0, dtype), b.number(-math.inf, dtype)), what="mask")
    return b.cast(mask, dtype)


def _pool(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        rank = 1 if "1d" in b.kind else 3 if "3d" in b.kind else 2
        x, added = _batched(b, b.tensor_of("self"), rank)
        kernel = b.pair_of("kernel_size", rank, [])
        attrs: dict[str, AttrValue] = {
            "kernel_shape": tuple(kernel), "strides": tuple(b.pair_of("stride", rank, kernel)),
            "pads": tuple(b.pair_of("padding", rank, [0]) * 2), "ceil_mode": int(b.flag("ceil_mode")),
        }  # fmt: skip
        if any(v < 1 for v in (*kernel, *b.pair_of("stride", rank, kernel))):
            raise b.bad(f"its kernel is {kernel}")
        if kind == "AveragePool":
            attrs["count_include_pad"] = int(b.flag("count_include_pad", True))
            if b.has("divisor_override"):
                raise b.unsupported("average pooling with a divisor of its own is not supported")
        else:
            attrs["dilations"] = tuple(b.pair_of("dilation", rank, [1]))
        _finish(b, kind, (x,), attrs, added)

    return lower


def _adaptive_pool(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        rank = 1 if "1d" in b.kind else 3 if "3d" in b.kind else 2
        x, added = _batched(b, b.tensor_of("self"), rank)
        size, wanted = b.shape(x)[2:], b.pair_of("output_size", rank, [])
        if all(w == 1 for w in wanted):
            _finish(b, f"Global{kind}", (x,), {}, added)
            return
        if any(w < 1 or n % w for n, w in zip(size, wanted, strict=True)):
            raise b.unsupported(f"adaptive pooling of {list(size)} to {wanted} has windows of different sizes: choose a divisor")
        kernel = tuple(n // w for n, w in zip(size, wanted, strict=True))
        _finish(b, kind, (x,), {"kernel_shape": kernel, "strides": kernel}, added)

    return lower


def _embedding(b: Builder) -> None:
    b.put("Gather", (b.tensor_of("weight"), b.tensor_of("indices")), {"axis": 0})


_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution", "_convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_ATTENTION = (
    "scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_attention_math",
)  # fmt: skip
_RANKS = ("1d", "2d", "3d")
LOWERINGS: dict[str, Lower] = {
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    **dict.fromkeys(_ATTENTION, _attention),
    **{f"max_pool{r}": _pool("MaxPool") for r in _RANKS},
    **{f"max_pool{r}_with_indices": _pool("MaxPool") for r in _RANKS},
    **{f"avg_pool{r}": _pool("AveragePool") for r in _RANKS},
    **{f"{prefix}adaptive_avg_pool{r}": _adaptive_pool("AveragePool") for r in _RANKS for prefix in ("", "_")},
    **{f"adaptive_max_pool{r}": _adaptive_pool("MaxPool") for r in _RANKS},
    "linear": _linear, "addmm": _add_product, "baddbmm": _add_product, "mm": _product("self", "mat2"), "bmm": _product("self", "mat2"),
    "matmul": _product("self", "other"), "mv": _product("self", "vec"), "dot": _product("self", "tensor"), "einsum": _einsum,
    "embedding": _embedding, "outer": _outer, "ger": _outer,
}  # fmt: skip
