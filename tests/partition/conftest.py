"""Random cost tables for the partition tests. Times are whole microseconds, so that sums compare exactly enough."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hetsched.costs import CostTable, Domain, Queue, Refusal
from hetsched.graph import Csr, DType, Graph, Op, Role, Tensor
from hetsched.partition.timing import Costs, Figures, figures

sys.path.append(str(Path(__file__).parent))  # for the modules beside the tests

KINDS = ("cpu", "gpu", "npu", "cpu")
US = 1e-6


def make_table(
    seed: int,
    n: int = 6,
    queues: int = 3,
    density: float = 0.45,
    precisions: int = 2,
    crossing_us: int = 100,
    chain: bool = False,
    shared_domains: bool = False,
    support: float = 0.75,
) -> CostTable:
    """A random DAG with random costs. Every queue has ``precisions`` domains; every op runs on queue 0."""
    r = np.random.default_rng(seed)
    names = tuple(f"op{i}" for i in range(n))
    producer, inputs, outputs = [-1], [[] for _ in range(n)], [[] for _ in range(n)]
    for i in range(n):
        chosen = [u for u in range(max(0, i - 4), i) if r.random() < density]
        if chain and i and i - 1 not in chosen:
            chosen.append(i - 1)
        for u in chosen:
            inputs[i].append(int(r.choice(outputs[u])))
        if not chosen or r.random() < 0.1:
            inputs[i].append(0)
        inputs[i] = sorted(set(inputs[i]))
        for _ in range(2 if r.random() < 0.15 else 1):
            outputs[i].append(len(producer))
            producer.append(i)
    preds = [sorted({producer[t] for t in row if producer[t] >= 0}) for row in inputs]
    succs: list[list[int]] = [[] for _ in range(n)]
    for v, row in enumerate(preds):
        for u in row:
            succs[u].append(v)
    results = [t for t, p in enumerate(producer) if p >= 0 and (not succs[p] or r.random() < 0.1)]
    domains = [Domain(q, ("f32", "w8a8", "f16")[k]) for q in range(queues) for k in range(precisions)]
    alt_start, alt_queue, alt_domain, compute, energy, macs = [0], [], [], [], [], []
    for _ in range(n):
        work = r.integers(5, 400)
        for d, domain in enumerate(domains):
            if (domain.queue == 0 and d == 0) or r.random() < support:
                speed = 1 + 2 * domain.queue + (d % precisions)
                alt_queue.append(domain.queue)
                alt_domain.append(int(r.integers(len(domains))) if shared_domains else d)
                compute.append(int(max(1, work * r.uniform(0.5, 1.5) / speed)) * US)
                energy.append(int(r.integers(1, 300)) * US)
                macs.append(float(r.integers(0, 1000)))
        alt_start.append(len(alt_queue))
    t, d, m = len(producer), len(domains), len(alt_queue)
    conversion = r.integers(0, crossing_us // 2 + 1, (t, d, d)) * US * (r.random((t, d, d)) < 0.6)
    maintenance = r.integers(0, crossing_us // 4 + 1, (t, d, d)) * US * (r.random((t, d, d)) < 0.5)
    for k in range(d):
        conversion[:, k, k] = maintenance[:, k, k] = 0
    sync = r.integers(0, crossing_us + 1, (queues, queues)) * US
    sync_j = r.integers(0, 50, (queues, queues)) * US
    np.fill_diagonal(sync, 0)
    np.fill_diagonal(sync_j, 0)
    missing = [[q for q in range(queues) if q not in alt_queue[alt_start[i] : alt_start[i + 1]]] for i in range(n)]
    nbytes = np.repeat(r.integers(1, 3000, (t, 1)).astype(float), d, 1)
    return CostTable(
        model="random", soc="random", queues=tuple(Queue(f"{KINDS[q]}{q}", f"{KINDS[q]}{q}", KINDS[q]) for q in range(queues)),
        domains=tuple(domains), host=0, input_domain=0, op_names=names, tensor_names=tuple(f"t{i}" for i in range(t)),
        alt_start=np.array(alt_start, np.int32), alt_queue=np.array(alt_queue, np.int32), alt_domain=np.array(alt_domain, np.int32),
        alt_precision=tuple(domains[k].dtype for k in alt_domain), compute_s=np.array(compute), overhead_s=np.zeros(m),
        dram_bytes=np.zeros(m), weight_bytes=np.zeros(m), macs=np.array(macs), energy_j=np.array(energy),
        op_inputs=Csr.from_rows(inputs), op_outputs=Csr.from_rows(outputs), predecessors=Csr.from_rows(preds),
        successors=Csr.from_rows(succs), tensor_producer=np.array(producer, np.int32), graph_outputs=np.array(results, np.int32),
        tensor_bytes=nbytes, conversion_s=conversion, maintenance_s=maintenance,
        transfer_energy_j=r.integers(0, 80, (t, d, d)) * US, transfer_bytes=np.zeros((t, d, d)),
        launch_s=r.integers(0, crossing_us + 1, queues) * US, launch_energy_j=r.integers(0, 60, queues) * US,
        sync_s=sync, sync_energy_j=sync_j, bandwidth_bytes_s=np.full(queues, 1e10),
        refusals=tuple(tuple(Refusal(q, "f32", "not in its operator table") for q in row) for row in missing),
    )  # fmt: skip


@pytest.fixture(scope="session")
def random_table() -> Callable[..., CostTable]:
    """``random_table(seed, n=..., ...)`` -> a random cost table."""
    return make_table


def make_graph(table: CostTable) -> Graph:
    """A graph with the table's ops: one-byte elements, no constants, one user node ``n<i>/<type>`` per op."""
    results = {table.tensor_names[t] for t in table.graph_outputs.tolist()}

    def tensor(t: int) -> Tensor:
        name, producer = table.tensor_names[t], int(table.tensor_producer[t])
        role = Role.INPUT if producer < 0 else Role.OUTPUT if name in results else Role.ACTIVATION
        return Tensor(name, (int(table.tensor_bytes[t, 0]),), DType.U8, role)

    names = table.tensor_names
    ops = tuple(
        Op(
            op,
            "Conv",
            tuple(names[t] for t in table.op_inputs.row(i)),
            tuple(names[t] for t in table.op_outputs.row(i)),
            origin=(f"n{i}/Conv",),
        )
        for i, op in enumerate(table.op_names)
    )
    inputs = tuple(names[t] for t, p in enumerate(table.tensor_producer.tolist()) if p < 0)
    outputs = tuple(names[t] for t in table.graph_outputs.tolist())
    return Graph("random", {n: tensor(t) for t, n in enumerate(names)}, ops, inputs, outputs)


