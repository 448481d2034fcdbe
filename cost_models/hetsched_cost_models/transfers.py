"""Domains, and what moving a tensor between two of them costs.

A domain is a queue with a storage type: ``native`` tensors as the graph declares them (CPU), ``f16``, ``w8a8`` or ``w8a16`` ones
on an accelerator. A conversion is paid by the consumer where the stored representation differs; cache maintenance where the
link between the two processors is not coherent; a copy where there is no shared handle, by the DMA engine or, without one, by the
host. Two queues of one processor share everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsched.costs import Dma, Domain, FloatArray, Queue
from hetsched.graph import DType, Graph
from hetsched.socs import SoC
from hetsched.states import resident
from hetsched_cost_models.parameters import dma_defaults
from hetsched_cost_models.roofline import Rates
from hetsched_cost_models.work import BoolArray


@dataclass(frozen=True, eq=False)
class Transfers:
    """Arrays of the cost table: bytes [t, d] and costs [t, d, d]."""

    tensor_bytes: FloatArray
    conversion_s: FloatArray
    maintenance_s: FloatArray
    energy_j: FloatArray
    bytes: FloatArray
    dma: Dma | None
    copy_bytes: FloatArray  # [t, d, d], or empty


@dataclass(frozen=True, eq=False)
class Activations:
    """What the activations of a graph are, one entry a tensor.

    ``bits``: of an element as declared; ``exact_bytes``: of those that are as large as they are stored everywhere (``exact``);
    ``still``: states that stay with their operator; ``spatial``: at least three dimensions, so that their layout matters.
    """

    bits: FloatArray
    is_float: BoolArray
    is_quantized: BoolArray
    elements: FloatArray
    spatial: BoolArray
    still: BoolArray
    exact: BoolArray
    exact_bytes: FloatArray


def activations_of(graph: Graph, names: tuple[str, ...]) -> Activations:
    """The tensors ``names`` of a graph; float32 states are as large as any float tensor of where they are."""
    tensors, stay = [graph.tensors[n] for n in names], resident(graph)
    rows = [
        (
            t.dtype.bits,
            t.dtype.is_float,
            t.quantization is not None,
            t.elements,
            len(t.shape) >= 3,
            t.name in stay,
            t.dtype is DType.F32,
            t.nbytes,
        )
        for t in tensors
    ]
    bits, is_float, quantized, elements, spatial, still, wide, nbytes = np.array(rows, float).reshape(len(rows), 8).T
    still = still > 0
    return Activations(bits, is_float > 0, quantized > 0, elements, spatial > 0, still, still & (wide == 0), nbytes)


def storage_bits(tensors: Activations, domains: tuple[Domain, ...], kinds: list[str], float_to_i8: bool) -> FloatArray:
    """[d, t] bits of one element of each tensor in each domain.

    On a CPU a tensor is as declared. On an accelerator floats have the domain's type (in a ``w8a8`` domain 8 bits for a
    float model that is planned as quantized, 16 for a QDQ model's remaining floats; in a ``w8a16`` domain 16), quantized integers are
    dequantized in a float domain, and 64-bit integers become 32-bit ones.
    """
    bits = np.zeros((len(domains), len(tensors.bits)))
    for d, (domain, kind) in enumerate(zip(domains, kinds, strict=True)):
        if kind == "cpu":
            bits[d] = tensors.bits
            continue
        wide = 32.0 if domain.dtype == "f32" else 16.0
        as_float = 8.0 if domain.dtype == "f8" or (domain.dtype == "w8a8" and float_to_i8) else wide
        as_quant = tensors.bits if domain.dtype in ("w8a8", "w8a16") else wide
        bits[d] = np.where(tensors.is_float, as_float, np.where(tensors.is_quantized, as_quant, np.minimum(tensors.bits, 32.0)))
    return bits


def transfers(
    tensors: Activations,
    soc: SoC,
    queues: tuple[Queue, ...],
    rates: list[Rates],
    domains: tuple[Domain, ...],
    host: int,
    float_to_i8: bool,
) -> Transfers:
    """Costs of every tensor between every pair of domains; the queue ``host`` maintains the caches.

    States that stay with their operator (:func:`hetsched.states.resident`) cost nothing, and are as large as they are stored.
    """
    t, d = len(tensors.bits), len(domains)
    kinds = [queues[x.queue].kind for x in domains]
    bits = storage_bits(tensors, domains, kinds, float_to_i8)
    size = tensors.elements * bits / 8.0
    size[:, tensors.exact] = tensors.exact_bytes[tensors.exact]
    conversion, maintenance, energy, moved, copied = np.zeros((5, d, d, t))
    byte_j, dma = soc.memory.energy_j_per_byte.value, dma_of(soc)
    for a, source in enumerate(domains):
        for b, target in enumerate(domains):
            if a == b or _same_place(queues, source, target):
                continue
            halves = (source.dtype == "w8a16") != (target.dtype == "w8a16")  # 16-bit integers are no 16-bit floats
            same = (bits[a] == bits[b]) & ~(tensors.is_float & halves) & ~(tensors.spatial & (source.layout != target.layout))
            differs = ~same & ~tensors.still
            rate = rates[target.queue]
            both = size[a] + size[b]
            conversion[a, b] = np.where(differs, both / min(rate.vector_bytes_s, rate.bandwidth_bytes_s), 0.0)
            moved[a, b] = np.where(differs, both, 0.0)
            _cross(soc, queues, source, target, np.where(tensors.still, 0.0, size[a]), maintenance[a, b], copied[a, b])
            maintenance[a, b, tensors.still] = 0.0
            if dma is None:
                maintenance[a, b] += copied[a, b] / soc.memory.reachable_bytes_s.value
                moved[a, b] += copied[a, b]
            else:
                seconds = np.where(copied[a, b] > 0, dma.launch_s + copied[a, b] / dma.bandwidth_bytes_s, 0.0)
                energy[a, b] = seconds * dma.active_w + copied[a, b] * byte_j
            energy[a, b] += conversion[a, b] * rate.active_w + maintenance[a, b] * rates[host].one_core_w + moved[a, b] * byte_j
    costs = [np.ascontiguousarray(np.moveaxis(c, -1, 0)) for c in (conversion, maintenance, energy, moved)]
    copies = np.zeros(0) if dma is None else np.ascontiguousarray(np.moveaxis(copied, -1, 0))
    return Transfers(np.ascontiguousarray(size.T), costs[0], costs[1], costs[2], costs[3], dma, copies)


def dma_of(soc: SoC) -> Dma | None:
    """The DMA engine of a SoC that has something to copy; it moves no more than all can together."""
    memory = soc.memory
    if memory.dma_bytes_s is None or all(k.handle is not None for k in soc.links):
        return None
    launch_s, j_per_byte = dma_defaults()
    rate = min(memory.dma_bytes_s.value, memory.reachable_bytes_s.value)
    return Dma(
        rate,
        launch_s if memory.dma_launch_s is None else memory.dma_launch_s.value,
        j_per_byte * rate if memory.dma_w is None else memory.dma_w.value,
    )


def _same_place(queues: tuple[Queue, ...], a: Domain, b: Domain) -> bool:
    """Two CPU queues, or two queues of one processor with the same storage."""
    x, y = queues[a.queue], queues[b.queue]
    return x.processor == y.processor and a.dtype == b.dtype and a.layout == b.layout


def _cross(
    soc: SoC, queues: tuple[Queue, ...], source: Domain, target: Domain, size: FloatArray, maintenance: FloatArray, copied: FloatArray
) -> None:
    """Add cache maintenance, and the bytes of a copy without a shared handle, in place."""
    x, y = queues[source.queue], queues[target.queue]
    link = soc.link(x.kind, y.kind) if x.processor != y.processor else None
    if link is None:
        return
    if not link.coherent:
        maintenance += link.cache_maintenance_s.value + link.cache_maintenance_s_per_byte.value * size
    if link.handle is None:
        copied += 2.0 * size
