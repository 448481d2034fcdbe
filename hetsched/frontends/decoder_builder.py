"""Assembling a graph operator by operator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError
from hetsched.graph import AttrValue, DType, Graph, Op, Role, Tensor, WeightRef, dtype_of

Shape = tuple[int, ...]


class GraphBuilder:
    """A graph that grows; every method that adds an operator returns the name of the tensor that it writes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.states: dict[str, str] = {}

    def shape(self, tensor: str) -> Shape:
        """The shape of a tensor."""
        return self.tensors[tensor].shape

    def input(self, name: str, shape: Shape, dtype: DType = DType.F32, role: Role = Role.INPUT) -> str:
        """A graph input."""
        self.inputs.append(self._new(Tensor(name, shape, dtype, role)))
        return name

    def weight(self, tensor: Tensor | None) -> str:
        """A weight that operators may read; ``""`` for None."""
        if tensor is None:
            return ""
        self.tensors.setdefault(tensor.name, tensor)
        return tensor.name

    def array(self, name: str, value: npt.NDArray[Any]) -> str:
        """A small constant in memory."""
        return self._new(Tensor(name, value.shape, dtype_of(value), Role.WEIGHT, None, WeightRef(array=value)))

    def scalar(self, name: str, value: float) -> str:
        """A float32 constant."""
        return self.array(name, np.asarray(value, np.float32))

    def emit(self, kind: str, name: str, inputs: Sequence[str], shape: Shape, dtype: DType = DType.F32, **attrs: AttrValue) -> str:
        """An operator with one output, which has the operator's name."""
        return self.emit_many(kind, name, inputs, [Tensor(name, shape, dtype)], attrs)[0]

    def emit_many(
        self, kind: str, name: str, inputs: Sequence[str], outputs: Sequence[Tensor], attrs: Mapping[str, AttrValue]
    ) -> tuple[str, ...]:
        """An operator with several outputs."""
        names = tuple(self._new(t) for t in outputs)
        self.ops.append(Op(name, kind, tuple(inputs), names, dict(attrs), "", (name,)))
        return names

    def linear(self, name: str, x: str, weight: Tensor, bias: Tensor | None = None) -> str:
        """``x @ weight.T + bias`` on rows ``[n, k]``; the weight is stored as ``[m, k]``."""
        inputs = [x, self.weight(weight), *([self.weight(bias)] if bias is not None else [])]
        shape = (self.shape(x)[0], weight.shape[0])
        return self.emit("Gemm", name, inputs, shape, transB=1)

    def split(self, name: str, x: str, sizes: Sequence[int]) -> tuple[str, ...]:
        """Parts of the last axis."""
        lead = self.shape(x)[:-1]
        parts = [Tensor(f"{name}.{i}", (*lead, n), self.tensors[x].dtype) for i, n in enumerate(sizes)]
        index = self.array(f"{name}.sizes", np.asarray(sizes, np.int64))
        return self.emit_many("Split", name, [x, index], parts, {"axis": -1})

    def reshape(self, name: str, x: str, shape: Shape) -> str:
        """The same elements in another shape; ``x`` itself where the shape is the same."""
        if self.shape(x) == shape:
            return x
        if math.prod(shape) != self.tensors[x].elements:
            raise ModelError(f"{name!r}: {list(self.shape(x))} cannot be reshaped to {list(shape)}")
        wanted = self.array(f"{name}.shape", np.asarray(shape, np.int64))
        return self.emit("Reshape", name, [x, wanted], shape, self.tensors[x].dtype)

    def binary(self, kind: str, name: str, a: str, b: str) -> str:
        """An elementwise operator on two tensors that broadcast."""
        return self.emit(kind, name, [a, b], np.broadcast_shapes(self.shape(a), self.shape(b)))

    def unary(self, kind: str, name: str, x: str, **attrs: AttrValue) -> str:
        """An elementwise operator on one tensor."""
        return self.emit_many(kind, name, [x], [Tensor(name, self.shape(x), DType.F32)], attrs)[0]

    def output(self, tensor: str, role: Role = Role.OUTPUT) -> None:
        """Make a tensor an output of the graph."""
        self.tensors[tensor] = replace(self.tensors[tensor], role=role)
        self.outputs.append(tensor)

    def state(self, present: str, past: str) -> None:
        """Make ``present`` an output that continues the input ``past`` (``""``: it begins here)."""
        self.output(present, Role.STATE)
        if past:
            self.states[present] = past

    def graph(self, source: Path, sha256: str, dims: Mapping[str, int]) -> Graph:
        """The finished graph."""
        ends = tuple(self.inputs), tuple(self.outputs)
        return Graph(self.name, self.tensors, tuple(self.ops), *ends, source, sha256, dict(dims), dict(self.states))

    def _new(self, tensor: Tensor) -> str:
        if tensor.name in self.tensors:
            raise ModelError(f"the model {self.name!r} has two tensors called {tensor.name!r}: its description is damaged")
        self.tensors[tensor.name] = tensor
        return tensor.name
