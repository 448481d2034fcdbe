"""The cost table: what every way of running every operator costs, and what moving tensors between them costs.

Cost models (``hetsched_cost_models``) build it; solvers, simulator, runtime and report read it. All of it is arrays, so
that hot code never touches Python objects. Precisions are named as in ``docs/precisions.md``: ``f32``, ``f16`` (float),
``w8a8`` (INT8 weights and activations), ``w8a16``, ``w4a16``, ``w4a8``.

Time of an alternative, alone: ``overhead_s + max(compute_s, dram_bytes / bandwidth_bytes_s[queue])``: compute and
traffic overlap, and the simulator may slow either (clock, contention). Every cost is additive over ops, tensors and
segments; :func:`hetsched.segments.segment_cost` is the only place that adds them up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.graph import Csr, IntArray

FloatArray: TypeAlias = npt.NDArray[np.float64]

#: Bits of a 4-bit weight with its share of a 16-bit scale for every 32, as in GGUF's Q4_0.
FOUR_BITS = 4.5


_OPTIONAL = ("loss", "effort", "cache_bytes")

#: The queue of the DMA engine, where there is one.
DMA = "dma"


@dataclass(frozen=True, slots=True)
class Queue:
    """Where ops are submitted in order: a processor, or an exclusive set of CPU cores (``cpu:0-3``)."""

    name: str
    processor: str
    kind: str  # cpu | gpu | npu
    cores: tuple[int, ...] = ()
    delegate: str = "numba"


@dataclass(frozen=True, slots=True)
class Domain:
    """Where and how a tensor is held: the queue that can read it at no cost, the stored type and the layout."""

    queue: int
    dtype: str
    layout: str = "native"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an op cannot run somewhere."""

    queue: int
    precision: str
    reason: str


@dataclass(frozen=True, slots=True)
class Dma:
    """An engine beside the processors that copies tensors for them, one after another in the order of submission."""

    bandwidth_bytes_s: float
    """Read and written together, alone."""
    launch_s: float
    """From the fence that a copy waits for to its first byte."""
    active_w: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """A tensor made available in another domain: conversion and cache maintenance, paid by the consuming segment.

    Before them the DMA engine may copy it (``copy_s``, ``copy_bytes``), while both processors do something else.
    """

    tensor: int
    source: int
    target: int
    conversion_s: float
    maintenance_s: float
    energy_j: float
    bytes: float
    copy_s: float = 0.0
    copy_bytes: float = 0.0

    @property
    def seconds(self) -> float:
        """Conversion plus cache maintenance, on the consumer's queue."""
        return self.conversion_s + self.maintenance_s


