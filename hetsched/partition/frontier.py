"""Dynamic programming over the frontier of a topological order: exact for additive objectives.

Between two ops the future depends on the past only through the *frontier*: where each live tensor is held (the domain
of its producer, and the domains it has been converted to) and the queue of the open segment. Real networks have small
frontiers. States are pruned by *imitation dominance*: a state s is dropped when a cheaper state j could copy every
future decision of s, pay for its worst queue switch and its missing conversions, and still cost no more. That keeps
the optimum; only the width cap may lose it, and then the result says so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from hetsched.partition.timing import Costs

if TYPE_CHECKING:
    from hetsched.partition.frontier_arrays import Packed

#: A state of the frontier: (cost, queue of the open segment, codes of the live tensors, parent state, alternative).
State = tuple[float, int, tuple[int, ...], int, int]
COMPARED = 32
TIES = 1e-13
"""A state as dear as this share more is as cheap: so much may depend on the order in which costs are added up."""
NARROW = 8
COLUMNS = 16
"""So many live tensors are as much work as the rest of a state."""
PER_STATE = 4e-6
"""Units per state and alternative of the next op (measured)."""
PER_STATE_COMPILED = 4e-7
"""The same in the compiled DP."""
COMPILED_OPS = 250
"""Larger graphs are given to the compiled DP; of these,"""
FEW_OPS = 1000
"""up to this many ops only where the frontier"""
WIDE = 16
"""has more states than this, if only few orders are solved: loading the compiler takes as long as hundreds of narrow ones."""
INFINITE = float("inf")


class Additive:
    """Per-op, per-transfer and per-switch costs: ``seconds_weight`` times serial seconds plus ``energy_weight`` times joules."""

    def __init__(self, c: Costs, seconds_weight: float = 1.0, energy_weight: float = 0.0, per_segment: float = 0.0) -> None:
        self.c = c
        w, e, q = seconds_weight, energy_weight, range(c.queues)
        self.op = [w * t + e * j for t, j in zip(c.time, c.energy, strict=True)]
        self.transfer = _mix(c, w, e)
        self.first = [w * c.launch[r] + e * c.launch_j[r] + per_segment for r in q]
        self.switch = [[w * c.sync[p][r] + e * c.sync_j[p][r] + self.first[r] if p != r else 0.0 for r in q] for p in q]
        self.last = [w * c.sync[p][c.host] + e * c.sync_j[p][c.host] for p in q]
        self.imitate = imitation(self.switch, self.last)
        """[j][s] most that an open segment on j can cost more than one on s, whatever comes next."""

    def with_ops(self, op: list[float]) -> Additive:
        """The same with other costs of the alternatives."""
        other = copy(self)
        other.__dict__.pop("packed", None)
        other.op = op
        return other

    @cached_property
    def packed(self) -> Packed:
        """The costs as arrays, for the compiled DP."""
        from hetsched.partition.frontier_arrays import packed

        return packed(self.c, self)


def imitation(switch: Sequence[Sequence[float]], last: Sequence[float]) -> list[list[float]]:
    """[j][s] most that an open segment on j can cost more than one on s: over every queue to switch to, and the end."""
    ends = [[*row, end] for row, end in zip(switch, last, strict=True)]
    return [[max(a - b for a, b in zip(j, s, strict=True)) for s in ends] for j in ends]


def _mix(c: Costs, w: float, e: float) -> list[list[list[float]]]:
    if (w, e) == (1.0, 0.0):
        return c.transfer
    if (w, e) == (0.0, 1.0):
        return c.transfer_j
    mixed: list[list[list[float]]] = (w * np.array(c.transfer) + e * np.array(c.transfer_j)).tolist()
    return mixed


@dataclass(frozen=True)
class FrontierResult:
    """The cheapest placement for an order, its additive cost, whether that is exact, the most states kept, the work done."""

    cost: float
    alternative: tuple[int, ...]
    exact: bool
    width: int
    units: float = 0.0


def frontier_optimum(
    c: Costs, order: Sequence[int], add: Additive, cap: int = 500, units: float = INFINITE, few: bool = False
) -> FrontierResult:
    """The cheapest placement for one topological order.

    Args:
        c: the costs.
        order: a topological order of the ops.
        add: what is added up.
        cap: most states kept after an op; where it bites the result is a beam search and not exact.
        units: of work; when they are spent the cap falls to ``NARROW``.
        few: whether only few orders are solved. The answer does not depend on it, nor on whether the compiler is loaded already.
    """
    if not order:
        return FrontierResult(0.0, (), True, 0)
    large = len(order) > COMPILED_OPS
    if large and (compiler_loaded() or not (few and len(order) <= FEW_OPS)):
        return compiled_optimum(order, add, cap, units)
    per_state = PER_STATE_COMPILED if large else PER_STATE
    frontier = _Frontier(c, add)
    layer: list[State] = [(0.0, -1, (), -1, -1)]
    history: list[list[State]] = []
    exact, width, work, limit = True, 1, 0.0, cap
    for op in order:
        tried = len(layer) * len(c.alts[op])
        layer = frontier.prune(frontier.advance(layer, op))
        work += tried * (1 + len(frontier.live) / COLUMNS)
        width, limit = max(width, len(layer)), min(limit, NARROW) if work > units / per_state else limit
        if large and len(layer) > WIDE:
            return compiled_optimum(order, add, cap, units)
        if len(layer) > limit:
            layer, exact = layer[:limit], False
        history.append(layer)
    best = min(range(len(layer)), key=lambda k: (layer[k][0] + add.last[layer[k][1]], k))
    cost = layer[best][0] + add.last[layer[best][1]]
    alternative = [-1] * c.n
    for op, states in zip(reversed(order), reversed(history), strict=True):
        _, _, _, parent, alt = states[best]
        alternative[op], best = alt, parent
    return FrontierResult(cost, tuple(alternative), exact, width, per_state * work)


def compiler_loaded() -> bool:
    """Whether somebody has paid for the compiler already."""
    return "hetsched.partition.frontier_core" in sys.modules


def compiled_optimum(order: Sequence[int], add: Additive, cap: int, units: float) -> FrontierResult:
    """The same as :func:`frontier_optimum`, compiled: loading the compiler pays for large graphs only."""
    from hetsched.partition.frontier_core import optimum

    cost, alternative, exact, width, tried = optimum(
        add.packed, np.array(order), cap, NARROW, COMPARED, COLUMNS, units / PER_STATE_COMPILED
    )
    return FrontierResult(float(cost), tuple(alternative.tolist()), bool(exact), int(width), PER_STATE_COMPILED * float(tried))


class _Frontier:
    """The live tensors and how states move over an op. A tensor's code is ``producer's domain << d | domains it is in``."""

    def __init__(self, c: Costs, add: Additive) -> None:
        self.c, self.add = c, add
        self.live: list[int] = []
        self.uses = [0] * len(c.producer)
        self.wanted: list[set[int]] = [set() for _ in c.producer]
        for op, row in enumerate(c.inputs):
            for t in row:
                self.uses[t] += 1
                self.wanted[t].update(c.domain[a] for a in c.alts[op])
        self.penalties: list[dict[tuple[int, int], float]] = [{} for _ in c.producer]

    def advance(self, layer: list[State], op: int) -> list[State]:
        """Every state after placing ``op`` in every way; equal states merged."""
        c, add = self.c, self.add
        shift, fresh = c.domains, c.input_domain << c.domains
        arriving = [t for t in c.inputs[op] if t not in self.live]
        before = self.live + arriving
        slots = [(before.index(t), add.transfer[t]) for t in c.inputs[op]]
        for t in c.inputs[op]:
            self.uses[t] -= 1
        keep = [k for k, t in enumerate(before) if self.uses[t] > 0]
        outputs = [t for t in c.outputs[op] if self.uses[t] > 0]
        self.live = [before[k] for k in keep] + outputs
        padding = (fresh,) * len(arriving)
        choices = [(a, c.queue[a], c.domain[a], add.op[a]) for a in c.alts[op]]
        best: dict[tuple[int, tuple[int, ...]], State] = {}
        for k, (cost, queue, held, _, _) in enumerate(layer):
            old = held + padding
            for a, q, d, own in choices:
                total = cost + own + (add.first[q] if queue < 0 else add.switch[queue][q])
                codes = list(old)
                for slot, transfer in slots:
                    code = codes[slot]
                    if not code >> d & 1:
                        total += transfer[code >> shift][d]
                        codes[slot] = code | 1 << d
                made = tuple([codes[j] for j in keep] + [d << shift | 1 << d] * len(outputs))
                known = best.get((q, made))
                if known is None or total < known[0]:
                    best[q, made] = (total, q, made, k, a)
        return list(best.values())

    def prune(self, states: list[State]) -> list[State]:
        """Cheapest first, without those that a cheaper state can imitate at no more cost."""
        states.sort(key=itemgetter(0))
        imitate, live = self.add.imitate, [(self.penalties[t], t) for t in self.live]
        kept: list[State] = []
        for s in states:
            most, queue, held = s[0] * (1 + TIES), s[1], s[2]
            for j in kept[:COMPARED]:
                total = j[0] + imitate[j[1]][queue]
                if total > most:
                    continue
                for (known, t), mine, theirs in zip(live, j[2], held, strict=True):
                    if mine != theirs:
                        penalty = known.get((mine, theirs))
                        total += self._penalty(t, mine, theirs) if penalty is None else penalty
                        if total > most:
                            break
                if total <= most:
                    break
            else:
                kept.append(s)
        return kept

    def _penalty(self, tensor: int, mine: int, theirs: int) -> float:
        """Most that holding a tensor as ``mine`` can cost more than holding it as ``theirs``."""
        shift, transfer = self.c.domains, self.add.transfer[tensor]
        total = 0.0
        for d in sorted(self.wanted[tensor]):
            own = 0.0 if mine >> d & 1 else transfer[mine >> shift][d]
            other = 0.0 if theirs >> d & 1 else transfer[theirs >> shift][d]
            total += max(0.0, own - other)
        self.penalties[tensor][mine, theirs] = total
        return total
