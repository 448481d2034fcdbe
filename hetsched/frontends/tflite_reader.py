"""What an operator reads: tensors of the file in the order of axes that it wants, as stored or as floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.frontends.tflite_constants import WeightFile, moves_data
from hetsched.frontends.tflite_model import Stored, Subgraph
from hetsched.frontends.tflite_scope import Order, Scope, Value
from hetsched.graph import Role, Tensor

NCHW: Order = (0, 3, 1, 2)
#: Constants up to this many elements may be read while loading (axes, paddings, indices).
_READ_ELEMENTS = 1 << 16


class Reader(Scope):
    """A scope that knows in which order every tensor has its axes, and makes each copy in another order once."""

    def __init__(self, weights: WeightFile, graph: Subgraph, inputs: Sequence[Tensor]) -> None:
        super().__init__(weights, graph, inputs)
        self._reals: dict[str, str] = {}
        self._copies: dict[tuple[str, Order], str] = {}
        self._reshaped: dict[str, str] = {}

    def value(self, slot: int) -> Value:
        """Input ``slot``."""
        return self.value_of(self.stored(slot))

    def value_of(self, stored: Stored) -> Value:
        """A tensor of the file, which must exist by now.

        Raises:
            ModelError: nothing writes it.
        """
        if stored.index not in self.values:
            if stored.is_variable and stored.data is None:
                return self.state(stored.name, stored)
            if stored.data is None:
                raise self.bad(f"it reads {stored.name!r}, which nothing before it writes")
            tensor = self.weights.constant(stored)
            self.tensors[tensor.name] = replace(tensor, quantization=self.quantization(stored))
            self.values[stored.index] = Value(tensor.name, tuple(range(len(tensor.shape))))
        return self.values[stored.index]

    def state(self, name: str, stored: Stored) -> Value:
        """The value of the variable ``name`` before the model runs (an input), of the type and shape of ``stored``.

        It is nobody's business outside, so images are kept as NCHW.
        """
        if name not in self.states:
            quantization = self.quantization(stored)
            order = NCHW if len(stored.shape) == 4 else tuple(range(len(stored.shape)))
            shape = tuple(stored.shape[k] for k in order)
            tensor = Tensor(self._unique(name, own=True), shape, stored.element_type(), Role.STATE, quantization)
            self.tensors[tensor.name] = tensor
            self.states[name] = Value(tensor.name, order)
        value = self.states[name]
        if stored.is_variable:
            self.values[stored.index] = value
        return value

    def shape(self, slot: int) -> tuple[int, ...]:
        """The shape of input ``slot`` in the file's order, with the bound dims."""
        value = self.value(slot)
        shape = self.tensors[value.name].shape
        return tuple(shape[k] for k in value.back)

    def rank(self, slot: int) -> int:
        """The number of dimensions of input ``slot``."""
        return len(self.value(slot).order)

    def is_quantized(self, slot: int) -> bool:
        """Whether input ``slot`` holds integers that stand for reals."""
        return self.tensors[self.value(slot).name].quantization is not None

    def number(self, slot: int) -> npt.NDArray[Any]:
        """The value of the constant input ``slot``, read now.

        Raises:
            UnsupportedModelError: it is computed while the model runs.
        """
        value = self.value(slot)
        tensor = self.tensors[value.name]
        if tensor.data is None or tensor.elements > _READ_ELEMENTS:
            raise self.unsupported(f"its input {tensor.name!r} must be a small constant, or the shapes depend on the data")
        return np.asarray(tensor.numpy())

    def integers(self, slot: int) -> list[int]:
        """The constant input ``slot`` as a list of whole numbers."""
        array = self.number(slot)
        if array.dtype.kind not in "iu":
            raise self.bad(f"its input {slot} is not of whole numbers")
        return [int(v) for v in array.reshape(-1)]

    def raw(self, value: Value, order: Order | None = None) -> str:
        """The tensor as stored, with its axes in ``order`` (the file's where none is given)."""
        order = tuple(range(len(value.order))) if order is None else order
        if len(order) != len(value.order):
            raise self.bad(f"its input {value.name!r} has {len(value.order)} dimensions where {len(order)} are needed")
        perm = tuple(value.order.index(k) for k in order)
        if perm == tuple(range(len(perm))):
            return value.name
        key = value.name, perm
        if key not in self._copies:
            letters = "".join("nhwc"[k] for k in order) if len(order) == 4 else "".join(map(str, order))
            self._copies[key] = self._transposed(value.name, perm, self._unique(f"{value.name}/{letters}"))
        return self._copies[key]

    def _transposed(self, name: str, perm: Order, out: str) -> str:
        tensor = self.tensors[name]
        if tensor.data is not None and tensor.data.is_present:
            self.tensors[out] = self.weights.permuted(tensor, perm, out)
        elif not moves_data(tensor.shape, perm):
            self._reshape(name, tuple(tensor.shape[k] for k in perm), out)
        else:
            self._add("Transpose", (name,), (out,), {"perm": perm}, out)
            self._mean(out, tensor.quantization)
        return out

    def _reshape(self, name: str, shape: tuple[int, ...], out: str) -> str:
        source = self._reshaped.get(name, name)
        target = self.add_constant(f"{out}/shape", np.array(shape, np.int64))
        self._add("Reshape", (source, target), (out,), {"allowzero": 1}, out)
        self._reshaped[out] = source
        quantization = self.tensors[name].quantization
        if quantization is not None and quantization.axis is not None:
            raise self.unsupported(f"it reshapes {name!r}, which is quantized per channel")
        self._mean(out, quantization)
        return out

    def real(self, value: Value, order: Order | None = None) -> str:
        """The tensor as floats (dequantized where it is quantized), with its axes in ``order``."""
        return self.dequantized(self.raw(value, order))

    def dequantized(self, name: str) -> str:
        """The floats that the tensor ``name`` stands for; itself where it is not quantized."""
        quantization = self.tensors[name].quantization
        if quantization is None:
            return name
        if name not in self._reals:
            out = self._unique(f"{name}/float")
            self._linear("DequantizeLinear", name, out, quantization, f"{name}/dequantize", ())
            self._reals[name] = out
        return self._reals[name]

    def leading(self) -> Value:
        """The input that decides in which order an operator that broadcasts its inputs has its axes.

        The file's order is kept where an input of fewer axes is computed while running: that could not follow.
        """
        values = [self.value(slot) for slot in range(len(self.op.inputs))]
        rank = max((len(v.order) for v in values), default=0)
        plain = Value("", tuple(range(rank)))
        computed = [v for v in values if not self.tensors[v.name].is_constant]
        if any(len(v.order) < rank and self.tensors[v.name].elements != 1 for v in computed):
            return plain
        return next((v for v in computed if len(v.order) == rank and v.order != plain.order), plain)

    def like(self, slot: int, lead: Value) -> str:
        """Input ``slot`` as stored, so that it broadcasts against a tensor whose axes are in the order of ``lead``."""
        value, rank = self.value(slot), len(lead.order)
        tensor = self.tensors[value.name]
        if len(value.order) == rank:
            return self.raw(value, lead.order)
        if lead.order == tuple(range(rank)) or tensor.elements == 1:
            return self.raw(value)
        if not tensor.is_constant or len(value.order) > rank:
            raise self.unsupported(f"its input {tensor.name!r} has {len(value.order)} dimensions and cannot follow one of {rank}")
        return self.raw(Value(self._with_rank(tensor, rank), tuple(range(rank))), lead.order)

    def _with_rank(self, tensor: Tensor, rank: int) -> str:
        """A constant with axes of length 1 in front."""
        name = f"{tensor.name}/rank{rank}"
        if name not in self.tensors:
            ones, data, q = (1,) * (rank - len(tensor.shape)), tensor.data, tensor.quantization
            if data is not None and data.array is not None and data.array.shape == tensor.shape:
                data = replace(data, array=data.array.reshape(ones + tensor.shape))
            if q is not None and q.axis is not None:
                q = replace(q, axis=q.axis + len(ones))
            self.tensors[name] = replace(tensor, name=name, shape=ones + tensor.shape, data=data, quantization=q)
        return name

    def carrier(self, slots: Sequence[int], k: int = 0) -> tuple[Callable[[Value, Order | None], str], bool]:
        """How an operator that only moves data reads its inputs: as stored where the result means the same, else as reals."""
        want = self.quantization(self.result(k))
        same = want is None or all(self.tensors[self.value(s).name].quantization == want for s in slots)
        return (self.raw if same else self.real), same

    def int64(self, slot: int) -> str:
        """Input ``slot`` as int64, which ONNX wants of some indices."""
        name = self.raw(self.value(slot))
        return name if self.tensors[name].dtype.value == "i64" else self.emit("Cast", (name,), f"int64_{slot}", {"to": 7})
