"""Compressed weights, quantization and states of ML programs.

Weights with scales become DequantizeLinear of the stored integers, which every pass knows. Weights with a table of values
(palettes) or without their zeros (sparse) have no ONNX operator: they are float constants that count the bytes stored for them and
are decoded when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hetsched.frontends import coreml_decode as decode
from hetsched.frontends.coreml_builder import MilBuilder
from hetsched.frontends.coreml_decode import Array
from hetsched.frontends.coreml_mil import Value
from hetsched.graph import AttrValue, DType, Tensor

Lower = Callable[[MilBuilder], None]
_NIBBLES = frozenset({DType.I4, DType.U4})


def _known(b: MilBuilder, name: str) -> Value:
    value = b.known(name)
    if value is None:
        raise b.unsupported(f"its argument {name!r} is compressed itself, which is not supported: compress in one way only")
    return value


def _affine(b: MilBuilder) -> None:
    """``scale * (data - zero_point)``, per tensor or per index of ``axis`` (iOS 16)."""
    x = b.add(b.fresh(f"{b.node}/data"), _known(b, "quantized_data"))
    scale, zero = b.array_of("scale"), b.array_of("zero_point")
    _dequantize(b, x, scale.reshape(-1) if scale.size > 1 else scale.reshape(()), zero, {"axis": b.int_of("axis", 0)})


def _dequantize(b: MilBuilder, x: str, scale: Array, zero: Array | None, attrs: dict[str, AttrValue]) -> None:
    inputs = [x, b.constant("scale", scale)]
    if zero is not None and zero.any():
        if b.dtype(x) in _NIBBLES:
            raise b.unsupported("4-bit weights with an offset are not supported")
        point = np.broadcast_to(zero.reshape(-1), scale.size).astype(b.dtype(x).numpy)
        inputs.append(b.constant("zero_point", point.reshape(scale.shape)))
    b.put("DequantizeLinear", inputs, {} if scale.ndim == 0 else attrs)


def _blockwise(b: MilBuilder) -> None:
    """``scale * (data - offset)`` with a scale for each block (iOS 18): axes of ``scale`` divide those of ``data``."""
    data, scale = _known(b, "data"), b.array_of("scale")
    shape = tuple(d or 0 for d in data.type.shape)
    offset = b.array_of("offset") if b.has("offset") else None
    if scale.ndim != len(shape) or any(s < 1 or n % s for n, s in zip(shape, scale.shape, strict=True)):
        raise b.bad(f"its scales {list(scale.shape)} do not divide its data {list(shape)}")
    varied = [k for k, s in enumerate(scale.shape) if s > 1]
    blocks = [k for k in varied if scale.shape[k] != shape[k]]
    one_axis = len(blocks) == 1 and all(scale.shape[k] == shape[k] for k in range(len(shape)) if k != blocks[0])
    shifted = data.type.dtype in _NIBBLES and offset is not None and bool(offset.any())  # packed zero points have no form here
    if shifted or ((len(varied) > 1 or blocks) and not one_axis):
        _in_blocks(b, data, scale, offset)
        return
    x = b.add(b.fresh(f"{b.node}/data"), data)
    if not varied:
        _dequantize(b, x, scale.reshape(()), offset, {})
    elif one_axis:
        _dequantize(b, x, scale, offset, {"axis": blocks[0], "block_size": shape[blocks[0]] // scale.shape[blocks[0]]})
    else:
        _dequantize(b, x, scale.reshape(-1), offset, {"axis": varied[0]})


def _in_blocks(b: MilBuilder, data: Value, scale: Array, offset: Array | None) -> None:
    """Blocks along several axes, or of 4 bits with offsets: read as reals."""
    stored = _stored(b, data, "data")
    shape, signed = tuple(d or 0 for d in data.type.shape), data.type.dtype in {DType.I4, DType.I8}

    def wide(raw: Array, count: int) -> Array:
        numbers = decode.unpacked(raw.view(np.uint8).reshape(-1), count, data.type.bits).astype(np.int16)
        return np.where(numbers >> (data.type.bits - 1) > 0, numbers - (1 << data.type.bits), numbers) if signed else numbers

    def values() -> Array:
        zero = wide(offset, scale.size).reshape(scale.shape) if offset is not None and data.type.dtype in _NIBBLES else offset
        return decode.scaled(wide(stored.numpy(), data.type.elements).reshape(shape), scale, zero)

    b.compressed(stored.nbytes + scale.nbytes, stored, values)


def _stored(b: MilBuilder, value: Value, what: str) -> Tensor:
    """The bytes of a constant as they are stored, if they do not fill whole elements; else the constant."""
    if value.type.bits == value.type.dtype.bits and value.type.dtype not in _NIBBLES:
        return b.stored(f"{b.node}/{what}", value)
    return b.stored(f"{b.node}/{what}", value.in_bytes())


def _palette(b: MilBuilder) -> None:
    """``lut[indices]``: the bits of an index follow from the size of the table (iOS 16) or are its type (iOS 18)."""
    indices, table = _known(b, "indices"), b.array_of("lut")
    result = tuple(d or 0 for d in b.result()[1].shape)
    old = b.has("shape")
    bits = max((table.size - 1).bit_length(), 1) if old else indices.type.bits
    shape = result if old else tuple(d or 0 for d in indices.type.shape)
    count, stored = int(np.prod(shape, dtype=object)), _stored(b, indices, "indices")
    table = table.reshape(*[1] * len(shape), -1, 1) if old else table
    fits = table.ndim == len(shape) + 2 and all(m and n % m == 0 for n, m in zip(shape, table.shape, strict=False))
    if bits > 8 or stored.nbytes * 8 < count * bits or not fits:
        raise b.bad(f"its {stored.nbytes} bytes of indices and its table {list(table.shape)} do not fit {list(result)}")
    axis = b.int_of("vector_axis", 0) % max(len(shape), 1)
    widened = [n * (table.shape[-1] if k == axis else 1) for k, n in enumerate(shape)]
    if widened != list(result):
        raise b.bad(f"its indices {list(shape)} and vectors of {table.shape[-1]} do not make {list(result)}")

    def values() -> Array:
        numbers = decode.unpacked(stored.numpy().view(np.uint8).reshape(-1), count, bits)
        return decode.palette(numbers.reshape(shape), table, axis)

    b.compressed(stored.nbytes + table.nbytes, stored, values)


def _sparse(b: MilBuilder) -> None:
    """Values other than zero, and a bit for each element that says where they are."""
    mask, name = _known(b, "mask"), b.result()[0]
    shape = tuple(d or 0 for d in b.result()[1].shape)
    count = int(np.prod(shape, dtype=object))
    some = b.stored(f"{b.node}/values", _known(b, "nonzero_data"))
    bits = b.stored(f"{b.node}/mask", mask.in_bytes() if mask.type.bits == 1 else mask)
    if bits.nbytes * 8 < count:
        raise b.bad(f"its mask of {bits.nbytes} bytes does not fit {list(shape)}")

    def values() -> Array:
        return decode.sparse(name, some.numpy(), decode.unpacked(bits.numpy().view(np.uint8).reshape(-1), count, 1), shape)

    present = some if bits.data is not None and bits.data.is_present else bits
    b.compressed(some.nbytes + bits.nbytes, present, values)


def _linear(kind: str) -> Lower:
    """``quantize`` and ``dequantize`` of activations."""

    def lower(b: MilBuilder) -> None:
        x, scale = b.tensor_of("input"), b.tensor_of("scale")
        stored = b.result()[1].dtype if kind == "QuantizeLinear" else b.dtype(x)
        zero = b.tensor_of("zero_point") if b.has("zero_point") else b.constant("zero", np.zeros(b.shape(scale), stored.numpy))
        vector = len(b.shape(scale)) == 1 and b.shape(scale) != (1,)
        attrs: dict[str, AttrValue] = {"axis": b.axis(b.int_of("axis"), len(b.shape(x)))} if vector else {}
        b.put(kind, (x, scale, zero), attrs)

    return lower


def _read_state(b: MilBuilder) -> None:
    first = b.current.args.get("input", ("",))[0]
    if not isinstance(first, str) or first not in b.states:
        raise b.bad("it reads something that is no state")
    b.alias(b.updated.get(first, first))


def _update_state(b: MilBuilder) -> None:
    names = ("input", "data") if b.kind == "write_state" else ("state", "value")
    first = b.current.args.get(names[0], ("",))[0]
    if not isinstance(first, str) or first not in b.states:
        raise b.bad("it writes something that is no state")
    value = b.tensor_of(names[1])
    if b.shape(value) != b.shape(first) or b.dtype(value) is not b.dtype(first):
        raise b.bad(f"the state {first!r} is {list(b.shape(first))} and is given {list(b.shape(value))}")
    b.updated[first] = value
    if b.current.outputs:
        b.alias(value)


LOWERINGS: dict[str, Lower] = {
    "constexpr_affine_dequantize": _affine, "constexpr_blockwise_shift_scale": _blockwise, "constexpr_lut_to_dense": _palette,
    "constexpr_sparse_to_dense": _sparse, "quantize": _linear("QuantizeLinear"), "dequantize": _linear("DequantizeLinear"),
    "read_state": _read_state, "write_state": _update_state, "coreml_update_state": _update_state,
}  # fmt: skip
