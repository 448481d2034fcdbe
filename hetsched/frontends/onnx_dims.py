"""Binding the symbolic dims of a model's inputs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.frontends.onnx_states import is_past
from hetsched.graph import MAX_RANK, Tensor
from hetsched.graph import Role as TensorRole
from hetsched.reference.element_types import element_type

if TYPE_CHECKING:
    import onnx

_MAX_DIM = 1 << 31
#: ONNX element type number -> numpy type, of inputs that may be bound to a value.
_WHOLE: dict[int, Any] = {6: np.int32, 7: np.int64}


@dataclass(frozen=True, slots=True)
class Dim:
    """One axis of one input: a fixed ``size``, or a free dim with a ``name`` (the file's, or ``<input>.<axis>``)."""

    tensor: str
    axis: int
    name: str
    size: int | None

    @property
    def place(self) -> str:
        """The name that always works: ``<input>.<axis>``."""
        return f"{self.tensor}.{self.axis}"


def bind_inputs(
    inputs: Sequence[onnx.ValueInfoProto], dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]], model: str
) -> tuple[list[Tensor], dict[str, int]]:
    """Input tensors with fixed shapes, and the value of every dim that was free.

    A free dim takes its value from ``dims`` (by name or ``<input>.<axis>``) or ``shapes``; else 1 where it is axis 0 of
    some input or called like a batch.

    Raises:
        ModelError: a dim stays free; the message says what to pass.
        OptionError: a name or a value in ``dims`` or ``shapes`` does not fit the model.
    """
    axes = {info.name: _axes(info, shapes) for info in inputs}
    every = [d for row in axes.values() for d in row]
    values = _given(every, dims, shapes, model)
    for d in every:
        if d.size is None and d.name not in values and (d.axis == 0 or "batch" in d.name.lower()):
            values[d.name] = 1
    missing: dict[str, Dim] = {}
    for d in every:
        if d.size is None and d.name not in values:
            missing.setdefault(d.name, d)
    if missing:
        count = f"{len(missing)} dims" if len(missing) > 1 else "a dim"
        what = ", ".join(f"--dim {n}=N (axis {d.axis} of input {d.tensor!r})" for n, d in missing.items())
        raise ModelError(f"the model {model!r} leaves {count} open: pass {what}")
    tensors = []
    for info in inputs:
        shape = tuple(values[d.name] if d.size is None else d.size for d in axes[info.name])
        dtype = element_type(info.type.tensor_type.elem_type, f"the input {info.name!r}")
        tensors.append(Tensor(info.name, shape, dtype, TensorRole.INPUT))
    return tensors, {d.name: values[d.name] for d in every if d.size is None}


def bind_scalars(inputs: Sequence[onnx.ValueInfoProto], dims: Mapping[str, int]) -> tuple[dict[str, npt.NDArray[Any]], dict[str, int]]:
    """Whole-number inputs of one element that ``dims`` names: they become constants (``--dim sr=16000``).

    Returns:
        The value of each such input, and what is left of ``dims``.
    """
    free = {p.dim_param for i in inputs for p in i.type.tensor_type.shape.dim}
    bound: dict[str, npt.NDArray[Any]] = {}
    for info in inputs:
        tensor = info.type.tensor_type
        single = info.type.HasField("tensor_type") and tensor.HasField("shape") and all(d.dim_value == 1 for d in tensor.shape.dim)
        if info.name not in dims or info.name in free or not single or tensor.elem_type not in _WHOLE:
            continue
        value, dtype = dims[info.name], _WHOLE[tensor.elem_type]
        if isinstance(value, bool) or not isinstance(value, int) or not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise OptionError(f"the input {info.name!r} cannot be {value!r}: give a whole number that fits {np.dtype(dtype)}")
        bound[info.name] = np.full((1,) * len(tensor.shape.dim), value, dtype)
    return bound, {k: v for k, v in dims.items() if k not in bound}


def _axes(info: onnx.ValueInfoProto, shapes: Mapping[str, Sequence[int]]) -> list[Dim]:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise UnsupportedModelError(f"the input {info.name!r} is a {(kind or 'value without a type').removesuffix('_type')}, not a tensor")
    if not info.type.tensor_type.HasField("shape"):
        if info.name not in shapes:
            raise ModelError(f"the input {info.name!r} has no shape in the file: give one for it")
        return [Dim(info.name, k, f"{info.name}.{k}", None) for k in range(len(shapes[info.name]))]
    protos = info.type.tensor_type.shape.dim
    if len(protos) > MAX_RANK:
        raise ModelError(f"the input {info.name!r} has {len(protos)} dimensions; at most {MAX_RANK} are supported")
    out = []
    for k, p in enumerate(protos):
        name = p.dim_param if p.dim_param not in {"", "?"} else f"{info.name}.{k}"
        out.append(Dim(info.name, k, name, p.dim_value if p.dim_value > 0 else None))
    return out


def _given(every: Sequence[Dim], dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]], model: str) -> dict[str, int]:
    """Values that the caller gave, by dim name."""
    values: dict[str, int] = {}
    wanted = [*dims.items(), *((f"{t}.{k}", v) for t, shape in shapes.items() for k, v in enumerate(shape))]
    for key, value in wanted:
        hits = [d for d in every if key in {d.name, d.place}]
        if not hits:
            known = dict.fromkeys(d.name for d in every if d.size is None)
            close = difflib.get_close_matches(key, known, 1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            has = "its free dims are " + ", ".join(known) if known else "it has no free dims"
            raise OptionError(f"the model {model!r} has no dim {key!r}{hint}: {has}")
        least = 0 if all(is_past(d.tensor) for d in hits if d.name == key or d.place == key) else 1  # a cache may be empty
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _MAX_DIM:
            raise OptionError(f"the dim {key!r} cannot be {value!r}: give a whole number of at least 1")
        for d in hits:
            if d.size is not None and d.size != value:
                raise OptionError(f"axis {d.axis} of the input {d.tensor!r} is {d.size} in the file and cannot be {value}")
            if values.setdefault(d.name, value) != value:
                raise OptionError(f"the dim {d.name!r} is given both as {values[d.name]} and as {value}")
    return values
