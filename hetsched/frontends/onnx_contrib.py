"""Operators of ONNX Runtime's ``com.microsoft`` domain.

Those that are standard operators by another name are rewritten, of a few more the shapes are known, all others are
refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hetsched.errors import UnsupportedModelError
from hetsched.graph import DType, Op, Tensor

CONTRIB_DOMAIN = "com.microsoft"


def standard_form(op: Op) -> Op:
    """The standard operator that does the same, where there is one; else ``op``."""
    if op.domain != CONTRIB_DOMAIN:
        return op
    match op.type:
        case "QuantizeLinear" | "DequantizeLinear":
            return replace(op, domain="")
        case "Gelu":
            return replace(op, domain="", attrs={"approximate": "none"})
        case "FastGelu" if len([i for i in op.inputs if i]) == 1:
            return replace(op, domain="", type="Gelu", inputs=op.inputs[:1], attrs={"approximate": "tanh"})
    return op


def infer_contrib(op: Op, tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """The tensors that a ``com.microsoft`` operator writes.

    Raises:
        UnsupportedModelError: its shapes are not known here.
    """
    rule = _SHAPES.get(op.type)
    if rule is None:
        raise UnsupportedModelError(f"node {op.name!r} uses the operator {op.type!r} of domain {CONTRIB_DOMAIN!r}, which is not supported")
    shape, dtype = rule(op, tensors)
    return [Tensor(name, shape, dtype) for name in op.outputs[:1]]


Rule = Callable[[Op, Mapping[str, Tensor]], tuple[tuple[int, ...], DType]]


def _same(op: Op, tensors: Mapping[str, Tensor]) -> tuple[tuple[int, ...], DType]:
    x = tensors[op.inputs[0]]
    return x.shape, x.dtype


def _matmul_n_bits(op: Op, tensors: Mapping[str, Tensor]) -> tuple[tuple[int, ...], DType]:
    x = tensors[op.inputs[0]]
    return (*x.shape[:-1], op.attr_int("N", 1)), x.dtype


_SHAPES: dict[str, Rule] = {
    "QuickGelu": _same,
    "BiasGelu": _same,
    "FastGelu": _same,
    "MatMulNBits": _matmul_n_bits,
}