@dataclass(frozen=True, eq=False)
class CostTable:
    """Costs of one graph on one SoC in one state (operating points, context length).

    ``n`` ops (rows in ``graph.ops`` order), ``m`` alternatives, ``t`` activation tensors (constants are not listed:
    their bytes are in ``weight_bytes``), ``q`` queues, ``d`` domains. Seconds, bytes, joules.
    """

    model: str
    soc: str
    queues: tuple[Queue, ...]
    domains: tuple[Domain, ...]
    host: int
    input_domain: int
    op_names: tuple[str, ...]
    tensor_names: tuple[str, ...]

    alt_start: IntArray  # [n + 1] op i owns alternatives alt_start[i]:alt_start[i + 1]
    alt_queue: IntArray  # [m]
    alt_domain: IntArray  # [m]
    alt_precision: tuple[str, ...]  # [m]
    compute_s: FloatArray  # [m] at the top operating points
    overhead_s: FloatArray  # [m]
    dram_bytes: FloatArray  # [m] activations and weights that cross the memory bus
    weight_bytes: FloatArray  # [m] its own weights that stream; dram_bytes may count them with other ops (fetched ahead)
    macs: FloatArray  # [m] multiply-accumulates, for utilisation
    energy_j: FloatArray  # [m]

    op_inputs: Csr  # op -> activation tensors read
    op_outputs: Csr  # op -> tensors written
    predecessors: Csr  # op -> ops
    successors: Csr  # op -> ops
    tensor_producer: IntArray  # [t] op, or -1 for graph inputs
    graph_outputs: IntArray  # tensor ids
    tensor_bytes: FloatArray  # [t, d] bytes of the tensor when held in that domain

    conversion_s: FloatArray  # [t, d, d] on the consuming side
    maintenance_s: FloatArray  # [t, d, d] cache clean / invalidate; copies without a shared handle, if there is no DMA engine
    transfer_energy_j: FloatArray  # [t, d, d]
    transfer_bytes: FloatArray  # [t, d, d] bytes that the consumer's queue or the host moves for it

    launch_s: FloatArray  # [q]
    launch_energy_j: FloatArray  # [q]
    sync_s: FloatArray  # [q, q] producer's signal to consumer's start; zero diagonal
    sync_energy_j: FloatArray  # [q, q]
    bandwidth_bytes_s: FloatArray  # [q] reachable alone

    refusals: tuple[tuple[Refusal, ...], ...]  # per op
    host_w: float = 0.0  # the core that submits, waits and maintains caches, at the top operating point
    host_share: float = 1.0  # of that power, what it draws at the clocks that the energies of launches and syncs are for
    interval: tuple[float, float] = (0.6, 1.6)  # 80 % interval of latency as factors of the prediction
    notes: tuple[str, ...] = field(default=())
    alt_delegate: tuple[str, ...] = ()  # [m] what runs each alternative; empty: its queue's delegate
    effort: FloatArray = field(default_factory=lambda: np.zeros(0))  # [m] share of the queue's dynamic power, on average; empty: all of it
    cache_bytes: FloatArray = field(default_factory=lambda: np.zeros(0))  # [m] that the system cache serves, beside dram_bytes; empty: none
    cache_bytes_s: float = inf  # through it, hits and misses; its time alone is inside compute_s
    loss: FloatArray = field(default_factory=lambda: np.zeros(0))  # [m] accuracy lost, in the user's own unit; empty: none is known
    dma: Dma | None = None  # that copies where there is no shared handle; None: the host does
    copy_bytes: FloatArray = field(default_factory=lambda: np.zeros(0))  # [t, d, d] that the DMA engine reads and writes; empty: none

    @cached_property
    def time_s(self) -> FloatArray:
        """[m] seconds of each alternative on its own."""
        traffic = self.dram_bytes / self.bandwidth_bytes_s[self.alt_queue]
        return np.asarray(self.overhead_s + np.maximum(self.compute_s, traffic))

    @cached_property
    def transfer_s(self) -> FloatArray:
        """[t, d, d] conversion plus cache maintenance."""
        return np.asarray(self.conversion_s + self.maintenance_s)

    @cached_property
    def copy_s(self) -> FloatArray:
        """[t, d, d] seconds of the DMA engine; empty without one."""
        if self.dma is None:
            return np.zeros(0)
        return np.where(self.copy_bytes > 0, self.dma.launch_s + self.copy_bytes / self.dma.bandwidth_bytes_s, 0.0)

    @cached_property
    def crosses(self) -> npt.NDArray[np.bool_]:
        """[t, d, d] whether a tensor takes anything to get there."""
        return np.asarray(self.transfer_s > 0 if self.dma is None else (self.transfer_s > 0) | (self.copy_s > 0))

    @property
    def lanes(self) -> tuple[Queue, ...]:
        """What works side by side: the queues and, after them, the DMA engine."""
        return self.queues if self.dma is None else (*self.queues, Queue(DMA, DMA, DMA))

    def copying_on_queues(self) -> CostTable:
        """The table with the DMA engine's copies at the start of what reads them, as if its queue made them."""
        from dataclasses import replace

        if self.dma is None:
            return self
        return replace(self, maintenance_s=self.maintenance_s + self.copy_s, dma=None, copy_bytes=np.zeros(0))

    @cached_property
    def alt_op(self) -> IntArray:
        """[m] the op that owns each alternative."""
        return np.repeat(np.arange(len(self.op_names), dtype=np.int32), np.diff(self.alt_start)).astype(np.int32)

    def delegate(self, alternative: int) -> str:
        """What runs an alternative."""
        return self.alt_delegate[alternative] if self.alt_delegate else self.queues[int(self.alt_queue[alternative])].delegate

    def transfer(self, tensor: int, source: int, target: int) -> Transfer:
        """The transfer of one tensor between two domains."""
        copied = () if self.dma is None else (float(self.copy_s[tensor, source, target]), float(self.copy_bytes[tensor, source, target]))
        return Transfer(
            tensor, source, target,
            float(self.conversion_s[tensor, source, target]),
            float(self.maintenance_s[tensor, source, target]),
            float(self.transfer_energy_j[tensor, source, target]),
            float(self.transfer_bytes[tensor, source, target]), *copied,
        )  # fmt: skip

    def alternatives(self, op: int) -> range:
        """Alternative indices of an op."""
        return range(int(self.alt_start[op]), int(self.alt_start[op + 1]))

    def queue_index(self, name: str) -> int:
        """Index of the queue with this name, or of the only queue of this processor kind.

        Raises:
            OptionError: no queue, or several, answer to the name.
        """
        from hetsched.errors import OptionError

        hits = [i for i, q in enumerate(self.queues) if q.name == name] or [i for i, q in enumerate(self.queues) if q.kind == name]
        if not hits:
            known = ", ".join(q.name for q in self.queues)
            raise OptionError(f"no queue is called {name!r} on {self.soc}: use one of {known}")
        return hits[0]

    def restrict(self, keep: npt.NDArray[np.bool_]) -> CostTable:
        """The same table with only the alternatives where ``keep`` is true.

        Raises:
            InfeasibleError: an op would have none left.
        """
        from dataclasses import replace

        from hetsched.errors import InfeasibleError

        counts = np.add.reduceat(keep.astype(np.int32), self.alt_start[:-1]) if len(keep) else np.zeros(0, np.int32)
        if (counts == 0).any():
            i = int(np.argmin(counts))
            why = "; ".join(f"{self.queues[r.queue].name} {r.precision}: {r.reason}" for r in self.refusals[i])
            raise InfeasibleError(f"op {self.op_names[i]!r} can run nowhere under these constraints ({why or 'all are forbidden'})")
        start = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=start[1:])
        columns = ("alt_queue", "alt_domain", "compute_s", "overhead_s", "dram_bytes", "weight_bytes", "macs", "energy_j")
        per_alt: dict[str, Any] = {k: getattr(self, k)[keep] for k in (*columns, *(k for k in _OPTIONAL if len(getattr(self, k))))}
        precision = tuple(p for p, k in zip(self.alt_precision, keep.tolist(), strict=True) if k)
        delegates = tuple(d for d, k in zip(self.alt_delegate, keep.tolist(), strict=True) if k) if self.alt_delegate else ()
        return replace(self, alt_start=start, alt_precision=precision, alt_delegate=delegates, **per_alt)
