"""Roofline of every operator on one queue at one precision, vectorised over the graph.

    time  = t0 + max(compute, traffic / bandwidth)
    compute = pace * (2 * macs * padding / (peak * utilisation) + (factor * bytes + result_factor * results) / vector_rate)
    traffic = weights * share + activations * s(activations / C),   s(x) = x^4 / (1 + x^4)

``s`` is the share of an operator's activations that spill from on-chip memory of size ``C`` (form b of the public study on
AI Hub latencies, ``docs/cost_model.md``). Weights and states (a KV cache) stream from DRAM,
except on a CPU whose caches hold the whole model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hetsched.cores import cores_of
from hetsched.socs import Cluster, Processor, SoC
from hetsched_cost_models.matrices import DEPTHWISE
from hetsched_cost_models.operators import VECTOR_KINDS
from hetsched_cost_models.parameters import DYNAMIC, Family, class_shares, family_of, matrix_factors, result_factors, vector_factors
from hetsched_cost_models.residency import spill
from hetsched_cost_models.what_if import Extra, Traffic, extra_of, served
from hetsched_cost_models.work import FloatArray, Work

_VIEW, _TRANSCENDENTAL, _CONVERT, _MATRIX = (VECTOR_KINDS.index(k) for k in ("view", "transcendental", "convert", "matrix"))
#: Kinds of work on elements as they are stored.
_AS_STORED = [VECTOR_KINDS.index(k) for k in ("view", "transpose", "copy", "gather", "nearest", "convert", "image")]

#: Elements that CPU kernels compute side by side: rows are padded to a multiple.
_VECTOR = 16
#: Precision of an alternative -> precision of the peak rate that it uses.
PEAK_OF = {"f32": "f32", "f16": "f16", "f8": "f8", "w8a8": "i8", "w8a16": "i8", "w4a16": "i8", "w4a8": "i8"}


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes per element of what one precision reads and writes."""

    float_bytes: float
    quant_bytes: float
    weight_float_bytes: float
    weight_quant_bytes: float


@dataclass(frozen=True, eq=False)
class Rates:
    """What one queue can do. Rates are per second at the top operating points.

    ``active_w`` is the whole queue at work, ``dynamic_w`` of it what switches (the rest leaks).
    """

    processor: Processor
    family: Family
    share: dict[str, float]
    peak_ops_s: dict[str, float]
    bandwidth_bytes_s: float
    vector_bytes_s: float
    onchip_bytes: float
    overhead_s: float
    active_w: float
    dynamic_w: float
    one_core_w: float
    extra: Extra


def queue_cores(target: str) -> tuple[str, tuple[int, ...]]:
    """``cpu:2-4,7`` -> (``cpu``, (2, 3, 4, 7)); ``gpu`` -> (``gpu``, ()).

    Raises:
        SoCError: the list of cores is malformed or longer than any machine's.
    """
    return target.partition(":")[0], cores_of(target)


def queue_rates(soc: SoC, target: str) -> Rates:
    """Peak rates, bandwidth and power of a queue: a processor, or the share of its clusters that the cores make up."""
    name, cores = queue_cores(target)
    processor = soc.by_name[name]
    family = family_of(processor)
    share = {c.name: _core_share(c, cores) for c in processor.clusters}
    precisions = sorted({p for c in processor.clusters for p in c.peak_ops_s})
    peak = {p: sum(share[c.name] * c.peak_ops_s[p].value for c in processor.clusters if p in c.peak_ops_s) for p in precisions}
    used = [c for c in processor.clusters if share[c.name] > 0]
    serial = family.serial_share if processor.serial_share is None else processor.serial_share.value
    if serial is not None:
        together = 1.0 + serial * max(0.0, sum(share[c.name] * max(1, len(c.cores)) for c in used) - 1.0)
        peak = {p: v / together for p, v in peak.items() if all(p in c.peak_ops_s for c in used)}
    active = sum(share[c.name] * (c.dynamic_w.value + c.leakage_w.value) for c in used)
    dynamic = sum(share[c.name] * c.dynamic_w.value for c in used)
    bandwidth = processor.bandwidth_bytes_s.value
    if cores and processor.core_bandwidth_bytes_s is not None:
        bandwidth = min(bandwidth, len(cores) * processor.core_bandwidth_bytes_s.value)
    whole = sum(c.peak_ops_s["f32" if "f32" in c.peak_ops_s else min(c.peak_ops_s)].value for c in processor.clusters)
    part = peak.get("f32", peak[min(peak)]) / whole if whole else 1.0
    if processor.vector_bytes_s is not None:
        vector = processor.vector_bytes_s.value * part
    else:
        vector = family.vector_bytes_per_op * peak.get("f32", peak[min(peak)])
    one = max((c.dynamic_w.value + c.leakage_w.value) / max(1, len(c.cores)) for c in used)
    return Rates(
        processor, family, share, peak, bandwidth, vector, processor.onchip_bytes.value, processor.op_overhead_s.value,
        active, dynamic, one, extra_of(soc, processor),
    )  # fmt: skip


