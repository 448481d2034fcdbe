"""A residual sum and the normalisation after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.graph import Graph
from hetsched.passes.rewriting import Fusion, apply, fused

_KINDS = {"LayerNormalization": "SkipLayerNorm", "RMSNorm": "SkipRMSNorm"}
_MOVES = frozenset({"Reshape", "Unsqueeze", "Squeeze", "Cast", "Transpose", "Add", "Concat", "Expand", "Mul", "DequantizeLinear"})


@dataclass(frozen=True)
class FuseSkipNorm:
    """``norm(x + skip)`` → SkipLayerNorm or SkipRMSNorm, which also writes the sum where something else reads it.

    The sum of a token's embeddings (word, position, type) is no residual and stays.
    """

    name: ClassVar[str] = "fuse-skip-norm"
    requires: ClassVar[tuple[str, ...]] = ("norms-named", "norms-fused", "matmul-fused")
    ensures: ClassVar[tuple[str, ...]] = ("skip-norms-fused",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with residual sums and norms fused."""
        taken: set[int] = set()
        fusions = []
        for i, op in enumerate(graph.ops):
            found = self._fusion(graph, i) if op.type in _KINDS and not op.domain else None
            if found is not None and not taken.intersection(found.members):
                taken.update(found.members)
                fusions.append(found)
        return apply(graph, fusions)

    def _fusion(self, graph: Graph, i: int) -> Fusion | None:
        norm = graph.ops[i]
        x, *weights = norm.inputs
        j = graph.producer.get(x)
        if j is None or graph.ops[j].type != "Add" or graph.ops[j].domain or graph.ops[j].body or any(norm.outputs[1:]):
            return None
        add = graph.ops[j]
        shapes = {graph.tensors[n].shape for n in (*add.inputs, x)}
        if len(shapes) > 1 or x in weights or not graph.tensors[x].dtype.is_float or graph.constants(add):
            return None
        if all(is_embedding(graph, n) for n in add.inputs):
            return None
        outputs = norm.outputs[:1] + ((x,) if self._is_read(graph, x, i) else ())
        kind = _KINDS[norm.type]
        return Fusion((j, i), fused([add, norm], kind, (*add.inputs, *weights), norm.attrs, nested=True, outputs=outputs))

    @staticmethod
    def _is_read(graph: Graph, tensor: str, norm: int) -> bool:
        return tensor in graph.outputs or graph.consumers[tensor] != (norm,)


def is_embedding(graph: Graph, name: str, depth: int = 8) -> bool:
    """Whether a tensor is a constant, rows of a table, patches of a picture, or made of these by moving and adding alone."""
    if graph.tensors[name].is_constant:
        return True
    i = graph.producer.get(name)
    if i is None or depth == 0:
        return False
    op = graph.ops[i]
    if op.type == "Gather":
        return graph.tensors[op.inputs[0]].is_constant
    return op.type in _MOVES and all(is_embedding(graph, n, depth - 1) for n in graph.activations(op))
