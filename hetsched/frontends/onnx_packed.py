"""Packed weights of a few bits: the same bytes as tensors of their true element type and shape."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hetsched.errors import ModelError
from hetsched.frontends.onnx_expansion import Expansion
from hetsched.graph import DType, Quantization, Role, Tensor, WeightRef
from hetsched.small_types import pack, unpack

_UNSIGNED = {2: DType.U2, 4: DType.U4, 8: DType.U8}
#: Zero points that do not end at a byte in each row are packed anew up to this size.
_MAX_BYTES = 1 << 24


def unsigned(bits: int) -> DType:
    """The unsigned integer type of 2, 4 or 8 bits."""
    return _UNSIGNED[bits]


def weight(e: Expansion, slot: int, shape: tuple[int, ...], dtype: DType, meaning: Quantization | None) -> str:
    """Input ``slot``, a constant stored as bytes or in 4 bits, as a tensor of ``shape`` and ``dtype``; returns its name.

    Raises:
        UnsupportedModelError: it is computed while the model runs.
        ModelError: it has another size.
    """
    stored = e.trace.tensor(e.input(slot))
    if stored.data is None:
        raise e.refuse(f"computes its weight {stored.name!r}")
    if math.prod(shape) * dtype.bits != stored.elements * stored.dtype.bits:
        raise ModelError(
            f"the weight {stored.name!r} of node {e.op.name!r} has the shape {list(stored.shape)}, "
            f"and {list(shape)} elements of {dtype.bits} bits were expected: the model file is damaged"
        )
    called = f"{stored.name}/{dtype.value}"
    if called in e.trace.tensors and e.trace.tensors[called].quantization != meaning:
        called = e.fresh(dtype.value)
    e.trace.tensors[called] = Tensor(called, shape, dtype, Role.WEIGHT, meaning, _same_bytes(stored.data, shape, dtype))
    return called


def _same_bytes(data: WeightRef, shape: tuple[int, ...], dtype: DType) -> WeightRef:
    if data.array is None:
        return data
    raw = np.ascontiguousarray(data.array).reshape(-1).view(np.uint8)
    return WeightRef(array=raw.reshape(shape) if dtype.bits == 8 else raw)


def default_zero_points(e: Expansion, shape: tuple[int, ...], dtype: DType) -> str:
    """The middle of the range for every group, as runtimes assume it where no zero points are given; takes no memory."""
    middle = 1 << (dtype.bits - 1)
    byte = np.uint8(sum(middle << shift for shift in range(0, 8, dtype.bits)))
    tensor = Tensor(e.fresh("zero_points"), shape, dtype, Role.WEIGHT)
    length: tuple[int, ...] = shape if dtype.bits == 8 else (tensor.nbytes,)
    e.trace.tensors[tensor.name] = replace(tensor, data=WeightRef(array=np.broadcast_to(byte, length)))
    return tensor.name


def packed_zero_points(e: Expansion, slot: int, rows: int, columns: int, dtype: DType, shape: tuple[int, ...] = ()) -> str:
    """Input ``slot``, zero points packed row by row, each row ending at a byte, as a tensor ``[rows, columns]`` or ``shape``."""
    shape = shape or (rows, columns)
    per_byte = 8 // dtype.bits
    if columns % per_byte == 0:
        return weight(e, slot, shape, dtype, None)
    stored = e.trace.tensor(e.input(slot))
    width = -(-columns // per_byte)
    if stored.data is None or stored.elements != rows * width or stored.nbytes > _MAX_BYTES:
        raise e.refuse(f"has the zero points {stored.name!r} of shape {list(stored.shape)}")
    data = WeightRef()
    if stored.data.is_present:
        codes = unpack(np.ascontiguousarray(stored.numpy()).reshape(-1), dtype.bits, rows * width * per_byte)
        data = WeightRef(array=pack(codes.reshape(rows, -1)[:, :columns], dtype.bits))
    name = e.fresh("zero_points")
    e.trace.tensors[name] = Tensor(name, shape, dtype, Role.WEIGHT, None, data)
    return name
