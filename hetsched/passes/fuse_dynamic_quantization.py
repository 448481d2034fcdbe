"""Products whose activation is quantized while the model runs, as one operator.

Quantization tools write ``DynamicQuantizeLinear → MatMulInteger → Cast → Mul`` with the product of both scales, then the bias.
That is a product of a float activation and an integer weight; the attribute ``dynamic`` says that the activation goes through
8 bits first, with one scale and zero point for the whole tensor, and ``body`` says so exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hetsched.graph import DType, Graph, Op, Quantization, Tensor
from hetsched.passes.activations import ACTIVATIONS, Activation, following
from hetsched.passes.rewriting import Fusion, apply, fused, is_free, other_input, sole_reader, vector

_KINDS = {"MatMulInteger": "FusedMatMul", "ConvInteger": "FusedConv"}
_WEIGHTS = frozenset({DType.I8, DType.U8})


@dataclass(slots=True)
class _Chain:
    """An integer product and what follows it: indices of operators, and new constants by name."""

    members: list[int]
    tensors: dict[str, Tensor]

    def end(self, graph: Graph) -> str:
        """The tensor that the chain writes."""
        return graph.ops[self.members[-1]].outputs[0]


@dataclass(frozen=True)
class FuseDynamicQuantization:
    """Dynamically quantized MatMulInteger → FusedMatMul, ConvInteger → FusedConv, both with ``dynamic`` 1."""

    activations: tuple[str, ...] = ACTIVATIONS

    name: ClassVar[str] = "fuse-dynamic-quantization"
    requires: ClassVar[tuple[str, ...]] = ("functions-named", "dynamic-quantization-named")
    ensures: ClassVar[tuple[str, ...]] = ("dynamic-quantization-fused",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with dynamically quantized products fused."""
        found = [self._fusion(graph, i) for i, op in enumerate(graph.ops) if op.type in _KINDS and not op.domain and not op.body]
        fusions = [f for f in found if f is not None]
        return _without_idle(apply(graph, fusions)) if fusions else graph

    def _fusion(self, graph: Graph, i: int) -> Fusion | None:
        product = graph.ops[i]
        quantizer = _quantizer(graph, product)
        chain = _Chain([i], {})
        if quantizer is None or not _join(graph, chain, "Cast"):
            return None
        scale = _join_scales(graph, chain, quantizer)
        meaning = None if scale is None else _meaning(graph, product, scale, chain)
        if meaning is None:
            return None
        weight = graph.tensors[product.inputs[1]]
        if weight.quantization not in {None, meaning}:
            return None
        chain.tensors[weight.name] = replace(weight, quantization=meaning)
        bias = _join_bias(graph, chain)
        after = following(graph, chain.end(graph), self.activations)
        if after is not None:
            chain.members.append(after[0])
        attrs = {**product.attrs, **(Activation() if after is None else after[1]).attrs, "dynamic": 1}
        if product.type == "ConvInteger":
            attrs["batch_norm"] = 0
        members = sorted(chain.members)
        inputs = (quantizer.inputs[0], weight.name, bias)
        op = fused([quantizer, *(graph.ops[m] for m in members)], _KINDS[product.type], inputs, attrs)
        return Fusion(tuple(members), op, chain.tensors)


def _quantizer(graph: Graph, product: Op) -> Op | None:
    """The DynamicQuantizeLinear that gives a product its activation and zero point; the weight must be constant."""
    weight = graph.tensors[product.inputs[1]]
    if not weight.is_constant or weight.dtype not in _WEIGHTS or len(product.inputs) < 3:
        return None
    if product.type == "MatMulInteger" and len(weight.shape) != 2:
        return None
    i = graph.producer.get(product.inputs[0])
    if i is None or graph.ops[i].type != "DynamicQuantizeLinear" or {"symmetric", "axes"} & set(graph.ops[i].attrs):
        return None
    op = graph.ops[i]
    fits = op.outputs[0] == product.inputs[0] and len(op.outputs) == 3 and op.outputs[2] == product.inputs[2]
    return op if fits and graph.tensors[op.inputs[0]].dtype is DType.F32 else None


def _join(graph: Graph, chain: _Chain, kind: str) -> Op | None:
    """Add the operator that alone reads the end, if it is of ``kind``."""
    i = sole_reader(graph, chain.end(graph))
    if i is None or graph.ops[i].type != kind or graph.ops[i].body or graph.ops[i].domain:
        return None
    if graph.tensors[graph.ops[i].outputs[0]].shape != graph.tensors[chain.end(graph)].shape:
        return None
    chain.members.append(i)
    return graph.ops[i]


def _join_scales(graph: Graph, chain: _Chain, quantizer: Op) -> str | None:
    """Join the multiplication with both scales; the name of the weight's own, which is constant."""
    end = chain.end(graph)
    step = _join(graph, chain, "Mul")
    other = None if step is None else other_input(step, end)
    if other is None or graph.tensors[end].dtype is not DType.F32:
        return None
    i = graph.producer.get(other)
    if i is not None and graph.ops[i].type == "Mul" and not graph.ops[i].body and sole_reader(graph, other) is not None:
        scale = other_input(graph.ops[i], quantizer.outputs[1])
        chain.members.insert(0, i)
        return scale if scale is not None and graph.tensors[scale].is_constant else None
    if other != quantizer.outputs[1]:
        return None
    end = chain.end(graph)
    step = _join(graph, chain, "Mul")
    scale = None if step is None else other_input(step, end)
    return scale if scale is not None and graph.tensors[scale].is_constant else None


def _meaning(graph: Graph, product: Op, scale: str, chain: _Chain) -> Quantization | None:
    """What the weight's integers stand for: one scale in all, or one for each column or output channel."""
    zero = product.inputs[3] if len(product.inputs) > 3 and product.inputs[3] else None
    if zero is not None and not graph.tensors[zero].is_constant:
        return None
    if graph.tensors[scale].elements == 1:
        return Quantization(scale, zero) if zero is None or graph.tensors[zero].elements == 1 else None
    axis = -1 if product.type == "MatMulInteger" else 1
    columns = vector(graph, scale, axis, graph.tensors[product.outputs[0]].shape, f"{product.name}/scales")
    if columns is None or not is_free(graph, columns):
        return None
    chain.tensors[columns.name] = columns
    return Quantization(columns.name, zero, "channel", 1 if product.type == "MatMulInteger" else 0)


def _join_bias(graph: Graph, chain: _Chain) -> str:
    """Join a following Add of a constant for each column or channel; its name, or ``""``."""
    end = chain.end(graph)
    i = sole_reader(graph, end)
    if i is None or graph.ops[i].type != "Add" or graph.ops[i].body:
        return ""
    product = next(graph.ops[m] for m in chain.members if graph.ops[m].type in _KINDS)
    other, shape = other_input(graph.ops[i], end), graph.tensors[end].shape
    if other is None or graph.tensors[graph.ops[i].outputs[0]].shape != shape:
        return ""
    bias = vector(graph, other, -1 if product.type == "MatMulInteger" else 1, shape, f"{product.name}/bias")
    if bias is None or not is_free(graph, bias):
        return ""
    chain.members.append(i)
    chain.tensors[bias.name] = bias
    return bias.name


def _without_idle(graph: Graph) -> Graph:
    """Drop each DynamicQuantizeLinear that nobody reads any more."""
    read = {i for op in graph.ops for i in op.inputs} | set(graph.outputs)
    kept = tuple(op for op in graph.ops if op.type != "DynamicQuantizeLinear" or any(o in read for o in op.outputs))
    return graph.replace(ops=kept)
