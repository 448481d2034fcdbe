"""The least additive cost of one block in any order: best-first search over phases.

What ops and transfers add up to depends on the placement only, so the order decides nothing but how often the queue
changes. An order is a sequence of *phases*, each on one queue, and two rules lose nothing: inside a phase ops run by
index, and a phase leaves no op behind that is ready and will be placed on its queue. So a search state is the set of ops done,
the open queue, the queues that each ready op has been left behind on, and where tensors are held; most states are
too dear at once, because an op that is left behind must go elsewhere.

States are taken by cost so far plus a least cost to go: every op at its cheapest, plus what the switches and transfers along
one path of the block (its *spine*) add at least; or, if all the rest stays on the open queue, that sum. The search may stop
at any time: the least of these is a bound.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import Any, TypeAlias

from hetsched.partition.blocks import Block
from hetsched.partition.diffusion import Edge, diffused
from hetsched.partition.frontier import Additive
from hetsched.partition.relaxed import Matrix
from hetsched.partition.spine import Spine
from hetsched.partition.timing import Costs

INFINITE = float("inf")
PER_STATE = 3e-5
"""Units per state that is expanded."""

#: Ops done, next op of the phase (or their number), open queue, per queue the ops left behind there, codes of held tensors.
Key: TypeAlias = tuple[int, int, int, tuple[int, ...], int]
#: What follows from the key: ops ready, least cost to go op by op, per queue the rest's cost and how many cannot run there, spine.
Rest: TypeAlias = tuple[int, float, tuple[float, ...], tuple[int, ...], int]


@dataclass(frozen=True)
class Found:
    """A least cost; whether it is the optimum; the ops in order with the position of their alternative; states expanded."""

    cost: float
    exact: bool
    placed: tuple[tuple[int, int], ...] = ()
    states: int = 0


class PhaseSearch:
    """One block: the ops between two cuts, the exit's own cost included. Ops are counted by their position in the block."""

    def __init__(
        self,
        c: Costs,
        add: Additive,
        switch: Sequence[Sequence[float]],
        block: Block,
        preds: Mapping[int, Sequence[int]],
        tensors: Collection[int],
    ) -> None:
        """Pack the block.

        Args:
            c: the costs.
            add: what is added up.
            switch: [p][q] least cost of opening a segment on q after one on p, a detour included.
            block: the ops.
            preds: predecessors of every op.
            tensors: the tensors whose transfers are paid in this block.
        """
        self.c, self.add, self.switch, self.block = c, add, switch, block
        self.queues = range(c.queues)
        n = self.n = len(block.inner)
        place = {v: i for i, v in enumerate(block.inner)}
        self.preds = [sum(1 << place[u] for u in preds[v] if u in place) for v in block.inner]
        self.succs = [[i for i in range(k + 1, n) if self.preds[i] >> k & 1] for k in range(n)]
        self.ways = [
            [[(k, c.domain[a], add.op[a]) for k, a in enumerate(c.alts[v]) if c.queue[a] == q] for q in self.queues] for v in block.inner
        ]
        self._tensors(tensors, place)
        edges = self._diffuse()
        self.least = [[min((cost for _, _, cost in way), default=INFINITE) for way in row] for row in self.ways]
        self.lowest = [min(row) for row in self.least]
        self.able = [sum(1 << i for i in range(n) if self.ways[i][q]) for q in self.queues]
        self.stay = [list(row) for row in self.least]
        """Per op and queue its least cost if it and all after it are on that queue."""
        for e in edges:
            left = e.left()
            for q in self.queues:
                self.stay[e.ends[0]][q] += self._within(e, left, q)

    def _tensors(self, tensors: Collection[int], place: Mapping[int, int]) -> None:
        """Slots of the charged tensors in a state's code: their source domain plus one, above the domains they are in."""
        c, block = self.c, self.block
        self.width = c.domains + (c.domains + 1).bit_length()
        reading = [*block.inner, *([block.exit] if block.exit >= 0 else [])]
        slots = self.slots = {t: k * self.width for k, t in enumerate(sorted({t for v in reading for t in c.inputs[v]} & set(tensors)))}
        self.reads = [[(slots[t], self.add.transfer[t]) for t in c.inputs[v] if t in slots] for v in reading]
        self.writes = [[slots[t] for t in c.outputs[v] if t in slots] for v in block.inner]
        self.readers = dict.fromkeys(slots.values(), 0)
        for i, row in enumerate(self.reads):
            for slot, _ in row:
                self.readers[slot] |= 1 << i
        self.entering = [(slot, c.producer[t] < 0) for t, slot in slots.items() if c.producer[t] not in place]

    def _diffuse(self) -> list[Edge]:
        """Move the costs of tensors with one reader into their ends; such a tensor (``paid``) then costs something in every domain."""
        c, domains, makers = self.c, range(self.c.domains), {slot: i for i, row in enumerate(self.writes) for slot in row}
        shared = {slot for t, slot in self.slots.items() if c.producer[t] < 0 or sum(t in c.inputs[v] for v in c.succs[c.producer[t]]) > 1}
        edges: dict[int, Edge] = {}
        for j, row in enumerate(self.reads[: self.n]):
            for slot, matrix in row:
                if slot in makers and slot not in shared:
                    edges[slot] = Edge((makers[slot], j), [[0.0 if d == e else matrix[d][e] for e in domains] for d in domains])
        self.paid = set(edges)
        if not edges:
            return []
        cost = [[min((x for way in row for _, e, x in way if e == d), default=INFINITE) for d in domains] for row in self.ways]
        more = diffused(cost, list(edges.values()))
        self.ways = [[[(k, d, x + more[i][d]) for k, d, x in way] for way in row] for i, row in enumerate(self.ways)]
        self.reads = [[(slot, edges[slot].left() if slot in edges else matrix) for slot, matrix in row] for row in self.reads]
        return list(edges.values())

    def _within(self, e: Edge, left: Matrix, queue: int) -> float:
        """The least that is left of an edge whose ends are both on a queue; 0 where one cannot be."""
        makers, readers = ({d for _, d, _ in self.ways[i][queue]} for i in e.ends)
        return min((left[d][f] for d in makers for f in readers), default=0.0)

    @cached_property
    def key(self) -> Any:
        """Equal for blocks that cost the same in every way (besides entry and exit)."""
        reads = [[(slot, tuple(map(tuple, matrix))) for slot, matrix in row] for row in self.reads]
        return repr((self.preds, self.ways, reads, self.writes, self.entering, sorted(self.paid)))

    def search(self, a: int, b: int, limit: float = INFINITE, states: int = 0) -> Found:
        """The least cost between an alternative of the entry and one of the exit.

        Args:
            a: the entry's alternative, -1 at the start of the inference.
            b: the exit's alternative, -1 at its end.
            limit: the search may stop at this cost.
            states: how many may be expanded; with none the answer is the least cost of the first.
        """
        return _Run(self, a, b).best(limit, states)


