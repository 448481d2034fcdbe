"""The middle of a written-out attention: product of queries and keys, scale, cap, mask, softmax, product with the values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hetsched.graph import Graph, Op
from hetsched.passes.attention_layout import factor_of
from hetsched.passes.rewriting import is_float, other_input, scalar, sole_reader
from hetsched.passes.views import RESHAPES

#: A score that a masked key gets: at most this.
_NEVER = -1e4


@dataclass(frozen=True, slots=True)
class Core:
    """From the product of queries and keys to the weighted sum: members, the two products, and what lies between."""

    members: tuple[int, ...]
    scores: int
    mixed: int
    mask: str = ""
    scale: float = 1.0
    softcap: float = 0.0
    keeps: int = 0
    """How a boolean mask reads: 1 where True keeps a score, -1 where True drops it, 0 if the mask is added."""
    fill: float = 0.0
    """What a dropped score becomes."""
    swapped: bool = False
    """Whether the second product is ``vᵀ · wᵀ``, as where channels come before positions."""

    def values(self, graph: Graph) -> str:
        """The operand that is made of the values."""
        return graph.ops[self.mixed].inputs[0 if self.swapped else 1]


def core_of(graph: Graph, softmax: int) -> Core | None:
    """The attention around the softmax at index ``softmax``; None if it is none."""
    op = graph.ops[softmax]
    rank = len(graph.tensors[op.outputs[0]].shape)
    if rank not in {3, 4} or op.attr_int("axis", -1) % rank != rank - 1 or not is_float(graph, op.inputs[0]):
        return None
    after = _weighted_sum(graph, op.outputs[0])
    if after is None:
        return None
    core = Core((*after, softmax), -1, after[-1], swapped=any(graph.ops[i].type == "Transpose" for i in after))
    if op.type == "FusedSoftmax":
        core = replace(core, mask=op.inputs[1], scale=op.attr_float("scale", 1.0))
    return _scores(graph, op.inputs[0], core)


def _weighted_sum(graph: Graph, weights: str) -> tuple[int, ...] | None:
    """The product with the values, and what cleans the weights up or casts them before it; the product last."""
    members: list[int] = []
    while len(members) < 4:
        readers = graph.consumers.get(weights, ())
        if weights in graph.outputs or not readers:
            return None
        cleaned = _cleaned(graph, weights)
        if cleaned is not None:
            members.extend(cleaned)
            weights = graph.ops[cleaned[-1]].outputs[0]
            continue
        op = graph.ops[readers[0]]
        if len(readers) > 1 or op.domain or op.body or op.inputs[0] != weights:
            return None
        members.append(readers[0])
        if op.type == "MatMul" and op.inputs[1] != weights:
            return tuple(members)
        if op.type == "Transpose" and _swaps_last(graph, op):
            product = sole_reader(graph, op.outputs[0])
            known = product is not None and graph.ops[product].type == "MatMul" and graph.ops[product].inputs[1] == op.outputs[0]
            return (*members, product) if known and product is not None else None
        if not _is_regrouped(graph, op) and (op.type != "Cast" or not is_float(graph, op.outputs[0])):
            return None
        weights = op.outputs[0]
    return None


def _swaps_last(graph: Graph, op: Op) -> bool:
    rank = len(graph.tensors[op.inputs[0]].shape)
    return op.attr_ints("perm", range(rank)[::-1]) == (*range(rank - 2), rank - 1, rank - 2)


def _cleaned(graph: Graph, weights: str) -> tuple[int, int] | None:
    """``where(isnan(w), 0, w)``, with which torch's export keeps fully masked rows finite."""
    readers = graph.consumers.get(weights, ())
    if len(readers) != 2:
        return None
    test, choice = (graph.ops[i] for i in readers)
    if test.type != "IsNaN" or choice.type != "Where" or choice.inputs[0] != test.outputs[0] or choice.inputs[2] != weights:
        return None
    return None if scalar(graph, choice.inputs[1]) != 0.0 or sole_reader(graph, test.outputs[0]) is None else (readers[0], readers[1])


def _scores(graph: Graph, scores: str, core: Core) -> Core | None:
    """Back from the softmax to the product of queries and keys."""
    for _ in range(8):
        i = graph.producer.get(scores)
        if i is None or sole_reader(graph, scores) is None or graph.ops[i].domain or graph.ops[i].body:
            return None
        op = graph.ops[i]
        core = replace(core, members=(*core.members, i))
        if op.type == "MatMul":
            return replace(core, scores=i)
        step = _between(graph, op, core)
        if step is None:
            return None
        scores, core = step
    return None


def _between(graph: Graph, op: Op, core: Core) -> tuple[str, Core] | None:
    """One operator between the product and the softmax: what it reads, and the core with what it means."""
    factor = factor_of(graph, op)
    if factor is not None:
        return factor[0], replace(core, scale=core.scale * factor[1])
    if (op.type == "Cast" and is_float(graph, op.inputs[0])) or _is_regrouped(graph, op):
        return op.inputs[0], core
    if core.mask or core.softcap or core.scale != 1.0:
        return _capped(op, core)
    shape = graph.tensors[op.outputs[0]].shape
    if op.type == "Add":
        sides = [x for x in op.inputs if graph.tensors[x].shape == shape and _leads_to_product(graph, x)]
        other = other_input(op, sides[0]) if len(sides) == 1 else None
        return None if other is None else (sides[0], replace(core, mask=other))
    if op.type == "Where":
        for k, keeps in ((1, 1), (2, -1)):
            low = scalar(graph, op.inputs[3 - k])
            if low is not None and low <= _NEVER and graph.tensors[op.inputs[k]].shape == shape:
                return op.inputs[k], replace(core, mask=op.inputs[0], keeps=keeps, fill=low)
    return _capped(op, core)


def _is_regrouped(graph: Graph, op: Op) -> bool:
    """Whether an operator only splits or joins batch and heads before the last two axes."""
    if op.type not in RESHAPES:
        return False
    before, after = (graph.tensors[n].shape for n in (op.inputs[0], op.outputs[0]))
    return before[-2:] == after[-2:] and len(before) > 2 and len(after) > 2


def _capped(op: Op, core: Core) -> tuple[str, Core] | None:
    """``tanh(x / c) · c``: the multiplication is in the scale already."""
    if op.type != "Tanh" or core.softcap or core.scale <= 0:
        return None
    return op.inputs[0], replace(core, softcap=core.scale, scale=core.scale)


def _leads_to_product(graph: Graph, name: str) -> bool:
    for _ in range(8):
        i = graph.producer.get(name)
        if i is None:
            return False
        op = graph.ops[i]
        if op.type == "MatMul":
            return not graph.tensors[op.inputs[1]].is_constant
        factor = factor_of(graph, op)
        if factor is None and op.type not in {"Cast", "Tanh"} and not _is_regrouped(graph, op):
            return False
        name = factor[0] if factor else op.inputs[0]
    return False
