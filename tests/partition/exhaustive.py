"""Every placement in every topological order, timed by a compiled copy of the segment rule: the optimum of small graphs.

The rule is written down once more here, on arrays, so that it is an oracle: ``test_exhaustive.py`` holds it to
:func:`hetsched.segments.schedule`, and solvers to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit

from hetsched.costs import CostTable
from hetsched.partition.timing import Costs

OBJECTIVES = ("latency", "energy", "edp", "period")


@njit(cache=True, nogil=True)
def _timed(order: Any, alternative: Any, table: Any, version: int, seen: Any, owner: Any, ends: Any, free: Any, busy: Any) -> Any:
    """Latency, energy, period and segments of one plan; ``seen`` holds the version at which a tensor came to a domain."""
    queue, domain, time, energy, ins, outs, preds, producer, transfer, transfer_j, launch, launch_j, sync, sync_j, results, ends_at = table
    host, source_of_inputs = ends_at
    free[:] = 0.0
    busy[:] = 0.0
    q, index, arrival, seconds, joules, last = -1, 0, 0.0, 0.0, 0.0, 0.0
    for op in order:
        a = alternative[op]
        if queue[a] != q:
            if q >= 0:
                free[q] = max(free[q], arrival) + seconds
                ends[index, 0], ends[index, 1] = free[q], q
                last = max(last, free[q])
                busy[q] += seconds
                joules += sync_j[q, queue[a]]
                index += 1
            q = queue[a]
            arrival, seconds = 0.0, launch[q]
            joules += launch_j[q]
        owner[op] = index
        d = domain[a]
        for k in range(preds[0][op], preds[0][op + 1]):
            s = owner[preds[1][k]]
            if s != index:
                arrival = max(arrival, ends[s, 0] + sync[int(ends[s, 1]), q])
        for k in range(ins[0][op], ins[0][op + 1]):
            t = ins[1][k]
            if seen[t, d] != version:
                seen[t, d] = version
                source = source_of_inputs if producer[t] < 0 else domain[alternative[producer[t]]]
                seconds += transfer[t, source, d]
                joules += transfer_j[t, source, d]
        for k in range(outs[0][op], outs[0][op + 1]):
            seen[outs[1][k], d] = version
        seconds += time[a]
        joules += energy[a]
    ends[index, 0], ends[index, 1] = max(free[q], arrival) + seconds, q
    last = max(last, ends[index, 0])
    busy[q] += seconds
    for op in results:
        s = owner[op]
        last = max(last, ends[s, 0] + sync[int(ends[s, 1]), host])
    return last, joules + sync_j[q, host], busy.max(), index + 1


@njit(cache=True, nogil=True)
def _search(orders: Any, start: Any, table: Any, shape: Any, most_segments: int) -> Any:
    """The optima over all placements and the given orders."""
    n = orders.shape[1]
    seen = np.zeros(shape, np.int64)
    owner, ends = np.zeros(n, np.int64), np.zeros((n + 1, 2))
    free, busy = np.zeros(len(table[10])), np.zeros(len(table[10]))
    best = np.full(4, np.inf)
    alternative = start[:-1].copy()
    version = 0
    while True:
        for row in range(orders.shape[0]):
            version += 1
            latency, joules, period, segments = _timed(orders[row], alternative, table, version, seen, owner, ends, free, busy)
            if segments <= most_segments:
                best[0] = min(best[0], latency)
                best[1] = min(best[1], joules)
                best[2] = min(best[2], latency * joules)
                best[3] = min(best[3], period)
        i = n - 1
        while i >= 0 and alternative[i] + 1 == start[i + 1]:
            alternative[i] = start[i]
            i -= 1
        if i < 0:
            return best
        alternative[i] += 1


def orders_of(c: Costs, most: int = 1_000_000) -> np.ndarray[Any, Any] | None:
    """[k, n] every topological order; None if there are more than ``most``."""
    out: list[list[int]] = []
    stack: list[tuple[list[int], frozenset[int]]] = [([], frozenset(range(c.n)))]
    while stack:
        done, left = stack.pop()
        if not left:
            out.append(done)
            if len(out) > most:
                return None
        for v in sorted(left):
            if not any(p in left for p in c.preds[v]):
                stack.append(([*done, v], left - {v}))
    return np.array(out, np.int64)


def plans(c: Costs, orders: np.ndarray[Any, Any]) -> int:
    """How many plans there are."""
    return len(orders) * int(np.prod([float(len(row)) for row in c.alts]))


def optima(table: CostTable, orders: np.ndarray[Any, Any], most_segments: int = 1 << 30) -> dict[str, float]:
    """Objective -> the least that any placement in any of the orders has."""
    c = Costs(table)
    rows = [_csr(r) for r in (c.inputs, c.outputs, c.preds)]
    columns = np.array(c.queue), np.array(c.domain), np.array(c.time), np.array(c.energy)
    moves = np.array(c.transfer), np.array(c.transfer_j)
    queues = np.array(c.launch), np.array(c.launch_j), np.array(c.sync), np.array(c.sync_j)
    arrays = (*columns, *rows, np.array(c.producer), *moves, *queues, np.array(c.results, np.int64), (c.host, c.input_domain))
    found = _search(orders, table.alt_start.astype(np.int64), arrays, (len(c.producer), c.domains), most_segments)
    return dict(zip(OBJECTIVES, found.tolist(), strict=True))


def _csr(rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    start = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(r) for r in rows], out=start[1:])
    return start, np.array([x for r in rows for x in r], np.int64)


#: What a cost table may have or lack; each is switched off by itself and in many combinations.
FEATURES = ("launch", "sync", "conversion", "maintenance", "energy of moves", "several outputs read")


def without(table: CostTable, off: Sequence[str]) -> CostTable:
    """The table with some features switched off."""
    changes: dict[str, Any] = {}
    if "launch" in off:
        changes |= {"launch_s": np.zeros_like(table.launch_s), "launch_energy_j": np.zeros_like(table.launch_energy_j)}
    if "sync" in off:
        changes |= {"sync_s": np.zeros_like(table.sync_s), "sync_energy_j": np.zeros_like(table.sync_energy_j)}
    if "conversion" in off:
        changes["conversion_s"] = np.zeros_like(table.conversion_s)
    if "maintenance" in off:
        changes["maintenance_s"] = np.zeros_like(table.maintenance_s)
    if "energy of moves" in off:
        changes["transfer_energy_j"] = np.zeros_like(table.transfer_energy_j)
    if "several outputs read" in off:
        changes["graph_outputs"] = table.graph_outputs[-1:]
    return replace(table, **changes)
