"""Domains, and what moving a tensor between two of them costs.

A domain is a queue with a storage type: ``native`` tensors as the graph declares them (CPU), ``f16`` or ``w8a8`` ones on
an accelerator. A conversion is paid by the consumer where the stored representation differs; cache maintenance where the
link between the two processors is not coherent; a copy where there is no shared handle. Two queues of one processor
share everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsched.costs import Domain, FloatArray, Queue
from hetsched.graph import DType, Graph
from hetsched.socs import SoC
from hetsched.states import resident
from hetsched_cost_models.roofline import Rates


@dataclass(frozen=True, eq=False)
class Transfers:
    """Arrays of the cost table: bytes [t, d] and costs [t, d, d]."""

    tensor_bytes: FloatArray
    conversion_s: FloatArray
    maintenance_s: FloatArray
    energy_j: FloatArray
    bytes: FloatArray


def storage_bits(graph: Graph, names: tuple[str, ...], domains: tuple[Domain, ...], kinds: list[str], float_to_i8: bool) -> FloatArray:
    """[t, d] bits of one element of each tensor in each domain.

    On a CPU a tensor is as declared. On an accelerator floats have the domain's type (in a ``w8a8`` domain 8 bits for a
    float model that is planned as quantized, 16 for a QDQ model's remaining floats), quantized integers are dequantized
    in a float domain, and 64-bit integers become 32-bit ones.
    """
    bits = np.zeros((len(names), len(domains)))
    tensors = [graph.tensors[n] for n in names]
    own = np.array([t.dtype.bits for t in tensors], float)
    is_float = np.array([t.dtype.is_float for t in tensors], bool)
    is_quant = np.array([t.quantization is not None for t in tensors], bool)
    for d, (domain, kind) in enumerate(zip(domains, kinds, strict=True)):
        if kind == "cpu":
            bits[:, d] = own
            continue
        wide = 32.0 if domain.dtype == "f32" else 16.0
        as_float = 8.0 if domain.dtype == "w8a8" and float_to_i8 else wide
        as_quant = own if domain.dtype == "w8a8" else wide
        bits[:, d] = np.where(is_float, as_float, np.where(is_quant, as_quant, np.minimum(own, 32.0)))
    return bits


def transfers(
    graph: Graph,
    names: tuple[str, ...],
    soc: SoC,
    queues: tuple[Queue, ...],
    rates: list[Rates],
    domains: tuple[Domain, ...],
    host: int,
    float_to_i8: bool,
) -> Transfers:
    """Costs of every tensor between every pair of domains; the queue ``host`` maintains the caches.

    States that stay with their operator (:func:`hetsched.states.resident`) cost nothing, and are as large as they are stored
    (float32 ones as any float tensor of the domain).
    """
    t, d = len(names), len(domains)
    kinds = [queues[x.queue].kind for x in domains]
    bits = storage_bits(graph, names, domains, kinds, float_to_i8)
    elements = np.array([graph.tensors[n].elements for n in names], float)
    spatial = np.array([len(graph.tensors[n].shape) >= 3 for n in names], bool)
    size = elements[:, None] * bits / 8.0
    stay = resident(graph)
    still = np.array([n in stay for n in names], bool)
    exact = still & np.array([graph.tensors[n].dtype is not DType.F32 for n in names], bool)
    size[exact] = np.array([graph.tensors[n].nbytes for n in names], float)[exact, None]
    conversion, maintenance = np.zeros((t, d, d)), np.zeros((t, d, d))
    energy, moved = np.zeros((t, d, d)), np.zeros((t, d, d))
    byte_j = soc.memory.energy_j_per_byte.value
    for a, source in enumerate(domains):
        for b, target in enumerate(domains):
            if a == b or _same_place(queues, source, target):
                continue
            differs = ((bits[:, a] != bits[:, b]) | ((source.layout != target.layout) & spatial)) & ~still
            rate = rates[target.queue]
            both = size[:, a] + size[:, b]
            conversion[:, a, b] = np.where(differs, both / min(rate.vector_bytes_s, rate.bandwidth_bytes_s), 0.0)
            moved[:, a, b] = np.where(differs, both, 0.0)
            _cross(soc, queues, source, target, np.where(still, 0.0, size[:, a]), maintenance[:, a, b], moved[:, a, b])
            maintenance[still, a, b] = 0.0
            energy[:, a, b] = conversion[:, a, b] * rate.active_w + maintenance[:, a, b] * rates[host].one_core_w + moved[:, a, b] * byte_j
    return Transfers(size, conversion, maintenance, energy, moved)


def _same_place(queues: tuple[Queue, ...], a: Domain, b: Domain) -> bool:
    """Two CPU queues, or two queues of one processor with the same storage."""
    x, y = queues[a.queue], queues[b.queue]
    return x.processor == y.processor and a.dtype == b.dtype and a.layout == b.layout


def _cross(
    soc: SoC, queues: tuple[Queue, ...], source: Domain, target: Domain, size: FloatArray, maintenance: FloatArray, moved: FloatArray
) -> None:
    """Add cache maintenance, and a copy without a shared handle, in place."""
    x, y = queues[source.queue], queues[target.queue]
    link = soc.link(x.kind, y.kind) if x.processor != y.processor else None
    if link is None:
        return
    if not link.coherent:
        maintenance += link.cache_maintenance_s.value + link.cache_maintenance_s_per_byte.value * size
    if link.handle is None:
        maintenance += 2.0 * size / soc.memory.reachable_bytes_s.value
        moved += 2.0 * size
