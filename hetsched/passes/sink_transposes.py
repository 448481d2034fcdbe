"""Transposes that cancel, merge, or need not be: layouts chosen for whole regions of operators.

Converters between NHWC and NCHW put a Transpose before and after every convolution. What lies between two of them
(activations, sums, concatenations, reductions) does not care about the order of axes: it is a *region*, and it may run in
any order. For every region the order is chosen that leaves the fewest elements to transpose at its borders; a region
changes only if that is fewer than before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from hetsched.graph import Graph, Op, Role, Tensor
from hetsched.passes.dead_code import live
from hetsched.passes.permuted_ops import Perm, can_permute, compose, data_inputs, inverse, is_trivial, perm_of, permuted, shape_of
from hetsched.passes.rewriting import is_free
from hetsched.passes.transpose_chains import as_reshapes, as_transposes, origin, without_pairs

#: Orders that are tried for one region, and rounds in which regions that share no Transpose change together.
_MOST_ORDERS = 8
_MOST_ROUNDS = 16


@dataclass(frozen=True)
class SinkTransposes:
    """Transposes at the borders of regions cancel or merge; one that moves no element becomes a Reshape."""

    name: ClassVar[str] = "sink-transposes"
    requires: ClassVar[tuple[str, ...]] = ("no-dead-code",)
    ensures: ClassVar[tuple[str, ...]] = ("transposes-cancelled",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with fewer transposed elements; the same object if it has no Transpose."""
        if not any(op.type == "Transpose" for op in graph.ops):
            return graph
        reshapes = {op.name: op for op in graph.ops if op.type == "Reshape"}
        graph = without_pairs(as_transposes(graph))
        for _ in range(_MOST_ROUNDS):
            better = without_pairs(_Layouts(graph).rewritten())
            if _moved_in(better) >= _moved_in(graph):
                break
            graph = better
        return as_reshapes(graph, reshapes)


@dataclass(slots=True)
class _Layouts:
    """Chooses orders for regions of ``graph`` that share no Transpose, so that their savings add up, and rewrites it."""

    graph: Graph
    region: dict[int, int] = field(default_factory=dict)
    order: dict[int, Perm] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    new: dict[str, str] = field(default_factory=dict)
    made: dict[tuple[str, Perm], str] = field(default_factory=dict)

    def rewritten(self) -> Graph:
        """The graph with every region in the order that is best for it."""
        taken: set[int] = set()
        for members in _regions(self.graph):
            between = _transposes_of(self.graph, members)
            best = None if not between or taken & between else _best_order(self.graph, members)
            if best is not None:
                taken |= between
                self.region.update(dict.fromkeys(members, members[0]))
                self.order[members[0]] = best
        if not self.order:
            return self.graph
        self.tensors = dict(self.graph.tensors)
        for i, op in enumerate(self.graph.ops):
            if i in self.region:
                self._permute(i, op)
            elif not (op.type == "Transpose" and self._retarget(op)):
                self.ops.append(op)
        return self.graph.replace(ops=tuple(live(tuple(self.ops), self.graph.outputs)), tensors=self.tensors)

    def _permute(self, i: int, op: Op) -> None:
        """Add the operator of a region in the region's order, and transposes back for those who need the old one."""
        perm = self.order[self.region[i]]
        changed, constants = permuted(self.graph, op, perm)
        made = {n: n if is_free(self.graph, t) else self._fresh(n) for n, t in constants.items()}
        self.tensors.update((made[n], replace(t, name=made[n])) for n, t in constants.items())
        inputs = made | {n: self._inside(n, perm) for n in data_inputs(self.graph, op)}
        inputs |= {n: self.new[n] for n in self.graph.activations(op) if self._is_mine(n, i)}
        outputs = {o: self._named(o, perm) for o in op.outputs if o}
        self.ops.append(
            replace(
                changed,
                inputs=tuple(inputs.get(n, n) for n in changed.inputs),
                outputs=tuple(outputs.get(o, o) for o in op.outputs),
            )
        )
        self.new.update(outputs)
        for o, name in outputs.items():
            if _needed_as_it_was(self.graph, o, self.region, self.region[i]):
                self.ops.append(Op(f"{op.name}/{o}/back", "Transpose", (name,), (o,), {"perm": inverse(perm)}, "", op.origin))

    def _inside(self, name: str, perm: Perm) -> str:
        """The tensor ``name`` transposed by ``perm``: from inside the region, from before a Transpose, or made here."""
        if name in self.new:
            return self.new[name]
        source, whole = origin(self.graph, name)
        whole = compose(whole, perm)
        if source in self.new:
            source, whole = self.new[source], compose(inverse(perm), whole)
        if whole == tuple(range(len(whole))):
            return source
        if (name, perm) not in self.made:
            made = self.made[name, perm] = self._define(name, perm)
            self.ops.append(Op(made, "Transpose", (source,), (made,), {"perm": whole}, "", self._origin_of(name)))
        return self.made[name, perm]

    def _is_mine(self, name: str, i: int) -> bool:
        producer = self.graph.producer.get(name)
        return producer is not None and self.region.get(producer) == self.region[i]

    def _origin_of(self, name: str) -> tuple[str, ...]:
        producer = self.graph.producer.get(name)
        return () if producer is None else self.graph.ops[producer].origin

    def _fresh(self, name: str) -> str:
        k = 2
        while f"{name}_{k}" in self.tensors:
            k += 1
        return f"{name}_{k}"

    def _named(self, name: str, perm: Perm) -> str:
        """What the permuted ``name`` is called: as the result of the Transpose that it replaces, or anew."""
        for i in self.graph.consumers.get(name, ()):
            op = self.graph.ops[i]
            if op.type == "Transpose" and perm_of(op, len(perm)) == perm:
                return op.outputs[0]
        return self._define(name, perm)

    def _define(self, name: str, perm: Perm) -> str:
        t, made = self.graph.tensors[name], f"{name}/{'_'.join(map(str, perm))}"
        made = self._fresh(made) if made in self.tensors else made
        q = t.quantization
        if q is not None and q.axis is not None:
            q = replace(q, axis=inverse(perm)[q.axis % len(perm)])
        self.tensors[made] = replace(t, name=made, shape=shape_of(t.shape, perm), role=Role.ACTIVATION, quantization=q)
        return made

    def _retarget(self, op: Op) -> bool:
        """A Transpose of what a region now computes in another order; True if nothing is left of it."""
        source = op.inputs[0]
        producer = self.graph.producer.get(source)
        if producer is None or producer not in self.region:
            return False
        perm = self.order[self.region[producer]]
        whole = compose(inverse(perm), perm_of(op, len(perm)))
        if op.outputs[0] != self.new[source]:
            self.ops.append(replace(op, inputs=(self.new[source],), attrs={**op.attrs, "perm": whole}))
        return True


