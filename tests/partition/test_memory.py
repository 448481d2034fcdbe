"""Bytes are shared only by tensors that are never needed at once, whatever the timing; fences are enough and none is spare."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hetsched.costs import CostTable, Domain, Queue
from hetsched.graph import Csr, DType, Graph, Op, Role, Tensor
from hetsched.partition.fences import fences_of, happens_before, minimal_waits, needed_waits
from hetsched.partition.lifetimes import Holding, lifetimes_of
from hetsched.partition.liveness import ALIGNMENT, Liveness, ended_before
from hetsched.partition.memory import Layout, place_buffers
from hetsched.partition.offsets import Fit, Packing, orders
from hetsched.partition.orders import by_priority
from hetsched.partition.packing import packed
from hetsched.partition.packing_model import smallest
from hetsched.partition.stretches import Stretch, joined, matched, overwrites, stretches_of
from hetsched.partition.timing import Costs
from hetsched.segments import Segment, schedule, segments_of


def random_plan(table, seed):
    c, r = Costs(table), np.random.default_rng(seed)
    alternative = [int(r.choice(list(row))) for row in c.alts]
    return by_priority(c, r.random(c.n).tolist()), alternative


def plan_of(random_table, graph_of, seed, n) -> tuple[Graph, CostTable, tuple[Segment, ...], list[int]]:
    """A random placement in a random order of a graph in which much may be written over: few sizes, elementwise ops, views."""
    table, r = random_table(seed, n), np.random.default_rng(seed)
    sizes = r.choice([64, 640, 1000], len(table.tensor_names), p=[0.2, 0.6, 0.2]).astype(float)
    table = replace(table, tensor_bytes=np.repeat(sizes[:, None], len(table.domains), axis=1))
    plain = graph_of(table)
    ops = tuple(replace(op, type=str(r.choice(["Add", "Relu", "Reshape", "Softmax", "Conv"]))) for op in plain.ops)
    graph = Graph("random", plain.tensors, ops, plain.inputs, plain.outputs)
    order, alternative = random_plan(table, seed)
    return graph, table, segments_of(table, order, alternative), alternative


class Memory:
    """The arena line by line: which value each line holds."""

    def __init__(self, layout: Layout) -> None:
        self.at = {b.tensor: slice(b.offset // ALIGNMENT, -(-(b.offset + b.nbytes) // ALIGNMENT)) for b in layout.buffers}
        self.lines = np.full(layout.nbytes // ALIGNMENT, -1)

    def write(self, name: str, value: int) -> None:
        self.lines[self.at[name]] = value

    def holds(self, name: str, value: int) -> bool:
        return bool((self.lines[self.at[name]] == value).all())


def alike(graph: Graph, x: str, y: str) -> bool:
    return graph.tensors[x].shape == graph.tensors[y].shape


def broken(graph: Graph, holding: Holding, layout: Layout, waits, seed: int) -> str | None:
    """Run the segments with random durations under the given fences; the first tensor that is not what was written to it.

    An op writes from its start and reads until its end. It may write over what it reads only where it is one of a view's
    or an elementwise op's, or (on a CPU) Softmax's, exactly.
    """
    table, r, memory = holding.table, np.random.default_rng(seed), Memory(layout)
    value = {name: k for k, name in enumerate(table.tensor_names)}
    for op in (op for s in holding.segments if table.queues[s.queue].kind == "cpu" for op in s.ops):
        node = graph.ops[op]
        if node.type == "Reshape" and len(node.outputs) == 1 and alike(graph, node.inputs[0], node.outputs[0]):
            value[node.outputs[0]] = value[node.inputs[0]]
    free: dict[int, float] = {}
    ends: list[float] = []
    events: list[tuple[float, int, int, Segment, int]] = []
    for s in holding.segments:
        t = max([free.get(s.queue, 0.0), *(ends[p] for p, w in waits if w == s.index)])
        for k in range(-1, len(s.ops)):
            end = t + float(r.exponential())
            events += [(t, 1, len(events), s, k), (end, 0, len(events), s, k)]
            t = end
        free[s.queue] = t
        ends.append(t)
    for name in graph.inputs:
        memory.write(name, value[name])
    made = {point: [h for h, p in holding.copies.items() if p == point] for point in holding.copies.values()}
    for _, starts, _, s, k in sorted(events, key=lambda e: e[:3]):
        copies = made.get((s.index, k), [])
        if starts:
            for t, d in copies:
                if not memory.holds(table.tensor_names[t], value[table.tensor_names[t]]):
                    return table.tensor_names[t]
                memory.write(holding.name((t, d)), value[table.tensor_names[t]])
        if k < 0:
            continue
        op, on_cpu = s.ops[k], table.queues[s.queue].kind == "cpu"
        node = graph.ops[op]
        read = {x: holding.name(holding.read(op, table.tensor_names.index(x))) for x in node.inputs}
        over = node.outputs[0] if node.type in ("Add", "Relu") or (on_cpu and node.type == "Softmax") else None
        for x, name in read.items():
            mine = over is not None and memory.at[over] == memory.at[name] and (node.type != "Softmax" or x == node.inputs[0])
            if (starts or not mine) and not memory.holds(name, value[x]):
                return name
        for out in node.outputs:
            memory.write(out, value[out])
    return next((name for name in graph.outputs if not memory.holds(name, value[name])), None)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 18))
def test_what_is_written_is_there_when_it_is_read_whatever_the_timing(random_table, graph_of, seed, n):
    graph, table, segments, alternative = plan_of(random_table, graph_of, seed, n)
    layout = place_buffers(graph, table, segments, alternative)
    assert [b.tensor for b in layout.buffers][: len(table.tensor_names)] == list(table.tensor_names)
    for b in layout.buffers:
        assert b.offset % ALIGNMENT == 0 and b.offset + b.nbytes <= layout.nbytes and 0 <= b.first <= b.last < len(segments)
    assert layout.bound_bytes <= layout.nbytes <= layout.unshared_bytes
    holding = Holding(table, segments, alternative)
    for k in range(4):
        assert broken(graph, holding, layout, minimal_waits(segments), seed + k) is None


def test_memory_is_reused_along_a_chain(random_table):
    table = random_table(4, 20, 1, density=0.0, chain=True)
    order, alternative = list(range(20)), [r[0] for r in Costs(table).alts]
    layout = place_buffers(None, table, segments_of(table, order, alternative), alternative)
    assert layout.nbytes == layout.bound_bytes < 0.5 * layout.unshared_bytes


def two_branches() -> tuple[tuple[Segment, ...], list[Stretch]]:
    """Queue 0 runs a -> b -> c, queue 1 runs d -> e -> f at the same time; the plan lists queue 0's ops first."""
    segments = tuple(Segment(k, k, (3 * k, 3 * k + 1, 3 * k + 2), (), (), 0.0, 0.0, 1.0, 0.0) for k in range(2))
    points = [(k, i) for k in range(2) for i in range(3)]
    return segments, [Stretch((n,), 1000, (k, i), ((k, min(i + 1, 2)),), kept=i == 2) for n, (k, i) in zip("abcdef", points, strict=True)]


