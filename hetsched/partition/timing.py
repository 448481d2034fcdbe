"""The segment rule on plain lists: the same figures as :func:`hetsched.segments.schedule`, fast enough for search.

numpy scalars are slow to touch one by one, so solvers convert a cost table to lists once. A property test holds
:func:`figures` to ``schedule``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hetsched.costs import CostTable
from hetsched.graph import Csr
from hetsched.partition.problem import Problem


class Figures(NamedTuple):
    """Latency with overlapping queues, latency one segment at a time, additive energy, segments, busiest queue, accuracy lost."""

    latency_s: float
    serial_s: float
    energy_j: float
    segments: int
    period_s: float
    loss: float = 0.0


class Costs:
    """A cost table as Python lists (names as in :class:`hetsched.costs.CostTable`)."""

    def __init__(self, table: CostTable) -> None:
        self.n = len(table.op_names)
        self.queues = len(table.queues)
        self.domains = len(table.domains)
        self.host = int(table.host)
        self.input_domain = int(table.input_domain)
        starts: list[int] = table.alt_start.tolist()
        self.alts = [range(starts[i], starts[i + 1]) for i in range(self.n)]
        self.queue: list[int] = table.alt_queue.tolist()
        self.domain: list[int] = table.alt_domain.tolist()
        self.time: list[float] = table.time_s.tolist()
        self.energy: list[float] = table.energy_j.tolist()
        self.loss: list[float] = table.loss.tolist()
        self.inputs, self.outputs = _rows(table.op_inputs), _rows(table.op_outputs)
        self.preds, self.succs = _rows(table.predecessors), _rows(table.successors)
        self.producer: list[int] = table.tensor_producer.tolist()
        self.transfer: list[list[list[float]]] = table.transfer_s.tolist()
        self.transfer_j: list[list[list[float]]] = np.where(table.crosses, table.transfer_energy_j, 0.0).tolist()
        self.copy: list[list[list[float]]] = table.copy_s.tolist()
        """Of the DMA engine; empty without one. ``transfer`` leaves them out: whoever bounds plans by it takes them for free."""
        self.launch: list[float] = table.launch_s.tolist()
        self.launch_j: list[float] = table.launch_energy_j.tolist()
        self.sync: list[list[float]] = table.sync_s.tolist()
        self.sync_j: list[list[float]] = table.sync_energy_j.tolist()
        self.results = sorted({self.producer[t] for t in table.graph_outputs.tolist() if self.producer[t] >= 0})
        """Ops that write a graph output."""

    def source(self, tensor: int, alternative: Sequence[int]) -> int:
        """The domain that a tensor is first held in."""
        producer = self.producer[tensor]
        return self.input_domain if producer < 0 else self.domain[alternative[producer]]


def _rows(csr: Csr) -> list[list[int]]:
    items: list[int] = csr.items.tolist()
    return [items[a:b] for a, b in pairwise(csr.start.tolist())]


def figures(c: Costs, order: Sequence[int], alternative: Sequence[int]) -> Figures:
    """Time a placement by the segment rule; ``order`` must be a valid topological order (it is not checked here)."""
    queue, domain, time, energy, transfer, transfer_j = c.queue, c.domain, c.time, c.energy, c.transfer, c.transfer_j
    inputs, outputs, preds, producer, sync, copy = c.inputs, c.outputs, c.preds, c.producer, c.sync, c.copy
    owner = [-1] * c.n
    ends: list[float] = []
    queues: list[int] = []
    free, busy = [0.0] * c.queues, [0.0] * c.queues
    available: set[int] = set()
    width, q = c.domains, -1
    arrival = seconds = serial = joules = engine = copied = 0.0
    for op in order:
        a = alternative[op]
        if queue[a] != q:
            if q >= 0:
                start = free[q] if free[q] > arrival else arrival
                free[q] = start + seconds
                ends.append(free[q])
                busy[q] += seconds
                serial += seconds + sync[q][queue[a]]
                joules += c.sync_j[q][queue[a]]
            q = queue[a]
            queues.append(q)
            arrival, seconds = 0.0, c.launch[q]
            joules += c.launch_j[q]
        index = len(ends)
        owner[op] = index
        d = domain[a]
        for p in preds[op]:
            s = owner[p]
            if s != index:
                ready = ends[s] + sync[queues[s]][q]
                if ready > arrival:
                    arrival = ready
        for t in inputs[op]:
            if (key := t * width + d) not in available:
                available.add(key)
                p = producer[t]
                source = c.input_domain if p < 0 else domain[alternative[p]]
                seconds += transfer[t][source][d]
                joules += transfer_j[t][source][d]
                if copy and (took := copy[t][source][d]) > 0.0:
                    since, reader = (0.0, c.host) if p < 0 else (ends[owner[p]], queues[owner[p]])
                    engine = (engine if engine > since else since) + took
                    copied += took
                    arrival = max(arrival, engine + sync[reader][q])
        for t in outputs[op]:
            available.add(t * width + d)
        seconds += time[a]
        joules += energy[a]
    if q < 0:
        return Figures(0.0, 0.0, 0.0, 0, 0.0)
    ends.append(max(free[q], arrival) + seconds)
    busy[q] += seconds
    latency = max([ends[owner[p]] + sync[queues[owner[p]]][c.host] for p in c.results] + [max(ends)])
    lost = sum([c.loss[alternative[op]] for op in order]) if c.loss else 0.0
    serial += copied + seconds + sync[q][c.host]
    return Figures(latency, serial, joules + c.sync_j[q][c.host], len(ends), max(*busy, copied), lost)


def measure(objective: str, f: Figures) -> float:
    """The objective of a timed plan (seconds, joules or joule-seconds)."""
    if objective == "energy":
        return f.energy_j
    if objective == "edp":
        return f.energy_j * f.latency_s
    return f.period_s if objective == "period" else f.latency_s


def value(problem: Problem, f: Figures) -> float:
    """The problem's objective; infinite where the plan breaks a limit."""
    return float("inf") if problem.limits and f not in problem.limits else measure(problem.objective, f)
