"""How pieces of work that run side by side get on: stages at constant rates, bandwidth shared anew at every change.

Plain arithmetic on flat sequences: lists where little is simulated, arrays where :mod:`hetsched_simulations.fluid_core` compiles it.
A queue works through rows of a table, each ``fixed, compute, traffic`` seconds alone, the bytes a second that it then asks for, and
the share of them that the system cache serves.
Row 0 is nothing. After its fixed part a row computes and moves data side by side, both at the queue's rate; data may get a smaller share.

Shares are max-min fair by progressive filling (Bertsekas and Gallager, *Data Networks*, section 6.5.2): nobody can get more without
someone who has less getting less still. A flow takes of the system cache all that it moves, of its processor's way to the DRAM and
of the DRAM what the cache does not serve.
"""

from __future__ import annotations

from math import inf
from typing import Any

TOLERANCE = 1e-12


def share(n: int, demand: Any, miss: Any, scratch: Any, group: Any, caps: Any, total: float, cache: float) -> None:
    """Write the rates of ``n`` flows, bytes/s, to the start of ``scratch``, by progressive filling.

    Args:
        n: how many flows; a demand of 0 is none.
        demand: most that each flow can use, bytes/s; where no limit binds it gets exactly that.
        miss: share of each flow that comes from the DRAM.
        scratch: [2 n + 2 groups] room.
        group: the group (processor) of each flow.
        caps: most that each group gets from the DRAM, bytes/s.
        total: most that all get from it, bytes/s.
        cache: most that goes through the system cache, bytes/s.
    """
    groups, rising, left = len(caps), n, 0
    room = 2 * n
    for i in range(n):
        scratch[i] = 0.0
        scratch[rising + i] = 1.0 if demand[i] > 0.0 else 0.0
        left += 1 if demand[i] > 0.0 else 0
    while left > 0:
        dram, through, missing = total, cache, 0.0
        for g in range(groups):
            scratch[room + g], scratch[room + groups + g] = caps[g], 0.0
        for i in range(n):
            has, more = scratch[i] * miss[i], scratch[rising + i] * miss[i]
            dram, through, missing = dram - has, through - scratch[i], missing + more
            scratch[room + group[i]] -= has
            scratch[room + groups + group[i]] += more
        through /= left
        dram = dram / missing if missing > 0.0 else through
        rise = through
        for i in range(n):
            if scratch[rising + i] > 0.0:
                rise = min(rise, demand[i] - scratch[i])
                if miss[i] > 0.0:
                    rise = min(rise, dram, scratch[room + group[i]] / scratch[room + groups + group[i]])
        rise = max(rise, 0.0)
        for i in range(n):
            if scratch[rising + i] > 0.0:
                tightest = through
                if miss[i] > 0.0:
                    tightest = min(scratch[room + group[i]] / scratch[room + groups + group[i]], dram, through)
                short = demand[i] - scratch[i] - rise
                scratch[i] = demand[i] if short <= TOLERANCE * demand[i] else scratch[i] + rise
                if scratch[i] >= demand[i] or tightest - rise <= TOLERANCE * total:
                    scratch[rising + i] = 0.0
                    left -= 1


def fits(n: int, demand: Any, group: Any, caps: Any, total: float) -> bool:
    """Whether ``n`` flows, each alone in its group, get all that they ask for."""
    left = total
    for i in range(n):
        left -= demand[i]
        if demand[i] > caps[group[i]]:
            return False
    return bool(left >= 0.0)


