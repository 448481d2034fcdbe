"""Cost of a graph's operators on a tiled accelerator, in the additive form of the cost table.

Weights that are fetched ahead stream while *earlier* operators compute: over a graph, compute and streaming overlap as wholes.
A cost table adds operators up. :func:`spread` therefore gives every operator a part of the graph's streamed bytes in
proportion to the time in which it leaves the memory bus free, so that the sum over all operators is exactly the graph's time. Where
a plan leaves some operators to other processors it is an approximation: what runs here streams at the graph's average pace.
"""

from __future__ import annotations

import numpy as np

from hetsched_cost_models import hexagon
from hetsched_cost_models.roofline import Cost, Rates, Storage
from hetsched_cost_models.tiles import Tiles
from hetsched_cost_models.work import FloatArray, IntArray, Work

#: Runtimes whose partitions convert layouts around data movement and rows of tokens.
COPYING = frozenset({"ort"})


def tiled_cost(work: Work, tiles: Tiles, rates: Rates, precision: str, storage: Storage, runtime: str) -> Cost:
    """Cost of every op; ``ahead_bytes`` are not in ``dram_bytes`` before :func:`spread` has put them there."""
    p, n = rates.family.tiled, len(work.macs)
    load = load_of(work, tiles, storage)
    unit = hexagon.unit(rates.peak_ops_s, rates.vector_bytes_s, rates.bandwidth_bytes_s, rates.onchip_bytes)
    which = np.full(n, hexagon.PRECISIONS.index(precision if precision in hexagon.PRECISIONS else "f16"))
    parts = hexagon.parts_of(load, unit, which, np.full(n, float(runtime in COPYING)), p)
    states = work.state_vector_bytes / (unit.vector_bytes_s * p["vector"])
    pace = rates.family.pace.get(runtime, 1.0)
    compute, wait = pace * (parts.compute_s + states), parts.waited / unit.bandwidth_bytes_s
    moved = parts.spilled + work.state_bytes
    overhead = pace * hexagon.dispatch(load.kind, load.tokens, _dispatched(rates, p)) * p["reference/vector_bytes_s"] / unit.vector_bytes_s
    return Cost(
        compute_s=compute + wait, dram_bytes=moved + parts.waited, weight_bytes=parts.waited + parts.ahead, overhead_s=overhead,
        ahead_bytes=parts.ahead, free_s=np.maximum(compute, moved / unit.bandwidth_bytes_s),
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
