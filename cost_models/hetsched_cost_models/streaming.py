"""Cost of a graph's operators on a tiled accelerator, in the additive form of the cost table.

Weights that are fetched ahead stream while *earlier* operators compute: over a graph, compute and streaming overlap as wholes.
A cost table adds operators up. :func:`spread` therefore gives every operator a part of the graph's streamed bytes in
proportion to the time in which it leaves the memory bus free, so that the sum over all operators is exactly the graph's time. Where
a plan leaves some operators to other processors it is an approximation: what runs here streams at the graph's average pace.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hetsched_cost_models import hexagon
from hetsched_cost_models.roofline import Cost, Rates, Storage
from hetsched_cost_models.tiles import Tiles
from hetsched_cost_models.what_if import Traffic, served
from hetsched_cost_models.work import FloatArray, IntArray, Work

#: Runtimes whose partitions convert layouts around data movement and rows of tokens.
COPYING = frozenset({"ort"})


def tiled_cost(work: Work, tiles: Tiles, rates: Rates, precision: str, storage: Storage, runtime: str) -> Cost:
    """Cost of every op; ``ahead_bytes`` are not in ``dram_bytes`` before :func:`spread` has put them there."""
    p, n = rates.family.tiled, len(work.macs)
    load = load_of(work, tiles, storage)
    macs, weights, near = rates.extra.left(work, load.macs, load.weights, storage.weight_float_bytes)
    load = replace(load, macs=macs, weights=weights)
    unit = hexagon.unit(rates.peak_ops_s, rates.vector_bytes_s, rates.bandwidth_bytes_s, rates.onchip_bytes)
    which = np.full(n, hexagon.PRECISIONS.index(precision if precision in hexagon.PRECISIONS else "f16"))
    parts = hexagon.parts_of(load, unit, which, np.full(n, float(runtime in COPYING)), p)
    states = work.state_vector_bytes / (unit.vector_bytes_s * p["vector"])
    pace = rates.family.pace.get(runtime, 1.0)
    past = Traffic(parts.waited, parts.ahead, work.state_bytes, parts.spilled)
    persistent = float((parts.waited + parts.ahead + work.state_bytes).sum())
    hit = served(rates.extra, past, persistent, load.moved / load.heads)
    arithmetic = pace * (parts.compute_s + states)
    beside = hit.states + hit.spilled
    compute = np.maximum(np.maximum(arithmetic, rates.extra.seconds(past.states + past.spilled)), rates.extra.inside(near))
    wait = (past.weights - hit.weights) / unit.bandwidth_bytes_s + hit.weights / rates.extra.cache_bytes_s
    moved = past.spilled + past.states - beside
    overhead = pace * hexagon.dispatch(load.kind, load.tokens, _dispatched(rates, p)) * p["reference/vector_bytes_s"] / unit.vector_bytes_s
    return Cost(
        compute_s=compute + wait, dram_bytes=moved + past.weights - hit.weights, weight_bytes=past.weights + past.ahead,
        overhead_s=overhead, ahead_bytes=past.ahead - hit.ahead, free_s=np.maximum(compute, moved / unit.bandwidth_bytes_s),
        work_s=np.minimum(parts.work_s + states, arithmetic), cached_ahead_s=rates.extra.seconds(past.ahead),
        level_j=rates.extra.joules(hit.now + hit.ahead, near), cache_bytes=hit.now, cache_ahead_bytes=hit.ahead,
    )  # fmt: skip


def _dispatched(rates: Rates, p: dict[str, float]) -> dict[str, float]:
    """The parameters, with the overhead of an operator that the user has set (what-if hardware) in the place of the fitted one."""
    own = rates.processor.op_overhead_s
    return p if own.was is None else p | {"op_s": own.value * rates.vector_bytes_s / p["reference/vector_bytes_s"]}


def load_of(work: Work, tiles: Tiles, storage: Storage) -> hexagon.Load:
    """Bytes at one precision: every element of an op counts as its tensors do on average."""
    moved = work.float_elems * storage.float_bytes + work.quant_elems * storage.quant_bytes + work.other_bytes
    width = moved / np.maximum(tiles.elems, 1.0)
    weights = (
        work.weight_float_elems * storage.weight_float_bytes
        + work.weight_quant_elems * storage.weight_quant_bytes
        + work.weight_packed_elems * storage.weight_float_bytes
        + work.weight_fixed_bytes
    )
    return hexagon.Load(
        tiles.kind, tiles.macs, moved, tiles.written * width, tiles.once * width, tiles.functions * storage.float_bytes, weights,
        tiles.heads, tiles.tokens,
    )  # fmt: skip


def seconds(cost: Cost, bandwidth_bytes_s: float) -> float:
    """Seconds of all operators one after another on a processor of this bandwidth."""
    every = np.arange(len(cost.free_s))
    moved = spread(cost.dram_bytes, cost.ahead_bytes, cost.free_s, every)
    cached = spread(np.zeros(len(every)), cost.cached_ahead_s, cost.free_s, every)
    return float((cost.overhead_s + np.maximum(np.maximum(cost.compute_s, cached), moved / bandwidth_bytes_s)).sum())


def spread(dram: FloatArray, ahead: FloatArray, free: FloatArray, counted: IntArray) -> FloatArray:
    """``dram`` bytes of alternatives with those that the graph fetches ahead spread over them.

    Args:
        dram: bytes of each alternative without the weights that are fetched ahead.
        ahead: of each, its own weights that are fetched ahead.
        free: seconds in which each computes.
        counted: the alternatives that make up the graph, one an op.
    """
    bytes_ahead, seconds = float(ahead[counted].sum()), float(free[counted].sum())
    if seconds <= 0.0:
        return dram + ahead
    return np.asarray(dram + free * (bytes_ahead / seconds))