def compete(n: int, shared: bool, demand: Any, miss: Any, first: int, log_row: Any, table: Any, rate: Any, alone: Any) -> None:
    """Write what share of its bytes each queue's row gets from the DRAM, and lower demands to what its way there lets through.

    A flow has the share ``f`` of the cache's capacity that it has of all traffic. Of ``b`` bytes in a cache of ``c`` the share
    ``1 / (1 + (b / c)^4)`` is served (``hetsched_cost_models.what_if``), so that the odds of a hit fall by ``f^4``.

    Args:
        n: how many queues.
        shared: whether they compete.
        demand: [n + 1] what queues, and what is not simulated, ask for, bytes/s.
        miss: [n] is written.
        first: where ``log_row`` has the queues' rows.
        log_row: rows.
        table: of the rows.
        rate: [n] of the queues, relative to the table's.
        alone: [n] what each queue reaches alone from the DRAM at a rate of 1, bytes/s.
    """
    everything = 0.0
    for i in range(n + 1):
        everything += demand[i]
    for q in range(n):
        miss[q] = 1.0
        if demand[q] > 0.0:
            hit, odds = table[5 * log_row[first + q] + 4], 1.0
            if shared:
                odds = (demand[q] / everything) * (demand[q] / everything)
                odds *= odds
            miss[q] = (1.0 - hit) / (hit * odds + (1.0 - hit))
            if shared and demand[q] * miss[q] > alone[q] * rate[q]:
                demand[q] = alone[q] * rate[q] / miss[q]


def begin(q: int, row: int, n: int, now: float, state: Any, table: Any, ends: Any) -> int:
    """Put a queue at the start of a row or, past rows that take no time, of a later one; 1 if that was its last, 0 if not."""
    left = 2 * n + 3 * q
    while True:
        state[q] = row
        for stage in range(3):
            state[left + stage] = table[5 * row + stage]
        if state[left] > 0.0 or state[left + 1] > 0.0 or state[left + 2] > 0.0:
            return 0
        ends[row] = now
        if row >= state[n + q]:
            state[q] = -1.0
            return 1
        row += 1


def begin_all(n: int, now: float, starts: Any, then: Any, state: Any, table: Any, ends: Any) -> int:
    """Start the rows of a change and write the state that they make; how many queues that finishes. Arguments are as of :func:`run`."""
    finished = 0
    for q in range(n):
        if starts[q] > 0:
            state[n + q] = starts[n + q]
            finished += begin(q, starts[q], n, now, state, table, ends)
            starts[q] = 0
    for i in range(5 * n):
        then[i] = state[i]
    return finished


def served(n: int, demand: Any, miss: Any, table: Any, log: Any, factors: int, log_row: Any, rows: int) -> float:
    """What the system cache serves of what queues get, bytes/s; ``factors`` and ``rows`` are where the logs have the interval."""
    total = 0.0
    for q in range(n):
        if demand[q] > 0.0:
            total += table[5 * log_row[rows + q] + 3] * log[factors + q] * (1.0 - miss[q])
    return total


def until_next(n: int, most: float, state: Any, rate: Any, log: Any, factors: int) -> float:
    """Seconds until a stage of some queue ends, ``most`` at most; ``factors`` is where the log has the shares of the interval."""
    for q in range(n):
        left = 2 * n + 3 * q
        if state[q] > 0.0:
            if state[left] > 0.0:
                most = min(most, state[left])
            else:
                if state[left + 1] > 0.0:
                    most = min(most, state[left + 1] / rate[q])
                if state[left + 2] > 0.0:
                    most = min(most, state[left + 2] / log[factors + q])
    return most


