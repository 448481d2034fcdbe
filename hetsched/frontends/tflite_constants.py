"""Constants and quantization parameters of a TFLite file, described without reading the weights.

A constant over :data:`INLINE_BYTES` stays a range of the file. Where an operator wants its axes in another order (TFLite
keeps convolution weights as OHWI, ONNX as OIHW) the constant is a strided view of the mapped file: nothing is copied before
a kernel packs it.
"""

from __future__ import annotations

import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.sparse import reference
from hetsched.frontends.tflite_model import Stored
from hetsched.frontends.tflite_sparse import Sparsity, decoded
from hetsched.graph import DType, Quantization, Role, Tensor, WeightRef

#: Constants up to this size are arrays in memory: shapes, axes, scales.
INLINE_BYTES = 4096
_NIBBLES = frozenset({DType.I4, DType.U4})
_PACKED = _NIBBLES | {DType.BF16, DType.F8E4M3, DType.F8E5M2}
_QUANTIZED = frozenset({DType.I4, DType.U4, DType.I8, DType.U8, DType.I16, DType.U16, DType.I32, DType.I64})


class WeightFile:
    """The mapped model file."""

    def __init__(self, path: Path, mapped: mmap.mmap) -> None:
        self.path = path
        self._mapped = mapped

    def constant(self, stored: Stored) -> Tensor:
        """A constant as the file has it.

        Raises:
            ModelError: its bytes are fewer than its shape needs.
            UnsupportedModelError: it is sparse and of a type that numpy does not have.
        """
        assert stored.data is not None
        if stored.sparsity is not None:
            return self._sparse(stored, stored.sparsity, *stored.data)
        offset, length = stored.data
        tensor = Tensor(stored.name, stored.shape, stored.element_type(), Role.WEIGHT, None, WeightRef(self.path, offset, length))
        if length < tensor.nbytes:
            raise ModelError(
                f"the constant {stored.name!r} of shape {list(stored.shape)} needs {tensor.nbytes} bytes and has {length}: "
                "the file is damaged"
            )
        if tensor.nbytes > INLINE_BYTES:
            return tensor
        return replace(tensor, data=WeightRef(array=self._array(tensor).copy()))

    def _sparse(self, stored: Stored, form: Sparsity, offset: int, length: int) -> Tensor:
        """A sparse constant: dense when it is read, as large as it is stored when it is planned."""
        dtype = stored.element_type()

        def decode() -> npt.NDArray[Any]:
            width = dtype.numpy.itemsize
            values = np.frombuffer(self._mapped, dtype.numpy, length // width, offset)
            return decoded(form, stored.name, stored.shape, values, self._mapped)

        data = reference(stored.name, dtype, length + form.index_bytes, decode)
        return Tensor(stored.name, stored.shape, dtype, Role.WEIGHT, None, data)

    def _array(self, tensor: Tensor) -> npt.NDArray[Any]:
        """The elements, as a view of the mapped file; packed types as bytes."""
        data = tensor.data
        assert data is not None
        if data.array is not None or data.compute is not None:
            return tensor.numpy()
        if tensor.dtype in _PACKED:
            return np.frombuffer(self._mapped, np.uint8, tensor.nbytes, data.offset)
        return np.frombuffer(self._mapped, tensor.dtype.numpy, tensor.elements, data.offset).reshape(tensor.shape)

    def permuted(self, tensor: Tensor, order: tuple[int, ...], name: str) -> Tensor:
        """The constant ``tensor`` with its axes in ``order``, under another name; a view where it is large.

        Raises:
            UnsupportedModelError: two elements share a byte, and the order would take them apart.
        """
        shape = tuple(tensor.shape[k] for k in order)
        quantization = tensor.quantization
        if quantization is not None and quantization.axis is not None:
            quantization = replace(quantization, axis=order.index(quantization.axis))
        moved = replace(tensor, name=name, shape=shape, quantization=quantization)
        if tensor.data is not None and tensor.data.compute is not None:
            lazy = replace(tensor.data, compute=lambda: tensor.numpy().transpose(order))
            return replace(moved, data=lazy)
        if not moves_data(tensor.shape, order):
            array = None if tensor.data is None else tensor.data.array
            flat = array is None or tensor.dtype in _PACKED
            return moved if flat or array is None else replace(moved, data=WeightRef(array=array.reshape(shape)))
        if tensor.dtype in _PACKED:
            raise UnsupportedModelError(
                f"the constant {tensor.name!r} is {tensor.dtype.value} and would have to change its layout, which is not supported: "
                "convert the model with 8-bit or float weights"
            )
        return replace(moved, data=WeightRef(array=self._array(tensor).transpose(order)))


def moves_data(shape: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether a transposition to ``order`` changes the place of any element in memory (axes of length 1 move freely)."""
    kept = [k for k in order if shape[k] != 1]
    return kept != sorted(kept)


def meaning(stored: Stored, scale: str, zero_point: str | None) -> Quantization:
    """What the integers of ``stored`` stand for, with the names of its scale and zero point.

    Raises:
        ModelError: there is neither one scale nor one per index of the quantized axis.
    """
    if len(stored.scales) == 1:
        return Quantization(scale, zero_point)
    axis = 0 if len(stored.shape) == 1 else stored.axis
    if not 0 <= axis < len(stored.shape) or stored.shape[axis] != len(stored.scales):
        raise ModelError(
            f"the tensor {stored.name!r} of shape {list(stored.shape)} has {len(stored.scales)} scales along axis {stored.axis}: "
            "the model file is damaged"
        )
    return Quantization(scale, zero_point, "channel", axis)


def is_quantized(stored: Stored) -> bool:
    """Whether the tensor holds integers that stand for reals."""
    return bool(stored.scales) and stored.dtype in _QUANTIZED


def parameters(stored: Stored) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any] | None]:
    """Scale (float32) and zero point (in the tensor's own type; None where it is 0 in a type that needs none).

    Raises:
        ModelError: a zero point is outside the type, or the scale of an activation is 0.
    """
    dtype = stored.element_type()
    scale = np.array(stored.scales, np.float32)
    if stored.data is None and not scale.all():
        raise ModelError(f"the tensor {stored.name!r} has the scale 0: the model file is damaged")
    if dtype in _NIBBLES or dtype in {DType.I32, DType.I64}:
        if any(stored.zero_points):
            raise UnsupportedModelError(f"the tensor {stored.name!r} is {dtype.value} with a zero point, which is not supported")
        zero = None
    else:
        info = np.iinfo(dtype.numpy)
        if any(not info.min <= z <= info.max for z in stored.zero_points):
            raise ModelError(f"the tensor {stored.name!r} has a zero point outside {dtype.value}: the model file is damaged")
        zero = np.array(stored.zero_points, dtype.numpy)
    if len(scale) == 1:
        return scale.reshape(()), None if zero is None else zero.reshape(())
    return scale, zero
