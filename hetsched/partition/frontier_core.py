"""The frontier DP of :mod:`hetsched.partition.frontier`, compiled: for graphs so large that compiling pays.

Importing this imports numba. The machine code is cached beside this file (or where ``NUMBA_CACHE_DIR`` says), so that only the
first process on a machine compiles. States are rows of an array, one column per live tensor; codes, order of states, ties
and pruning are those of the Python version, so the answers are the same.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from hetsched.partition.timing import Costs


class Packed(NamedTuple):
    """Costs as arrays: rows of tensors per op, alternatives, and what is added up."""

    read_start: Any
    reads: Any
    write_start: Any
    writes: Any
    alt_start: Any
    queue: Any
    domain: Any
    own: Any  # [m] of each alternative
    transfer: Any  # [t, d, d]
    wanted: Any  # [t, d] whether any reader could want the tensor there
    first: Any  # [q] of opening the first segment
    switch: Any  # [q, q] of opening another
    last: Any  # [q] of the end
    imitate: Any  # [q, q]
    given: int  # code of a graph input


def packed(c: Costs, add: Any) -> Packed:
    """The arrays of costs and of what is added up (an :class:`hetsched.partition.frontier.Additive`)."""
    wanted = np.zeros((len(c.producer), c.domains), np.bool_)
    for op, row in enumerate(c.inputs):
        for a in c.alts[op]:
            wanted[row, c.domain[a]] = True
    return Packed(
        *_rows(c.inputs), *_rows(c.outputs), np.array([0, *(r.stop for r in c.alts)]), np.array(c.queue), np.array(c.domain),
        np.array(add.op), np.array(add.transfer).reshape(-1, c.domains, c.domains), wanted, np.array(add.first), np.array(add.switch),
        np.array(add.last), np.array(add.imitate), c.input_domain << c.domains,
    )  # fmt: skip


def _rows(rows: list[list[int]]) -> tuple[Any, Any]:
    return np.cumsum([0, *map(len, rows)]), np.fromiter(chain.from_iterable(rows), np.int64)


@njit(cache=True, nogil=True)
def _width(p: Packed, order: Any, uses: Any) -> int:
    """Most tensors that are live at a time, the read and the written ones of an op together."""
    left, live, most = uses.copy(), 0, 0
    held = np.zeros(len(uses), np.bool_)
    for op in order:
        for k in range(p.read_start[op], p.read_start[op + 1]):
            live += not held[p.reads[k]]
            held[p.reads[k]] = True
        for k in range(p.write_start[op], p.write_start[op + 1]):
            if uses[p.writes[k]] > 0:
                live += 1
                held[p.writes[k]] = True
        most = max(most, live)
        for k in range(p.read_start[op], p.read_start[op + 1]):
            left[p.reads[k]] -= 1
            live -= left[p.reads[k]] == 0
    return most


@njit(cache=True, nogil=True)
def _penalty(p: Packed, tensor: int, mine: int, theirs: int) -> float:
    """Most that holding a tensor as ``mine`` can cost more than holding it as ``theirs``."""
    domains, total = p.wanted.shape[1], 0.0
    for d in range(domains):
        if p.wanted[tensor, d]:
            own = 0.0 if mine >> d & 1 else p.transfer[tensor, mine >> domains, d]
            other = 0.0 if theirs >> d & 1 else p.transfer[tensor, theirs >> domains, d]
            total += max(0.0, own - other)
    return total


@njit(cache=True, nogil=True)
def _pruned(p: Packed, ranked: Any, cost: Any, queue: Any, codes: Any, live: Any, tensor: Any, compared: int) -> Any:
    """Of the states by cost, those that no cheaper one can imitate at no more cost."""
    kept = np.empty(len(ranked), np.int64)
    count = 0
    for s in ranked:
        beaten = False
        for j in kept[: min(count, compared)]:
            total = cost[j] + p.imitate[queue[j], queue[s]]
            for x in live:
                if total > cost[s]:
                    break
                if codes[j, x] != codes[s, x]:
                    total += _penalty(p, tensor[x], codes[j, x], codes[s, x])
            if total <= cost[s]:
                beaten = True
                break
        if not beaten:
            kept[count] = s
            count += 1
    return kept[:count]


@njit(cache=True, nogil=True)
def _place(table: Any, hashed: int, count: int, queue: Any, codes: Any, live: Any) -> int:
    """The state equal to number ``count`` in a hash table, which is entered there if there is none."""
    at = hashed & len(table) - 1
    while table[at] >= 0:
        s = table[at]
        same = queue[s] == queue[count]
        for x in live:
            if not same:
                break
            same = codes[s, x] == codes[count, x]
        if same:
            return int(s)
        at = at + 1 & len(table) - 1
    table[at] = count
    return count


@njit(cache=True, nogil=True)
def optimum(
    p: Packed, order: Any, cap: int, narrow: int, compared: int, columns: int, allowed: float
) -> tuple[float, Any, bool, int, float]:
    """The cheapest placement for an order.

    Args:
        p: the costs.
        order: [n] a topological order.
        cap: most states kept after an op.
        narrow: the cap once the work done exceeds ``allowed``.
        compared: cheaper states that each state is compared with.
        columns: work is counted in states times alternatives of the next op; so many live tensors are once as much again.
        allowed: see ``narrow``.

    Returns:
        Cost, alternative per op [n], whether it is exact, most states kept, the work done.
    """
    n, tensors = len(order), len(p.wanted)
    shift = p.wanted.shape[1]
    uses = np.zeros(tensors, np.int64)
    for t in p.reads:
        uses[t] += 1
    width = _width(p, order, uses)
    ways = 1
    for op in range(n):
        ways = max(ways, p.alt_start[op + 1] - p.alt_start[op])
    most = cap * ways
    slot, tensor, free = np.full(tensors, -1), np.full(width, -1), np.arange(width)
    spare, size = width, 4
    while size < 2 * most:
        size *= 2
    table = np.full(size, -1)
    codes, fresh = np.zeros((cap, width), np.int64), np.zeros((most, width), np.int64)
    cost, queue = np.zeros(cap), np.full(cap, -1)
    new_cost, new_queue, new_parent, new_way = np.empty(most), np.empty(most, np.int64), np.empty(most, np.int32), np.empty(most, np.int32)
    parent, way = np.empty((n, cap), np.int32), np.empty((n, cap), np.int32)
    count, exact, widest, tried = 1, True, 1, 0.0
    for k in range(n):
        op = order[k]
        for e in range(p.read_start[op], p.read_start[op + 1]):
            t = p.reads[e]
            if slot[t] < 0:
                spare -= 1
                slot[t], tensor[free[spare]] = free[spare], t
                codes[:count, slot[t]] = p.given
            uses[t] -= 1
        for e in range(p.write_start[op], p.write_start[op + 1]):
            t = p.writes[e]
            if uses[t] > 0:
                spare -= 1
                slot[t], tensor[free[spare]] = free[spare], t
        live = np.array([x for x in range(width) if tensor[x] >= 0 and uses[tensor[x]] > 0])
        tried += count * (p.alt_start[op + 1] - p.alt_start[op]) * (1 + len(live) / columns)
        table[:] = -1
        found = 0
        for s in range(count):
            for a in range(p.alt_start[op], p.alt_start[op + 1]):
                q, d = p.queue[a], p.domain[a]
                total = cost[s] + p.own[a] + (p.first[q] if queue[s] < 0 else p.switch[queue[s], q])
                fresh[found] = codes[s]
                for e in range(p.read_start[op], p.read_start[op + 1]):
                    t = p.reads[e]
                    code = fresh[found, slot[t]]
                    if not code >> d & 1:
                        total += p.transfer[t, code >> shift, d]
                        fresh[found, slot[t]] = code | 1 << d
                for e in range(p.write_start[op], p.write_start[op + 1]):
                    if uses[p.writes[e]] > 0:
                        fresh[found, slot[p.writes[e]]] = d << shift | 1 << d
                new_queue[found] = q
                hashed = q
                for x in live:
                    hashed = (hashed ^ fresh[found, x]) * 1099511628211
                    hashed ^= hashed >> 29
                same = _place(table, hashed, found, new_queue, fresh, live)
                if same == found or total < new_cost[same]:
                    new_cost[same], new_parent[same], new_way[same] = total, s, a
                found += same == found
        for e in range(p.read_start[op], p.read_start[op + 1]):
            x = slot[p.reads[e]]
            if x >= 0 and uses[p.reads[e]] == 0:
                slot[p.reads[e]], tensor[x], free[spare] = -1, -1, x
                spare += 1
        ranked = np.argsort(new_cost[:found], kind="mergesort")
        kept = _pruned(p, ranked, new_cost, new_queue, fresh, live, tensor, compared)
        widest = max(widest, len(kept))
        limit = narrow if tried > allowed and narrow < cap else cap
        if len(kept) > limit:
            kept, exact = kept[:limit], False
        count = len(kept)
        for s in range(count):
            j = kept[s]
            codes[s], cost[s], queue[s], parent[k, s], way[k, s] = fresh[j], new_cost[j], new_queue[j], new_parent[j], new_way[j]
    best = 0
    for s in range(count):
        if cost[s] + p.last[queue[s]] < cost[best] + p.last[queue[best]]:
            best = s
    least = cost[best] + p.last[queue[best]]
    alternative = np.full(n, -1)
    for k in range(n - 1, -1, -1):
        alternative[order[k]] = way[k, best]
        best = parent[k, best]
    return least, alternative, exact, widest, tried
