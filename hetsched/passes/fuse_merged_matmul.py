"""Products of one input that are needed together: queries, keys and values of an attention; gate and up of a gated unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.graph import AttrValue, Graph, Op
from hetsched.passes.regions import is_convex, producer_of
from hetsched.passes.rewriting import Fusion, apply, fused, sole_reader
from hetsched.passes.views import LAYOUT, RESHAPES, SELECTIONS, View

PRODUCTS = frozenset({"MatMul", "FusedMatMul", "Gemm", "FusedGemm"})
_JOINS = frozenset({"Attention", "GroupQueryAttention", "SwiGLU", "GeGLU"})
_BETWEEN = LAYOUT | {"RotaryEmbedding", "RMSNorm", "LayerNormalization", "Cast"}
_MOVES = RESHAPES | SELECTIONS | {"Transpose"}
_LONGEST = 24


@dataclass(frozen=True)
class FuseMergedMatMul:
    """Two or more products with one input, and one product that is taken apart → MergedMatMul."""

    name: ClassVar[str] = "fuse-merged-matmul"
    requires: ClassVar[tuple[str, ...]] = ("matmul-fused", "attention-fused", "gates-fused")
    ensures: ClassVar[tuple[str, ...]] = ("products-merged",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with products merged."""
        products = [i for i, op in enumerate(graph.ops) if _is_product(graph, op)]
        groups: dict[tuple[str, str, bool, int], list[tuple[int, ...]]] = {}
        fusions = []
        for i in products:
            op = graph.ops[i]
            apart = _taken_apart(graph, i)
            if apart is not None:
                fusions.append(apart)
                continue
            end = _join(graph, op.outputs[0])
            if end is not None:
                source, before = _entry(graph, i)
                groups.setdefault((source, end, op.type.endswith("Gemm"), op.attr_int("transB", 0)), []).append((*before, i))
        fusions.extend(_merged(graph, source, members) for (source, *_), members in groups.items() if len(members) > 1)
        return apply(graph, fusions)


def _is_product(graph: Graph, op: Op) -> bool:
    """A product of an activation with a constant matrix, with or without a constant bias, and nothing after it."""
    if op.type not in PRODUCTS or op.domain or op.attr_str("activation", "") or op.attr_int("transA", 0):
        return False
    if op.attr_float("alpha", 1.0) != 1.0 or op.attr_float("beta", 1.0) != 1.0:
        return False
    first, *constants = (graph.tensors[n] for n in op.inputs if n)
    return not first.is_constant and all(t.is_constant for t in constants) and len(constants[0].shape) == 2


def _join(graph: Graph, tensor: str) -> str | None:
    """The name of the first attention or gated unit that the tensor leads to through what acts on its rows and heads."""
    wave = [tensor]
    for _ in range(6):
        readers = sorted({c for t in wave for c in graph.consumers.get(t, ()) if _passes_on(graph.ops[c], t)})
        end = next((graph.ops[c].name for c in readers if graph.ops[c].type in _JOINS), None)
        if end is not None:
            return end
        wave = [graph.ops[c].outputs[0] for c in readers]
    return None


def _passes_on(op: Op, tensor: str) -> bool:
    return op.type in _JOINS or (op.type in _BETWEEN and op.inputs[0] == tensor)


def _bias(op: Op) -> str:
    return op.inputs[2] if len(op.inputs) > 2 else ""


def _attributes(count: int, joined: int, op: Op) -> dict[str, AttrValue]:
    return {"count": count, "joined": joined, "transB": op.attr_int("transB", 0)}


def _entry(graph: Graph, product: int) -> tuple[str, tuple[int, ...]]:
    """What a product reads, before a reshape of its own to rows (TFLite's fully connected layers), and that reshape."""
    x = graph.ops[product].inputs[0]
    i = producer_of(graph, x, RESHAPES)
    if i is None or sole_reader(graph, x) != product:
        return x, ()
    before = graph.ops[i].inputs[0]
    return (before, (i,)) if graph.tensors[before].shape[-1:] == graph.tensors[x].shape[-1:] else (x, ())


def _merged(graph: Graph, source: str, groups: list[tuple[int, ...]]) -> Fusion:
    products = [graph.ops[group[-1]] for group in groups]
    members = tuple(sorted(m for group in groups for m in group))
    inputs = (source, *(op.inputs[1] for op in products), *(_bias(op) for op in products))
    attrs = _attributes(len(products), 0, products[0])
    if any(len(graph.tensors[op.outputs[0]].shape) != len(graph.tensors[source].shape) for op in products):
        attrs["rows"] = 1
    outputs = [op.outputs[0] for op in products]
    return Fusion(members, fused([graph.ops[m] for m in members], "MergedMatMul", inputs, attrs, nested=True, outputs=outputs))


def _taken_apart(graph: Graph, product: int) -> Fusion | None:
    """A product whose result is only cut into the inputs of one attention or gated unit."""
    op = graph.ops[product]
    members = _moves_after(graph, product)
    pieces = [o for m in members for o in graph.ops[m].outputs if not set(graph.consumers.get(o, ())) & set(members)]
    inner = [o for m in members for o in graph.ops[m].outputs if o not in pieces]
    if len(pieces) < 2 or any(o in graph.outputs or set(graph.consumers[o]) - set(members) for o in inner):
        return None
    ends = [_join(graph, o) for o in pieces]
    whole = graph.tensors[op.outputs[0]].elements
    if ends[0] is None or len(set(ends)) > 1 or sum(graph.tensors[o].elements for o in pieces) != whole:
        return None
    if not _are_disjoint(graph, product, members, pieces) or not is_convex(graph, members):
        return None
    inputs = (op.inputs[0], op.inputs[1], _bias(op))
    ops = [graph.ops[m] for m in members]
    made = fused(ops, "MergedMatMul", inputs, _attributes(len(pieces), 1, op), nested=True, outputs=pieces)
    return Fusion(tuple(members), made)


def _moves_after(graph: Graph, product: int) -> list[int]:
    """The product and what only moves or cuts its result, in the graph's order."""
    found = [product]
    for i in found:
        for o in graph.ops[i].outputs:
            for c in graph.consumers.get(o, ()):
                op = graph.ops[c]
                if op.type in _MOVES and not op.domain and not op.body and op.inputs[0] == o and c not in found and len(found) < _LONGEST:
                    found.append(c)
    return sorted(found)


def _are_disjoint(graph: Graph, product: int, members: list[int], pieces: list[str]) -> bool:
    """Whether the pieces begin at different places of the product's result (with their sizes adding up, they then share nothing)."""
    first = graph.ops[product].outputs[0]
    views: dict[str, View | None] = {first: View.of(graph.tensors[first].shape)}
    for m in members[1:]:
        view = views[graph.ops[m].inputs[0]]
        for k, o in enumerate(graph.ops[m].outputs):
            views[o] = None if view is None else view.through(graph, graph.ops[m], k)
    found = [views[o] for o in pieces]
    return None not in found and len({v.offset for v in found if v is not None}) == len(pieces)