class _Run:
    """A search between two alternatives."""

    def __init__(self, block: PhaseSearch, a: int, b: int) -> None:
        self.s, self.b = block, b
        c, add, switch, q = block.c, block.add, block.switch, block.queues
        self.first = add.first if a < 0 else switch[c.queue[a]]
        self.leave = [min(switch[r][j] + add.last[j] for j in q) if b < 0 else switch[r][c.queue[b]] for r in q]
        self.own = 0.0 if b < 0 else add.op[b]
        self.away = [min((switch[p][r] + self.leave[r] for r in q if r != p), default=INFINITE) for p in q]
        self.spine = Spine(block, self.leave, -1 if b < 0 else c.domain[b])
        self.open = -1 if a < 0 else c.queue[a]
        held = 0
        for slot, given in block.entering:
            held |= _code(c.input_domain if given else c.domain[a], c.domains) << slot
        ready = sum(1 << i for i in range(block.n) if not block.preds[i])
        alone = tuple(sum(stay[r] for stay, row in zip(block.stay, block.least, strict=True) if row[r] < INFINITE) for r in q)
        unable = tuple(sum(row[r] == INFINITE for row in block.least) for r in q)
        self.start: Key = (0, 0, self.open, (0,) * len(q), held)
        self.rest: Rest = (ready, sum(block.lowest), alone, unable, 0)
        self.trail: list[tuple[int, int, int]] = []
        """Per node its parent and the op that was placed, with the position of its alternative (-1: none was)."""

    def best(self, limit: float, states: int) -> Found:
        """The cheapest way through, or a bound once the limit or the number of states is reached."""
        start = self._settled(self.start, self.rest)
        heap: list[tuple[float, int, float, Key | None, Rest]] = []
        known: dict[Key, float] = {start: 0.0}
        self.trail = [(-1, -1, -1)]
        heappush(heap, (self._to_go(start, self.rest), 0, 0.0, start, self.rest))
        expanded = 0
        while heap:
            least, node, cost, key, rest = heappop(heap)
            if key is None:
                return Found(least, True, self._placed(node), expanded)
            if least >= limit:
                return Found(limit, False, (), expanded)
            if cost > known[key]:
                continue
            if expanded >= states:
                return Found(least, False, (), expanded)
            expanded += 1
            if rest[0] == 0 and key[0] + 1 == 1 << self.s.n:
                self.trail.append((node, -1, -1))
                total = cost + self._finish(key)
                heappush(heap, (total, len(self.trail) - 1, total, None, rest))
                continue
            for more, after, remaining, op, way in self._steps(key, rest):
                if cost + more < known.get(after, INFINITE):
                    known[after] = cost + more
                    self.trail.append((node, op, way))
                    floor = max(least, cost + more + self._to_go(after, remaining))
                    if floor < INFINITE:
                        heappush(heap, (floor, len(self.trail) - 1, cost + more, after, remaining))
        return Found(INFINITE, True, (), expanded)

    def _settled(self, key: Key, rest: Rest) -> Key:
        """The state with its pointer on the next op that the open phase may take; past the last one if there is none."""
        done, p, q, behind, held = key
        fits = rest[0] & self.s.able[q] & ~behind[q] & -1 << p if q >= 0 else 0
        return done, (fits & -fits).bit_length() - 1 if fits else self.s.n, q, behind, held

    def _to_go(self, key: Key, rest: Rest) -> float:
        """A least cost from a state to the end of the block."""
        _, _, q, behind, _ = key
        _, lowest, alone, unable, at = rest
        on_path = self.spine.least(at, q, behind, self.first)
        if q < 0:
            return lowest + on_path + self.own
        stay = alone[q] + self.leave[q] if not unable[q] else INFINITE
        return max(min(stay, lowest + self.away[q]), lowest + on_path) + self.own

    def _steps(self, key: Key, rest: Rest) -> list[tuple[float, Key, Rest, int, int]]:
        """What may come next: another phase, or the pointer's op in this phase or not."""
        s = self.s
        done, p, q, behind, held = key
        if p == s.n:
            out: list[tuple[float, Key, Rest, int, int]] = []
            for r in s.queues:
                if r != q and rest[0] & s.able[r] & ~behind[r]:
                    out.append((self.first[r] if q < 0 else s.switch[q][r], self._settled((done, 0, r, behind, held), rest), rest, -1, -1))
            return out
        out = self._run(key, rest)
        elsewhere = min((s.least[p][r] for r in s.queues if r != q and not behind[r] >> p & 1), default=INFINITE)
        if elsewhere < INFINITE:
            ready, lowest, alone, unable, at = rest
            left = tuple(mask | (1 << p if r == q else 0) for r, mask in enumerate(behind))
            alone = tuple(x - (s.stay[p][q] if r == q else 0.0) for r, x in enumerate(alone))
            unable = tuple(x + (r == q) for r, x in enumerate(unable))
            after = (ready, lowest - self._lowest(p, behind) + elsewhere, alone, unable, at)
            out.append((0.0, self._settled((done, p + 1, q, left, held), after), after, -1, -1))
        return out

    def _lowest(self, op: int, behind: Sequence[int]) -> float:
        s = self.s
        return min(s.least[op][r] for r in s.queues if not behind[r] >> op & 1)

    def _run(self, key: Key, rest: Rest) -> list[tuple[float, Key, Rest, int, int]]:
        """The pointer's op in this phase, in each of its alternatives there."""
        s, d, full = self.s, self.s.c.domains, (1 << self.s.width) - 1
        done, p, q, behind, held = key
        ready, lowest, alone, unable, at = rest
        bit, now = 1 << p, done | 1 << p
        ready &= ~bit
        for w in s.succs[p]:
            if not s.preds[w] & ~now:
                ready |= 1 << w
        gone = [behind[r] & bit or s.least[p][r] == INFINITE for r in s.queues]
        alone = tuple(x if gone[r] else x - s.stay[p][r] for r, x in enumerate(alone))
        unable = tuple(x - 1 if gone[r] else x for r, x in enumerate(unable))
        after = (ready, lowest - self._lowest(p, behind), alone, unable, self.spine.passed(at, p))
        kept = tuple(mask & ~bit for mask in behind)
        out: list[tuple[float, Key, Rest, int, int]] = []
        for way, domain, cost in s.ways[p][q]:
            codes = held
            for slot, transfer in s.reads[p]:
                code = codes >> slot & full
                if not code >> domain & 1:
                    cost += transfer[(code >> d) - 1][domain]
                    codes |= 1 << slot + domain
                if not s.readers[slot] & ~now:
                    codes &= ~(full << slot)
            for slot in s.writes[p]:
                codes |= (domain + 1 << d if slot in s.paid else _code(domain, d)) << slot
            out.append((cost, self._settled((now, p + 1, q, kept, codes), after), after, p, way))
        return out

    def _finish(self, key: Key) -> float:
        """The exit itself: its switch, its transfers, its own cost."""
        s, b = self.s, self.b
        _, _, q, _, held = key
        if b < 0:
            return self.leave[q] if q >= 0 else 0.0
        domain, d = s.c.domain[b], s.c.domains
        cost = self.own + (self.first[s.c.queue[b]] if q < 0 else self.leave[q])
        for slot, transfer in s.reads[-1]:
            code = held >> slot & (1 << s.width) - 1
            if not code >> domain & 1:
                cost += transfer[(code >> d) - 1][domain]
        return cost

    def _placed(self, node: int) -> tuple[tuple[int, int], ...]:
        out: list[tuple[int, int]] = []
        while node >= 0:
            node, op, way = self.trail[node]
            if op >= 0:
                out.append((op, way))
        return tuple(reversed(out))


def _code(domain: int, domains: int) -> int:
    """A tensor that is held in its producer's domain only."""
    return domain + 1 << domains | 1 << domain
