"""ONNX operators that are defined by other operators (functions): composites whose body is the standard's own definition.

``Attention``, ``RMSNormalization``, ``RotaryEmbedding`` and the like (opset 20 to 25) have no kernels of their own here. The
definitions come from the ``onnx`` package; in them, shapes are computed, and the walk folds that away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetsched.errors import UnsupportedModelError
from hetsched.frontends.onnx_expansion import Expansion, Tracer
from hetsched.frontends.onnx_nodes import to_node, to_op
from hetsched.frontends.onnx_opsets import SINCE
from hetsched.frontends.onnx_tensors import ModelFile
from hetsched.graph import AttrValue, DType, Op
from hetsched.reference.element_types import NUMBER_OF

if TYPE_CHECKING:
    import onnx

#: Written out where they stand: all their parts are elementwise, or constant.
_INLINE = frozenset(
    {"Celu", "Selu", "Shrink", "ThresholdedRelu", "HannWindow", "HammingWindow", "BlackmanWindow",
     "MeanVarianceNormalization", "ReduceLogSum"}
)  # fmt: skip


def expand_function(op: Op, trace: Tracer, model: ModelFile) -> bool:
    """Hand ``op``, if it is such an operator, to ``trace`` in the form that this project knows; says whether it was."""
    if op.domain:
        return False
    if op.type in _INLINE and all(trace.tensor(i).dtype is not DType.F16 for i in op.inputs if i):  # their constants are float32
        _define(op, trace, model)
        return True
    rule = _RULES.get(op.type)
    if rule is None:
        return False
    rule(Expansion(op, trace), model)
    return True


def _swish(e: Expansion, model: ModelFile) -> None:
    x, alpha = e.input(0), e.op.attr_float("alpha", 1.0)
    if alpha == 1.0:
        e.composite("Silu", (x,), e.op.outputs, {}, lambda: _sigmoid_product(e, x, x))
        return
    _sigmoid_product(e, x, e.add("Mul", (x, e.like(alpha, x, "alpha"))))


def _sigmoid_product(e: Expansion, x: str, inner: str) -> None:
    e.add("Mul", (x, e.add("Sigmoid", (inner,))), {}, e.output())


def _rms_normalization(e: Expansion, model: ModelFile) -> None:
    """RMSNorm where the last axis is normalised; other axes keep ONNX's name."""
    x, scale = e.input(0), e.input(1)
    rank = len(e.shape(x))
    last = e.op.attr_int("axis", -1) % rank == rank - 1 and e.shape(scale) == e.shape(x)[-1:]
    attrs: dict[str, AttrValue] = {"epsilon": e.op.attr_float("epsilon", 1e-5), "offset": 0.0} if last else dict(e.op.attrs)
    kind = "RMSNorm" if last else "RMSNormalization"
    e.composite(kind, (x, scale), e.op.outputs, attrs, lambda: _define(e.op, e.trace, model))


def _rotary_embedding(e: Expansion, model: ModelFile) -> None:
    """With tables and positions, the rows are gathered first, once for all operators that use the same."""
    x, cos, sin = (e.input(i) for i in range(3))
    if e.has(3):
        cos, sin = (_rows(e, table, e.input(3)) for table in (cos, sin))
    heads = e.op.attr_int("num_heads", 0) or (e.shape(x)[1] if len(e.shape(x)) == 4 else 0)
    if not heads:
        raise e.refuse("has a 3-D input and no num_heads")
    attrs: dict[str, AttrValue] = {
        "num_heads": heads,
        "interleaved": e.op.attr_int("interleaved", 0),
        "rotary_embedding_dim": e.op.attr_int("rotary_embedding_dim", 0),
    }
    turned = replace(e.op, inputs=(x, cos, sin), attrs=attrs)
    e.composite("RotaryEmbedding", (x, cos, sin), e.op.outputs, attrs, lambda: _define(turned, e.trace, model))


def _rows(e: Expansion, table: str, positions: str) -> str:
    name = f"{table}[{positions}]"
    return name if name in e.trace.tensors else e.add("Gather", (table, positions), {"axis": 0}, name)


def _attention(e: Expansion, model: ModelFile) -> None:
    """ONNX's Attention with heads and scale written out."""
    e.refuse_outputs(3)
    q, k = e.input(0), e.input(1)
    heads, shared = e.op.attr_int("q_num_heads", 0), e.op.attr_int("kv_num_heads", 0)
    if len(e.shape(q)) == 4:
        heads, shared = e.shape(q)[1], e.shape(k)[1]
    if not heads or not shared:
        raise e.refuse("has 3-D inputs and no q_num_heads or kv_num_heads")
    dim = e.shape(q)[3] if len(e.shape(q)) == 4 else e.shape(q)[2] // heads
    attrs: dict[str, AttrValue] = {**e.op.attrs, "q_num_heads": heads, "kv_num_heads": shared}
    attrs.setdefault("scale", 1 / math.sqrt(dim))
    inputs = tuple(e.optional(i) for i in range(max(len(e.op.inputs), 3)))
    while not inputs[-1]:
        inputs = inputs[:-1]
    apart = {"q_num_heads", "kv_num_heads"} if len(e.shape(q)) == 4 else set()
    core = replace(e.op, attrs={k: v for k, v in e.op.attrs.items() if k not in apart})
    e.composite("Attention", inputs, e.op.outputs, attrs, lambda: _define(core, e.trace, model))