def _core_share(cluster: Cluster, cores: tuple[int, ...]) -> float:
    if not cores or not cluster.cores:
        return 1.0
    return sum(c in cores for c in cluster.cores) / len(cluster.cores)


@dataclass(frozen=True, eq=False)
class Cost:
    """Per op: seconds of compute, bytes over the memory bus, its weights that stream, and overhead seconds.

    ``ahead_bytes``: weights that stream while other ops leave the bus free (``free_s``), not yet in ``dram_bytes``
    (:mod:`hetsched_cost_models.streaming`); zero for processors that read every op's weights when they run it. ``work_s``: seconds
    that the units would take at full activity (:mod:`hetsched_cost_models.energy`). ``cached_ahead_s``, ``level_j``: seconds of the weights
    ahead, and joules of all, that what-if hardware serves between on-chip memory and the bus (:mod:`hetsched_cost_models.what_if`);
    ``cache_bytes``, ``cache_ahead_bytes``: bytes that an added system cache serves, beside ``dram_bytes`` and ``ahead_bytes``.
    """

    compute_s: FloatArray
    dram_bytes: FloatArray
    weight_bytes: FloatArray
    overhead_s: FloatArray
    ahead_bytes: FloatArray
    free_s: FloatArray
    work_s: FloatArray
    cached_ahead_s: FloatArray
    level_j: FloatArray
    cache_bytes: FloatArray
    cache_ahead_bytes: FloatArray


def roofline(work: Work, rates: Rates, precision: str, storage: Storage, pace: float = 1.0) -> Cost:
    """Cost of every op of a graph on one queue at one precision (whether it may run there is decided elsewhere)."""
    family, extra, on_cpu = rates.family, rates.extra, rates.processor.kind == "cpu"
    peak = rates.peak_ops_s.get(PEAK_OF[precision]) or rates.peak_ops_s.get("f32") or rates.peak_ops_s[min(rates.peak_ops_s)]
    activation = work.float_elems * storage.float_bytes + work.quant_elems * storage.quant_bytes + work.other_bytes
    macs, weights, near = extra.left(work, work.macs, _weights(work, rates, storage), storage.weight_float_bytes)
    vector_bytes, factor = _vector_bytes(work, rates, precision, storage, activation)
    matrix_s, vector_s = _matrix_s(work, macs, rates, PEAK_OF[precision], peak), vector_bytes / rates.vector_bytes_s
    # Views touch nothing, unless the SoC file says that its runtime copies them.
    visible = np.where(factor > 0.0, 1.0, np.where(work.kind == _VIEW, 0.0, 1.0))
    streamed, states = weights * _streamed_share(family, float((weights * visible).sum())) * visible, work.state_bytes
    persistent = float((streamed + states).sum())
    if on_cpu:
        resident = spill(np.full(1, float((weights * visible + states).sum()) / rates.onchip_bytes))[0]
        streamed, states = streamed * resident, states * resident
    spilled = activation * spill(activation / rates.onchip_bytes) * visible
    ahead = streamed if family.weights_ahead else np.zeros(len(streamed))
    past = Traffic(streamed - ahead, ahead, states, spilled)
    hit = served(extra, past, persistent, activation)
    # A GPU's engines differ in their kernels; what an enqueue costs is the driver's.
    overhead = (rates.overhead_s + family.op_s) * (visible if on_cpu else np.ones(len(visible)))
    overhead = overhead if rates.processor.kind == "gpu" else pace * overhead
    compute, moved = pace * (matrix_s + vector_s), past.now - hit.now
    working = _working(rates, 2.0 * macs / peak + vector_s, compute, overhead)
    compute = np.maximum(np.maximum(compute, extra.seconds(past.now)), extra.inside(near))
    return Cost(
        compute_s=compute, dram_bytes=moved, weight_bytes=streamed, overhead_s=overhead, ahead_bytes=ahead - hit.ahead,
        free_s=np.maximum(compute, moved / rates.bandwidth_bytes_s), work_s=working,
        cached_ahead_s=extra.seconds(past.ahead), level_j=extra.joules(hit.now + hit.ahead, near),
        cache_bytes=hit.now, cache_ahead_bytes=hit.ahead,
    )  # fmt: skip


def overrides_of(rates: Rates) -> dict[str, float]:
    """Figures of the SoC file, which win over the family's."""
    return {k: v.value for k, v in rates.processor.utilisation.items()}