@pytest.fixture(scope="session")
def graph_of() -> Callable[[CostTable], Graph]:
    """``graph_of(table)`` -> a graph that the table could have been made for."""
    return make_graph


def brute_force(c: Costs) -> dict[str, float]:
    """The optimum of every objective over all placements and all topological orders, by trying each."""
    best: dict[str, float] = {}
    orders = list(topological_orders(c, [], list(range(c.n))))
    for placement in product(*c.alts):
        for order in orders:
            f = figures(c, order, placement)
            values = {"latency": f.latency_s, "energy": f.energy_j, "edp": f.energy_j * f.latency_s, "period": f.period_s}
            for name, value in values.items():
                best[name] = min(best.get(name, value), value)
    return best


def topological_orders(c: Costs, done: list[int], left: list[int]) -> Iterator[list[int]]:
    """Every topological order that begins with ``done``."""
    if not left:
        yield list(done)
    for v in left:
        if all(p in done for p in c.preds[v]):
            yield from topological_orders(c, [*done, v], [w for w in left if w != v])


@pytest.fixture(scope="session")
def optimum() -> Callable[[Costs], dict[str, float]]:
    """``optimum(costs)`` -> objective -> proven optimum, by brute force."""
    return brute_force


@pytest.fixture(scope="session")
def every_plan() -> Callable[[Costs], list[Figures]]:
    """``every_plan(costs)`` -> the figures of all placements in all topological orders."""

    def timed(c: Costs) -> list[Figures]:
        orders = list(topological_orders(c, [], list(range(c.n))))
        return [figures(c, order, placement) for placement in product(*c.alts) for order in orders]

    return timed


@pytest.fixture(scope="session")
def topological() -> Callable[[Costs], list[list[int]]]:
    """``topological(costs)`` -> every topological order."""
    return lambda c: list(topological_orders(c, [], list(range(c.n))))