def _group_normalization(e: Expansion, model: ModelFile) -> None:
    e.composite("GroupNormalization", e.op.inputs, e.op.outputs, e.op.attrs, lambda: _define(e.op, e.trace, model))


_RULES: dict[str, Callable[[Expansion, ModelFile], None]] = {
    "Swish": _swish,
    "RMSNormalization": _rms_normalization,
    "RotaryEmbedding": _rotary_embedding,
    "Attention": _attention,
    "GroupNormalization": _group_normalization,
}


def _define(op: Op, trace: Tracer, model: ModelFile) -> None:
    """Hand the operators of the standard's definition of ``op`` to ``trace``."""
    function, opset, defaults = _function(op, trace)
    prefix = f"{op.outputs[0]}/"
    names = _names(function, op, prefix)
    given = {a.name: a for a in to_node(op).attribute}
    before, trace.opset = trace.opset, opset
    try:
        for i, node in enumerate(function.node):
            _bind_attributes(node, {**defaults, **given})
            inner = to_op(node, f"{op.name}/{i}_{node.op_type}", model)
            if inner.type == "Constant":
                _constant(inner, names[inner.outputs[0]], trace)
                continue
            inputs = tuple(names.get(n, n) for n in inner.inputs)
            trace.step(replace(inner, inputs=inputs, outputs=tuple(names.get(n, n) for n in inner.outputs), origin=op.origin))
    finally:
        trace.opset = before


def _function(op: Op, trace: Tracer) -> tuple[onnx.FunctionProto, int, dict[str, onnx.AttributeProto]]:
    """The definition, the opset that its nodes are in, and the operator's default attributes."""
    import onnx
    from onnx import defs, helper

    opset = max(trace.opset, SINCE.get(op.type, 18))
    schema: Any = defs.get_schema(op.type, opset, "")
    defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
    types = [helper.make_tensor_type_proto(NUMBER_OF[t.dtype], t.shape) if i else onnx.TypeProto() for i, t in _inputs(op, trace)]
    try:
        if schema.has_function:
            version = max(v for v in schema.function_opset_versions if v <= opset)
            return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(version)), max(version, 18), defaults
        version = max(v for v in schema.context_dependent_function_opset_versions if v <= opset)
        node, given = to_node(op).SerializeToString(), [t.SerializeToString() for t in types]
        raw = schema.get_context_dependent_function_with_opset_version(version, node, given)
    except (RuntimeError, ValueError) as error:
        raise UnsupportedModelError(f"node {op.name!r} ({op.type}) has a form that ONNX does not define by other operators") from error
    return onnx.FunctionProto.FromString(raw), max(version, 18), defaults


def _inputs(op: Op, trace: Tracer) -> list[tuple[str, Any]]:
    return [(i, trace.tensor(i) if i else None) for i in op.inputs]


def _names(function: onnx.FunctionProto, op: Op, prefix: str) -> Mapping[str, str]:
    """Names of the definition -> names of the graph; the definition's own get ``prefix``."""
    names = {o: prefix + o for node in function.node for o in node.output if o}
    names.update((inner, op.inputs[i] if i < len(op.inputs) else "") for i, inner in enumerate(function.input))
    names.update((inner, o) for inner, o in zip(function.output, op.outputs, strict=False) if o)
    return names


def _bind_attributes(node: onnx.NodeProto, values: Mapping[str, onnx.AttributeProto]) -> None:
    """Replace references to the operator's attributes by their values; those without a value are left out."""
    kept = []
    for a in node.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name not in values:
                continue
            name = a.name
            a.CopyFrom(values[a.ref_attr_name])
            a.name = name
        kept.append(a)
    if len(kept) < len(node.attribute):
        copies = [type(a).FromString(a.SerializeToString()) for a in kept]
        del node.attribute[:]
        node.attribute.extend(copies)


def _constant(op: Op, name: str, trace: Tracer) -> None:
    import numpy as np

    key, value = next(iter(op.attrs.items()))
    dtype = np.int64 if key.startswith("value_int") else np.float32 if key.startswith("value_float") else None
    made = trace.add_constant(name, np.asarray(value, dtype))
    if made != name:
        raise UnsupportedModelError(f"the name {name!r} is taken, which the definition of node {op.name!r} needs")
