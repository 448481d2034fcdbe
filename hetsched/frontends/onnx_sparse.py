"""Sparse constants of ONNX: lists of coordinates (``SparseTensorProto``)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError
from hetsched.frontends.onnx_tensors import ModelFile, constant
from hetsched.frontends.sparse import dense, reference
from hetsched.graph import DType, Role, Tensor

if TYPE_CHECKING:
    import onnx


def sparse_constant(proto: onnx.SparseTensorProto, name: str, model: ModelFile) -> Tensor:
    """The dense constant that ``proto`` stands for, called ``name``; it is made when it is read.

    ``indices`` are places in the flattened tensor (``[n]``) or coordinates (``[n, rank]``), as ONNX defines.

    Raises:
        ModelError: shapes and counts do not fit each other.
        UnsupportedModelError: its element type is not handled.
    """
    values = constant(proto.values, name, model)
    indices = constant(proto.indices, f"{name}/indices", model)
    shape, count = tuple(proto.dims), values.elements
    if any(d < 0 for d in shape):
        raise ModelError(f"the sparse constant {name!r} has the negative shape {list(shape)}: the model file is damaged")
    whole = Tensor(name, shape, values.dtype, Role.WEIGHT)
    if (
        len(values.shape) != 1
        or count > whole.elements
        or indices.shape not in {(count,), (count, len(shape))}
        or indices.dtype is not DType.I64
    ):
        raise ModelError(
            f"the sparse constant {name!r} of shape {list(shape)} has values of shape {list(values.shape)} and indices of shape "
            f"{list(indices.shape)}, which do not fit: the model file is damaged"
        )

    def decode() -> npt.NDArray[Any]:
        return dense(name, shape, _places(indices, shape), np.asarray(values.numpy()))

    return replace(whole, data=reference(name, values.dtype, values.nbytes + indices.nbytes, decode))


def _places(indices: Tensor, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Places in the flattened tensor; -1 for coordinates outside it."""
    given = np.asarray(indices.numpy(), np.int64)
    if given.ndim == 1:
        return given
    inside = ((given >= 0) & (given < np.array(shape, np.int64))).all(axis=1)
    strides = np.cumprod([1, *shape[:0:-1]], dtype=np.int64)[::-1] if shape else np.zeros(0, np.int64)
    return np.where(inside, given @ strides, -1)
