"""Quantized operators as TFLite's int8 operators: what accelerators run. uint8 activations become int8, the same bytes less 128."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import Op
from hetsched.lowering.onnx_segment import original_nodes
from hetsched.lowering.tflite import Order, TfliteBuild, is_image
from hetsched.lowering.tflite_arithmetic import order_of
from hetsched.lowering.tflite_products import is_row, quantization, scale_and_zero
from hetsched.lowering.tflite_windows import Window, put_convolution

#: Values of the format's ``ActivationFunctionType``.
_NONE, _RELU, _RELU6 = 0, 1, 3
_BITS = (np.dtype(np.int8), np.dtype(np.uint8))


@dataclass(frozen=True, slots=True)
class Pattern:
    """An operator's body: DequantizeLinear nodes by their results, the core, and the QuantizeLinear at the end."""

    sources: dict[str, Op]
    core: Op
    activation: int
    result: Op


def write_quantized(b: TfliteBuild, op: Op) -> bool:
    """Write an operator in integers, if it has that form; whether it was written."""
    pattern = _pattern(b, op)
    if pattern is None:
        return False
    writers = {"Conv": _conv, "Gemm": _gemm, "MatMul": _gemm, "Add": _sum}
    return writers[pattern.core.type](b, pattern)


def _pattern(b: TfliteBuild, op: Op) -> Pattern | None:
    """The form of an operator's body; None if it is another."""
    nodes = original_nodes([op])
    if len(nodes) < 3 or nodes[-1].type != "QuantizeLinear":
        return None
    sources = {n.outputs[0]: n for n in nodes if n.type == "DequantizeLinear"}
    rest = [n for n in nodes[:-1] if n.type != "DequantizeLinear"]
    activation = _NONE if len(rest) == 1 else _activation(b, rest[-1])
    if not rest or len(rest) > 2 or activation is None or rest[0].type not in {"Conv", "Gemm", "MatMul", "Add"}:
        return None
    if rest[-1].outputs[0] != nodes[-1].inputs[0] or (len(rest) == 2 and rest[1].inputs[0] != rest[0].outputs[0]):
        return None
    if any(n and n not in sources for n in rest[0].inputs) or not _is_plain(b, nodes[-1]):
        return None
    return Pattern(sources, rest[0], activation, nodes[-1])


def _activation(b: TfliteBuild, node: Op) -> int | None:
    """The fused activation that a node is; None if none."""
    if node.type == "Relu":
        return _RELU
    if node.type != "Clip" or not (b.optional(node, 1) and b.optional(node, 2)):
        return None
    bounds = tuple(float(b.values(n).item()) for n in node.inputs[1:3])
    return _RELU6 if bounds == (0.0, 6.0) else None


def _is_plain(b: TfliteBuild, node: Op) -> bool:
    """Whether a Q or DQ node has 8 bits and one scale."""
    scale, zero = scale_and_zero(b, node)
    return scale.size == 1 and zero.dtype in _BITS


def _int8(b: TfliteBuild, node: Op, order: Order) -> int:
    """The activation that a DequantizeLinear reads, in int8."""
    name = node.inputs[0]
    order = order if is_image(b.graph, name) else "plain"
    scale, zero = scale_and_zero(b, node)
    if zero.dtype == np.int8:
        index = b.read(name, order)
        b.describe(index, quantization(scale, zero))
        return index
    if (name, order) not in b.eight:
        other: Order = "plain" if order == "last" else "last"
        if (name, other) in b.eight:
            b.eight[name, order] = b.turned(b.eight[name, other], order)
        else:
            source = b.read(name, order)
            b.describe(source, quantization(scale, zero))
            out = b.temporary(b.shape(name, order), "INT8", quantization(scale, zero.astype(np.int64) - 128))
            b.operator("QUANTIZE", [source], [out], "QuantizeOptions")
            b.eight[name, order] = out
    b.describe(b.eight[name, order], quantization(scale, zero.astype(np.int64) - 128))
    return b.eight[name, order]


def _result(b: TfliteBuild, node: Op, order: Order) -> int:
    """The int8 tensor of a QuantizeLinear's result."""
    name = node.outputs[0]
    order = order if is_image(b.graph, name) else "plain"
    scale, zero = scale_and_zero(b, node)
    if zero.dtype == np.int8:
        return b.write(name, order, quantization(scale, zero), "INT8")
    b.eight[name, order] = b.temporary(b.shape(name, order), "INT8", quantization(scale, zero.astype(np.int64) - 128))
    return b.eight[name, order]


