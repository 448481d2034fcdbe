"""Seconds of a step of a language model on one processor, whatever the graph: what ``make fit`` fits and what plans take over.

    decode:  pace * ( max( (weights + cache) / bandwidth, 2 products * unpack / (half * lanes) ) + layers * layer_s )
    prefill: pace * ( token + 2 (products + attended) / (ops * gemm) )
    several: decode + (rows - 1) / rows * pace of prefill * 2 (products + attended) / (ops * gemm), at most rows * decode

*Several* are rows that continue a past: guessed tokens that are checked, a turn of a conversation, a batch. They read weights and cache
once, as one row does, and multiply more; no row of the fit is of them. Nothing is ever shorter than its weights and cache take at the
reachable bandwidth. *Bytes* are as stored; *attended* are the products of attention; *ops* is the peak (INT8 with integer weights on
CPUs and NPUs, else float16), *half* the float16 one. The lanes' term (multiplying one row, and *unpacking* llama.cpp's k-quants) is a
CPU's. A prompt takes what its products take and, first, a *token*: the seconds of decoding one without a cache, in which that engine
reads all weights. A pace of decode is an engine's on a kind of processor, times that engine's on one chip, times that of float weights;
of prefill an engine's on a family of processors. Paces near 1 are 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.socs import SoC
from hetsched_cost_models.roofline import Rates, queue_cores, queue_rates
from hetsched_cost_models.work import FloatArray

PHASES = ("decode", "prefill")
#: Weights of at most so many bits are integers.
_INTEGER = 8.5


@dataclass(frozen=True, slots=True)
class Place:
    """A queue: bytes a second, and operations a second in float16 and INT8."""

    chip: str
    unit: str
    family: str
    bandwidth: float
    half: float
    integer: float


@dataclass(frozen=True, slots=True)
class Step:
    """A token of an answer, or a whole prompt, and where an engine computes it.

    ``products`` are multiply-accumulates with weights, ``attended`` those of attention; ``bits`` those of a stored weight; ``unpacked`` the
    share of products whose weights are llama.cpp's k-quants. Of a prompt, ``token_s``: seconds of one token there.
    """

    place: Place
    engine: str
    tokens: int
    products: float
    attended: float
    weight_bytes: float
    cache_bytes: float
    layers: int
    bits: float
    unpacked: float = 0.0
    token_s: float = 0.0


def place_of(soc: SoC, rates: Rates) -> Place:
    """What the fits know of a queue."""
    peak = rates.peak_ops_s
    half = peak.get("f16") or peak.get("i8") or max(peak.values())
    p = rates.processor
    return Place(soc.id, p.kind, p.family or p.kind, rates.bandwidth_bytes_s, half, peak.get("i8", half))


def usual_place(soc: SoC, unit: str, threads: int = 0) -> Place:
    """Where an engine runs that is told no more than a processor: its queue with most cores, or its ``threads`` fastest cores."""
    processor = next(p for p in soc.processors if p.kind == unit)
    own = [t for t in soc.queues.values() if queue_cores(t)[0] == processor.name]
    target = max(own, key=lambda t: len(queue_cores(t)[1]), default=processor.name)
    if threads and unit == "cpu":
        fastest = [c for cluster in sorted(processor.clusters, key=lambda c: -c.top.hz) for c in reversed(cluster.cores)]
        target = f"{processor.name}:{','.join(map(str, sorted(fastest[:threads])))}"
    return place_of(soc, queue_rates(soc, target))


def paces(step: Step, phase: str) -> tuple[str, ...]:
    """Names of the paces of a step; those that are not fitted are 1."""
    engine, place = step.engine, step.place
    if phase == "prefill":
        return (f"pace/{engine}/{place.family}",)
    floats = (f"pace/float/{place.unit}",) if step.bits > _INTEGER else ()
    return (f"pace/{engine}/{place.unit}", f"pace/{engine}/{place.unit}/{place.chip}", *floats)


class Form:
    """Steps of one phase as arrays."""

    def __init__(self, steps: Sequence[Step], phase: str) -> None:
        self.phase, self.paces = phase, [paces(s, phase) for s in steps]
        self.names = sorted({n for own in self.paces for n in own})
        self.has = np.array([[float(n in own) for n in self.names] for own in self.paces]).reshape(len(steps), len(self.names))
        self.unit = np.array([s.place.unit for s in steps])
        self.half = np.array([s.place.half for s in steps])
        self.ops = np.array([s.place.integer if s.bits <= _INTEGER and s.place.unit != "gpu" else s.place.half for s in steps])
        self.bytes = np.array([s.weight_bytes + s.cache_bytes for s in steps])
        self.stream = self.bytes / np.array([s.place.bandwidth for s in steps])
        self.products, self.attended = (np.array([getattr(s, n) for s in steps], float) for n in ("products", "attended"))
        self.layers, self.unpacked = (np.array([getattr(s, n) for s in steps], float) for n in ("layers", "unpacked"))
        self.token = np.array([s.token_s for s in steps])

    def log_seconds(self, p: Mapping[str, float]) -> FloatArray:
        """Logarithms of the seconds of every step by the parameters ``p``."""
        pace = self.pace(p)
        if self.phase == "prefill":
            return np.asarray(np.log(np.maximum(pace * (self.token + self.computed(p)), self.stream)))
        taken = np.maximum(self.stream, self.lanes(p)) + self.layers * p["layer_s"]
        return np.asarray(np.log(np.maximum(pace * taken, self.stream)))

    def pace(self, p: Mapping[str, float]) -> FloatArray:
        """Products of the paces of every step."""
        return np.asarray(np.exp(self.has @ np.log([p.get(n, 1.0) for n in self.names])))

    def computed(self, p: Mapping[str, float]) -> FloatArray:
        """Seconds in which a prompt is multiplied, before paces."""
        return np.asarray(2.0 * (self.products + self.attended) / (self.ops * p["gemm"]))

    def lanes(self, p: Mapping[str, float]) -> FloatArray:
        """Seconds in which a CPU multiplies one row; 0 elsewhere."""
        unpack = 1.0 + self.unpacked * (p["unpack"] - 1.0)
        return np.where(self.unit == "cpu", 2.0 * self.products * unpack / (self.half * p["lanes"]), 0.0)


def seconds_of(step: Step, phase: str, p: Mapping[str, float]) -> float:
    """Seconds of one step by the parameters ``p``."""
    return float(np.exp(Form([step], phase).log_seconds(p))[0])


def others_of(rows: Step, p: Mapping[str, float], one_s: float) -> float:
    """Seconds that rows after a past take beyond the first of them.

    Args:
        rows: all of them, as a prompt.
        p: parameters of prefill.
        one_s: seconds of one of them.
    """
    form, more = Form([rows], "prefill"), rows.tokens - 1
    multiplied = float((form.pace(p) * form.computed(p))[0])
    return min(more / rows.tokens * multiplied, more * one_s)
