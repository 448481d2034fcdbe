"""What a lowering works with: one op's tensors as flat arrays, and the kernel calls that it emits.

A lowering is a function of one argument, a :class:`Lowering`. It reads inputs with :meth:`Lowering.raw` (as stored) or
:meth:`Lowering.reals` (float32, dequantized into scratch where the tensor is stored as integers), takes its output the
same way, and calls :meth:`Lowering.emit`. Everything is prepared here, at compile time; running is ``function(*args)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.channels_last import last_shape
from hetsched.errors import UnsupportedModelError
from hetsched.graph import DType, Graph, Op, Quantization, Tensor
from hetsched.reference.gguf_types import constant_value
from hetsched.reference.quantized import dequantize
from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.delegates.base import SegmentJob
from hetsched.runtime.lower.copying import emit_order
from hetsched.runtime.lower.splitting import emit_affine, part_edges
from hetsched_kernels import codes, nhwc, quantize
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.program import Call

Array = npt.NDArray[Any]
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def bits(array: Array) -> Array:
    """The same memory as unsigned integers of the same width, for kernels that only move data."""
    return array.view(_UNSIGNED[array.dtype.itemsize])


@dataclass(frozen=True, slots=True)
class Affine:
    """How a stored tensor stands for reals, as the kernels want it: one scale and zero point a channel, or one in all.

    The tensor is seen as ``[outer, channels, inner]``.
    """

    scales: Array
    zeros: Array
    outer: int
    channels: int
    inner: int

    @property
    def zero(self) -> int:
        """The zero point of a per-tensor quantization."""
        return int(self.zeros[0])

    @property
    def scale(self) -> float:
        """The scale of a per-tensor quantization."""
        return float(self.scales[0])


def _unsigned(array: Array) -> Array:
    """Bytes as unsigned ones; anything else as it is."""
    return array.view(np.uint8) if array.dtype.itemsize == 1 else array


def _is_spread(tensor: Tensor, out: Tensor) -> bool:
    """Whether a tensor that an elementwise op reads is an image, not a value for each of its channels or one in all."""
    return tensor.shape == out.shape and len(tensor.shape) == 4


def affine_of(graph: Graph, tensor: Tensor) -> Affine:
    """The quantization of a tensor.

    Raises:
        UnsupportedModelError: it has none, or is quantized in groups.
    """
    q = tensor.quantization
    if q is None or q.granularity == "group":
        raise UnsupportedModelError(f"tensor {tensor.name!r} is not quantized per tensor or per channel")
    zero = None if q.zero_point is None else graph.tensors[q.zero_point].numpy()
    return affine(tensor.shape, graph.tensors[q.scale].numpy(), zero, q.axis)


def affine(shape: tuple[int, ...], scale: Array, zero: Array | None, axis: int | None) -> Affine:
    """The quantization given by a scale and a zero point, one or one for each index of ``axis``."""
    scales = aligned_copy(np.asarray(scale, np.float32).reshape(-1))
    zeros = aligned_copy(
        np.zeros(scales.size, np.int32) if zero is None else np.broadcast_to(np.asarray(zero, np.int32).reshape(-1), scales.shape)
    )
    if scales.size == 1:
        return Affine(scales, zeros, 1, 1, math.prod(shape))
    at = (axis or 0) % len(shape)
    return Affine(scales, zeros, math.prod(shape[:at]), scales.size, math.prod(shape[at + 1 :]))


class Lowering:
    """One op on its way to kernel calls; ``steps`` collects them, ``kept`` the arrays that they know by address only.

    A step is a tuple of independent :class:`hetsched_kernels.program.Call`, or a Python function and its arguments.
    """

    def __init__(
        self, op: Op, job: SegmentJob, steps: list[Any], kept: list[Any], before: Op | None = None, after: Op | None = None
    ) -> None:  # fmt: skip
        self.op = op
        self.graph = job.graph
        self.steps = steps
        self.kept = kept
        self.before = before
        #: The op that this one computes as well, whose output it writes instead of its own.
        self.after = after
        self._job = job
        self._after: list[Callable[[], None]] = []
        self._stores: list[Callable[[], None]] = []
        out = self.graph.tensors[next(o for o in (after or op).outputs if o)]
        #: The op works on float32 in the order of channels-last tensors.
        self.last = out.name in job.channels_last and out.dtype is DType.F32 and out.quantization is None

    @property
    def threads(self) -> int:
        """Threads of the queue that the op runs on."""
        return 1 if self._job.team is None else self._job.team.threads

    @property
    def precision(self) -> str:
        """The precision that the plan wants the op to run at."""
        return self._job.precision.get(self.op.name, "f32")

    # -- tensors ------------------------------------------------------------------------------------------------------

    def has(self, slot: int) -> bool:
        """Whether the optional input ``slot`` is there."""
        return slot < len(self.op.inputs) and self.op.inputs[slot] != ""

    def tensor(self, slot: int) -> Tensor:
        """The tensor at input ``slot``."""
        return self.graph.tensors[self.op.inputs[slot]]

    def output(self, slot: int = 0) -> Tensor:
        """The tensor at output ``slot``."""
        return self.graph.tensors[(self.after or self.op).outputs[slot]]

    def shape(self, slot: int) -> tuple[int, ...]:
        """Shape of input ``slot``, in the order in which it lies."""
        return last_shape(self.tensor(slot).shape) if self.last else self.tensor(slot).shape

    def result_shape(self) -> tuple[int, ...]:
        """Shape of the output, in the order in which it lies."""
        return last_shape(self.output().shape) if self.last else self.output().shape

    def constant(self, slot: int) -> Array:
        """The value of a constant input, as stored.

        Raises:
            UnsupportedModelError: the input is computed while the model runs.
        """
        tensor = self.tensor(slot)
        if not tensor.is_constant:
            raise UnsupportedModelError(f"node {self.op.name!r} ({self.op.type}): input {tensor.name!r} must be a constant")
        return tensor.numpy()

    def constant_reals(self, slot: int) -> Array:
        """The value of a constant input in float32, dequantized; shaped."""
        tensor, value = self.tensor(slot), self.constant(slot)
        q = tensor.quantization
        if q is None:
            return np.asarray(tensor.values(), np.float32)
        if q.block_bytes:
            return np.asarray(constant_value(tensor), np.float32)
        if tensor.is_packed or q.granularity == "group":
            return self._unpacked(tensor, q)
        a = affine_of(self.graph, tensor)
        grid = value.astype(np.int32).reshape(a.outer, a.channels, a.inner) - a.zeros[:, None]
        return np.asarray((grid.astype(np.float32) * a.scales[:, None]).reshape(tensor.shape))

    def _unpacked(self, tensor: Tensor, q: Quantization) -> Array:
        """A constant of a few bits, or quantized in groups, in float32."""
        scale = np.asarray(self.graph.tensors[q.scale].values(), np.float32)
        zero = None if q.zero_point is None else self.graph.tensors[q.zero_point].values()
        return np.asarray(dequantize(tensor.values(), scale, zero, q.axis or 0, q.group or 0), np.float32)

    def raw(self, slot: int) -> Array:
        """Input ``slot`` as stored, flat. Constants are copied once, aligned and writable: such arguments dispatch faster."""
        tensor = self.tensor(slot)
        if tensor.is_constant:
            values: Array = self.packed(tensor.name, "raw", lambda: aligned_copy(np.ascontiguousarray(tensor.numpy()).reshape(-1)))
            return values
        stored = self._job.buffers[tensor.name].reshape(-1)
        if self.last and _is_spread(tensor, self.output()):
            return self.image(tensor)
        if tensor.name not in self._job.channels_last:
            return stored
        out = self.scratch(stored.size, stored.dtype)
        emit_order(self, tensor, stored, out, last=False)
        return out

    def bytes_last(self, slot: int) -> Array:
        """Input ``slot``, an 8-bit image, as channels-last unsigned bytes, flat."""
        return self.image(self.tensor(slot))

    def image(self, tensor: Tensor) -> Array:
        """An image with its channels last, flat: float32, or 8-bit as unsigned bytes."""
        stored = self._job.buffers[tensor.name].reshape(-1)
        if tensor.name in self._job.channels_last:
            return _unsigned(stored)
        room = self.scratch(stored.nbytes + nhwc.SLACK, np.uint8)[: stored.nbytes]
        out = room.view(stored.dtype)
        emit_order(self, tensor, stored, out, last=True)
        return _unsigned(out)

    def reals(self, slot: int) -> Array:
        """Input ``slot`` as float32, flat."""
        tensor = self.tensor(slot)
        if tensor.quantization is None:
            return self.raw(slot)
        if tensor.is_constant:
            values: Array = self.packed(tensor.name, "reals", lambda: aligned_copy(self.constant_reals(slot).reshape(-1)))
            return values
        a = affine_of(self.graph, tensor)
        source, out = self.raw(slot), self.scratch(tensor.elements, np.float32)
        emit_affine(self, quantize.dequantize_linear, source, out, a, dtypes=(source.dtype,))
        return out

    def raw_output(self, slot: int = 0) -> Array:
        """Output ``slot`` as stored, flat; a last step puts its channels last where the tensor is kept so."""
        tensor = self.output(slot)
        stored = self._job.buffers[tensor.name].reshape(-1)
        if tensor.name not in self._job.channels_last or self.last:
            return stored
        out = self.scratch(stored.size, stored.dtype)
        self._stores.append(partial(emit_order, self, tensor, out, stored, last=True))
        return out

    def last_output(self) -> Array:
        """The output, an image, with its channels last, flat; a last step puts them in ONNX's order where wanted."""
        tensor = self.output()
        stored = self._job.buffers[tensor.name].reshape(-1)
        if tensor.name in self._job.channels_last:
            return _unsigned(stored)
        out = self.scratch(stored.size, stored.dtype)
        self._stores.append(partial(emit_order, self, tensor, out, stored, last=False))
        return _unsigned(out)

    def real_output(self, slot: int = 0) -> Array:
        """Output ``slot`` as float32, flat; quantized by a last step where the tensor is stored as integers.

        Raises:
            UnsupportedModelError: the integers are not of 8 bits.
        """
        tensor = self.output(slot)
        if tensor.quantization is None:
            return self.raw_output(slot)
        if tensor.dtype not in (DType.I8, DType.U8):
            what = f"node {self.op.name!r} ({self.op.type})"
            raise UnsupportedModelError(f"{what}: there is no kernel that quantizes to {tensor.dtype.value}")
        a = affine_of(self.graph, tensor)
        source, out = self.scratch(tensor.elements, np.float32), self.raw_output(slot)
        target, signed = out.view(np.uint8), out.dtype == np.int8
        self._after.append(partial(emit_affine, self, quantize.quantize_linear, source, target, a, (signed,)))
        return source

    def scratch(self, elements: int, dtype: npt.DTypeLike) -> Array:
        """Temporary storage until the op has run."""
        return self._job.scratch.take((max(int(elements), 1),), dtype)[: int(elements)]

    def packed(self, name: str, kind: str, make: Callable[[], Any]) -> Any:
        """What ``make`` returns, made once a plan for this tensor and kind of packing."""
        key = (name, kind)
        if key not in self._job.packed:
            self._job.packed[key] = make()
        return self._job.packed[key]

    def activation(self) -> tuple[int, float, float]:
        """The fused activation: its code and two parameters."""
        kind = self.op.attr_str("activation", "")
        return codes.ACTIVATION[kind], self.op.attr_float("activation_alpha", 0.0), self.op.attr_float("activation_beta", 0.0)

    def bias(self, slot: int) -> Array:
        """A bias vector in float32, or the empty array."""
        return self.reals(slot) if self.has(slot) else NO_F32

    # -- steps --------------------------------------------------------------------------------------------------------

    def emit(self, kernel: Any, *args: Any, dtypes: tuple[Any, ...] = (), refusal: str = "") -> None:
        """Call ``kernel`` with ``args``; ``dtypes`` choose its variant. It is compiled, or loaded from the cache, with the segment.

        ``refusal`` says what it means when the kernel returns False.
        """
        self.steps.append((Call(kernel, tuple(np.dtype(d).name for d in dtypes), args, refusal),))

    def emit_split(
        self, kernel: Any, units: int, grain: int, args: Callable[[int, int], tuple[Any, ...]], dtypes: tuple[Any, ...] = ()
    ) -> None:  # fmt: skip
        """Call ``kernel`` for parts of its work that do not depend on each other: a few for each of the queue's threads.

        Args:
            kernel: the kernel.
            units: how many units of work there are.
            grain: parts are multiples of so many units.
            args: the arguments for the units [first, last); scratch must be each part's own.
            dtypes: they choose the kernel's variant.
        """
        edges, names = part_edges(units, grain, self.threads), tuple(np.dtype(d).name for d in dtypes)
        if units:
            self.steps.append(tuple(Call(kernel, names, args(a, b)) for a, b in pairwise(edges)))

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a plain function (for steps that need a value only known while running)."""
        self.steps.append((function, args))

    def finish(self) -> None:
        """Emit what comes after the op: quantization of its outputs, and their order in memory."""
        for emit in (*self._after, *self._stores):
            emit()
