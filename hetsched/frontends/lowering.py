"""Lowering the operators of another format to ONNX-named ones, with every shape inferred on the way.

The readers of Core ML and torch.export share this: a walk over the file's operators, each written as one or more ONNX
operators, with constants folded and shapes inferred as for an ONNX model (:class:`hetsched.frontends.onnx_trace.Trace`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.bounded_trace import MAX_FOLDED_ELEMENTS, BoundedTrace
from hetsched.frontends.cleanup import without_dead, without_no_ops
from hetsched.frontends.onnx_tensors import ModelFile
from hetsched.graph import AttrValue, DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.reference.element_types import NUMBER_OF

Attrs = Mapping[str, AttrValue]


class Lowering(BoundedTrace):
    """The graph so far, and the operator of the file that is being lowered.

    ``node`` and ``kind`` are the name and the type that messages call it by. ``values`` says which tensor of the graph
    holds a value of the file. ``source`` is the file that the finished graph says it is from.

    Args:
        path: the model file.
        inputs: the graph's inputs, and the constants that are known from the start.
        names: the file's own names; tensors that lie between those of the file never take them.
    """

    def __init__(self, path: Path, inputs: Sequence[Tensor], names: Collection[str] = ()) -> None:
        super().__init__(ModelFile(path), inputs)
        self.node, self.kind = "", ""
        self.values: dict[str, str] = {}
        self.source = path
        self._names = frozenset(names)
        self._numbers: dict[tuple[float, DType], str] = {}

    def begin(self, node: str, kind: str) -> None:
        """Turn to the operator called ``node`` of the type ``kind``."""
        self.node, self.kind = node, kind

    def bad(self, why: str) -> ModelError:
        """The error for an operator that contradicts itself."""
        return ModelError(f"node {self.node!r} ({self.kind}) is damaged: {why}")

    @contextmanager
    def fitting(self, what: str) -> Iterator[None]:
        """What goes wrong inside, while the operator is read, is damage: its ``what`` (arguments, parameters) do not fit it."""
        try:
            yield
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise self.bad(f"its {what} do not fit it ({str(error)[:100]})") from error

    def unsupported(self, why: str) -> UnsupportedModelError:
        """The error for an operator that is not handled."""
        return UnsupportedModelError(f"node {self.node!r} ({self.kind}) cannot be loaded: {why}")

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor of the graph."""
        return self.tensor(name).shape

    def dtype(self, name: str) -> DType:
        """Element type of a tensor of the graph."""
        return self.tensor(name).dtype

    def axis(self, axis: int, rank: int) -> int:
        """``axis`` counted from the front."""
        if not -rank <= axis < rank:
            raise self.bad(f"its axis {axis} is not one of {rank}")
        return axis % rank

    def constant(self, what: str, array: npt.NDArray[Any]) -> str:
        """Add a constant of this operator."""
        return self.add_constant(self.fresh(f"{self.node}/{what}"), array)

    def ints(self, what: str, values: Sequence[int]) -> str:
        """Add a constant list of int64."""
        if any(not -(1 << 63) <= v < 1 << 63 for v in values):
            raise self.bad(f"its {what} {list(values)[:8]} are out of range")
        return self.constant(what, np.array(values, np.int64))

    def number(self, value: float, dtype: DType) -> str:
        """A constant without axes; equal ones are shared."""
        key = (float(value), dtype)
        if key not in self._numbers or value != value:
            with np.errstate(over="ignore"):
                array = np.asarray(value).astype(dtype.numpy)
            self._numbers[key] = self.add_constant(self.fresh(f"constant/{value:g}/{dtype.value}"), array)
        return self._numbers[key]

    def value(self, name: str) -> npt.NDArray[Any]:
        """The value of a small constant.

        Raises:
            UnsupportedModelError: the tensor is computed from the inputs, or its weights are absent.
        """
        data = self.tensor(name).data
        if data is None or not data.is_present:
            raise self.unsupported(f"it needs the value of {name!r} when the model is loaded, and that is known only when it runs")
        if self.tensor(name).elements > MAX_FOLDED_ELEMENTS:
            raise self.unsupported(f"it needs the value of {name!r}, which is too large")
        return self.tensor(name).numpy()

    def integers(self, name: str) -> list[int]:
        """The value of a small constant as a list of whole numbers."""
        array = self.value(name)
        if array.size > 1 << 16 or array.dtype.kind not in "iub":
            raise self.bad(f"{name!r} is not a short list of whole numbers")
        return [int(v) for v in array.reshape(-1)]

    def emit(self, kind: str, inputs: Sequence[str], attrs: Attrs | None = None, *, what: str = "", out: str = "") -> str:
        """Add an operator with one output and return that: ``out``, or a name made of the node's and ``what``."""
        return self.emit_many(kind, inputs, 1, attrs, what=what, outs=(out,) if out else ())[0]

    def emit_many(self, kind: str, inputs: Sequence[str], count: int, attrs: Attrs | None = None, *, what: str = "",
                  outs: Sequence[str] = ()) -> list[str]:  # fmt: skip
        """Add an operator with ``count`` outputs."""
        what = what or kind.lower()
        names = list(outs) or [self.fresh(f"{self.node}/{what}" + (f"{k}" if count > 1 else "")) for k in range(count)]
        taken = next((n for n in names if n and n in self.tensors), None)
        if taken is not None:
            raise self.bad(f"its result {taken!r} already has a value")
        label = self.node if outs else f"{self.node}/{what}"
        self._step(Op(self.op_name(label), kind, tuple(inputs), tuple(names), dict(attrs or {}), "", (self.node,)))
        return names

    def reshape(self, name: str, shape: Sequence[int], *, what: str = "reshape", out: str = "") -> str:
        """The tensor ``name`` in another shape (sizes as Reshape takes them)."""
        return self.emit("Reshape", (name, self.ints("shape", shape)), {"allowzero": 0} if 0 not in shape else {"allowzero": 1},
                         what=what, out=out)  # fmt: skip

    def cast(self, name: str, dtype: DType, *, what: str = "cast") -> str:
        """The tensor ``name`` in the element type ``dtype``."""
        if self.dtype(name) is dtype:
            return name
        return self.emit("Cast", (name,), {"to": NUMBER_OF[dtype]}, what=what)

    def transposed(self, name: str, perm: Sequence[int], *, what: str = "transposed", out: str = "") -> str:
        """The tensor ``name`` with its axes in the order ``perm``; of a constant a view, which copies nothing."""
        t = self.tensor(name)
        data = t.data
        if out or data is None or t.is_packed:
            return self.emit("Transpose", (name,), {"perm": tuple(perm)}, what=what, out=out)
        shape = tuple(t.shape[p] for p in perm)
        if data.array is not None:
            view = WeightRef(array=data.array.transpose(perm))
        elif data.compute is not None:
            view = replace(data, compute=lambda: t.numpy().transpose(perm))
        else:
            order = data.order or tuple(range(len(shape)))
            view = replace(data, order=tuple(order[p] for p in perm))
        made = self.fresh(f"{name}/{what}")
        self.tensors[made] = Tensor(made, shape, t.dtype, Role.WEIGHT, None, view)
        return made

    def fresh(self, name: str) -> str:
        """``name`` for a new tensor between those of the file, or a name like it if that is taken."""
        candidate, k = name, 2
        while candidate in self.tensors or candidate in self._names:
            candidate, k = f"{name}_{k}", k + 1
        return candidate

    def output(self, name: str, wanted: str, taken: Collection[str]) -> str:
        """The tensor ``name`` as an output called ``wanted``; a copy where it is an input, a constant or an output already."""
        t = self.tensors[name]
        if name == wanted and not t.is_constant and t.role not in {Role.INPUT, Role.STATE} and name not in taken:
            return name
        made = self.fresh(wanted) if wanted in self.tensors or wanted in taken else wanted
        self.node = made
        self.ops.append(Op(self.op_name(made), "Identity", (name,), (made,), {}, "", (wanted,)))
        self.tensors[made] = Tensor(made, t.shape, t.dtype)
        return made

    def finished(self, name: str, inputs: Sequence[str], outputs: Sequence[str], kept: Collection[str], states: Mapping[str, str],
                 sha256: str, dims: Mapping[str, int]) -> Graph:  # fmt: skip
        """The finished graph: what the outputs need, and no more.

        ``kept`` are the inputs that are states, ``states`` maps outputs to those that they are in the next step.
        """
        ops: Sequence[Op] = without_dead(self.ops, outputs)
        ops = without_dead(without_no_ops(ops, self.tensors, inputs, outputs), outputs)
        used = dict.fromkeys([*inputs, *outputs, *(n for op in ops for n in (*op.inputs, *op.outputs) if n)])
        written = frozenset(outputs)
        roles = frozenset((*kept, *states))
        tensors = {n: self._with_role(self.tensors[n], written, roles) for n in self.tensors if n in used}
        return Graph(name, tensors, tuple(ops), tuple(inputs), tuple(outputs), self.source, sha256, dict(dims), dict(states))

    def _with_role(self, tensor: Tensor, outputs: frozenset[str], states: Collection[str]) -> Tensor:
        if tensor.name in states:
            return replace(tensor, role=Role.STATE)
        if tensor.is_constant or tensor.role is Role.INPUT or tensor.name not in outputs:
            return tensor
        return replace(tensor, role=Role.OUTPUT)
