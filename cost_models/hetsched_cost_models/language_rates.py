"""Cost tables of language models on phones: the roofline's numbers give way to the rates that engines reach.

A decoder's step, a token or a prompt, takes on every queue the seconds of :mod:`hetsched_cost_models.language_form` with the parameters
of ``fitted/language.yaml``: every operator the part of each term that its weights, cache and products are, and an even part of what
layers cost. Starting the step there and telling the host is in these seconds, so that a plan on one queue takes exactly them.
Tokens that continue a past (speculation, a turn, a batch) begin with one as decoding takes it; those of a prompt take no longer than one
after the other. Where a plan makes 4-bit
weights of a float model, those of the scores have the bits that the engine gives them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, prod
from typing import Any, TypeAlias

import numpy as np

from hetsched.costs import CostTable, FloatArray
from hetsched.graph import Graph, Role
from hetsched.socs import SoC
from hetsched_cost_models import energy
from hetsched_cost_models.certainty import SLOW_PATH
from hetsched_cost_models.language import STATEFUL
from hetsched_cost_models.language_form import Form, Place, Step, others_of, place_of, seconds_of
from hetsched_cost_models.operators import PRODUCTS, VECTOR_KINDS
from hetsched_cost_models.parameters import FITTED, engine_of, head_bits, read_parameters
from hetsched_cost_models.precisions import FOUR_BIT
from hetsched_cost_models.roofline import Rates, Storage
from hetsched_cost_models.work import IntArray as IndexArray
from hetsched_cost_models.work import Work

FILE = "language.yaml"
#: Operators of which a layer has one.
_LAYERS = ("GroupQueryAttention", "Attention", "SelectiveScan")
_VIEW = VECTOR_KINDS.index("view")
_Columns: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]


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

    ``continues``: whether there are tokens before these; ``head``: the op that makes scores of float weights, -1: none does.
    """

    rows: int
    layers: int
    attends: FloatArray
    unpacks: FloatArray
    continues: bool
    head: int


def decoder_of(graph: Graph) -> Decoder | None:
    """A graph whose attentions or scans continue a state from token to token; None for any other."""
    layers = [op for op in graph.ops if op.type in _LAYERS and any(graph.tensors[o].role is Role.STATE for o in op.outputs if o)]
    if not layers:
        return None
    attends = np.array([float(op.type in STATEFUL) for op in graph.ops])
    unpacks = np.array([float(any(_is_k_quant(graph, n) for n in graph.constants(op))) for op in graph.ops])
    past = (graph.tensors[n] for op in layers for n in op.inputs if n)
    continues = any(t.role is Role.STATE and t.nbytes for t in past)
    return Decoder(_rows(graph.tensors[layers[0].inputs[0]].shape), len(layers), attends, unpacks, continues, _head(graph))


