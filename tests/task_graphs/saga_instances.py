"""Instances and schedules of anrg-saga 2.0.2, the published collection of list schedulers, as our task graphs.

Importing this needs the package: ``pip install anrg-saga==2.0.2``. Its sets of nodes iterate in an order that depends on
``PYTHONHASHSEED``, so a task graph here is numbered by name and saga's answer may differ between runs on ties.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import networkx as nx
import numpy as np
from saga import Network, Schedule, TaskGraph
from saga.schedulers import CpopScheduler, HeftScheduler
from saga.schedulers.data import random as trees
from saga.schedulers.data import riotbench
from task_graphs.checking import faults
from task_graphs.generated import BANDWIDTH, SPEEDS, Drawn

from hetsched.partition.list_scheduling import Placed, Tasks

SCHEDULERS = {"heft": HeftScheduler, "cpop": CpopScheduler}
FAMILIES = ("out_trees", "in_trees", "chains", "etl", "stats", "train", "predict")


def instances(seeds: int) -> Iterator[tuple[str, TaskGraph, Network]]:
    """saga's own trees and chains on random networks and its RIoTBench graphs on fog networks, ``seeds`` of each."""
    for family in FAMILIES:
        for seed in range(seeds):
            random.seed(seed)
            np.random.seed(seed)
            yield f"{family}-{seed}", *_one(family, 2 + seed % 3)


def _one(family: str, size: int) -> tuple[TaskGraph, Network]:
    def weight(*_: object) -> float:
        return random.uniform(0.1, 2.0)

    if family in ("out_trees", "in_trees"):
        make = trees.gen_out_trees if family == "out_trees" else trees.gen_in_trees
        graph = make(1, size, size, weight, weight)[0]
    elif family == "chains":
        graph = trees.gen_parallel_chains(1, size + 1, 3 * size, weight, weight)[0]
    else:
        graph = getattr(riotbench, f"get_{family}_task_graphs")(1)[0]
        return graph, riotbench.get_fog_networks(1, 4 * size, size, size)[0]
    return graph, trees.gen_random_networks(1, size + 2, weight, weight)[0]


def drawn_instance(drawn: Drawn) -> tuple[TaskGraph, Network]:
    """A graph of :mod:`task_graphs.generated` as saga's."""
    work, size = drawn
    names = [f"T{i}" for i in range(len(work))]
    graph = TaskGraph.create(zip(names, work, strict=True), [(names[u], names[v], s) for (u, v), s in size.items()])
    speeds = [(f"N{q}", speed) for q, speed in enumerate(SPEEDS)]
    return graph, Network.create(speeds, [(a, b, BANDWIDTH) for a, _ in speeds for b, _ in speeds if a < b])


def as_tasks(graph: TaskGraph, network: Network) -> tuple[Tasks, list[str], list[str]]:
    """The instance on arrays, and the names of its tasks and nodes by index."""
    names: list[str] = list(nx.lexicographical_topological_sort(graph.graph))
    nodes = sorted(n.name for n in network.nodes)
    work = {t.name: t.cost for t in graph.tasks}
    speed = {n.name: n.speed for n in network.nodes}
    index = {name: i for i, name in enumerate(names)}
    edges = sorted((index[d.source], index[d.target], d.size) for d in graph.dependencies)
    rate = [[1.0 / network.graph.edges[a, b]["weight"] for b in nodes] for a in nodes]
    cost = [[work[name] / speed[node] for node in nodes] for name in names]
    return Tasks.of(cost, [e[:2] for e in edges], [e[2] for e in edges], rate), names, nodes


def as_placed(schedule: Schedule, names: list[str], nodes: list[str]) -> Placed:
    """saga's schedule as ours; a task that it dropped has queue -1."""
    queue, begin, end = np.full(len(names), -1, np.int64), np.zeros(len(names)), np.zeros(len(names))
    index = {name: i for i, name in enumerate(names)}
    for row in dict(schedule.items()).values():
        for task in row:
            i = index[task.name]
            queue[i], begin[i], end[i] = nodes.index(task.node), task.start, task.end
    return Placed(queue, begin, end)


def best_of_saga(graph: TaskGraph, network: Network) -> float:
    """The least makespan of its valid HEFT and CPoP schedules (it has no PEFT); infinite if none is valid."""
    tasks, names, nodes = as_tasks(graph, network)
    found = [as_placed(scheduler().schedule(network, graph), names, nodes) for scheduler in SCHEDULERS.values()]
    return min((p.makespan for p in found if not faults(tasks, p)), default=float("inf"))