def test_a_planner_that_trusts_the_topological_order_would_share_too_much():
    segments, stretches = two_branches()
    one = (Segment(0, 0, tuple(range(6)), (), (), 0.0, 0.0, 2.0, 0.0),)
    listed = [replace(x, written=(0, 3 * s + i), uses=((0, 3 * s + min(i + 1, 2)),)) for x in stretches for s, i in [x.written]]
    naive, ours = packed(Liveness(listed, ended_before(one))), packed(Liveness(stretches, ended_before(segments)))
    assert naive.nbytes == 3 * 1024 < ours.nbytes == ours.bound == 4 * 1024
    assert not {*ours.offsets[:3]} & {*ours.offsets[3:]}


def test_a_fence_lets_the_second_queue_reuse_the_firsts_memory():
    segments, stretches = two_branches()
    waiting = (segments[0], replace(segments[1], feeds_from=(0,)))
    assert (
        packed(Liveness(stretches, ended_before(waiting))).nbytes == 3 * 1024 < packed(Liveness(stretches, ended_before(segments))).nbytes
    )


def least(live: Liveness) -> int:
    """The smallest arena by trying every order: some order of placing each as low as possible is optimal."""
    fit = Fit.of(live)
    return min(fit.first(order).nbytes for order in permutations(range(len(live.sizes))))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 4))