def _head(graph: Graph) -> int:
    """The last product with constant weights, if these are floats; else -1."""
    last = max((i for i, op in enumerate(graph.ops) if op.type in PRODUCTS and graph.constants(op)), default=-1)
    floats = last >= 0 and all(graph.tensors[n].dtype.is_float for n in graph.constants(graph.ops[last]))
    return last if floats else -1


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
    unpacks: FloatArray

    def step(self, phase: str, rows: int) -> Step:
        """All ops together, for so many of the rows."""
        part = rows / self.decoder.rows
        products = self.work.macs * (1.0 - self.decoder.attends)
        elements = self.work.weight_float_elems + self.work.weight_quant_elems + self.work.weight_packed_elems
        total, many = float(self.weights.sum()), max(1.0, float(elements.sum()))
        attended = float((self.work.macs * self.decoder.attends).sum()) if phase == "prefill" else 0.0
        cache = float(self.work.state_bytes.sum()) if phase == "decode" else 0.0
        found = Step(
            self.place, self.engine, rows, part * float(products.sum()), part * attended, total, cache, self.decoder.layers,
            8.0 * total / many, float((products * self.unpacks).sum() / max(1.0, products.sum())),
        )  # fmt: skip
        if phase == "decode":
            return found
        token = replace(self.step("decode", 1), cache_bytes=0.0)
        return replace(found, token_s=seconds_of(token, "decode", shipped().parameters["decode"]))

    def priced(self, crossing_s: float) -> tuple[str, _Columns, FloatArray]:
        """The phase; of every op seconds of compute, bytes and seconds of overhead; and its seconds at full activity.

        Together the ops take the step's seconds less ``crossing_s``.
        """
        rows, p = self.decoder.rows, shipped().parameters
        one_s = seconds_of(self.step("decode", 1), "decode", p["decode"])
        if rows == 1:
            return "decode", *self._shared(self.step("decode", 1), "decode", one_s, crossing_s)
        prompt = self.step("prefill", rows)
        if not self.decoder.continues:
            seconds = max(one_s, min(seconds_of(prompt, "prefill", p["prefill"]), rows * one_s))
            return "prefill", *self._shared(prompt, "prefill", seconds, crossing_s)
        (compute, moved, overhead), full = self._shared(self.step("decode", 1), "decode", one_s, crossing_s)
        others = others_of(prompt, p["prefill"], one_s) * self.work.macs / max(1.0, float(self.work.macs.sum()))
        taken = np.maximum(compute, moved / self.place.bandwidth)
        return "prefill", (taken + others, moved, overhead), full + self._busy(others, Form([prompt], "prefill"))

    def _shared(self, step: Step, phase: str, seconds: float, crossing_s: float) -> tuple[_Columns, FloatArray]:
        """What the ops take of a token or of a prompt."""
        p, form = shipped().parameters[phase], Form([step], phase)
        products = self.work.macs * (1.0 if phase == "prefill" else 1.0 - self.decoder.attends)
        shares, read = products / max(1.0, float(products.sum())), self.weights / max(1.0, float(self.weights.sum()))
        compute = form.computed(p)[0] * shares + step.token_s * read if phase == "prefill" else form.lanes(p)[0] * shares
        fixed_s = 0.0 if phase == "prefill" else self.decoder.layers * p["layer_s"]
        moved = self.weights + self.work.state_bytes
        pace = seconds / (fixed_s + float(np.maximum(compute, moved / self.place.bandwidth).sum()))
        compute, moved = pace * compute, max(1.0, pace) * moved
        taken = np.maximum(compute, moved / self.place.bandwidth)
        runs = (self.work.kind != _VIEW) | (self.work.macs > 0.0)
        overhead = max(0.0, seconds - crossing_s - float(taken.sum())) * runs / max(1, int(runs.sum()))
        return (compute, moved, overhead), self._busy(compute, form)

    def _busy(self, compute: FloatArray, form: Form) -> FloatArray:
        """Seconds at full activity: an NPU's matrices are as busy as their peak says."""
        return np.minimum(2.0 * self.work.macs / form.ops, compute) if self.place.unit == "npu" else compute


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
        kinds = dict.fromkeys(held.tolist())
        weights = np.select([held == p for p in kinds], [_weights(work, storages[q, p], kind, engine) for p in kinds])
        unpacks = decoder.unpacks
        if decoder.head >= 0 and held[decoder.head] in FOUR_BIT:
            weights, unpacks = _with_head(weights, unpacks, work, decoder.head, engine)
        crossing = _launch(rates[q], table.launch_s[q]) + (table.sync_s[q, table.host] if q != table.host else 0.0)
        phase, shares, busy = _OnQueue(decoder, work, place_of(soc, rates[q]), engine, weights, unpacks).priced(crossing)
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
        blocks = work.weight_packed_bytes < 2.0 * work.weight_packed_elems
        packed = np.where(blocks, work.weight_packed_bytes, np.minimum(packed, work.weight_packed_bytes))
    plain = work.weight_float_elems * storage.weight_float_bytes + work.weight_quant_elems * storage.weight_quant_bytes
    return np.asarray(plain + work.weight_fixed_bytes + packed)


def _with_head(weights: FloatArray, unpacks: FloatArray, work: Work, head: int, engine: str) -> tuple[FloatArray, FloatArray]:
    """Bytes of weights and what unpacks k-quants, with the scores' weights as the engine's 4-bit models have them."""
    bits = head_bits(engine)
    if bits is None:
        return weights, unpacks
    weights, unpacks = weights.copy(), unpacks.copy()
    weights[head] = (work.weight_float_elems[head] + work.weight_packed_elems[head]) * bits / 8.0
    unpacks[head] = float(engine == "llama.cpp")
    return weights, unpacks


def _certainty(soc: SoC, cases: Sequence[tuple[str, str, str]]) -> tuple[tuple[float, float], str]:
    """The interval of the least sure queue as factors, and a note on whose rates these are."""
    width, said = 0.0, list[str]()
    for engine, unit, phase in cases:
        known = f"{engine}/{unit}/{soc.id}" in shipped().seen[phase]
        width = max(width, shipped().half_width[phase]["seen" if known else "unseen"])
        said.append(f"{engine} on the {unit.upper()}" + ("" if known else " (no public rate on this chip)"))
    return (exp(-width), exp(width)), f"a step takes what public rates of engines say: {', '.join(dict.fromkeys(said))}"
