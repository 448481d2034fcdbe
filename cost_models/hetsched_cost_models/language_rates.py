"""Cost tables of language models on phones: the roofline's numbers give way to the rates that engines reach.

A decoder's step, a token or a prompt, takes on every queue the seconds of :mod:`hetsched_cost_models.language_form` with the parameters
of ``fitted/language.yaml``: every operator the part of each term that its weights, cache and products are, and an even part of what
a layer or a start costs. Starting the step there and telling the host is in these seconds, so that a plan on one queue takes exactly them.
A few tokens at once (speculation, a batch) take no longer than one after the other, and no less than one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, prod
from typing import Any

import numpy as np

from hetsched.costs import CostTable, FloatArray
from hetsched.graph import Graph, Role
from hetsched.socs import SoC
from hetsched_cost_models import energy
from hetsched_cost_models.certainty import SLOW_PATH
from hetsched_cost_models.language import STATEFUL
from hetsched_cost_models.language_form import Form, Place, Step, place_of
from hetsched_cost_models.operators import VECTOR_KINDS
from hetsched_cost_models.parameters import FITTED, engine_of, read_parameters
from hetsched_cost_models.roofline import Rates, Storage
from hetsched_cost_models.work import IntArray as IndexArray
from hetsched_cost_models.work import Work

FILE = "language.yaml"
#: Operators of which a layer has one.
_LAYERS = ("GroupQueryAttention", "Attention", "SelectiveScan")
_VIEW = VECTOR_KINDS.index("view")


@dataclass(frozen=True)
class Shipped:
    """Fitted parameters by phase, half-widths of intervals by phase and case, and the ``engine/unit/chip`` that rows were of."""

    parameters: Mapping[str, Mapping[str, float]]
    half_width: Mapping[str, Mapping[str, float]]
    seen: Mapping[str, frozenset[str]]


@lru_cache(maxsize=1)
def shipped() -> Shipped:
    """What ``make fit`` wrote."""
    raw = read_parameters(FITTED / FILE)
    figures = {s: {n: float(f["value"]) for n, f in raw[s].items()} for s in ("decode", "prefill")}
    widths = {s: {n: float(f["value"]) for n, f in raw["half_width"][s].items()} for s in figures}
    return Shipped(figures, widths, {s: frozenset(raw["seen"][s]) for s in figures})


@dataclass(frozen=True, eq=False)
class Decoder:
    """What the fits ask of a decoder's graph: rows (tokens of all sequences), layers, and by op whether it attends or unpacks k-quants.

    ``continues``: there are tokens before these.
    """

    rows: int
    continues: bool
    layers: int
    attends: FloatArray
    unpacks: FloatArray


def decoder_of(graph: Graph) -> Decoder | None:
    """A graph whose attentions or scans continue a state from token to token; None for any other."""
    layers = [op for op in graph.ops if op.type in _LAYERS and any(graph.tensors[o].role is Role.STATE for o in op.outputs if o)]
    if not layers:
        return None
    attends = np.array([float(op.type in STATEFUL) for op in graph.ops])
    unpacks = np.array([float(any(_is_k_quant(graph, n) for n in graph.constants(op))) for op in graph.ops])
    return Decoder(_rows(graph.tensors[layers[0].inputs[0]].shape), bool(graph.states), len(layers), attends, unpacks)


def _rows(shape: Sequence[int]) -> int:
    """Tokens of all sequences: of matrices with a row per token, and of ``[batch, heads, tokens, dim]``."""
    return max(1, shape[0] * shape[2] if len(shape) == 4 else prod(shape[:-1]))


def _is_k_quant(graph: Graph, name: str) -> bool:
    quantization = graph.tensors[name].quantization
    return quantization is not None and quantization.scheme.startswith("gguf:") and quantization.scheme.endswith("_K")


@dataclass(frozen=True, eq=False)
class _OnQueue:
    """A decoder's ops on one queue, ready to be priced."""

    decoder: Decoder
    work: Work
    place: Place
    engine: str
    weights: FloatArray

    def step(self, phase: str, rows: int) -> Step:
        """All ops together, for so many of the rows."""
        part = rows / self.decoder.rows
        products = self.work.macs * (1.0 - self.decoder.attends)
        elements = self.work.weight_float_elems + self.work.weight_quant_elems + self.work.weight_packed_elems
        total, many = float(self.weights.sum()), max(1.0, float(elements.sum()))
        attended = float((self.work.macs * self.decoder.attends).sum()) if phase == "prefill" else 0.0
        cache = float(self.work.state_bytes.sum()) if phase == "decode" else 0.0
        return Step(
            self.place, self.engine, rows, part * float(products.sum()), part * attended, total, cache, self.decoder.layers,
            8.0 * total / many, float((products * self.decoder.unpacks).sum() / max(1.0, products.sum())),
        )  # fmt: skip

    def seconds(self) -> tuple[float, str]:
        """Of the whole graph, and the phase that it is."""
        rows, one = self.decoder.rows, self._of("decode", 1)
        if rows == 1:
            return one, "decode"
        prompt = self._of("prefill", rows)
        if self.decoder.continues:
            prompt -= float(Form([self.step("prefill", rows)], "prefill").stream[0]) + shipped().parameters["prefill"]["start_s"]
        return max(one, min(prompt, rows * one)), "prefill"

    def _of(self, phase: str, rows: int) -> float:
        return float(np.exp(Form([self.step(phase, rows)], phase).log_seconds(shipped().parameters[phase]))[0])

    def priced(self, crossing_s: float) -> tuple[str, tuple[FloatArray, FloatArray, FloatArray], FloatArray]:
        """The phase; of every op seconds of compute, bytes and seconds of overhead; and its seconds at full activity.

        Together the ops take the step's seconds less ``crossing_s``.
        """
        seconds, phase = self.seconds()
        p, form = shipped().parameters[phase], Form([self.step(phase, self.decoder.rows)], phase)
        compute_s, fixed_s = (
            (form.computed(p)[0], p["start_s"]) if phase == "prefill" else (form.lanes(p)[0], self.decoder.layers * p["layer_s"])
        )
        products = self.work.macs * (1.0 if phase == "prefill" else 1.0 - self.decoder.attends)
        compute, moved = compute_s * products / max(1.0, float(products.sum())), self.weights + self.work.state_bytes
        pace = seconds / (fixed_s + float(np.maximum(compute, moved / self.place.bandwidth).sum()))
        compute, moved = pace * compute, max(1.0, pace) * moved
        taken = np.maximum(compute, moved / self.place.bandwidth)
        runs = (self.work.kind != _VIEW) | (self.work.macs > 0.0)
        overhead = max(0.0, seconds - crossing_s - float(taken.sum())) * runs / max(1, int(runs.sum()))
        full = np.minimum(2.0 * self.work.macs / form.ops, compute) if self.place.unit == "npu" else compute
        return phase, (compute, moved, overhead), full


