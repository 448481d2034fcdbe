"""Constants of an ONNX model: where their bytes are, checked, and read only where they are small.

A tensor over ``INLINE_BYTES`` whose elements lie in the file as they lie in memory (``raw_data``, ``float_data``,
``double_data``, external data) becomes a range of that file. All others are arrays: small ones, and those that
protobuf stores as varints.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError
from hetsched.frontends.onnx_wire import SELF
from hetsched.graph import DType, Role, Tensor, WeightRef, dtype_of
from hetsched.reference.element_types import element_type
from hetsched.small_types import bfloat16_bytes

if TYPE_CHECKING:
    import onnx

_PACKED = frozenset(t for t in DType if t.value in {"bf16", "f4e2m1", "i4", "u4", "i2", "u2"} or t.value.startswith("f8"))


class ModelFile:
    """The model's own file and the files of external data beside it, each looked up once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = path.parent.resolve()
        self._found: dict[str, tuple[Path, int | None]] = {}

    def data(self, location: str, name: str) -> tuple[Path, int | None]:
        """The file at ``location``, where the bytes of the constant ``name`` are, and its size (None if it is absent).

        Raises:
            ModelError: the file is not in the model's folder, links followed.
        """
        if location not in self._found:
            path = self.path if location == SELF else self._inside(location, name)
            self._found[location] = path, path.stat().st_size if path.is_file() else None
        return self._found[location]

    def _inside(self, location: str, name: str) -> Path:
        parts = PurePosixPath(location.replace("\\", "/"))
        if not location or parts.is_absolute() or ".." in parts.parts or ":" in location or not location.isprintable():
            raise ModelError(f"the weights of {name!r} are at {location!r}, outside the model's folder: this is refused")
        path = (self._folder / parts).resolve()
        if not path.is_relative_to(self._folder):
            raise ModelError(f"the weights of {name!r} are at {location!r}, which leads outside the model's folder: this is refused")
        return path


def constant(proto: onnx.TensorProto, name: str, model: ModelFile) -> Tensor:
    """The constant that ``proto`` describes, called ``name``.

    Raises:
        ModelError: its shape is absurd, its data have another size, or its external file is not safe to read.
    """
    if any(d < 0 for d in proto.dims):
        raise ModelError(f"the constant {name!r} has the negative shape {list(proto.dims)}: the model file is damaged")
    dtype = element_type(proto.data_type, f"the constant {name!r}")
    empty = Tensor(name, tuple(proto.dims), dtype, Role.WEIGHT, None, WeightRef())
    external = proto.data_location == proto.EXTERNAL
    return _with_data(empty, _external(proto, empty, model) if external else WeightRef(array=_array(proto, empty)))


def from_array(name: str, array: npt.NDArray[Any], dtype: DType | None = None) -> Tensor:
    """A constant that is already in memory; ``dtype`` is its type where numpy has none (float32 values as bfloat16)."""
    if dtype is DType.BF16:
        return Tensor(name, array.shape, dtype, Role.WEIGHT, None, WeightRef(array=bfloat16_bytes(array)))
    return Tensor(name, array.shape, dtype_of(array), Role.WEIGHT, None, WeightRef(array=array))


def _with_data(tensor: Tensor, data: WeightRef) -> Tensor:
    return Tensor(tensor.name, tensor.shape, tensor.dtype, tensor.role, None, data)


def _array(proto: onnx.TensorProto, tensor: Tensor) -> npt.NDArray[Any]:
    """The elements of a tensor whose data are in the parsed model; packed types stay packed, as bytes."""
    raw = proto.raw_data
    if raw or tensor.elements == 0:
        if len(raw) != tensor.nbytes:
            what = f"the constant {tensor.name!r} of shape {list(tensor.shape)}"
            raise ModelError(f"{what} needs {tensor.nbytes} bytes and has {len(raw)}: the file is damaged")
        if tensor.dtype in _PACKED:
            return np.frombuffer(raw, np.uint8)
        return np.frombuffer(raw, tensor.dtype.numpy).reshape(tensor.shape)
    stored = _stored(proto)
    if tensor.dtype is DType.STRING:
        stored = np.array([bytes(s).decode(errors="replace") for s in proto.string_data], object)
    elif tensor.dtype in _PACKED:
        stored = np.asarray(stored).astype(np.uint16 if tensor.dtype is DType.BF16 else np.uint8).view(np.uint8)
        if stored.size == tensor.nbytes:
            return stored
    if stored.size != tensor.elements:
        raise ModelError(
            f"the constant {tensor.name!r} of shape {list(tensor.shape)} has {stored.size} elements in the file: the file is damaged"
        )
    if tensor.dtype is DType.F16:
        return stored.astype(np.uint16).view(np.float16).reshape(tensor.shape)
    return stored.astype(tensor.dtype.numpy if tensor.dtype is not DType.STRING else object).reshape(tensor.shape)


def _stored(proto: onnx.TensorProto) -> npt.NDArray[Any]:
    lists: tuple[Any, ...] = (proto.float_data, proto.int32_data, proto.int64_data, proto.double_data, proto.uint64_data)
    types: tuple[Any, ...] = (np.float32, np.int32, np.int64, np.float64, np.uint64)
    for values, dtype in zip(lists, types, strict=True):
        if len(values):
            return np.array(values, dtype)
    return np.zeros(0, np.float32)


def _external(proto: onnx.TensorProto, tensor: Tensor, model: ModelFile) -> WeightRef:
    entries = {e.key: e.value for e in proto.external_data}
    location = entries.get("location", "")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", tensor.nbytes))
    except ValueError as error:
        raise ModelError(f"the external data of {tensor.name!r} have an offset or length that is not a number") from error
    path, size = model.data(location, tensor.name)
    if offset < 0 or length < tensor.nbytes or (location == SELF and length != tensor.nbytes):
        raise ModelError(
            f"the constant {tensor.name!r} of shape {list(tensor.shape)} needs {tensor.nbytes} bytes and its data have {length}: "
            "the file is damaged"
        )
    if size is not None and size < offset + length:
        raise ModelError(f"the file {path.name!r} is too short for the weights of {tensor.name!r}: it is truncated")
    return WeightRef(path, offset, length)
