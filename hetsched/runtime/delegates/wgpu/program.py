"""A segment as a list of dispatches on slots of device memory, before any of it exists on a device."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hetsched.graph import DType, Tensor
from hetsched.runtime.delegates.base import SegmentJob
from hetsched.runtime.delegates.wgpu.shaders import WIDTH, body, compose

#: Invocations of a workgroup; the shaders' ``@workgroup_size``.
GROUP = 64
#: Invocations of a workgroup of the kernels whose workgroups share weights.
ROW = 16
#: WebGPU's limit in one direction.
_MOST_GROUPS = 65535
KINDS = {
    DType.F32: "f32", DType.F16: "f16", DType.I8: "i8", DType.U8: "u8", DType.BOOL: "u8", DType.I32: "i32", DType.I64: "i64",
}  # fmt: skip
_NUMPY: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "i8": np.int8, "u8": np.uint8, "u32": np.uint32, "i32": np.int32, "i64": np.int64,
}  # fmt: skip
#: ``arena``: what only this segment uses; ``input``, ``output``: what crosses; ``weight``: constants.
Pool = Literal["arena", "input", "output", "weight"]


@dataclass(eq=False, slots=True)
class Slot:
    """Room for a tensor in device memory; ``data`` is a constant's value. ``offset`` is set once all dispatches are known."""

    kind: str
    elements: int
    pool: Pool
    data: npt.NDArray[Any] | None = None
    offset: int = -1

    @property
    def nbytes(self) -> int:
        """Size in bytes, whole words."""
        return -(-max(self.elements, 1) * WIDTH[self.kind] // 4) * 4


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One kernel call of the op at position ``op``; ``bindings`` are in the shader's order."""

    op: int
    source: str
    bindings: tuple[Slot, ...]
    params: bytes
    groups: tuple[int, int, int]


def as_stored(values: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """An array as device memory holds it, flat."""
    return np.ascontiguousarray(values, _NUMPY[kind]).reshape(-1)


@dataclass
class Program:
    """Collects what the ops of a segment do. ``at`` is the position of the op that is being lowered."""

    job: SegmentJob
    at: int = 0
    slots: dict[str, Slot] = field(default_factory=dict)
    dispatches: list[Dispatch] = field(default_factory=list)
    _weights: dict[tuple[str, str], Slot] = field(default_factory=dict)
    _entering: dict[str, None] = field(default_factory=dict)
    _leaving: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Find out what leaves the segment: graph outputs, and what ops outside it read."""
        graph, own = self.job.graph, {op.name for op in self.job.ops}
        read = {n for op in graph.ops if op.name not in own for n in op.inputs}
        written = (o for op in self.job.ops for o in op.outputs if o)
        self._leaving = frozenset(n for n in written if n in graph.output_set or n in read)

    @property
    def leaving(self) -> tuple[str, ...]:
        """Names of the tensors that leave the segment, in the order in which they are written."""
        return tuple(o for op in self.job.ops for o in op.outputs if o in self._leaving)

    @property
    def entering(self) -> tuple[str, ...]:
        """Names of the tensors that come from outside, in the order in which they are first read."""
        return tuple(self._entering)

    def leaves(self, name: str) -> bool:
        """Whether a tensor is needed outside the segment."""
        return name in self._leaving

    def read(self, tensor: Tensor) -> Slot:
        """The slot of a tensor that is computed while running."""
        if tensor.name not in self.slots:
            self.slots[tensor.name] = Slot(KINDS[tensor.dtype], tensor.elements, "input")
            self._entering[tensor.name] = None
        return self.slots[tensor.name]

    def write(self, tensor: Tensor, half: bool) -> Slot:
        """The slot that an op writes; ``half``: float32 that stays here is kept as float16."""
        kind = KINDS[tensor.dtype]
        leaves = self.leaves(tensor.name)
        if half and kind == "f32" and not leaves:
            kind = "f16"
        self.slots[tensor.name] = Slot(kind, tensor.elements, "output" if leaves else "arena")
        return self.slots[tensor.name]

    def scratch(self, kind: str, elements: int) -> Slot:
        """Room for values within an op."""
        return Slot(kind, elements, "arena")

    def weight(self, name: str, kind: str, stored: str, make: Callable[[], npt.NDArray[Any]]) -> Slot:
        """A constant, made once a segment: ``name`` and ``kind`` (of packing) identify it; ``stored`` is how it lies."""
        key = (name, f"{kind} {stored}")
        if key not in self._weights:
            data = as_stored(make(), stored)
            self._weights[key] = Slot(stored, data.size, "weight", data)
        return self._weights[key]

    @property
    def weights(self) -> tuple[Slot, ...]:
        """All constants."""
        return tuple(self._weights.values())

    def call(
        self, shader: str, bindings: Mapping[str, Slot], params: Sequence[int | float], groups: int | tuple[int, int, int], *,
        text: str = "", compute: str = "f32", activation: str = "", vectors: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        """Add a dispatch.

        Args:
            shader: a file of ``shaders/``, or empty where ``text`` is the whole.
            bindings: the shader's buffers by name, in its order.
            params: the fields of its ``Params``.
            groups: number of workgroups; three numbers where the shader counts them in three directions.
            text: what comes with the file.
            compute: ``f32`` or ``f16``.
            activation: the function of a fused activation.
            vectors: bindings that are read four elements at once.
        """
        shape = groups if isinstance(groups, tuple) else _spread(groups)
        if 0 in shape:
            return
        # One allocation must not be bound for reading and for writing at once, so whatever is no constant counts as written.
        shared = {name: (slot.kind, slot.pool != "weight") for name, slot in bindings.items()}
        whole = text + (body(shader) if shader else "")
        source = compose(whole, shared, compute=compute, activation=activation, vectors=vectors)
        packed = b"".join(struct.pack("<f", v) if isinstance(v, float) else struct.pack("<I", v & 0xFFFFFFFF) for v in params)
        self.dispatches.append(Dispatch(self.at, source, tuple(bindings.values()), packed, shape))


def _spread(groups: int) -> tuple[int, int, int]:
    """Workgroups in a row, and in more rows where one does not hold them all."""
    rows = max(1, -(-groups // _MOST_GROUPS))
    return -(-groups // rows), rows, 1


def invocations(count: int) -> int:
    """Workgroups for ``count`` invocations."""
    return -(-count // GROUP)