def _regions(graph: Graph) -> list[list[int]]:
    """Maximal groups of operators that pass tensors of one rank to each other and do not care about the order of axes."""
    free = [can_permute(graph, op) for op in graph.ops]
    parent = list(range(len(graph.ops)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, op in enumerate(graph.ops):
        for name in data_inputs(graph, op) if free[i] else ():
            p = graph.producer.get(name)
            if p is not None and free[p]:
                a, b = sorted((root(i), root(p)))
                parent[b] = a
    groups: dict[int, list[int]] = {}
    for i in range(len(graph.ops)):
        if free[i]:
            groups.setdefault(root(i), []).append(i)
    return list(groups.values())


def _transposes_of(graph: Graph, members: list[int]) -> set[int]:
    """The Transposes at the borders of a region, and those before them."""
    found = {i for m in members for o in graph.ops[m].outputs for i in graph.consumers.get(o, ())}
    found |= {graph.producer[n] for m in members for n in graph.activations(graph.ops[m]) if n in graph.producer}
    open_ = [i for i in sorted(found) if graph.ops[i].type == "Transpose"]
    out = set(open_)
    while open_:
        p = graph.producer.get(graph.ops[open_.pop()].inputs[0])
        if p is not None and p not in out and graph.ops[p].type == "Transpose":
            out.add(p)
            open_.append(p)
    return out


def _best_order(graph: Graph, members: list[int]) -> Perm | None:
    """The order with the fewest elements transposed at the borders; None if that is the one that the region has."""
    inside = set(members)
    reads = dict.fromkeys(n for m in members for n in data_inputs(graph, graph.ops[m]) if graph.producer.get(n) not in inside)
    writes = [o for m in members for o in graph.ops[m].outputs if o]
    tried: dict[Perm, None] = {}
    for n in reads:
        tried.setdefault(inverse(origin(graph, n)[1]))
    for o in writes:
        for i in graph.consumers.get(o, ()):
            if graph.ops[i].type == "Transpose":
                tried.setdefault(perm_of(graph.ops[i], len(graph.tensors[o].shape)))
    same = tuple(range(len(graph.tensors[writes[0]].shape)))
    costs = {p: _cost(graph, p, list(reads), writes, inside) for p in [p for p in tried if p != same][:_MOST_ORDERS]}
    best = min(costs, key=lambda p: costs[p], default=same)
    return best if best != same and costs[best] < _cost(graph, same, list(reads), writes, inside) else None


def _cost(graph: Graph, perm: Perm, reads: list[str], writes: list[str], inside: set[int]) -> tuple[int, int]:
    """Elements transposed at the borders of a region in the order ``perm``, and by how many Transposes (that move anything)."""
    moved: list[int] = []
    for n in reads:
        t = graph.tensors[n]
        source, before = origin(graph, n)
        elsewhere = n in graph.outputs or any(i not in inside for i in graph.consumers[n])
        needs = {compose(before, perm), *([before] if elsewhere else [])}
        moved += [_moved(graph.tensors[source].shape, p) for p in sorted(needs)] if source != n else [_moved(t.shape, perm)]
    for o in writes:
        shape = shape_of(graph.tensors[o].shape, perm)
        outside = [graph.ops[i] for i in graph.consumers.get(o, ()) if i not in inside]
        wanted = {perm_of(op, len(perm)) if op.type == "Transpose" else tuple(range(len(perm))) for op in outside}
        if o in graph.outputs:
            wanted.add(tuple(range(len(perm))))
        moved += [_moved(shape, compose(inverse(perm), p)) for p in sorted(wanted)]
    return sum(moved), sum(m > 0 for m in moved)


def _moved_in(graph: Graph) -> tuple[int, int]:
    """Elements that the Transposes of a graph move, and how many of them move any."""
    shapes = ((graph.tensors[op.inputs[0]].shape, op) for op in graph.ops if op.type == "Transpose")
    moved = [_moved(shape, perm_of(op, len(shape))) for shape, op in shapes]
    return sum(moved), sum(m > 0 for m in moved)


def _moved(shape: tuple[int, ...], perm: Perm) -> int:
    return 0 if is_trivial(shape, perm) else int(np.prod(shape, dtype=np.int64))


def _needed_as_it_was(graph: Graph, name: str, region: Mapping[int, int], mine: int) -> bool:
    """Whether someone outside the region, other than a Transpose, reads ``name``, or it is an output of the graph."""
    readers = graph.consumers.get(name, ())
    return name in graph.outputs or any(region.get(i) != mine and graph.ops[i].type != "Transpose" for i in readers)