def test_small_arenas_against_brute_force(random_table, graph_of, seed, n):
    graph, table, segments, alternative = plan_of(random_table, graph_of, seed, n)
    holding, after = Holding(table, segments, alternative), ended_before(segments)
    stretches = stretches_of(graph, holding, lifetimes_of(graph, holding))
    assume(len(stretches) <= 6)
    live, pairs = Liveness(stretches, after), overwrites(graph, holding, stretches, after)
    chosen = [c for k in range(len(pairs) + 1) for c in combinations(pairs, k) if list(c) == matched(c)]
    optimum = min(least(Liveness(joined(stretches, c), after)) for c in chosen)
    found = packed(live, pairs)
    assert found.bound <= optimum <= found.nbytes <= 1.05 * optimum
    apart = packed(live)
    cliques = [c for k in range(len(stretches) + 1) for c in combinations(range(len(stretches)), k)]
    heaviest = max(int(live.sizes[list(c)].sum()) for c in cliques if all(live.conflicts[a, b] for a, b in combinations(c, 2)))
    assert live.widest(()) == heaviest >= live.loads.max() and live.widest(pairs) <= optimum
    loose = Packing(tuple(np.cumsum([0, *live.sizes])[:-1].tolist()), int(live.sizes.sum()))
    assert smallest(live, pairs, loose, 0)[0].nbytes == optimum
    assert smallest(live, (), loose, 0) == (smallest(live, (), loose, 0)[0], least(live)) and apart.nbytes >= least(live)


def test_repairs_reach_what_no_single_order_does(random_table, graph_of):
    better = 0
    for seed in range(20):
        graph, table, segments, alternative = plan_of(random_table, graph_of, seed, 16)
        holding = Holding(table, segments, alternative)
        live = Liveness(stretches_of(graph, holding, lifetimes_of(graph, holding)), ended_before(segments))
        fit = Fit.of(live)
        plain = min(fit.best(order).nbytes for order in orders(live))
        repaired = min((p.nbytes for order in orders(live) for p in fit.repairs(order)), default=plain)
        assert live.loads.max() <= min(plain, repaired)
        better += repaired < plain
    assert better >= 2


def one_queue_table(graph: Graph) -> CostTable:
    """Every op has one alternative, on the only queue."""
    n, names = len(graph.ops), tuple(graph.tensors)
    index, none = {name: i for i, name in enumerate(names)}, np.zeros((len(names), 1, 1))
    return CostTable(
        graph.name, "host", (Queue("cpu:0", "cpu", "cpu", (0,)),), (Domain(0, "f32"),), 0, 0, tuple(op.name for op in graph.ops), names,
        np.arange(n + 1, dtype=np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32), ("f32",) * n, *(np.ones(n) for _ in range(6)),
        Csr.from_rows([[index[i] for i in graph.activations(op)] for op in graph.ops]),
        Csr.from_rows([[index[o] for o in op.outputs] for op in graph.ops]), graph.predecessors, graph.successors,
        np.array([graph.producer.get(name, -1) for name in names], np.int32), np.array([index[o] for o in graph.outputs], np.int32),
        np.array([[float(t.nbytes)] for t in graph.tensors.values()]), none, none, none, none, np.zeros(1), np.zeros(1), np.zeros((1, 1)),
        np.zeros((1, 1)), np.full(1, 1e10), ((),) * n,
    )  # fmt: skip


