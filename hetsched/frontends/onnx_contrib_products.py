"""Matrix products of ``com.microsoft`` on integers and on weights of a few bits.

``MatMulNBits``, ``GatherBlockQuantized`` and ``MatMulBnb4`` keep their names, without the domain, as composites. Their packed
weights become tensors of the true element type and shape, whose ``quantization`` says where the scales are; the bytes stay
where they lie in the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hetsched.frontends.onnx_expansion import Expansion
from hetsched.frontends.onnx_packed import default_zero_points, packed_zero_points, unsigned, weight
from hetsched.graph import AttrValue, DType, Quantization
from hetsched.reference.element_types import NUMBER_OF

#: Values of 4-bit codes, as bitsandbytes defines them (functional.py: create_fp4_map, create_normal_map).
_BNB4 = {
    0: (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25,
        0.0, -5.208333333e-03, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25),
    1: (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
        -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
}  # fmt: skip


def float_product(e: Expansion, a: str, b: str, scales: tuple[str, str], zeros: tuple[str, str], bias: str, out: str) -> str:
    """``A · B [+ bias]`` of integers that stand for reals, as a float; with constant scales as a product of dequantized operands."""
    if all(e.trace.tensor(s).is_constant for s in scales):
        left = e.add("DequantizeLinear", (a, _scalar(e, scales[0]), _scalar(e, zeros[0])))
        per_column: dict[str, AttrValue] = {"axis": len(e.shape(b)) - 1}
        right = e.add("DequantizeLinear", (b, _scalar(e, scales[1]), _scalar(e, zeros[1])), per_column)
        product = e.add("MatMul", (left, right), {}, "" if bias else out)
    else:
        summed = e.add("Cast", (e.add("MatMulInteger", (a, b, *zeros)),), {"to": NUMBER_OF[e.dtype(scales[0])]})
        product = e.add("Mul", (summed, e.add("Mul", scales)), {}, "" if bias else out)
    return e.add("Add", (product, bias), {}, out) if bias else product


def dynamic_product(e: Expansion, x: str, b: str, scale: str, zero: str, bias: str, out: str) -> str:
    """``x · B [+ bias]`` where ``x`` is float and quantized as it comes."""
    a, a_scale, a_zero = e.add_many("DynamicQuantizeLinear", (x,), [e.fresh(k) for k in ("quantized", "scale", "zero_point")])
    return float_product(e, a, b, (a_scale, scale), (a_zero, zero), bias, out)


def _scalar(e: Expansion, name: str) -> str:
    """A constant of one element without axes, as DequantizeLinear wants it."""
    return e.reshape(name) if name and e.shape(name) == (1,) else name


def _matmul_integer_to_float(e: Expansion) -> None:
    a, b, a_scale, b_scale = (e.input(i) for i in range(4))
    float_product(e, a, b, (a_scale, b_scale), (e.optional(4), e.optional(5)), e.optional(6), e.output())


def _dynamic_quantize_matmul(e: Expansion) -> None:
    dynamic_product(e, e.input(0), e.input(1), e.input(2), e.optional(3), e.optional(4), e.output())


def _matmul_n_bits(e: Expansion) -> None:
    n, k = e.op.attr_int("N", 0), e.op.attr_int("K", 0)
    bits, group = e.op.attr_int("bits", 4), e.op.attr_int("block_size", 32)
    if bits not in {2, 4, 8} or n <= 0 or k <= 0 or group < 8 or group % (8 // bits):
        raise e.refuse(f"has {bits} bits, N = {n}, K = {k} and blocks of {group}")
    blocks = -(-k // group)
    dtype = unsigned(bits)
    scales = e.reshape(e.input(2), n, blocks)
    zeros, given = "", e.has(3)
    if not given:
        zeros = default_zero_points(e, (n, blocks), dtype)
    elif not e.dtype(e.input(3)).is_float:
        zeros = packed_zero_points(e, 3, n, blocks, dtype)
    index = _group_index(e, k, group)
    meaning = Quantization(scales, zeros or None, "group", 1, group) if zeros and not index else None
    w = weight(e, 1, (n, blocks * group), dtype, meaning)

    def build() -> None:
        if meaning is not None:
            real = e.add("DequantizeLinear", (w, scales, zeros), {"axis": 1, "block_size": group})
            if blocks * group != k:
                real = e.add("Slice", (real, e.indices(0), e.indices(k), e.indices(1)))
        else:
            real = _by_index(e, w, scales, zeros or e.reshape(e.input(3), n, blocks), index, (k, group))
        y = e.add("MatMul", (e.input(0), e.add("Transpose", (real,), {"perm": (1, 0)})), {}, "" if e.has(5) else e.output())
        if e.has(5):
            e.add("Add", (y, e.input(5)), {}, e.output())

    shown = (e.input(0), w, scales, (zeros or e.input(3)) if given else "", index, e.optional(5))
    e.composite("MatMulNBits", shown, e.op.outputs[:1], e.op.attrs, build)


def _group_index(e: Expansion, k: int, group: int) -> str:
    """The group of each row of the weights, or ``""`` where they are in order."""
    if not e.has(4):
        return ""
    index = e.trace.tensor(e.input(4))
    if not k <= index.elements <= k + group:
        raise e.refuse(f"has the group indices {index.name!r} of shape {list(index.shape)} for K = {k}")
    if index.data is not None and index.data.is_present and np.array_equal(index.numpy().reshape(-1)[:k], e.steps(0, k) // group):
        return ""
    return index.name


def _by_index(e: Expansion, w: str, scales: str, zeros: str, index: str, sizes: tuple[int, int]) -> str:
    """Weights ``[N, K]`` whose groups are not consecutive, or whose zero points are floats."""
    k, group = sizes
    to: dict[str, AttrValue] = {"to": NUMBER_OF[e.dtype(scales)]}
    columns = index or e.constant(e.steps(0, k) // group, "groups")
    codes = e.add("Slice", (e.add("Cast", (w,), to), e.indices(0), e.indices(k), e.indices(1)))
    zero = zeros if e.dtype(zeros).is_float else e.add("Cast", (zeros,), to)
    scale, zero = (e.add("Gather", (t, columns), {"axis": 1}) for t in (scales, zero))
    return e.add("Mul", (e.add("Sub", (codes, zero)), scale))


def _gather_block_quantized(e: Expansion) -> None:
    data, group = e.trace.tensor(e.input(0)), e.op.attr_int("block_size", 128)
    packed = data.dtype is DType.U8
    bits = e.op.attr_int("bits", 4) if packed else data.dtype.bits
    shape, rank = data.shape, len(data.shape)
    if packed:
        shape = (*shape[:-1], shape[-1] * 8 // bits)
    dtype = unsigned(bits) if packed else data.dtype
    gather, axis = e.op.attr_int("gather_axis", 0) % rank, e.op.attr_int("quantize_axis", 1) % rank
    scales = e.input(2)
    counts = e.shape(scales)
    if not e.has(3):
        zeros = default_zero_points(e, counts, dtype) if packed else ""
    elif packed and bits < 8:
        zeros = packed_zero_points(e, 3, int(np.prod(counts[:-1])), counts[-1], dtype, counts)
    else:
        zeros = e.input(3)
    w = weight(e, 0, shape, dtype, Quantization(scales, zeros or None, "group", axis, group))

    def build() -> None:
        real = e.add("DequantizeLinear", (w, scales, zeros), {"axis": axis, "block_size": group})
        e.add("Gather", (real, e.input(1)), {"axis": gather}, e.output())

    shown = (w, e.input(1), scales, zeros if e.has(3) else "")
    e.composite("GatherBlockQuantized", shown, e.op.outputs, {**e.op.attrs, "axis": gather}, build)


def _matmul_bnb4(e: Expansion) -> None:
    """4-bit codes of a table, the high half of a byte first, times the largest magnitude of each block."""
    n, k, group = (e.op.attr_int(name, 0) for name in ("N", "K", "block_size"))
    kind = e.op.attr_int("quant_type", 1)
    if kind not in _BNB4 or n <= 0 or k <= 0 or group <= 0 or n * k % 2 or n * k % group:
        raise e.refuse(f"has the quantization type {kind}, N = {n}, K = {k} and blocks of {group}")
    peaks = e.input(2)
    w = weight(e, 1, (n, k), DType.U4, Quantization(peaks, None, "group", 1, group, scheme=("bnb:fp4", "bnb:nf4")[kind]))

    def build() -> None:
        four, mask = e.constant(np.array(4, np.uint8), "shift"), e.constant(np.array(15, np.uint8), "mask")
        raw = e.reshape(e.input(1), -1, 1)
        high, low = e.add("BitShift", (raw, four), {"direction": "RIGHT"}), e.add("BitwiseAnd", (raw, mask))
        codes = e.add("Cast", (e.reshape(e.add("Concat", (high, low), {"axis": 1}), n * k),), {"to": NUMBER_OF[DType.I64]})
        table = e.constant(np.array(_BNB4[kind], np.float32), "codes", e.dtype(peaks))
        blocks = n * k // group
        values = e.add("Gather", (table, codes), {"axis": 0})
        spread = e.add("Mul", (e.reshape(values, blocks, group), e.reshape(peaks, blocks, 1)))
        real = e.reshape(spread, n, k)
        e.add("MatMul", (e.input(0), e.add("Transpose", (real,), {"perm": (1, 0)})), {}, e.output())

    e.composite("MatMulBnb4", (e.input(0), w, peaks), e.op.outputs, e.op.attrs, build)


def _dynamic_quantize_lstm(e: Expansion) -> None:
    """As an LSTM with dequantized weights in its body; ONNX Runtime also rounds the inputs and hidden states to 8 bits."""
    weights = [e.trace.tensor(e.input(i)) for i in (1, 2)]
    for slot, t in zip((1, 2), weights, strict=True):
        e.trace.tensors[t.name] = replace(t, quantization=Quantization(e.input(6 + 2 * slot), e.input(7 + 2 * slot), "channel", 0))

    def build() -> None:
        real = [_lstm_weights(e, e.input(slot), e.input(6 + 2 * slot), e.input(7 + 2 * slot)) for slot in (1, 2)]
        inputs = (e.input(0), *real, *(e.optional(i) for i in range(3, 8)))
        e.add_many("LSTM", inputs, [o if o else "" for o in e.op.outputs], e.op.attrs)

    e.composite("DynamicQuantizeLSTM", e.op.inputs, e.op.outputs, e.op.attrs, build)


def _lstm_weights(e: Expansion, w: str, scale: str, zero: str) -> str:
    """``[directions, inputs, 4 · hidden]`` integers as the ``[directions, 4 · hidden, inputs]`` floats of an LSTM."""
    directions = e.shape(w)[0]
    shape = (directions, 1, e.shape(scale)[-1] if len(e.shape(scale)) == 2 else 1)
    to: dict[str, AttrValue] = {"to": NUMBER_OF[e.dtype(scale)]}
    centred = e.add("Sub", (e.add("Cast", (w,), to), e.reshape(e.add("Cast", (zero,), to), *shape)))
    return e.add("Transpose", (e.add("Mul", (centred, e.reshape(scale, *shape))),), {"perm": (0, 2, 1)})


def _fused_matmul(e: Expansion) -> None:
    """``alpha · A B`` with transposed operands."""
    if e.op.attr_int("transBatchA", 0) or e.op.attr_int("transBatchB", 0):
        raise e.refuse("transposes its batch axes")
    a, b, alpha = e.input(0), e.input(1), e.op.attr_float("alpha", 1.0)
    turned = [bool(e.op.attr_int(k, 0)) and len(e.shape(x)) > 1 for k, x in (("transA", a), ("transB", b))]
    if len(e.shape(a)) == 2 and len(e.shape(b)) == 2:
        e.add("Gemm", (a, b), {"alpha": alpha, "transA": int(turned[0]), "transB": int(turned[1])}, e.output())
        return
    a, b = (_swapped(e, x) if t else x for x, t in zip((a, b), turned, strict=True))
    y = e.add("MatMul", (a, b), {}, e.output() if alpha == 1.0 else "")
    if alpha != 1.0:
        e.add("Mul", (y, e.like(alpha, y, "alpha")), {}, e.output())


def _swapped(e: Expansion, x: str) -> str:
    rank = len(e.shape(x))
    return e.add("Transpose", (x,), {"perm": (*range(rank - 2), rank - 1, rank - 2)})


def _fused_gemm(e: Expansion) -> None:
    from hetsched.frontends.onnx_contrib_vision import activate

    kind = e.op.attr_str("activation", "")
    attrs: dict[str, AttrValue] = {k: v for k, v in e.op.attrs.items() if k in {"alpha", "beta", "transA", "transB"}}
    y = e.add("Gemm", tuple(e.optional(i) for i in range(3)), attrs, "" if kind else e.output())
    if kind:
        activate(e, y, kind, tuple(e.op.attr_float(f"activation_{p}", 0.0) for p in ("alpha", "beta") if f"activation_{p}" in e.op.attrs))


PRODUCTS: dict[str, Callable[[Expansion], None]] = {
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "MatMulNBits": _matmul_n_bits,
    "GatherBlockQuantized": _gather_block_quantized,
    "MatMulBnb4": _matmul_bnb4,
    "DynamicQuantizeLSTM": _dynamic_quantize_lstm,
    "FusedMatMul": _fused_matmul,
    "TransposeMatMul": _fused_matmul,
    "FusedGemm": _fused_gemm,
}