def run(
    since: float, change: float, until: float, was: Any, then: Any, state: Any, starts: Any, k: int, most: int, rate: Any, table: Any,
    group: Any, caps: Any, limit: Any, alone: Any, cache: float, other: float, demand: Any, miss: Any, scratch: Any,
    log: Any, log_row: Any, ends: Any,
) -> tuple[float, int, int]:  # fmt: skip
    """Go on to a change, and from there until a queue has finished its last row, until a time, or for so many intervals.

    A *state* is, per queue, the row that it works on (0: none; negative: it has finished its last), then per queue the last of its rows,
    then per queue the seconds alone that are left of its row's three stages: [5 q] numbers.

    Args:
        since: time, seconds.
        change: when rows start.
        until: go no further.
        was: the state at ``since``.
        then: is written: the state at the change, with what starts there.
        state: is written: the state at the end.
        starts: [2 q] first and last of the rows that each queue starts at the change; 0: none, as it is afterwards.
        k: intervals that are in the log.
        most: as many may follow after the change.
        rate: [q] speed of computation and most of the demand, relative to the table's.
        table: [5 rows] fixed, compute, traffic, demand, hits.
        group: [q + 1] processor of each queue, and one more for ``other``.
        caps: [p + 1] most that each processor gets alone, bytes/s.
        limit: [2 ** p] most that the processors of a bit mask get together, bytes/s; empty: everyone gets the demand.
        alone: [q] most that each queue gets alone, bytes/s.
        cache: most that goes through the system cache, bytes/s; infinite: it serves nothing.
        other: demand of what is not simulated, bytes/s.
        demand: [q + 1] room.
        miss: [q + 1] room; ones.
        scratch: room for :func:`share`: what flows get, which rise ([q + 1] each), and [2 (p + 1)].
        log: [k (q + 2)] is written: when each interval of constant rates ends, the share of its demand that each queue gets in it (0 where
            it moves nothing), and what the system cache serves, bytes/s.
        log_row: [k q] is written: the row of each queue in it.
        ends: [rows] is written: when each row ended.

    Returns:
        The time, and how many intervals are in the log, at the change and in all.
    """
    n, now, finished, waiting, stop, at_change = len(rate), since, 0, True, change, k
    for i in range(5 * n):
        state[i] = was[i]
        finished += 1 if i < n and was[i] < 0.0 else 0
    while True:
        if waiting and now >= change:
            finished += begin_all(n, now, starts, then, state, table, ends)
            waiting, stop, at_change = False, until, k
        if not waiting and (finished > 0 or now >= stop or k >= at_change + most):
            break
        rows, factors, flows, mask, crowded = k * n, k * (n + 2) + 1, 0, 0, False
        for q in range(n):
            row, left = max(int(state[q]), 0), 2 * n + 3 * q
            log_row[rows + q] = row
            log[factors + q] = rate[q]
            demand[q] = 0.0
            if row > 0 and state[left] <= 0.0 and state[left + 2] > 0.0 and table[5 * row + 3] > 0.0:
                demand[q] = table[5 * row + 3] * rate[q]
                flows += 1
                crowded = crowded or (mask >> group[q]) & 1 > 0
                mask |= 1 << group[q]
        shared, log[factors + n], demand[n] = len(limit) > 0 and flows > 0 and (flows > 1 or other > 0.0), 0.0, other
        if cache < inf and flows > 0:
            compete(n, shared, demand, miss, rows, log_row, table, rate, alone)
        if shared and (cache < inf or crowded or not fits(n + 1, demand, group, caps, limit[mask])):
            share(n + 1, demand, miss, scratch, group, caps, limit[mask], cache)
            for q in range(n):
                if demand[q] > 0.0:
                    log[factors + q] = scratch[q] / table[5 * log_row[rows + q] + 3]
        if cache < inf:
            log[factors + n] = served(n, demand, miss, table, log, factors, log_row, rows)
        dt = until_next(n, stop - now, state, rate, log, factors)
        now = min(now + dt, stop)
        log[factors - 1] = now
        k += 1
        for q in range(n):
            left, factor = 2 * n + 3 * q, log[factors + q]
            if state[q] <= 0.0 or state[left] > 0.0 or state[left + 2] <= 0.0:
                log[factors + q] = 0.0
            if state[q] > 0.0:
                if state[left] > 0.0:
                    state[left] = state[left] - dt if state[left] > dt else 0.0
                else:
                    if state[left + 1] > 0.0:
                        state[left + 1] = state[left + 1] - dt * rate[q] if state[left + 1] / rate[q] > dt else 0.0
                    if state[left + 2] > 0.0:
                        state[left + 2] = state[left + 2] - dt * factor if state[left + 2] / factor > dt else 0.0
                if state[left] <= 0.0 and state[left + 1] <= 0.0 and state[left + 2] <= 0.0:
                    row = int(state[q])
                    ends[row] = now
                    if row >= state[n + q]:
                        state[q] = -1.0
                        finished += 1
                    else:
                        finished += begin(q, row + 1, n, now, state, table, ends)
    return now, at_change, k
