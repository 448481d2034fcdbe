"""Matrix products with what follows: a bias along the last axis, an activation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.graph import Graph, Tensor
from hetsched.passes.activations import ACTIVATIONS, Activation, following
from hetsched.passes.rewriting import Fusion, apply, fused, is_float, is_free, other_input, sole_reader, vector


@dataclass(frozen=True)
class FuseMatMul:
    """MatMul → FusedMatMul (bias, activation) and Gemm → FusedGemm (activation), the activation being one of ``activations``."""

    activations: tuple[str, ...] = ACTIVATIONS

    name: ClassVar[str] = "fuse-matmul"
    requires: ClassVar[tuple[str, ...]] = ("functions-named", "softmax-fused")
    ensures: ClassVar[tuple[str, ...]] = ("matmul-fused",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with matrix products fused."""
        found = []
        for i, op in enumerate(graph.ops):
            if op.type in {"MatMul", "Gemm"} and not op.body and not op.domain and is_float(graph, op.outputs[0]):
                found.append(self._fusion(graph, i))
        return apply(graph, [f for f in found if f is not None])

    def _fusion(self, graph: Graph, i: int) -> Fusion | None:
        product = graph.ops[i]
        members, tensors, bias = [i], dict[str, Tensor](), ""
        added = _bias(graph, i) if product.type == "MatMul" else None
        if added is not None:
            members.append(added[0])
            bias = added[1].name
            tensors[bias] = added[1]
        after = following(graph, graph.ops[members[-1]].outputs[0], self.activations)
        if after is not None:
            members.append(after[0])
        if len(members) == 1:
            return None
        inputs = (*product.inputs, bias) if product.type == "MatMul" else product.inputs
        attrs = {**product.attrs, **(Activation() if after is None else after[1]).attrs}
        op = fused([graph.ops[m] for m in members], f"Fused{product.type}", inputs, attrs)
        return Fusion(tuple(members), op, tensors)


def _bias(graph: Graph, i: int) -> tuple[int, Tensor] | None:
    """A following Add of a constant that varies along the last axis only."""
    product = graph.ops[i]
    end = product.outputs[0]
    j = sole_reader(graph, end)
    if j is None or graph.ops[j].type != "Add" or graph.ops[j].body:
        return None
    name, shape = other_input(graph.ops[j], end), graph.tensors[end].shape
    called = f"{product.name}/bias"
    if name is None or not shape or graph.tensors[graph.ops[j].outputs[0]].shape != shape:
        return None
    bias = vector(graph, name, -1, shape, called)
    return None if bias is None or not is_free(graph, bias) else (j, bias)
