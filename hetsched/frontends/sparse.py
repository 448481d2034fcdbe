"""Constants that a file stores sparsely: planned by the bytes that they take there, made dense when somebody reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.graph import DType, WeightRef

#: A sparse constant is made dense up to this size.
MAX_DENSE_BYTES = 1 << 29


def check_size(name: str, shape: Sequence[int], itemsize: int) -> None:
    """Refuse to make a constant from what a file stores of it if its ``itemsize`` bytes for each element are too many.

    Raises:
        ModelError: they are over :data:`MAX_DENSE_BYTES`.
    """
    size = math.prod(shape) * itemsize
    if size > MAX_DENSE_BYTES:
        raise ModelError(
            f"the constant {name!r} of shape {list(shape)} takes {size >> 20} MiB when dense, and at most "
            f"{MAX_DENSE_BYTES >> 20} are made: it can be planned but not run"
        )


def dense(name: str, shape: Sequence[int], places: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The dense array with ``values`` at the flat ``places`` and 0 elsewhere.

    Raises:
        ModelError: a place is outside the array, or the array would be too large.
    """
    size = math.prod(shape)
    check_size(name, shape, values.dtype.itemsize)
    if places.size != values.size or (places.size and (int(places.min()) < 0 or int(places.max()) >= size)):
        raise ModelError(f"the sparse constant {name!r} of shape {list(shape)} has values outside its shape: the model file is damaged")
    out = np.zeros(size, values.dtype)
    out[places] = values
    return out.reshape(shape)


def reference(name: str, dtype: DType, stored_bytes: int, decode: Callable[[], npt.NDArray[Any]]) -> WeightRef:
    """The reference of a sparse constant.

    Raises:
        UnsupportedModelError: its elements have no numpy type.
    """
    try:
        _ = dtype.numpy
    except ModelError as error:
        raise UnsupportedModelError(f"the constant {name!r} is a sparse one of {dtype.value}, which is not supported") from error
    return WeightRef(compute=decode, sparse_bytes=max(stored_bytes, 1))