def _matrix_s(work: Work, macs: FloatArray, rates: Rates, name: str, peak: float) -> FloatArray:
    """[n] seconds of an op's multiply-accumulates at its share of the ``peak`` that is called ``name``."""
    family, depthwise = rates.family, np.isin(work.cls, sorted(DEPTHWISE))
    shares = _of_class(class_shares, work, rates, name)
    padded = padding(work, family.align) * (row_padding(work) if rates.processor.kind == "cpu" else 1.0)
    if family.depthwise_window:
        padded = np.where(depthwise, padded * family.depthwise_window / np.maximum(work.k, 1.0), padded)
    shallow = np.where(depthwise | (work.k <= 0.0), 1.0, 1.0 + family.depth_half / np.maximum(work.k, 1.0))
    return np.asarray(2.0 * (macs * padded + family.fill_macs * (macs > 0.0)) * shallow / (peak * shares))


def _of_class(figures: Callable[[Family, str, dict[str, float]], list[float]], work: Work, rates: Rates, name: str) -> FloatArray:
    """[n] the figure of each op's class; integer work on floats that are quantized as they arrive may have others."""
    own = np.array(figures(rates.family, name, overrides_of(rates)))[work.cls]
    if name != "i8":
        return own
    return np.where(work.quant_elems > 0.0, own, np.array(figures(rates.family, DYNAMIC, overrides_of(rates)))[work.cls])


def _vector_bytes(work: Work, rates: Rates, precision: str, storage: Storage, activation: FloatArray) -> tuple[FloatArray, FloatArray]:
    """[n] bytes of vector work, weighed by what they cost, and the cost of a byte of each op."""
    kinds = vector_factors(rates.family, PEAK_OF[precision], overrides_of(rates))
    moved = _of_class(matrix_factors, work, rates, PEAK_OF[precision])
    factor = np.where(work.kind == _MATRIX, moved, np.array(kinds)[work.kind])
    size = factor * (activation + work.state_vector_bytes + work.extra_elems * storage.float_bytes)
    on_cpu = rates.processor.kind == "cpu"
    if on_cpu and precision != "w8a8":
        size = size + _dequantized(work, factor, kinds[_CONVERT])
    # Accelerators apply a fused function on the way out; a CPU computes it.
    fused = 2.0 * kinds[_TRANSCENDENTAL] if on_cpu else factor
    results = work.macs / np.maximum(work.k, 1.0) * _of_class(result_factors, work, rates, PEAK_OF[precision])
    return size + fused * work.activation_elems * storage.float_bytes + results, factor


def _working(rates: Rates, at_peak: FloatArray, compute: FloatArray, overhead: FloatArray) -> FloatArray:
    """Seconds at full activity: a matrix unit that waits is still, a core that does not multiply does something else or spins."""
    kind = rates.processor.kind
    return np.minimum(at_peak, compute) if kind == "npu" else compute + overhead if kind == "cpu" else compute


def _streamed_share(family: Family, total: float) -> float:
    """Share of a model's ``total`` weight bytes that comes from DRAM: large models keep no more resident than the family can."""
    return max(family.weight_share, 1.0 - family.resident_bytes / total) if total > 0.0 else family.weight_share


def _weights(work: Work, rates: Rates, storage: Storage) -> FloatArray:
    """[n] bytes of weights; blocks and 16-bit floats a CPU reads as they are stored, an accelerator as its own weights."""
    own = work.weight_packed_elems * storage.weight_float_bytes
    packed = np.minimum(work.weight_packed_bytes, own) if rates.processor.kind == "cpu" else own
    plain = work.weight_float_elems * storage.weight_float_bytes + work.weight_quant_elems * storage.weight_quant_bytes
    return np.asarray(plain + work.weight_fixed_bytes + packed)


def _dequantized(work: Work, factor: FloatArray, convert: float) -> FloatArray:
    """Extra vector bytes of float arithmetic on quantized tensors: 4 bytes an element instead of 1, and the conversion (5).

    What only moves elements, or works on them as they are stored, has none.
    """
    own = np.isin(work.kind, _AS_STORED)
    return np.where(own, 0.0, work.quant_elems * (3.0 * factor + 5.0 * convert * (factor > 0.0)))


def row_padding(work: Work) -> FloatArray:
    """Work done over work wanted when rows of depthwise convolutions are padded to whole vectors of 16; 1 for all others."""
    whole = np.ceil(np.maximum(work.m, 1.0) / _VECTOR) * _VECTOR
    return np.where(np.isin(work.cls, sorted(DEPTHWISE)), whole / np.maximum(work.m, 1.0), 1.0)


def padding(work: Work, align: tuple[int, int, int]) -> FloatArray:
    """Work done over work wanted when matrix dimensions are padded to multiples of ``align`` (m, n, k); at least 1."""
    factor = np.ones(len(work.macs))
    for size, multiple in zip((work.m, work.n, work.k), align, strict=True):
        if multiple > 1:
            padded = np.ceil(np.maximum(size, 1.0) / multiple) * multiple
            factor *= np.where(work.macs > 0, padded / np.maximum(size, 1.0), 1.0)
    return factor
