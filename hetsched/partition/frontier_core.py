"""The frontier DP of :mod:`hetsched.partition.frontier`, compiled: for graphs so large that compiling pays.

Importing this imports numba. The machine code is cached beside this file (or where ``NUMBA_CACHE_DIR`` says), so that only the
first process on a machine compiles. States are rows of an array. Live tensors are its columns: those that one op has made and nobody
has read yet share a column (heads that are split off together, say), and a column that is the same in every state is left alone.
Codes, order of states, ties and pruning are those of the Python version, so the answers are the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from hetsched.partition.frontier import TIES
from hetsched.partition.frontier_arrays import Packed


class Columns(NamedTuple):
    """The live tensors by column."""

    column: Any  # [t] of each live tensor, else -1
    first: Any  # [width] a tensor of each column in use, else -1
    twin: Any  # [t] the next tensor of the same column, else -1
    free: Any  # [width] columns not in use,
    spare: Any  # [1] and how many
    unread: Any  # [width] whether nobody has read the column's tensors
    gap: Any  # [width, d, d] most that holding unread tensors in one domain can cost more than in another
    differs: Any  # [width] whether states may differ in the column; if not,
    common: Any  # [width] its code in all of them
    uses: Any  # [t] readers that are still to come
    live: Any  # [1] live tensors


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
def _columns(p: Packed, width: int, uses: Any) -> Columns:
    """No live tensors yet."""
    tensors, domains = p.wanted.shape
    return Columns(
        np.full(tensors, -1), np.full(width, -1), np.full(tensors, -1), np.arange(width), np.full(1, width), np.zeros(width, np.bool_),
        np.zeros((width, domains, domains)), np.zeros(width, np.bool_), np.zeros(width, np.int64), uses, np.zeros(1, np.int64),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _opened(v: Columns, tensor: int) -> int:
    """A column of its own for a tensor."""
    v.spare[0] -= 1
    x = v.free[v.spare[0]]
    v.column[tensor], v.first[x], v.twin[tensor] = x, tensor, -1
    return int(x)


@njit(cache=True, nogil=True)
def _weighed(p: Packed, v: Columns, x: int) -> None:
    """The gaps of an unread column."""
    domains = p.wanted.shape[1]
    for mine in range(domains):
        for theirs in range(domains):
            total, t = 0.0, v.first[x]
            while t >= 0 and mine != theirs:
                total += _penalty(p, t, mine << domains | 1 << mine, theirs << domains | 1 << theirs)
                t = v.twin[t]
            v.gap[x, mine, theirs] = total


@njit(cache=True, nogil=True)
def _read(p: Packed, v: Columns, op: int, codes: Any) -> None:
    """Give every tensor that an op reads a column of its own, with its code in every state of ``codes``."""
    for t in p.reads[p.read_start[op] : p.read_start[op + 1]]:
        x = v.column[t]
        if x < 0:
            x = _opened(v, t)
            v.live[0] += 1
            codes[:, x] = p.given
        elif v.unread[x] and (v.first[x] != t or v.twin[t] >= 0):
            if v.first[x] == t:
                v.first[x] = v.twin[t]
            else:
                u = v.first[x]
                while v.twin[u] != t:
                    u = v.twin[u]
                v.twin[u] = v.twin[t]
            _weighed(p, v, x)
            shared, x = x, _opened(v, t)
            for s in range(len(codes)):
                codes[s, x] = codes[s, shared] if v.differs[shared] else v.common[shared]
        elif not v.differs[x]:
            codes[:, x] = v.common[x]
        v.unread[x], v.differs[x] = False, True
        v.uses[t] -= 1


@njit(cache=True, nogil=True)
def _written(p: Packed, v: Columns, op: int) -> int:
    """The column of the tensors that an op writes and somebody reads; -1 if there are none."""
    x = -1
    for t in p.writes[p.write_start[op] : p.write_start[op + 1]]:
        if v.uses[t] > 0:
            v.live[0] += 1
            if x < 0:
                x = _opened(v, t)
                v.unread[x], v.differs[x] = True, True
            else:
                v.column[t], v.twin[t], v.first[x] = x, v.first[x], t
    if x >= 0:
        _weighed(p, v, x)
    return x


@njit(cache=True, nogil=True)
def _released(p: Packed, v: Columns, op: int) -> None:
    """Free the columns of tensors that nobody else reads."""
    for t in p.reads[p.read_start[op] : p.read_start[op + 1]]:
        x = v.column[t]
        if x >= 0 and v.uses[t] == 0:
            v.column[t], v.first[x], v.free[v.spare[0]] = -1, -1, x
            v.spare[0] += 1


@njit(cache=True, nogil=True)
def _pruned(p: Packed, v: Columns, ranked: Any, cost: Any, queue: Any, codes: Any, live: Any, compared: int) -> Any:
    """Of the states by cost, those that no cheaper one can imitate at no more cost."""
    shift = p.wanted.shape[1]
    kept = np.empty(len(ranked), np.int64)
    count = 0
    for s in ranked:
        beaten, most = False, cost[s] * (1 + TIES)
        for j in kept[: min(count, compared)]:
            total = cost[j] + p.imitate[queue[j], queue[s]]
            for x in live:
                if total > most:
                    break
                mine, theirs = codes[j, x], codes[s, x]
                if mine != theirs:
                    total += v.gap[x, mine >> shift, theirs >> shift] if v.unread[x] else _penalty(p, v.first[x], mine, theirs)
            if total <= most:
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
    n, shift = len(order), p.wanted.shape[1]
    uses = np.zeros(len(p.wanted), np.int64)
    for t in p.reads:
        uses[t] += 1
    width, ways = _width(p, order, uses), 1
    for op in range(n):
        ways = max(ways, p.alt_start[op + 1] - p.alt_start[op])
    most, size = cap * ways, 4
    while size < 2 * most:
        size *= 2
    table, v = np.empty(size, np.int64), _columns(p, width, uses)
    codes, fresh = np.zeros((cap, width), np.int64), np.zeros((most, width), np.int64)
    cost, queue = np.zeros(cap), np.full(cap, -1)
    new_cost, new_queue, new_parent, new_way = np.empty(most), np.empty(most, np.int64), np.empty(most, np.int32), np.empty(most, np.int32)
    parent, way = np.empty((n, cap), np.int32), np.empty((n, cap), np.int32)
    count, exact, widest, tried = 1, True, 1, 0.0
    for k in range(n):
        op = order[k]
        _read(p, v, op, codes[:count])
        made = _written(p, v, op)
        moving = np.flatnonzero((v.first >= 0) & v.differs)
        live = moving[uses[v.first[moving]] > 0]
        for t in np.unique(p.reads[p.read_start[op] : p.read_start[op + 1]]):
            v.live[0] -= uses[t] == 0
        choices = p.alt_start[op + 1] - p.alt_start[op]
        tried += count * choices * (1 + v.live[0] / columns)
        size = 4
        while size < 2 * count * choices:
            size *= 2
        table[:size] = -1
        found = 0
        for s in range(count):
            for a in range(p.alt_start[op], p.alt_start[op + 1]):
                q, d = p.queue[a], p.domain[a]
                total = cost[s] + p.own[a] + (p.first[q] if queue[s] < 0 else p.switch[queue[s], q])
                for x in moving:
                    fresh[found, x] = codes[s, x]
                for e in range(p.read_start[op], p.read_start[op + 1]):
                    t = p.reads[e]
                    code = fresh[found, v.column[t]]
                    if not code >> d & 1:
                        total += p.transfer[t, code >> shift, d]
                        fresh[found, v.column[t]] = code | 1 << d
                if made >= 0:
                    fresh[found, made] = d << shift | 1 << d
                new_queue[found] = q
                hashed = q
                for x in live:
                    hashed = (hashed ^ fresh[found, x]) * 1099511628211
                    hashed ^= hashed >> 29
                same = _place(table[:size], hashed, found, new_queue, fresh, live)
                if same == found or total < new_cost[same]:
                    new_cost[same], new_parent[same], new_way[same] = total, s, a
                found += same == found
        ranked = np.argsort(new_cost[:found], kind="mergesort")
        kept = _pruned(p, v, ranked, new_cost, new_queue, fresh, live, compared)
        _released(p, v, op)
        widest = max(widest, len(kept))
        limit = narrow if tried > allowed and narrow < cap else cap
        if len(kept) > limit:
            kept, exact = kept[:limit], False
        count = len(kept)
        for s in range(count):
            j = kept[s]
            cost[s], queue[s], parent[k, s], way[k, s] = new_cost[j], new_queue[j], new_parent[j], new_way[j]
        for x in live:
            v.common[x], v.differs[x] = fresh[kept[0], x], False
            for s in range(count):
                codes[s, x] = fresh[kept[s], x]
                v.differs[x] |= codes[s, x] != v.common[x]
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
