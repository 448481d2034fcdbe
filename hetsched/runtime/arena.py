"""The arena: one aligned allocation that holds every tensor of a plan at the offset the plan fixed, and scratch per queue.

All views are made once, at compile time, so that nothing is allocated while a plan runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import PlanError
from hetsched.graph import Graph, Tensor

if TYPE_CHECKING:
    from hetsched.plans import Buffer

#: One cache line, and the width of an AVX-512 register.
ALIGNMENT = 64
_SMALLEST_SLAB = 1 << 16
#: Kernels may read so many bytes beyond the last tensor.
_SLACK = 256


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An uninitialised C-contiguous array that starts on a cache line."""
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def aligned_copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A C-contiguous copy that starts on a cache line."""
    out = aligned_empty(array.shape, array.dtype)
    out[...] = array
    return out


class Arena:
    """One allocation of ``nbytes``, from which typed views are cut."""

    def __init__(self, nbytes: int) -> None:
        whole = self.whole = aligned_empty((nbytes + _SLACK,), np.uint8)
        # Touch every page now: page faults belong to compilation, not to the first run.
        whole.fill(0)
        self.bytes: npt.NDArray[np.uint8] = whole[:nbytes]

    def view(self, tensor: Tensor, buffer: Buffer) -> npt.NDArray[Any]:
        """The tensor's array, at the buffer's offset.

        Raises:
            PlanError: the buffer is too small for the tensor, misaligned or outside the arena.
        """
        dtype = tensor.dtype.numpy
        if buffer.nbytes < tensor.nbytes:
            raise PlanError(
                f"the plan gives tensor {tensor.name!r} {buffer.nbytes} bytes, but it needs {tensor.nbytes}: make the plan again"
            )
        if buffer.offset + tensor.nbytes > len(self.bytes):
            raise PlanError(f"the plan puts tensor {tensor.name!r} at byte {buffer.offset}, outside its arena of {len(self.bytes)} bytes")
        if buffer.offset % dtype.itemsize:
            raise PlanError(f"the plan puts tensor {tensor.name!r} at byte {buffer.offset}, which does not suit {tensor.dtype.value}")
        return self.bytes[buffer.offset : buffer.offset + tensor.nbytes].view(dtype).reshape(tensor.shape)


def bind_buffers(graph: Graph, buffers: Iterable[Buffer], arena: Arena) -> dict[str, npt.NDArray[Any]]:
    """Arrays of every tensor that is not a constant, by name.

    Raises:
        PlanError: the plan has no buffer for a tensor that an op reads or writes.
    """
    by_name = {b.tensor: b for b in buffers}
    needed = [*graph.inputs, *(o for op in graph.ops for o in op.outputs if o)]
    out: dict[str, npt.NDArray[Any]] = {}
    for name in dict.fromkeys(needed):
        if name not in by_name:
            raise PlanError(f"the plan has no buffer for tensor {name!r}: it was made for another model or another set of passes")
        out[name] = arena.view(graph.tensors[name], by_name[name])
    return out


def own_buffers(graph: Graph) -> dict[str, npt.NDArray[Any]]:
    """Separate zeroed arrays for the graph's inputs and outputs only."""
    names = [n for n in dict.fromkeys((*graph.inputs, *graph.outputs)) if not graph.tensors[n].is_constant]
    return {n: np.zeros(graph.tensors[n].shape, graph.tensors[n].dtype.numpy) for n in names}


class Scratch:
    """Temporary storage of one queue. Ops of a queue run one after another, so they share it."""

    def __init__(self) -> None:
        #: All memory that was ever given away.
        self.slabs: list[npt.NDArray[np.uint8]] = []
        self._slab = self.slab(_SMALLEST_SLAB)
        self._used = 0

    def slab(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Uninitialised memory that lives as long as this scratch."""
        self.slabs.append(aligned_empty((nbytes,), np.uint8))
        return self.slabs[-1]

    def reset(self) -> None:
        """Start the next op: everything taken before may be overwritten."""
        self._used = 0

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An uninitialised array that is valid until the op that asked for it has run."""
        dtype = np.dtype(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        start = -(-self._used // ALIGNMENT) * ALIGNMENT
        if start + nbytes > len(self._slab):
            # Arrays that are already cut keep their old slab alive; doubling bounds the waste by half.
            self._slab = self.slab(max(2 * len(self._slab), nbytes))
            start = 0
        self._used = start + nbytes
        return self._slab[start : start + nbytes].view(dtype).reshape(shape)