def test_a_chain_of_elementwise_ops_and_views_has_one_place():
    kinds = ("Relu", "Reshape", "Add", "Conv", "Softmax", "Sigmoid")
    names = [f"t{k}" for k in range(len(kinds) + 1)]
    roles = {names[0]: Role.INPUT, names[-1]: Role.OUTPUT}
    tensors = {n: Tensor(n, (160,), DType.F32, roles.get(n, Role.ACTIVATION)) for n in names}
    ops = tuple(Op(f"op{k}", kind, (names[k],), (names[k + 1],)) for k, kind in enumerate(kinds))
    graph = Graph("chain", tensors, ops, tuple(names[:1]), tuple(names[-1:]))
    table = one_queue_table(graph)
    layout = place_buffers(graph, table, segments_of(table, range(6), range(6)), range(6))
    place = [b.offset for b in layout.buffers]
    assert len({*place[:4]}) == len({*place[4:]}) == 1 and place[3] != place[4]
    assert layout.nbytes == layout.bound_bytes == 2 * 640


def test_states_lie_apart_and_are_never_written_over():
    """A state read by an elementwise op that writes its next value: both stay in the pool, with places of their own."""
    shape, f32 = (16,), DType.F32
    roles = {"x": Role.INPUT, "past": Role.STATE, "now": Role.STATE, "y": Role.OUTPUT}
    tensors = {n: Tensor(n, shape, f32, role) for n, role in roles.items()}
    ops = (Op("add", "Add", ("past", "x"), ("now",)), Op("out", "Relu", ("now",), ("y",)))
    graph = Graph("state", tensors, ops, ("x", "past"), ("y", "now"), states={"now": "past"})
    table = one_queue_table(graph)
    layout = place_buffers(graph, table, segments_of(table, range(2), range(2)), range(2))
    at = {b.tensor: b.offset for b in layout.buffers}
    assert layout.pool_bytes == 2 * 64 and {at["past"], at["now"]} == {0, 64}
    assert layout.nbytes == layout.bound_bytes == 3 * 64 and at["x"] == at["y"] == 128 and layout.unshared_bytes == 4 * 64


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 22))
def test_fences_are_enough_and_none_is_spare(random_table, seed, n):
    table = random_table(seed, n)
    segments = segments_of(table, *random_plan(table, seed))
    required, kept = happens_before(segments, needed_waits(segments)), minimal_waits(segments)
    assert happens_before(segments, kept) == required
    for fence in kept:
        assert happens_before(segments, [w for w in kept if w != fence]) != required
    oracle = nx.DiGraph()
    oracle.add_nodes_from(range(len(segments)))
    oracle.add_edges_from(needed_waits(segments))
    for q in range(3):
        own = [s.index for s in segments if s.queue == q]
        oracle.add_edges_from(pairwise(own))
    for s in segments:
        assert {k for k in range(len(segments)) if required[s.index] >> k & 1} == nx.ancestors(oracle, s.index)


def test_a_short_wait_spins_and_a_long_one_blocks(random_table):
    modes = set()
    for seed in range(40):
        table = random_table(seed, 12, crossing_us=40)
        timed = schedule(table, *random_plan(table, seed))
        for f in fences_of(table, timed):
            own = [s.index for s in timed.segments if s.queue == timed.segments[f.wait].queue and s.index < f.wait]
            idle = timed.end_s[own[-1]] if own else 0.0
            assert (timed.end_s[f.signal] + f.sync_s - idle < 50e-6) == (f.mode == "spin")
            modes.add(f.mode)
    assert modes == {"spin", "block"}


@pytest.mark.parametrize("n", [1200])
def test_a_thousand_segments_are_no_trouble(random_table, n):
    table = random_table(1, n, density=0.3)
    order, alternative = random_plan(table, 1)
    segments = segments_of(table, order, alternative)
    assert len(segments) > 600
    layout = place_buffers(None, table, segments, alternative)
    assert layout.bound_bytes <= layout.nbytes < layout.unshared_bytes
