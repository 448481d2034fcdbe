"""Gathering, scattering, constants and quantization of an exported program, and writing into tensors in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hetsched.frontends.torch_builder import Builder
from hetsched.graph import MAX_ELEMENTS, DType

Lower = Callable[[Builder], None]


def _gather(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        x = b.tensor_of("self")
        axis = b.axis(b.int_of("dim"), max(len(b.shape(x)), 1))
        b.put(kind, (x, b.tensor_of("index")), {"axis": axis})

    return lower


def _index(b: Builder) -> None:
    """``x[indices]``: one list of indices along an axis, or several along the first axes."""
    x, indices = b.tensor_of("self"), b.tensors_of("indices")
    if any(i and b.dtype(i) is DType.BOOL for i in indices):
        raise b.unsupported("picking elements by truth values depends on the data")
    at = [k for k, i in enumerate(indices) if i]
    if len(at) == 1:
        b.put("Gather", (x, b.cast(indices[at[0]], DType.I64)), {"axis": at[0]})
    elif at == list(range(len(at))) and at:
        b.put("GatherND", (x, _joined(b, [indices[k] for k in at])))
    elif at and at == list(range(at[0], at[0] + len(at))):
        _index_inside(b, x, at, [indices[k] for k in at])
    else:
        raise b.unsupported("picking elements along axes that are not neighbours is not supported")


def _index_inside(b: Builder, x: str, at: Sequence[int], indices: Sequence[str]) -> None:
    """Indices along neighbouring axes that are not the first: those are brought to the front and their place is found again."""
    rank, lead = len(b.shape(x)), at[0]
    front = b.transposed(x, (*at, *range(lead), *range(at[-1] + 1, rank)), what="front")
    joined = _joined(b, indices)
    picked = b.emit("GatherND", (front, joined), what="picked")
    count = len(b.shape(joined)) - 1
    order = (*range(count, count + lead), *range(count), *range(count + lead, len(b.shape(picked))))
    b.alias(b.transposed(picked, order, out=b.result_name()))


def _joined(b: Builder, indices: Sequence[str]) -> str:
    """Several lists of indices as one list of tuples."""
    shape = np.broadcast_shapes(*(b.shape(i) for i in indices))
    target = b.ints("places", shape)
    columns = []
    for k, index in enumerate(indices):
        wide = b.emit("Expand", (b.cast(index, DType.I64), target), what=f"index{k}")
        columns.append(b.emit("Unsqueeze", (wide, b.ints("last", [len(shape)])), what=f"column{k}"))
    return b.emit("Concat", columns, {"axis": len(shape)}, what="tuples") if len(columns) > 1 else columns[0]


def _scatter(reduction: str) -> Lower:
    def lower(b: Builder) -> None:
        x, index = b.tensor_of("self"), b.tensor_of("index")
        source = b.tensor_of("src") if b.has("src") else b.operand("value", b.dtype(x))
        if b.shape(source) != b.shape(index):
            source = b.emit("Expand", (source, b.ints("target", b.shape(index))), what="source")
        b.put("ScatterElements", (x, index, source), {"axis": b.axis(b.int_of("dim"), len(b.shape(x))), "reduction": reduction})

    return lower


def _index_copy(b: Builder) -> None:
    """Rows of ``source`` take the places ``index`` along ``dim``."""
    _write_rows(
        b, b.tensor_of("self"), b.axis(b.int_of("dim"), len(b.shape(b.tensor_of("self")))), b.tensor_of("index"), b.tensor_of("source")
    )


def _write_rows(b: Builder, x: str, axis: int, index: str, source: str) -> None:
    shape = (*b.shape(x)[:axis], b.tensors[index].elements, *b.shape(x)[axis + 1 :])
    if b.shape(source) != shape:
        source = b.emit("Expand", (source, b.ints("target", shape)), what="source")
    column = b.reshape(b.cast(index, DType.I64), [-1 if k == axis else 1 for k in range(len(shape))], what="column")
    places = b.emit("Expand", (column, b.ints("rows", shape)), what="places")
    b.put("ScatterElements", (x, places, b.cast(source, b.dtype(x))), {"axis": axis})


def _index_put(b: Builder) -> None:
    x, indices, values = b.tensor_of("self"), b.tensors_of("indices"), b.tensor_of("values")
    at = [k for k, i in enumerate(indices) if i]
    if len(at) == 1 and b.dtype(indices[at[0]]) is DType.BOOL:
        mask = indices[at[0]]
        if b.tensors[values].elements != 1:
            raise b.unsupported("writing to places chosen by truth values depends on the data")
        mask = b.reshape(mask, (*[1] * at[0], *b.shape(mask), *[1] * (len(b.shape(x)) - at[0] - len(b.shape(mask)))), what="mask")
        b.put("Where", (mask, b.reshape(values, (), what="one"), x))
    elif len(at) == 1 and len(b.shape(indices[at[0]])) == 1 and not b.flag("accumulate"):
        _write_rows(b, x, at[0], indices[at[0]], values)
    elif at and at == list(range(len(at))) and all(b.dtype(indices[k]) is not DType.BOOL for k in at):
        places = _joined(b, [indices[k] for k in at])
        shape = (*b.shape(places)[:-1], *b.shape(x)[len(at) :])
        source = values if b.shape(values) == shape else b.emit("Expand", (values, b.ints("target", shape)), what="source")
        b.put("ScatterND", (x, places, source), {"reduction": "add" if b.flag("accumulate") else "none"})
    else:
        raise b.unsupported("writing to places along these axes is not supported")


def write_slice(b: Builder, base: str, axis: int, start: int, stop: int, source: str, out: str = "") -> str:
    """``base`` with ``source`` in the place of its elements ``start`` to ``stop`` along ``axis``."""
    size, parts = b.shape(base)[axis], []
    for ends in ((0, start), (stop, size)):
        if ends[1] > ends[0]:
            bounds = [b.ints(w, [v]) for w, v in (("starts", ends[0]), ("ends", ends[1]), ("axes", axis))]
            parts.append(b.emit("Slice", (base, *bounds), what="kept"))
        if ends[0] == 0:
            parts.append(source)
    return b.emit("Concat", parts, {"axis": axis}, what="written", out=out) if len(parts) > 1 else source


def _slice_scatter(b: Builder) -> None:
    x, source = b.tensor_of("self"), b.tensor_of("src")
    axis = b.axis(b.int_of("dim", 0), len(b.shape(x)))
    if b.int_of("step", 1) != 1:
        raise b.unsupported("writing in steps is not supported")
    start, stop, _ = slice(b.int_of("start", 0), b.int_of("end", (1 << 63) - 1)).indices(b.shape(x)[axis])
    b.alias(write_slice(b, x, axis, start, max(stop, start), source))


def _select_scatter(b: Builder) -> None:
    x, source = b.tensor_of("self"), b.tensor_of("src")
    axis = b.axis(b.int_of("dim"), len(b.shape(x)))
    index = b.int_of("index") % max(b.shape(x)[axis], 1)
    b.alias(write_slice(b, x, axis, index, index + 1, b.emit("Unsqueeze", (source, b.ints("axis", [axis])), what="row")))


def _copy(b: Builder) -> None:
    x, source = b.tensor_of("self"), b.cast(b.tensor_of("src"), b.dtype(b.tensor_of("self")))
    if b.shape(source) != b.shape(x):
        source = b.emit("Expand", (source, b.ints("target", b.shape(x))), what="source")
    b.alias(source)


def _triangle(upper: bool) -> Lower:
    return lambda b: b.put(
        "Trilu", (b.tensor_of("self"), b.constant("diagonal", np.array(b.int_of("diagonal", 0), np.int64))), {"upper": int(upper)}
    )


def _one_hot(b: Builder) -> None:
    if b.int_of("num_classes", -1) < 1:
        raise b.unsupported("without a number of classes its shape depends on the data")
    values = b.constant("values", np.array([0, 1], np.int64))
    b.put("OneHot", (b.tensor_of("self"), b.number(b.int_of("num_classes"), DType.I64), values), {"axis": -1})


def _filled(value: float | None) -> Lower:
    """A constant of one number: ``full``, ``zeros``, ``ones_like``, ``empty`` and so on."""

    def lower(b: Builder) -> None:
        dtype, shape = b.meta().dtype, b.result_shape()
        if value is None and b.is_tensor("value"):
            b.put("Expand", (b.cast(b.tensor_of("value"), dtype), b.ints("shape", shape)))
            return
        if int(np.prod(shape, dtype=object)) > MAX_ELEMENTS:
            raise b.bad(f"it makes a tensor of shape {list(shape)}")
        number = b.number_of("fill_value" if b.has("fill_value") else "s" if b.has("s") else "value") if value is None else value
        b.alias(b.add_constant(b.result_name(), np.broadcast_to(np.asarray(number).astype(dtype.numpy), shape)))

    return lower


def _arange(b: Builder) -> None:
    dtype = b.meta().dtype
    start, step = b.number_of("start", 0), b.number_of("step", 1)
    count = b.result_shape()[0]
    if count > 1 << 24:
        raise b.unsupported(f"it makes {count} numbers, which is too many")
    b.alias(b.add_constant(b.result_name(), (start + np.arange(count) * step).astype(dtype.numpy)))


def _linspace(b: Builder) -> None:
    if b.result_shape()[0] > 1 << 24:
        raise b.unsupported("it makes too many numbers")
    row = np.linspace(float(b.number_of("start")), float(b.number_of("end")), b.result_shape()[0])
    b.alias(b.add_constant(b.result_name(), row.astype(b.meta().dtype.numpy)))


def _eye(b: Builder) -> None:
    if int(np.prod(b.result_shape(), dtype=object)) > 1 << 24:
        raise b.unsupported("it makes too many numbers")
    b.alias(b.add_constant(b.result_name(), np.eye(*b.result_shape(), dtype=b.meta().dtype.numpy)))


_RANGES = {(-128, 127): DType.I8, (-127, 127): DType.I8, (0, 255): DType.U8, (-32768, 32767): DType.I16, (0, 65535): DType.U16}


def _parameters(b: Builder, per: str) -> tuple[str, str, dict[str, int]]:
    """Scale, zero point (in the stored type) and axis of a (de)quantization."""
    quantizes = ".quantize" in b.kind
    stored = b.meta().dtype if quantizes else b.dtype(b.tensor_of("input"))
    low, high = int(b.number_of("quant_min", -128)), int(b.number_of("quant_max", 127))
    if _RANGES.get((low, high)) is not stored and stored is not DType.I32:
        raise b.unsupported(f"quantization to {low} … {high} in {stored.value} is not supported")
    if per == "channel":
        scale, zero = b.cast(b.tensor_of("scales"), DType.F32, what="scale"), b.cast(b.tensor_of("zero_points"), stored, what="zero")
        return scale, zero, {"axis": b.axis(b.int_of("axis"), len(b.shape(b.tensor_of("input"))))}
    if b.is_tensor("scale"):
        scale, zero = b.cast(b.tensor_of("scale"), DType.F32, what="scale"), b.cast(b.tensor_of("zero_point"), stored, what="zero")
        return b.reshape(scale, (), what="scale_0d"), b.reshape(zero, (), what="zero_0d"), {}
    info = np.iinfo(stored.numpy)
    point = b.int_of("zero_point")
    if not info.min <= point <= info.max:
        raise b.bad(f"its zero point {point} does not fit {stored.value}")
    return b.number(float(b.number_of("scale")), DType.F32), b.number(point, stored), {}


def _quantize(kind: str, per: str) -> Lower:
    def lower(b: Builder) -> None:
        scale, zero, attrs = _parameters(b, per)
        b.put(kind, (b.tensor_of("input"), scale, zero), attrs)

    return lower


LOWERINGS: dict[str, Lower] = {
    "gather": _gather("GatherElements"), "index_select": _gather("Gather"), "index": _index, "scatter": _scatter("none"),
    "scatter_add": _scatter("add"), "index_copy": _index_copy, "index_put": _index_put, "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter, "copy": _copy, "tril": _triangle(upper=False), "triu": _triangle(upper=True), "one_hot": _one_hot,
    "zeros": _filled(0), "ones": _filled(1), "empty": _filled(0), "full": _filled(None), "zeros_like": _filled(0), "ones_like": _filled(1),
    "empty_like": _filled(0), "full_like": _filled(None), "new_zeros": _filled(0), "new_ones": _filled(1), "new_empty": _filled(0),
    "new_full": _filled(None), "scalar_tensor": _filled(None), "fill": _filled(None), "zero": _filled(0), "arange": _arange,
    "linspace": _linspace, "eye": _eye, "empty_strided": _filled(0), "empty_permuted": _filled(0),
    **{f"quantized_decomposed.{verb}_per_{per}": _quantize(kind, per)
       for verb, kind in (("quantize", "QuantizeLinear"), ("dequantize", "DequantizeLinear")) for per in ("tensor", "channel")},
}  # fmt: skip
