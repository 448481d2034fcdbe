"""The operator that is being lowered, and adding operators and constants to the graph under names of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.bounded_trace import BoundedTrace
from hetsched.frontends.onnx_tensors import ModelFile
from hetsched.frontends.tflite_constants import WeightFile, is_quantized, meaning, parameters
from hetsched.frontends.tflite_model import Operator, Stored, Subgraph
from hetsched.frontends.tflite_schema import ACTIVATIONS
from hetsched.graph import AttrValue, Op, Quantization, Tensor

Attrs: TypeAlias = Mapping[str, AttrValue]
Order: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """The tensor ``name`` holds a tensor of the file with its axes in ``order``."""

    name: str
    order: Order

    @property
    def back(self) -> Order:
        """The order that turns it into the file's."""
        return tuple(sorted(range(len(self.order)), key=self.order.__getitem__))

    def axis(self, axis: int) -> int:
        """Where the file's ``axis`` (counted from the front) is."""
        return self.order.index(axis)


class Scope(BoundedTrace):
    """The graph so far. ``op`` is the operator being lowered, ``node`` the name it has in messages and in the graph.

    ``values`` says what became of the file's tensors, by index; ``states`` and ``written`` hold the variables before and after,
    ``first`` the constants that initialise them.
    """

    def __init__(self, weights: WeightFile, graph: Subgraph, inputs: Sequence[Tensor]) -> None:
        super().__init__(ModelFile(weights.path), inputs)
        self.weights = weights
        self.graph = graph
        self.op = Operator(-1, "", False, (), ())
        self.node = ""
        first = dict.fromkeys(graph.inputs)
        self.values = {i: Value(t.name, tuple(range(len(t.shape)))) for i, t in zip(first, inputs, strict=True)}
        self.states: dict[str, Value] = {}
        self.written: dict[str, Value] = {}
        self.handles: dict[int, str] = {}
        self.first: dict[str, Stored] = {}
        self._names = frozenset(t.name for t in graph.tensors)
        self._parameters: dict[tuple[object, ...], tuple[str, str | None]] = {}
        self._scalars: dict[float, str] = {}
        self._nodes: dict[str, int] = {}
        for stored in (graph.tensors[i] for i in first):
            self._mean(stored.name, self.quantization(stored))

    def begin(self, operator: Operator) -> None:
        """Turn to ``operator``; TFLite's have no names, so it is called as its first result (the first of joined names)."""
        self.op = operator
        named = next((self.graph.tensors[i].name for i in operator.outputs if i >= 0), f"{operator.type}_{operator.index}")
        label = named.split(";")[0] or named
        self._nodes[label] = self._nodes.get(label, 0) + 1
        self.node = label if self._nodes[label] == 1 else f"{label}#{operator.index}"

    def has(self, slot: int) -> bool:
        """Whether input ``slot`` is given."""
        return slot < len(self.op.inputs) and self.op.inputs[slot] >= 0

    def stored(self, slot: int) -> Stored:
        """The file's tensor that is input ``slot``."""
        if not self.has(slot):
            raise self.bad(f"its input {slot} is missing")
        return self.graph.tensors[self.op.inputs[slot]]

    def result(self, k: int = 0) -> Stored:
        """The file's tensor that is output ``k``."""
        if not 0 <= k < len(self.op.outputs) or self.op.outputs[k] < 0:
            raise self.bad(f"its output {k} is missing")
        return self.graph.tensors[self.op.outputs[k]]

    def option(self, name: str) -> int:
        """A whole-number option."""
        value = self.op.options[name]
        return int(value) if isinstance(value, int | float) and np.isfinite(value) else 0

    def option_float(self, name: str) -> float:
        """A number option."""
        value = self.op.options[name]
        if not isinstance(value, int | float) or not np.isfinite(value):
            raise self.bad(f"its option {name} is not a number")
        return float(value)

    @property
    def activation(self) -> str:
        """The activation that the operator has built in, as the name of a TFLite operator, or ``""``."""
        number = self.option("activation")
        if ACTIVATIONS.get(number, "SIGN_BIT") == "SIGN_BIT":
            raise self.unsupported(f"its built-in activation number {number} is not supported")
        return ACTIVATIONS[number]

    def bad(self, why: str) -> ModelError:
        """The error for an operator that contradicts itself."""
        return ModelError(f"node {self.node!r} ({self.op.type}) is damaged: {why}")

    def unsupported(self, why: str) -> UnsupportedModelError:
        """The error for an operator that is not handled."""
        return UnsupportedModelError(f"node {self.node!r} ({self.op.type}) cannot be loaded: {why}")

    def axis(self, axis: int, rank: int) -> int:
        """``axis`` counted from the front."""
        if not -rank <= axis < rank:
            raise self.bad(f"its axis {axis} is not one of {rank}")
        return axis % rank

    def constant(self, what: str, array: npt.NDArray[Any]) -> str:
        """Add a small constant."""
        return self.add_constant(f"{self.node}/{what}", array)

    def scalar(self, value: float) -> str:
        """A constant float; equal ones are shared."""
        if value not in self._scalars:
            self._scalars[value] = self.add_constant(f"constant/{value:g}", np.array(value, np.float32))
        return self._scalars[value]

    def ints(self, what: str, values: Sequence[int]) -> str:
        """Add a constant list of int64."""
        return self.constant(what, np.array(values, np.int64))

    def emit(self, kind: str, inputs: Sequence[str], what: str, attrs: Attrs | None = None) -> str:
        """Add an operator whose result is between those of the file; returns its output."""
        out = self._unique(f"{self.node}/{what}")
        self._add(kind, tuple(inputs), (out,), attrs or {}, f"{self.node}/{what}")
        return out

    def emit_many(self, kind: str, inputs: Sequence[str], count: int, attrs: Attrs | None = None) -> list[str]:
        """Add an operator with ``count`` results between those of the file."""
        outs = tuple(self._unique(f"{self.node}/{kind.lower()}{k}") for k in range(count))
        self._add(kind, tuple(inputs), outs, attrs or {}, f"{self.node}/{kind.lower()}")
        return list(outs)

    def quantization(self, stored: Stored) -> Quantization | None:
        """What the integers of ``stored`` stand for; equal parameters share their constants."""
        if not is_quantized(stored):
            return None
        key = stored.dtype, stored.scales, stored.zero_points
        if key not in self._parameters:
            scale, zero = parameters(stored)
            names = self.add_constant(f"{stored.name}/scale", scale)
            self._parameters[key] = names, None if zero is None else self.add_constant(f"{stored.name}/zero_point", zero)
        return meaning(stored, *self._parameters[key])

    def _linear(self, kind: str, name: str, out: str, q: Quantization, label: str, origin: tuple[str, ...]) -> None:
        zero = () if q.zero_point is None else (q.zero_point,)
        attrs: dict[str, AttrValue] = {} if q.axis is None else {"axis": q.axis}
        if zero or kind == "DequantizeLinear":
            self._add(kind, (name, q.scale, *zero), (out,), attrs, label, origin)
            return
        if q.axis is not None:
            raise self.unsupported(f"it quantizes {out!r} to 32 bits per channel, which is not supported")
        steps = self.emit("Div", (name, q.scale), "steps")
        self._add("Cast", (self.emit("Round", (steps,), "rounded"),), (out,), {"to": 6}, label, origin)

    def _mean(self, name: str, quantization: Quantization | None) -> None:
        """Say what the integers of a tensor that is there already stand for."""
        if quantization is not None and self.tensors[name].quantization is None:
            self.tensors[name] = replace(self.tensors[name], quantization=quantization)

    def _add(self, kind: str, inputs: tuple[str, ...], outputs: tuple[str, ...], attrs: Attrs, label: str,
             origin: tuple[str, ...] | None = None) -> None:  # fmt: skip
        origin = (self.node,) if origin is None else origin
        self._step(Op(self.op_name(label), kind, inputs, outputs, dict(attrs), "", origin))

    def fresh(self, name: str, *, own: bool = False) -> str:
        """``name`` for a new tensor, or a name like it; only with ``own`` may it be one that the file has."""
        return self._unique(name, own=own)

    def _unique(self, name: str, *, own: bool = False) -> str:
        """``name``, or one like it: tensors of the file keep their names, and others never take them."""
        candidate, k = name, 2
        while candidate in self.tensors or (not own and candidate in self._names):
            candidate, k = f"{name}_{k}", k + 1
        return candidate

    def copy(self, name: str, out: str) -> None:
        """Let the tensor ``out`` be the same as ``name``."""
        self._add("Identity", (name,), (out,), {}, out)
        self._mean(out, self.tensors[name].quantization)

    def keep(self, op: Op) -> None:
        """Add an operator whose outputs are described already."""
        self.ops.append(op)
