"""One operator on its way to dispatches: its tensors as operands in device memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hetsched.graph import DType, Op, Tensor
from hetsched.runtime.delegates.base import SegmentJob
from hetsched.runtime.delegates.wgpu.map_kernel import REAL, STORED, MapKernel, Operand, index_code, strides_of
from hetsched.runtime.delegates.wgpu.program import KINDS, ROW, Program, Slot, invocations
from hetsched.runtime.lower.lowering import Array, Lowering, affine_of
from hetsched.runtime.lower.movement import same_storage

#: Precisions whose products are computed in float16.
HALF = ("f16", "w4a16")
_HALF_MAX = float(np.finfo(np.float16).max)


class GpuLowering(Lowering):
    """What the host's :class:`Lowering` knows of an operator (attributes, constants), and its tensors on the device.

    Args:
        op: the operator, or a part of a composite.
        job: the segment.
        program: where the dispatches go.
        precision: what the plan says for the whole operator.
    """

    def __init__(self, op: Op, job: SegmentJob, program: Program, precision: str) -> None:
        super().__init__(op, job, [], [])
        self.program = program
        self._precision = precision

    @property
    def precision(self) -> str:
        """The precision that the plan wants the op, or the composite that it is part of, to run at."""
        return self._precision

    @property
    def half(self) -> bool:
        """Whether products are computed in float16, and floats kept as it.

        Not where an activation is quantized: products rounded to float16 would move a few per cent of the results by a step.
        """
        return self._precision in HALF and not self._touches_bytes

    @property
    def _touches_bytes(self) -> bool:
        tensors = (self.graph.tensors[n] for n in (*self.op.inputs, *self.op.outputs) if n)
        return any(t.quantization is not None and not t.is_constant for t in tensors)

    @property
    def compute(self) -> str:
        """The type of products."""
        return "f16" if self.half else "f32"

    # -- operands --------------------------------------------------------------------------------------------------------

    def _operand(self, tensor: Tensor, slot: Slot) -> Operand:
        if tensor.quantization is None:
            return Operand(slot)
        a = affine_of(self.graph, tensor)
        return Operand(slot, a.scale, a.zero)

    def source(self, slot: int) -> Operand:
        """Input ``slot``: as stored if it is computed while running or its elements are only moved; reals if it is a constant."""
        tensor = self.tensor(slot)
        if not tensor.is_constant:
            return self._operand(tensor, self.program.read(tensor))
        if tensor.quantization is None and not tensor.dtype.is_float:
            return Operand(self.program.weight(tensor.name, "raw", KINDS[tensor.dtype], tensor.numpy))
        return Operand(self.program.weight(tensor.name, "reals", self.compute, lambda: self.constant_reals(slot)))

    def target(self, slot: int = 0) -> Operand:
        """Output ``slot``, as stored."""
        tensor = self.output(slot)
        made = self.program.slots.get(tensor.name)
        return self._operand(tensor, made if made is not None else self.program.write(tensor, self.half and not self._reads_beyond_half()))

    def _reads_beyond_half(self) -> bool:
        """Whether a number that the op reads does not fit float16, as those that mask attention: its result stays float32."""
        numbers = (self.graph.tensors[n] for n in dict.fromkeys((*self.op.inputs, *(i for o in self.op.body for i in o.inputs))) if n)
        return any(
            t.is_constant and t.elements == 1 and t.dtype is DType.F32 and abs(float(t.numpy().reshape(()))) > _HALF_MAX for t in numbers
        )

    def floats(self, slot: int) -> Slot:
        """Input ``slot`` as float32 or float16; a scratch copy where it lies otherwise."""
        operand = self.source(slot)
        return operand.slot if operand.slot.kind in ("f32", "f16") else self.as_floats(operand)

    def as_floats(self, operand: Operand) -> Slot:
        """A copy of an operand in floats."""
        out = Operand(self.program.scratch(self.compute, operand.slot.elements))
        self.move(operand, out)
        return out.slot

    def float_target(self, slot: int = 0) -> Slot:
        """Output ``slot`` where it holds floats, else scratch that :meth:`store` brings there."""
        target = self.target(slot)
        return target.slot if target.slot.kind in ("f32", "f16") else self.program.scratch("f32", target.slot.elements)

    def store(self, values: Slot, slot: int = 0) -> None:
        """Bring what a kernel wrote to :meth:`float_target` to the output, quantized; nothing where it is there."""
        if values is not self.target(slot).slot:
            self.move(Operand(values), self.target(slot))

    def vector(self, slot: int, count: int, make: Callable[[], Array] | None = None) -> Slot:
        """Input ``slot``, or what ``make`` gives, as ``count`` float32; zeros where the op has no such input."""
        if make is not None:
            return self.program.weight(f"{self.op.name} {slot}", "vector", "f32", make)
        if not self.has(slot):
            return self.program.weight("", f"zeros {count}", "f32", lambda: np.zeros(count, np.float32))
        if self.tensor(slot).is_constant:
            return self.program.weight(
                self.op.inputs[slot], f"vector {count}", "f32", lambda: np.broadcast_to(self.constant_reals(slot).reshape(-1), (count,))
            )
        return self.floats(slot)

    # -- kernels ---------------------------------------------------------------------------------------------------------

    def move(self, source: Operand, target: Operand) -> None:
        """The same elements, in another form."""
        kernel = MapKernel(self.program, target, _values(source, target))
        kernel.emit(f"return {kernel.operand(source)}(i);")

    def copy(
        self, source: Operand, target: Operand, shape: tuple[int, ...], strides: list[int], offset: int = 0
    ) -> None:  # fmt: skip
        """Elements of ``source`` at ``offset`` and ``strides`` along ``shape``, the target's shape; requantized where stored otherwise."""
        kernel = MapKernel(self.program, target, _values(source, target))
        read = kernel.operand(source)
        lines, (index,) = index_code(kernel, shape, [(strides, offset)])
        kernel.emit(f"{lines}\nreturn {read}({index});")

    def stored_alike(self, slot: int = 0, output: int = 0) -> bool:
        """Whether equal stored elements of an input and an output mean equal values, and lie alike on the device."""
        a, b = self.source(slot).slot, self.target(output).slot
        return a.kind == b.kind and (self.tensor(slot).is_constant or same_storage(self, self.tensor(slot), self.output(output)))

    def is_same_storage(self) -> bool:
        """Whether the output may be the first input's slot: the same elements, with the same meaning."""
        kind = KINDS[self.output().dtype]
        lies = self.source(0).slot.kind
        return (lies == kind or (kind, lies) == ("f32", "f16")) and same_storage(self, self.tensor(0), self.output())

    def repeated(self, slot: int, out: tuple[int, ...]) -> list[int]:
        """Strides of input ``slot`` along ``out``'s dims."""
        return strides_of(self.tensor(slot).shape, out)

    def lines(self, axis: int) -> tuple[int, int, int]:
        """The first input as ``(lines, n, inner)`` along an axis: ``lines`` is what stands around it."""
        shape = self.tensor(0).shape
        inner = math.prod(shape[axis + 1 :])
        return math.prod(shape[:axis]) * inner, shape[axis], inner

    def activated(self) -> tuple[str, float, float]:
        """The fused activation: its function in ``functions.wgsl``, and its parameters."""
        op = self.op
        kind = op.attr_str("activation", "")
        alpha, beta = op.attr_float("activation_alpha", 0.0), op.attr_float("activation_beta", 0.0)
        name = {"Swish": "Silu", "": "Identity"}.get(kind, kind)
        return ("GeluTanh" if kind == "Gelu" and alpha == 1.0 else name), alpha, beta

    def static(
        self, shader: str, bindings: dict[str, Slot], params: list[int | float], items: int, around: tuple[int, int] | None = None
    ) -> None:  # fmt: skip
        """A kernel of ``shaders/``: the number of items, the parameters, and the fused activation's two.

        One invocation an item. With ``around``: that many times (in two directions) one an item, in workgroups that have the same
        weights ``w``, which are read four at once.
        """
        activation, alpha, beta = self.activated()
        groups = invocations(items) if around is None else (-(-items // ROW), *around)
        self.program.call(
            shader, bindings, [items, *params, alpha, beta], groups, compute=self.compute, activation=activation,
            vectors=frozenset() if around is None else frozenset(("w",)),
        )  # fmt: skip


def _values(source: Operand, target: Operand) -> str:
    """What values a move between two operands goes through: stored elements where both lie alike."""
    alike = (source.slot.kind, source.scale, source.zero) == (target.slot.kind, target.scale, target.zero)
    if alike:
        return STORED
    floats = {source.slot.kind, target.slot.kind} & {"f32", "f16"} or source.is_quantized or target.is_quantized
    return REAL if floats else "i32"
