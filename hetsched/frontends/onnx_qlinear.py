"""Operators that take scales and zero points as inputs, rewritten as DequantizeLinear → operator → QuantizeLinear.

So there is one form of quantization after the loader; the passes absorb it again. Input lists are those of the ONNX
operator reference (QLinearConv, QLinearMatMul) and of ONNX Runtime's contrib operators (QLinearAdd, QLinearMul, QGemm, …).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hetsched.frontends.onnx_opsets import Scope
from hetsched.graph import AttrValue, Op

CONTRIB_DOMAIN = "com.microsoft"
_UNARY = {
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearSoftmax": "Softmax",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
}


@dataclass(slots=True)
class _Expansion:
    """The operators that one quantized operator becomes."""

    op: Op
    scope: Scope
    ops: list[Op] = field(default_factory=list)

    def dequantized(self, slot: int, axis: int) -> str:
        """The float of inputs ``slot`` (integers), ``slot + 1`` (scale) and ``slot + 2`` (zero point)."""
        return self.linear("DequantizeLinear", self.op.inputs[slot : slot + 3], f"input{slot}", axis)

    def linear(self, kind: str, inputs: tuple[str, ...], what: str, axis: int) -> str:
        """Add a DequantizeLinear; per-channel scales lie along ``axis``."""
        attrs: dict[str, AttrValue] = {"axis": axis} if len(self.scope.tensor(inputs[1]).shape) == 1 else {}
        return self.add(kind, inputs, what, attrs)

    def add(self, kind: str, inputs: tuple[str, ...], what: str, attrs: dict[str, AttrValue]) -> str:
        """Add an operator in front; returns its output."""
        out = f"{self.op.outputs[0]}/{what}"
        self.ops.append(Op(f"{self.op.name}/{what}", kind, inputs, (out,), attrs, "", self.op.origin))
        return out

    def finish(self, kind: str, inputs: tuple[str, ...], attrs: dict[str, AttrValue], result: int) -> list[Op]:
        """Add the operator itself and the quantization of its result with inputs ``result`` and ``result + 1``."""
        out = f"{self.op.outputs[0]}/float"
        self.ops.append(replace(self.op, type=kind, domain="", inputs=inputs, outputs=(out,), attrs=attrs))
        quantizer = (out, *self.op.inputs[result : result + 2])
        self.ops.append(Op(f"{self.op.name}/quantize", "QuantizeLinear", quantizer, self.op.outputs, {}, "", self.op.origin))
        return self.ops

    def bias(self, slot: int) -> str:
        """The float of an int32 bias whose scale is the product of the two operands' scales."""
        if len(self.op.inputs) <= slot or not self.op.inputs[slot]:
            return ""
        scale = self.add("Mul", (self.op.inputs[1], self.op.inputs[4]), "bias_scale", {})
        channels = self.scope.tensor(self.op.inputs[4])
        attrs: dict[str, AttrValue] = {"axis": 0} if channels.shape else {}
        return self.add("DequantizeLinear", (self.op.inputs[slot], scale), "bias", attrs)


def with_float_core(op: Op, scope: Scope) -> list[Op]:
    """``op`` as operators on floats between DequantizeLinear and QuantizeLinear, or alone where it is none of these."""
    contrib = op.domain == CONTRIB_DOMAIN
    if op.domain not in {"", CONTRIB_DOMAIN} or len(op.inputs) < 5 or not op.outputs:
        return [op]
    e = _Expansion(op, scope)
    attrs = dict(op.attrs)
    if op.type == "QLinearConv":
        inputs = (e.dequantized(0, 1), e.dequantized(3, 0), e.bias(8))
        return e.finish("Conv", inputs if inputs[2] else inputs[:2], attrs, 6)
    if op.type == "QLinearMatMul":
        return e.finish("MatMul", (e.dequantized(0, -2), e.dequantized(3, -1)), attrs, 6)
    if op.type == "QGemm" and contrib and op.attr_float("alpha", 1.0) == 1.0 and len(op.inputs) > 8:
        inputs = (e.dequantized(0, 1), e.dequantized(3, 0 if op.attr_int("transB", 0) else 1), e.bias(6))
        return e.finish("Gemm", inputs if inputs[2] else inputs[:2], attrs, 7)
    if op.type in {"QLinearAdd", "QLinearMul"} and contrib:
        return e.finish(op.type.removeprefix("QLinear"), (e.dequantized(0, 1), e.dequantized(3, 1)), attrs, 6)
    if op.type in _UNARY and contrib and not op.attr_int("channels_last", 0):
        kept = {k: v for k, v in attrs.items() if k in {"alpha", "axis"}}
        return e.finish(_UNARY[op.type], (e.dequantized(0, 1),), kept, 3)
    return [op]
