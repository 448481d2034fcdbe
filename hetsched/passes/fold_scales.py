"""A constant factor after a matrix product with quantized weights becomes part of the weights' scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hetsched.graph import Graph, Op, Tensor
from hetsched.passes.dead_code import live
from hetsched.passes.rewriting import inline, is_float, other_input, small_value, sole_reader

_PRODUCTS = frozenset({"MatMul", "Conv"})


@dataclass(frozen=True)
class FoldScales:
    """``MatMul(x, DequantizeLinear(w, s)) * c`` → ``MatMul(x, DequantizeLinear(w, s * c))``; Conv without bias likewise.

    ``c`` is one number, or one per column where the weight is quantized per column. The product rounds once less, so results may
    differ in the last bit. (Convolutions with float weights take factors as batch normalisation: ``fuse-conv``.)
    """

    name: ClassVar[str] = "fold-scales"
    requires: ClassVar[tuple[str, ...]] = ("no-dead-code",)
    ensures: ClassVar[tuple[str, ...]] = ("scales-folded",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with factors folded; the same object if there are none."""
        tensors, ops = dict(graph.tensors), dict(enumerate(graph.ops))
        for i, product in enumerate(graph.ops):
            found = _factor(graph, i) if product.type in _PRODUCTS and not product.body and not product.domain else None
            if found is None:
                continue
            j, scale = found
            weight = graph.ops[graph.producer[product.inputs[1]]]
            names = (f"{product.name}/scale", f"{product.name}/weight")
            if any(n in tensors for n in names):
                continue
            tensors[names[0]] = replace(scale, name=names[0])
            tensors[names[1]] = replace(tensors[weight.outputs[0]], name=names[1])
            dequantize = replace(
                weight, name=names[1], inputs=(weight.inputs[0], names[0], *weight.inputs[2:]), outputs=(names[1],), origin=weight.origin
            )
            ops[i] = dequantize
            last = graph.ops[j]
            ops[j] = replace(
                product,
                inputs=(product.inputs[0], names[1], *product.inputs[2:]),
                outputs=last.outputs,
                origin=(*product.origin, *last.origin),
            )
        if len(tensors) == len(graph.tensors):
            return graph
        return graph.replace(ops=tuple(live(tuple(ops.values()), graph.outputs)), tensors=tensors)


def _factor(graph: Graph, i: int) -> tuple[int, Tensor] | None:
    """The operator that multiplies the product by a constant, and the weight's scale with that constant in it."""
    product = graph.ops[i]
    j = sole_reader(graph, product.outputs[0])
    p = graph.producer.get(product.inputs[1])
    if j is None or p is None or graph.ops[p].type != "DequantizeLinear" or (product.type == "Conv" and any(product.inputs[2:])):
        return None
    last, weight = graph.ops[j], graph.ops[p]
    name = other_input(last, product.outputs[0])
    if last.type not in {"Mul", "Div"} or last.body or name is None or (last.type == "Div" and last.inputs[1] != name):
        return None
    factor, scale = small_value(graph, name), small_value(graph, weight.inputs[1])
    same = graph.tensors[last.outputs[0]].shape == graph.tensors[product.outputs[0]].shape
    if factor is None or scale is None or not same or not is_float(graph, name) or not graph.tensors[weight.inputs[0]].is_constant:
        return None
    value = _scaled(graph, product, weight, scale, 1 / factor if last.type == "Div" else factor)
    return None if value is None else (j, inline("", value))


def _scaled(graph: Graph, product: Op, weight: Op, scale: npt.NDArray[Any], factor: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """``scale * factor`` where that is a scale of the same shape and greater than 0."""
    shape = graph.tensors[weight.inputs[0]].shape
    if factor.size == 1:
        new = scale * factor.reshape(())
    else:
        axis = weight.attr_int("axis", 1) % max(len(shape), 1)
        columns = axis == (0 if product.type == "Conv" else len(shape) - 1) and not weight.attr_int("block_size", 0)
        wide = (1,) * (len(graph.tensors[product.outputs[0]].shape) - factor.ndim) + factor.shape
        at = 1 if product.type == "Conv" else len(wide) - 1
        if not columns or scale.size != factor.size or wide[at] != factor.size:
            return None
        new = scale * factor.reshape(scale.shape)
    new = np.ascontiguousarray(new.astype(scale.dtype))
    return new if bool(np.isfinite(new).all() and (new > 0).all()) else None
