"""What it takes to go from one plan of a model to another: weights the second holds elsewhere, and states that move.

Weights that the first plan does not hold where, or as wide as, the second needs them are packed from the model's file: read
and written once. They may also be kept beside the first plan's, which costs memory and no time. States (KV caches) are always the
newest ones, so those that the second plan keeps on another processor are copied when it takes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.costs import CostTable
from hetsched.graph import Graph, Role
from hetsched.partition.memory import held_weights


@dataclass(frozen=True, eq=False, slots=True)
class Placed:
    """A graph, its costs and where its ops go."""

    graph: Graph
    table: CostTable
    alternative: Sequence[int]


@dataclass(frozen=True, slots=True)
class SwitchCost:
    """Bytes of weights that only the second plan holds, and seconds to pack them; bytes of states that move, and seconds for that."""

    weight_bytes: int
    pack_s: float
    state_bytes: int
    handover_s: float


def switch_cost(first: Placed, second: Placed) -> SwitchCost:
    """The cost of going from one plan to another of the same model (perhaps another phase of it).

    Bytes are read and written at the lower of the bandwidths that the two processors reach alone; every pair of processors between which
    states move signals once.
    """
    held = held_weights(first.graph, first.table, first.alternative)
    wanted = held_weights(second.graph, second.table, second.alternative)
    weights = sum(n for key, n in wanted.items() if key not in held)
    table = second.table
    host = float(table.bandwidth_bytes_s[table.host])
    moved, seconds, pairs = 0, 0.0, set[tuple[int, int]]()
    homes = _state_homes(first)
    for name, after in _state_homes(second).items():
        before = homes.get(name, after)
        if table.queues[before].processor != table.queues[after].processor:
            n = first.graph.tensors[name].nbytes
            moved += n
            seconds += 2.0 * n / min(float(table.bandwidth_bytes_s[before]), float(table.bandwidth_bytes_s[after]))
            pairs.add((before, after))
    return SwitchCost(weights, 2.0 * weights / host, moved, seconds + sum(float(table.sync_s[p, q]) for p, q in sorted(pairs)))


def _state_homes(placed: Placed) -> dict[str, int]:
    """State, by the name of its newest value -> queue of the op that writes it."""
    graph, table = placed.graph, placed.table
    out = {}
    for name in graph.outputs:
        i = graph.producer.get(name)
        if i is not None and graph.tensors[name].role is Role.STATE:
            out[name] = int(table.alt_queue[placed.alternative[i]])
    return out