def with_engines(table: CostTable, graph: Graph, soc: SoC, work: Work, rates: Sequence[Rates], storages: Mapping[tuple[int, str], Storage],
                 runtime: str) -> CostTable:  # fmt: skip
    """The table of a decoder with fitted rates in the place of the roofline's; any other table as it is, and that of ``host``.

    Args:
        table: from the roofline.
        graph: the graph.
        soc: the chip.
        work: of its ops.
        rates: its queues.
        storages: of every queue and precision that the table offers.
        runtime: that of the plan, which names an engine.
    """
    decoder = None if soc.is_host else decoder_of(graph)
    if decoder is None:
        return table
    columns = {n: getattr(table, n).copy() for n in ("compute_s", "dram_bytes", "overhead_s")}
    work_s = columns["compute_s"].copy()
    owner = np.repeat(np.arange(len(table.op_names)), np.diff(table.alt_start))
    cases = []
    for q in np.unique(table.alt_queue).tolist():
        mine = np.flatnonzero(table.alt_queue == q)
        engine, kind = engine_of(rates[q].processor, runtime), rates[q].processor.kind
        held = _held([table.alt_precision[a] for a in mine.tolist()], owner[mine], len(table.op_names))
        weights = np.select([held == p for p in dict.fromkeys(held.tolist())],
                            [_weights(work, storages[q, p], kind, engine) for p in dict.fromkeys(held.tolist())])  # fmt: skip
        crossing = _launch(rates[q], table.launch_s[q]) + (table.sync_s[q, table.host] if q != table.host else 0.0)
        phase, shares, busy = _OnQueue(decoder, work, place_of(soc, rates[q]), engine, weights).priced(crossing)
        for column, share in zip(columns.values(), shares, strict=True):
            column[mine] = share[owner[mine]]
        work_s[mine] = busy[owner[mine]]
        cases.append((engine, kind, phase))
    bandwidth = np.array([r.bandwidth_bytes_s for r in rates])[table.alt_queue]
    seconds = columns["overhead_s"] + np.maximum(columns["compute_s"], columns["dram_bytes"] / bandwidth)
    effort = energy.efforts(rates, table.alt_queue, work_s, seconds)
    joules = seconds * energy.watts(rates, table.alt_queue, effort) + columns["dram_bytes"] * soc.memory.energy_j_per_byte.value
    interval, note = _certainty(soc, cases)
    notes = tuple(n for n in table.notes if not n.startswith(SLOW_PATH))  # the interval that they speak of is not this one
    return replace(table, **columns, energy_j=joules, effort=effort, interval=interval, notes=(*notes, note))


def _launch(rates: Rates, launch_s: float) -> float:
    """Seconds of a launch that the fitted rates hold: not what a user set in its place."""
    was = rates.processor.launch_s.was
    return launch_s if was is None else was


def _held(precisions: Sequence[str], owner: IndexArray, ops: int) -> np.ndarray[Any, np.dtype[np.object_]]:
    """[ops] the precision of each op on a queue; of those that it cannot run, that of most others."""
    held = np.full(ops, Counter(precisions).most_common(1)[0][0], object)
    held[owner] = precisions
    return held


def _weights(work: Work, storage: Storage, kind: str, engine: str) -> FloatArray:
    """Bytes of every op's weights: engines for CPUs and GPUs, and llama.cpp, read blocks as they are stored."""
    packed = work.weight_packed_elems * storage.weight_float_bytes
    if kind != "npu" or engine == "llama.cpp":
        packed = np.minimum(packed, work.weight_packed_bytes)
    plain = work.weight_float_elems * storage.weight_float_bytes + work.weight_quant_elems * storage.weight_quant_bytes
    return np.asarray(plain + work.weight_fixed_bytes + packed)


def _certainty(soc: SoC, cases: Sequence[tuple[str, str, str]]) -> tuple[tuple[float, float], str]:
    """The interval of the least sure queue as factors, and a note on whose rates these are."""
    width, said = 0.0, list[str]()
    for engine, unit, phase in cases:
        known = f"{engine}/{unit}/{soc.id}" in shipped().seen[phase]
        width = max(width, shipped().half_width[phase]["seen" if known else "unseen"])
        said.append(f"{engine} on the {unit.upper()}" + ("" if known else " (no public rate on this chip)"))
    return (exp(-width), exp(width)), f"a step takes what public rates of engines say: {', '.join(dict.fromkeys(said))}"
