"""What composites mean by their type and attributes alone (``docs/operators.md``, ``docs/language_models.md``): the twin of their body.

A pass that gets an attribute, an operand or the order of operands wrong leaves a body that is right and a composite that is not; kernels
and vendor compilers believe the composite. Everything here is written for checking: plain numpy, float64 where it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hetsched.graph import Graph, Op, Tensor
from hetsched.reference import run_op, supported_types
from hetsched.reference.gguf_types import constant_value
from hetsched.reference.quantized import dequantize, quantize

Array = np.ndarray[Any, Any]
Values = Sequence[Array | None]
#: Their body is their only meaning.
BODY_ONLY = frozenset({"FusedElementwise", "If", "Loop", "Scan"})


def declared(graph: Graph, op: Op, inputs: Values) -> list[Array] | None:
    """Outputs of a composite by its declaration; None where nothing but the body says what it computes.

    Args:
        graph: where the tensors say what their integers stand for.
        op: an operator with a body.
        inputs: one array per name in ``op.inputs``, None where the name is empty.
    """
    if op.type in BODY_ONLY or op.domain:
        return None
    reals = [None if x is None else _real(graph, graph.tensors[n], x) for n, x in zip(op.inputs, inputs, strict=True)]
    results = _plain(replace(op, body=()), reals)
    if results is None:
        return None
    return [_stored(graph, graph.tensors[n], y) if n else y for n, y in zip(op.outputs, results, strict=False)]


def _plain(op: Op, x: Values) -> list[Array] | None:
    rule = _RULES.get(op.type)
    if rule is not None:
        return rule(op, x)
    return run_op(op, x) if op.type in supported_types() else None


def _real(graph: Graph, tensor: Tensor, x: Array) -> Array:
    q = tensor.quantization
    if q is None or not q.scale:
        return x
    zero = None if q.zero_point is None else graph.tensors[q.zero_point].numpy()
    return dequantize(x, graph.tensors[q.scale].numpy(), zero, q.axis if q.axis is not None else 1, q.group or 0)


def _stored(graph: Graph, tensor: Tensor, y: Array) -> Array:
    q = tensor.quantization
    if q is None or not q.scale or tensor.dtype.is_float:
        return y.astype(tensor.dtype.numpy)
    zero = None if q.zero_point is None else graph.tensors[q.zero_point].numpy()
    axis = q.axis if q.axis is not None else 1
    return quantize(y, graph.tensors[q.scale].numpy(), zero, tensor.dtype, axis, q.group or 0)


def _call(kind: str, inputs: Values, attrs: dict[str, Any] | None = None) -> Array:
    return run_op(Op(kind, kind, tuple("x" if x is not None else "" for x in inputs), ("y",), attrs or {}), inputs)[0]


def _at(x: Values, slot: int) -> Array | None:
    return x[slot] if slot < len(x) else None


def _need(x: Values, slot: int) -> Array:
    value = _at(x, slot)
    assert value is not None, f"input {slot} is missing"
    return value


def _activated(op: Op, y: Array) -> Array:
    kind, alpha, beta = op.attr_str("activation", ""), op.attr_float("activation_alpha", 0.0), op.attr_float("activation_beta", 0.0)
    simple: dict[str, Callable[[], Array]] = {
        "": lambda: y,
        "Clip": lambda: np.clip(y, y.dtype.type(alpha), y.dtype.type(beta)),
        "HardSigmoid": lambda: np.clip(y * y.dtype.type(alpha) + y.dtype.type(beta), 0, 1),
        "LeakyRelu": lambda: np.where(y < 0, y * y.dtype.type(alpha), y),
        "Gelu": lambda: _call("Gelu", [y], {"approximate": "tanh" if alpha else "none"}),
    }
    return simple[kind]() if kind in simple else _call(kind, [y])


def _conv(op: Op, x: Values) -> list[Array]:
    y = _call(op.type.removeprefix("Fused"), [_need(x, 0), _need(x, 1), _at(x, 2)], dict(op.attrs))
    if op.attr_int("batch_norm", 0):
        scale, bias, mean, variance = (_need(x, 3 + i).astype(np.float64).reshape(-1, *[1] * (y.ndim - 2)) for i in range(4))
        y = ((y - mean) / np.sqrt(variance + op.attr_float("epsilon", 1e-5)) * scale + bias).astype(y.dtype)
    return [_activated(op, y)]


def _matmul(op: Op, x: Values) -> list[Array]:
    y, bias = _call("MatMul", [_need(x, 0), _need(x, 1)]), _at(x, 2)
    return [_activated(op, y if bias is None else y + bias)]


def _gemm(op: Op, x: Values) -> list[Array]:
    return [_activated(op, _call("Gemm", list(x), dict(op.attrs)))]


def _softmax(op: Op, x: Values) -> list[Array]:
    scores, mask = _need(x, 0).astype(np.float64) * op.attr_float("scale", 1.0), _at(x, 1)
    return [_call("Softmax", [scores if mask is None else scores + mask], {"axis": op.attr_int("axis", -1)})]


def _skip_layer_norm(op: Op, x: Values) -> list[Array]:
    total = _need(x, 0) + _need(x, 1)
    attrs = {"epsilon": op.attr_float("epsilon", 1e-5), "axis": -1}
    return [_call("LayerNormalization", [total, _need(x, 2), _at(x, 3)], attrs), total]


def _skip_rms_norm(op: Op, x: Values) -> list[Array]:
    total = _need(x, 0) + _need(x, 1)
    return [_call("RMSNorm", [total, _need(x, 2)], dict(op.attrs)), total]


def _gated(function: str) -> Callable[[Op, Values], list[Array]]:
    def rule(op: Op, x: Values) -> list[Array]:
        attrs = {"approximate": op.attr_str("approximate", "none")} if function == "Gelu" else {}
        return [_call(function, [_need(x, 0)], attrs) * _need(x, 1)]

    return rule


def _merged(op: Op, x: Values) -> list[Array] | None:
    """None for one joined product: how its result is cut is in the body only."""
    if op.attr_int("joined", 0):
        return None
    count, a = op.attr_int("count", 0), _need(x, 0)
    rows = a.reshape(-1, a.shape[-1]) if op.attr_int("rows", 0) else a
    weights = [_need(x, 1 + i) for i in range(count)]
    products = [_call("MatMul", [rows, w.T if op.attr_int("transB", 0) else w]) for w in weights]
    biases = [_at(x, 1 + count + i) for i in range(count)]
    return [y if b is None else y + b for y, b in zip(products, biases, strict=True)]


_RULES: dict[str, Callable[[Op, Values], list[Array] | None]] = {
    "FusedConv": _conv,
    "FusedConvTranspose": _conv,
    "FusedMatMul": _matmul,
    "FusedGemm": _gemm,
    "FusedSoftmax": _softmax,
    "SkipLayerNorm": _skip_layer_norm,
    "SkipRMSNorm": _skip_rms_norm,
    "SwiGLU": _gated("Silu"),
    "GeGLU": _gated("Gelu"),
    "MergedMatMul": _merged,
}


def constant(graph: Graph, name: str) -> Array:
    """A constant's value."""
    return constant_value(graph.tensors[name])