def _weights(b: TfliteBuild, node: Op, channels: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Symmetric int8 weights and their scales, one or along the axis ``channels``; None if TFLite does not take them."""
    scale, zero = scale_and_zero(b, node)
    if not b.is_constant(node.inputs[0]) or node.attr_int("block_size", 0):
        return None
    codes = b.values(node.inputs[0])
    if scale.size > 1 and node.attr_int("axis", 1) % codes.ndim != channels % codes.ndim:
        return None
    if codes.dtype == np.uint8 and np.all(zero == 128):
        codes, zero = (codes.astype(np.int16) - 128).astype(np.int8), np.zeros_like(zero, np.int8)
    return (codes, scale) if codes.dtype == np.int8 and not zero.any() else None


def _bias(b: TfliteBuild, pattern: Pattern, count: int, scales: npt.NDArray[Any]) -> int:
    """The bias in the product's own scales, as int32."""
    name = b.optional(pattern.core, 2)
    codes = np.zeros(count, np.int32)
    if name:
        node = pattern.sources[name]
        scale, zero = scale_and_zero(b, node)
        real = (b.values(node.inputs[0]).astype(np.float64) - zero) * scale
        codes = np.clip(np.rint(np.broadcast_to(real.reshape(-1), (count,)) / scales), -(2**31), 2**31 - 1).astype(np.int32)
    return b.constant(codes, quantization(np.broadcast_to(scales, (count,)), np.zeros(1)))


def _conv(b: TfliteBuild, pattern: Pattern) -> bool:
    core, source = pattern.core, pattern.sources[pattern.core.inputs[0]]
    held = _weights(b, pattern.sources[core.inputs[1]], 0)
    if held is None or b.is_constant(source.inputs[0]) or not _is_plain(b, source) or not is_image(b.graph, core.inputs[0]):
        return False
    codes, scale = held
    window = Window.of(b, core, codes.shape[2:])
    product = scale_and_zero(b, source)[0] * np.broadcast_to(scale.reshape(-1), (codes.shape[0],))
    described = quantization(np.broadcast_to(scale.reshape(-1), (codes.shape[0],)), np.zeros(1))
    constants = described, _bias(b, pattern, codes.shape[0], product)
    image = _int8(b, source, "last")
    put_convolution(b, core, window, image, codes, constants, _result(b, pattern.result, "last"), pattern.activation)
    return True


def _gemm(b: TfliteBuild, pattern: Pattern) -> bool:
    core, source = pattern.core, pattern.sources[pattern.core.inputs[0]]
    held = _weights(b, pattern.sources[core.inputs[1]], 0 if core.attr_int("transB", 0) else -1)
    if held is None or held[0].ndim != 2 or not _is_plain(b, source) or core.attr_int("transA", 0):
        return False
    if core.attr_float("alpha", 1.0) != 1 or core.attr_float("beta", 1.0) != 1:
        return False
    codes, scale = held
    codes = codes if core.attr_int("transB", 0) else codes.T
    added = b.optional(core, 2)
    if added and not is_row(b.values(pattern.sources[added].inputs[0]), codes.shape[0]):
        return False
    described = quantization(scale, np.zeros(1))
    product = scale_and_zero(b, source)[0] * np.broadcast_to(scale.reshape(-1), (codes.shape[0],))
    if scale.size == 1:
        product = product[:1]
    inputs = [_int8(b, source, "plain"), b.constant(np.ascontiguousarray(codes), described), _bias(b, pattern, codes.shape[0], product)]
    fields = {"keepNumDims": len(b.shape(core.inputs[0])) > 2, "fusedActivationFunction": pattern.activation}
    b.operator("FULLY_CONNECTED", inputs, [_result(b, pattern.result, "plain")], "FullyConnectedOptions", **fields)
    return True


def _sum(b: TfliteBuild, pattern: Pattern) -> bool:
    sources: Sequence[Op] = [pattern.sources[n] for n in pattern.core.inputs]
    if any(b.is_constant(s.inputs[0]) or not _is_plain(b, s) for s in sources) or len(sources) != 2:
        return False
    order = order_of(b, [s.inputs[0] for s in sources], pattern.result.outputs[0])
    inputs = [_int8(b, s, order) for s in sources]
    b.operator("ADD", inputs, [_result(b, pattern.result, order)], "AddOptions", fusedActivationFunction=pattern.activation)
    return True
