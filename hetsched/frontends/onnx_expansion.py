"""Writing one node as several operators, or as a composite that holds them in its body.

Each operator is handed to the trace at once, which infers its shape and folds it where it is constant, so that the next
one may be chosen by shapes that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hetsched.errors import UnsupportedModelError
from hetsched.frontends.cleanup import without_dead, without_no_ops
from hetsched.graph import AttrValue, DType, Op, Tensor
from hetsched.reference.element_types import NUMBER_OF

#: Longest row of indices that an expansion makes.
MAX_STEPS = 1 << 24


class Tracer(Protocol):
    """What an expansion needs of the walk over the nodes."""

    tensors: MutableMapping[str, Tensor]
    ops: list[Op]
    opset: int

    def tensor(self, name: str) -> Tensor:
        """The tensor with this name."""
        ...

    def add_constant(self, name: str, array: Any) -> str:
        """Define a constant; returns its name."""
        ...

    def step(self, op: Op) -> None:
        """Take one operator: infer the shapes of its outputs, or fold it."""
        ...


class Expansion:
    """One node on its way to other operators."""

    def __init__(self, op: Op, trace: Tracer) -> None:
        self.op = op
        self.trace = trace
        self._count = 0

    # -- what the node says -------------------------------------------------------------------------------------------

    def has(self, slot: int) -> bool:
        """Whether the optional input ``slot`` is there."""
        return slot < len(self.op.inputs) and self.op.inputs[slot] != ""

    def input(self, slot: int) -> str:
        """The name of input ``slot``.

        Raises:
            UnsupportedModelError: it is left out.
        """
        if not self.has(slot):
            raise UnsupportedModelError(f"node {self.op.name!r} ({self.op.type}) leaves out its input {slot}, which is not supported")
        return self.op.inputs[slot]

    def optional(self, slot: int) -> str:
        """The name of input ``slot``, or ``""``."""
        return self.op.inputs[slot] if self.has(slot) else ""

    def output(self, slot: int = 0) -> str:
        """The name of output ``slot``, or ``""``."""
        return self.op.outputs[slot] if slot < len(self.op.outputs) else ""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.trace.tensor(name).shape

    def dtype(self, name: str) -> DType:
        """The element type of a tensor."""
        return self.trace.tensor(name).dtype

    def refuse(self, what: str) -> UnsupportedModelError:
        """The error for a form of this node that is not handled."""
        return UnsupportedModelError(f"node {self.op.name!r} ({self.op.type}) {what}, which is not supported")

    def refuse_outputs(self, first: int) -> None:
        """Refuse a node that writes outputs from ``first`` on."""
        extra = next((o for o in self.op.outputs[first:] if o), None)
        if extra is not None:
            raise self.refuse(f"also writes {extra!r}")

    # -- what it becomes ----------------------------------------------------------------------------------------------

    def fresh(self, what: str) -> str:
        """A new tensor name."""
        while True:
            name = f"{self.op.name}/{what}_{self._count}"
            self._count += 1
            if name not in self.trace.tensors:
                return name

    def constant(self, value: Any, what: str, dtype: DType | None = None) -> str:
        """A constant; ``dtype`` (a float type, bfloat16 included) is that of its elements."""
        if dtype is None or dtype is not DType.BF16:
            return self.trace.add_constant(self.fresh(what), np.asarray(value, None if dtype is None else dtype.numpy))
        wide = self.trace.add_constant(self.fresh(what), np.asarray(value, np.float32))
        return self.add("Cast", (wide,), {"to": NUMBER_OF[dtype]})

    def indices(self, *values: int) -> str:
        """A constant list of int64."""
        return self.constant(np.array(values, np.int64), "indices")

    def steps(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Whole numbers from ``start`` to before ``stop``.

        Raises:
            UnsupportedModelError: there are over 2^24: a damaged shape must not take all memory.
        """
        if stop - start > MAX_STEPS:
            raise self.refuse(f"numbers {stop - start} positions")
        return np.arange(start, stop, dtype=np.int64)

    def add(self, kind: str, inputs: Sequence[str], attrs: Mapping[str, AttrValue] | None = None, out: str = "") -> str:
        """Add an operator with one output, called ``out`` or by a new name, which is returned."""
        return self.add_many(kind, inputs, [out or self.fresh(kind)], attrs)[0]

    def add_many(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, AttrValue] | None = None) -> list[str]:
        """Add an operator with the given outputs."""
        plain = list(inputs)
        while plain and not plain[-1]:
            plain.pop()
        name = self.op.name if tuple(outputs) == self.op.outputs else f"{self.op.name}/{outputs[0].rpartition('/')[2]}"
        self.trace.step(Op(name, kind, tuple(plain), tuple(outputs), dict(attrs or {}), "", self.op.origin))
        return list(outputs)

    def standard(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, AttrValue]) -> Op:
        """A standard operator in the place of this node, for :meth:`Tracer.step`."""
        name = self.op.name if outputs and outputs[0] == self.output() else f"{self.op.name}/{outputs[0].rpartition('/')[2]}"
        return Op(name, kind, tuple(inputs), tuple(outputs), dict(attrs), "", self.op.origin)

    def composite(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, AttrValue], build: Callable[[], None]
    ) -> list[str]:
        """Add a composite whose body is what ``build`` adds; ``build`` writes ``outputs``."""
        name = self.op.name if tuple(outputs) == self.op.outputs else f"{self.op.name}/{outputs[0].rpartition('/')[2]}"
        add_composite(self.trace, Op(name, kind, tuple(inputs), tuple(outputs), dict(attrs), "", self.op.origin), build)
        return list(outputs)

    def reshape(self, x: str, *shape: int, out: str = "") -> str:
        """``x`` in another shape."""
        return self.add("Reshape", (x, self.indices(*shape)), {}, out)

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Parts of ``x`` along ``axis``."""
        outputs = [self.fresh("part") for _ in sizes]
        return self.add_many("Split", (x, self.indices(*sizes)), outputs, {"axis": axis})

    def like(self, value: float, tensor: str, what: str) -> str:
        """A scalar constant of the element type of ``tensor``."""
        return self.constant(value, what, self.dtype(tensor))


def add_composite(trace: Tracer, op: Op, build: Callable[[], None]) -> None:
    """Append ``op`` to the operators of ``trace`` with what ``build`` makes as its body; nothing if that is all constant."""
    outside, trace.ops = trace.ops, []
    try:
        build()
        body = trace.ops
    finally:
        trace.ops = outside
    outputs = [o for o in op.outputs if o]
    inputs = [i for i in op.inputs if i]
    body = without_dead(without_no_ops(without_dead(body, outputs), trace.tensors, inputs, outputs), outputs)
    written = {o for part in body for o in part.outputs}
    if any(o in written for o in outputs):
        trace.ops.append(Op(op.name, op.type, op.inputs, op.outputs, op.attrs, op.domain, op.origin, tuple(body)))
