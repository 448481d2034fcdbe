"""The columns of a cost table: seconds, bytes and joules of every alternative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from hetsched.costs import FOUR_BITS, Domain, FloatArray, Queue
from hetsched.graph import Graph, IntArray
from hetsched.socs import SoC
from hetsched_cost_models import control_flow, delegated, energy, layouts, streaming
from hetsched_cost_models.alternatives import Alternatives
from hetsched_cost_models.composites import Apart
from hetsched_cost_models.features import Features
from hetsched_cost_models.precisions import FOUR_BIT, WIDE
from hetsched_cost_models.roofline import Cost, Rates, Storage, roofline
from hetsched_cost_models.work import BoolArray


def held_as(kind: str, precision: str) -> str:
    """The storage type of activations at a precision on a kind of processor, by the name of the domain."""
    if kind == "cpu":
        return "f32"
    if kind == "gpu" and precision in FOUR_BIT:
        return "f16"
    return "w8a16" if precision in WIDE else precision


def storage_of(kind: str, precision: str, quantized: bool) -> Storage:
    """Bytes per element of float and quantized activations, float and quantized weights."""
    if kind == "cpu":
        wide = 2.0 if precision == "f16" else 4.0
        weight = {"w8a8": 1.0, "w4a8": FOUR_BITS / 8.0}.get(precision, wide)
        return Storage(wide, 1.0, weight, 1.0)
    if precision == "f8":
        return Storage(1.0, 1.0, 1.0, 1.0)
    if precision == "w4a16":
        return Storage(2.0, 1.0, FOUR_BITS / 8.0, 1.0)
    if precision in ("w8a8", "w8a16"):
        return Storage(2.0 if quantized or precision == "w8a16" else 1.0, 1.0, 1.0, 1.0)
    wide = 2.0 if precision == "f16" else 4.0
    return Storage(wide, wide, wide, wide)


def price(
    graph: Graph, features: Features, queues: Sequence[Queue], rates: Sequence[Rates], found: Alternatives, foreign: BoolArray,
    domains: tuple[Domain, ...], soc: SoC, runtime: str,
) -> dict[str, Any]:  # fmt: skip
    """Columns of the table, one entry an alternative.

    Args:
        graph: the graph.
        features: of it.
        queues: of the SoC.
        rates: of every queue.
        found: the alternatives.
        foreign: of each, whether another delegate than the queue's own runs it.
        domains: of the table.
        soc: the SoC.
        runtime: whose overheads are assumed.
    """
    domain_of = {(d.queue, d.dtype): i for i, d in enumerate(domains)}
    held = [held_as(queues[x.queue].kind, x.precision) for x in found.options]
    domain = np.array([domain_of[x.queue, h] for x, h in zip(found.options, held, strict=True)], np.int32)
    columns = {k: np.zeros(len(found.owner)) for k in (f.name for f in fields(Cost))}
    pair_of = {pair: i for i, pair in enumerate(dict.fromkeys((x.queue, x.precision) for x in found.options))}
    pairs = np.array([pair_of[x.queue, x.precision] for x in found.options])[found.option]
    for (q, p), pair in pair_of.items():
        cost = _cost(graph, features, rates[q], queues[q].kind, p, soc, runtime)
        rows = np.flatnonzero(pairs == pair)
        for name, column in columns.items():
            column[rows] = getattr(cost, name)[found.owner[rows]]
    _stream(columns, found.owner, found.queue)
    delegated.add(columns, foreign)
    bandwidth = np.array([r.bandwidth_bytes_s for r in rates])[found.queue]
    seconds = columns["overhead_s"] + np.maximum(columns["compute_s"], columns["dram_bytes"] / bandwidth)
    effort = energy.efforts(rates, found.queue, columns.pop("work_s"), seconds)
    effort = effort + energy.beside(rates, found.queue, columns.pop("level_j"), seconds)
    joules = seconds * energy.watts(rates, found.queue, effort) + columns["dram_bytes"] * soc.memory.energy_j_per_byte.value
    macs = features.work.macs[found.owner]
    return {**columns, "alt_queue": found.queue, "alt_domain": domain[found.option], "macs": macs, "energy_j": joules, "effort": effort}


def _cost(graph: Graph, features: Features, rates: Rates, kind: str, precision: str, soc: SoC, runtime: str) -> Cost:
    """What every op costs on a queue at a precision; arithmetic in memory is used if it makes the graph faster."""
    cost = _cost_on(graph, features, rates, kind, precision, soc, runtime)
    if not rates.extra.in_memory_bytes_s:
        return cost
    outside = replace(rates, extra=replace(rates.extra, in_memory_bytes_s=0.0))
    other = _cost_on(graph, features, outside, kind, precision, soc, runtime)
    return min(cost, other, key=lambda c: streaming.seconds(c, rates.bandwidth_bytes_s))


def _cost_on(graph: Graph, features: Features, rates: Rates, kind: str, precision: str, soc: SoC, runtime: str) -> Cost:
    fusions = rates.processor.fusions
    storage = storage_of(kind, precision, features.choosing.quantized)
    pace = rates.family.pace.get(runtime, 1.0)
    parts = Apart(features.work, features.groups) if soc.is_host else features.apart(graph, fusions)
    if rates.family.tiled:
        cost = parts.together(streaming.tiled_cost(parts.work, features.tiles(graph, fusions), rates, precision, storage, runtime))
    else:
        cost = parts.together(roofline(parts.work, rates, precision, storage, pace))
        cost = layouts.with_orders(cost, graph, rates, precision) if soc.is_host else cost
    return control_flow.with_bodies(cost, features.bodies, rates, precision, storage, pace)


def _stream(columns: dict[str, FloatArray], owner: IntArray, queue: IntArray) -> None:
    """Spread the weights that a queue fetches ahead over the ops that it can run, in place."""
    ahead, free, cached, hits = (columns.pop(k) for k in ("ahead_bytes", "free_s", "cached_ahead_s", "cache_ahead_bytes"))
    for q in np.unique(queue[(ahead > 0.0) | (cached > 0.0)]).tolist():
        mine = np.flatnonzero(queue == q)
        first = mine[np.unique(owner[mine], return_index=True)[1]]
        columns["dram_bytes"][mine] = streaming.spread(columns["dram_bytes"], ahead, free, first)[mine]
        columns["cache_bytes"][mine] = streaming.spread(columns["cache_bytes"], hits, free, first)[mine]
        served = streaming.spread(np.zeros(len(free)), cached, free, first)[mine]
        columns["compute_s"][mine] = np.maximum(columns["compute_s"][mine], served)
