"""Which operators of a decoder's graph run as one: additions before norms, norms and gates before quantized products."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Graph, Op, Role
from hetsched.language.precision import Precision
from hetsched.language.weights import block_kind
from hetsched_kernels.gguf_groups import BLOCKS

_GROUPS_OF_16 = ("Q6_K",)
_ACTIVATIONS = ("Silu", "Gelu", "Relu", "Sigmoid", "Tanh")
_BINARY = ("Add", "Sub", "Mul", "Div")


@dataclass(frozen=True, slots=True)
class Fused:
    """Operators that run as one.

    Attributes:
        kind: norm, layer_norm, product, gate, rotary, attention, convolution, scan, router, mixture, split, arithmetic or function.
        ops: the operators; the one that gives its kind comes last.
        reads: tensors that it reads, constants aside.
        writes: tensors that it writes.
        quantized: its result is written quantized for the products that read it, and not at all in float32.
        last: from here on only the rows whose scores are wanted are computed.
    """

    kind: str
    ops: tuple[Op, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    quantized: bool = False
    last: bool = False

    @property
    def op(self) -> Op:
        """The operator that gives it its kind."""
        return self.ops[-1]


_KINDS: Mapping[str, str] = {
    "RMSNorm": "norm", "LayerNormalization": "layer_norm", "Gemm": "product", "RotaryEmbedding": "rotary", "Router": "router",
    "GroupQueryAttention": "attention", "Split": "split", "MoE": "mixture",
    "CausalConv": "convolution", "SelectiveScan": "scan", **dict.fromkeys(_BINARY, "arithmetic"),
    **dict.fromkeys(_ACTIVATIONS, "function"),
}  # fmt: skip
#: Operators that go on with a cache or state, and how many inputs come before it.
_WITH_CACHES: Mapping[str, int] = {"GroupQueryAttention": 3, "CausalConv": 3, "SelectiveScan": 6}
_READS: Mapping[str, int] = {"RotaryEmbedding": 1, **_WITH_CACHES}


def activations_as(graph: Graph, weight: str, precision: Precision) -> tuple[str, int]:
    """How activations meet a weight: ``int8`` or ``int16`` in groups of so many elements, or (``float``, 0)."""
    kind = block_kind(graph.tensors[weight])
    if kind is None:
        return "float", 0
    group = 16 if kind in _GROUPS_OF_16 else min(BLOCKS[kind][0], 32) if kind != "TQ2_0" else BLOCKS[kind][0]
    return precision.of(weight), group


def scores_of(graph: Graph) -> str:
    """The output with the scores: the one that is no cache."""
    return next(n for n in graph.outputs if graph.tensors[n].role is not Role.STATE)


def fuse(graph: Graph, early: frozenset[str], precision: Precision, apart: frozenset[str] = frozenset()) -> list[Fused]:
    """The operators of a step in order, without those that only change shapes or are known before it starts.

    What goes into products with the weights ``apart`` is there in float32, and what comes out of them, too: something is added.

    Raises:
        UnsupportedModelError: an operator has no place in such a step.
    """
    ops = [op for op in graph.ops if op.outputs[0] not in early and op.type not in ("Reshape", "Identity")]
    for op in ops:
        if op.type not in _KINDS:
            raise UnsupportedModelError(f"node {op.name!r} ({op.type}): generating text has no kernel for it yet")
    search = _Search(graph, ops, precision, apart)
    last = search.last_norm()
    out: list[Fused] = []
    gone: set[str] = set()
    for op in ops:
        if op.name in gone:
            continue
        one = search.fused(op, op is last)
        if any(o.name in gone for o in one.ops[:-1]):
            raise UnsupportedModelError(f"node {op.name!r} ({op.type}): it reads what another operator took in")
        if one.kind == "later":
            continue
        gone.update(o.name for o in one.ops)
        out.append(one)
    return out


class _Search:
    """Producers and consumers of a graph, through reshapes."""

    def __init__(self, graph: Graph, ops: Sequence[Op], precision: Precision, apart: frozenset[str]) -> None:
        self.graph, self.ops, self.precision, self.apart = graph, ops, precision, apart
        self.same = {op.outputs[0]: op.inputs[0] for op in graph.ops if op.type in ("Reshape", "Identity")}
        self.producer = {o: op for op in ops for o in op.outputs if o}
        self.place = {op.name: i for i, op in enumerate(ops)}
        self.consumers: dict[str, list[Op]] = {}
        for op in ops:
            for name in dict.fromkeys(self.source(n) for n in op.inputs if n):
                self.consumers.setdefault(name, []).append(op)

    def source(self, name: str) -> str:
        """The tensor whose rows ``name`` has."""
        while name in self.same:
            name = self.same[name]
        return name

    def made_by(self, name: str) -> Op | None:
        return self.producer.get(self.source(name))

    def only_reader(self, op: Op) -> Op | None:
        readers = self.consumers.get(op.outputs[0], [])
        return readers[0] if len(readers) == 1 and self.source(scores_of(self.graph)) != op.outputs[0] else None

    def last_norm(self) -> Op:
        """The norm before the scores.

        Raises:
            UnsupportedModelError: there is none.
        """
        op = self.made_by(scores_of(self.graph))
        while op is not None and op.type not in ("RMSNorm", "LayerNormalization"):
            op = self.made_by(op.inputs[0])
        if op is None:
            raise UnsupportedModelError(f"the model {self.graph.name!r} has no norm before its scores: text cannot be generated with it")
        return op

    def fused(self, op: Op, last: bool) -> Fused:
        """What ``op`` runs as; the kind ``later`` says that a later operator takes it in."""
        if op.type == "RMSNorm":
            return self._norm(op, last)
        if op.type == "Add" and (reader := self.only_addition(op)) is not None and reader.type == "RMSNorm":
            return Fused("later", (op,), (), ())
        if op.type == "Gemm":
            return self._product(op)
        if op.type == "Silu" and (reader := self.only_reader(op)) is not None and self._gated(reader) is op:
            return Fused("later", (op,), (), ())
        if op.type == "Mul" and (silu := self._gated(op)) is not None:
            gate, up = self.source(silu.inputs[0]), self.source(self._other(op, silu))
            return Fused("gate", (silu, op), (gate, up), op.outputs, quantized=True)
        outputs = op.outputs[:1] if op.type in _WITH_CACHES else tuple(o for o in op.outputs if o)
        reads = op.inputs[: _READS.get(op.type)]
        return Fused(_KINDS[op.type], (op,), self._rows(reads), outputs, last=last)

    def only_addition(self, op: Op) -> Op | None:
        """The norm that takes an addition in: the next operator, which quantizes."""
        at = self.place[op.name] + 1
        following = self.ops[at] if at < len(self.ops) else None
        if following is None or following.type != "RMSNorm" or self.source(following.inputs[0]) != op.outputs[0]:
            return None
        return following if self._quantizes(following) and self._whole_rows(op) else None

    def _whole_rows(self, op: Op) -> bool:
        sizes = {self.graph.tensors[n].elements for n in (*op.inputs, op.outputs[0])}
        return len(sizes) == 1 and not any(self.graph.tensors[n].is_constant for n in op.inputs)

    def _norm(self, op: Op, last: bool) -> Fused:
        quantized, before = self._quantizes(op), self.made_by(op.inputs[0])
        if before is not None and before.type == "Add" and self.only_addition(before) is op:
            return Fused("norm", (before, op), self._rows(before.inputs), (before.outputs[0], *op.outputs), quantized, last)
        return Fused("norm", (op,), self._rows(op.inputs[:1]), op.outputs, quantized, last)

    def _product(self, op: Op) -> Fused:
        reader = self.only_reader(op)
        if reader is not None and reader.type in _ACTIVATIONS and op.inputs[1] not in self.apart:
            gated = self.only_reader(reader)
            if gated is None or self._gated(gated) is not reader:
                return Fused("product", (reader, op), self._rows(op.inputs[:1]), reader.outputs)
        return Fused("product", (op,), self._rows(op.inputs[:1]), op.outputs)

    def _gated(self, op: Op) -> Op | None:
        """The Silu that an operator multiplies with, where the product is written quantized."""
        if op.type != "Mul" or not self._quantizes(op):
            return None
        for name in op.inputs:
            made = self.made_by(name)
            if made is not None and made.type == "Silu" and self.only_reader(made) is op:
                return made
        return None

    def _other(self, op: Op, one: Op) -> str:
        return next(n for n in op.inputs if self.source(n) != one.outputs[0])

    def _quantizes(self, op: Op) -> bool:
        """Whether all that read a result are products that take it quantized alike, before anything else is quantized."""
        readers = self.consumers.get(op.outputs[0], [])
        if not readers or any(r.type != "Gemm" or self.source(r.inputs[0]) != op.outputs[0] for r in readers):
            return False
        if any(r.inputs[1] in self.apart for r in readers):
            return False
        if len({activations_as(self.graph, r.inputs[1], self.precision) for r in readers}) > 1:
            return False
        if activations_as(self.graph, readers[0].inputs[1], self.precision)[0] == "float":
            return False
        if op.type == "RMSNorm" and self.graph.tensors[op.inputs[1]].elements != self.graph.tensors[op.outputs[0]].elements:
            return False
        between = self.ops[self.place[op.name] + 1 : self.place[readers[-1].name]]
        return all(o in readers or o.type != "Gemm" for o in between)

    def _rows(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.source(n) for n in names if n and not self.graph.tensors[n].is_constant)
