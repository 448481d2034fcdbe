"""MIL operations for products, normalisations and quantization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import UnsupportedModelError
from hetsched.graph import DType, Op
from hetsched.lowering.mil import Lowering, MilBuild, builder
from hetsched.reference.quantized import along, dequantize

_ACTIVATIONS = (np.dtype(np.int8), np.dtype(np.uint8))
#: Element types that constants keep in the package.
_CODES: Mapping[DType, str] = {DType.I8: "int8", DType.U8: "uint8", DType.I4: "int4", DType.U4: "uint4"}


def _matmul(b: MilBuild, op: Op) -> Sequence[Any]:
    return [builder().matmul(x=b.read(op.inputs[0]), y=b.read(op.inputs[1]))]


def _gemm(b: MilBuild, op: Op) -> Sequence[Any]:
    left, right = (bool(op.attr_int(n, 0)) for n in ("transA", "transB"))
    out = builder().matmul(x=b.read(op.inputs[0]), y=b.read(op.inputs[1]), transpose_x=left, transpose_y=right)
    alpha, beta = op.attr_float("alpha", 1.0), op.attr_float("beta", 1.0)
    if alpha != 1:
        out = builder().mul(x=out, y=b.number(alpha, out))
    if b.optional(op, 2):
        added = b.read(op.inputs[2])
        out = builder().add(x=out, y=added if beta == 1 else builder().mul(x=added, y=b.number(beta, added)))
    return [out]


def _batch_norm(b: MilBuild, op: Op) -> Sequence[Any]:
    gamma, beta, mean, variance = (b.constant(n) for n in op.inputs[1:5])
    x, epsilon = b.read(op.inputs[0]), op.attr_float("epsilon", 1e-5)
    scale = gamma / np.sqrt(variance + epsilon)
    axes = (1, -1, *(1,) * (len(b.shape(op.inputs[0])) - 2))
    scaled = builder().mul(x=x, y=scale.reshape(axes).astype(np.float32))
    return [builder().add(x=scaled, y=(beta - mean * scale).reshape(axes).astype(np.float32))]


def _layer_norm(b: MilBuild, op: Op) -> Sequence[Any]:
    rank = len(b.shape(op.inputs[0]))
    axes = list(range(op.attr_int("axis", -1) % rank, rank))
    size = b.shape(op.inputs[0])[axes[0] :]
    beta = {"beta": np.broadcast_to(b.constant(op.inputs[2]), size).copy()} if b.optional(op, 2) else {}
    gamma, epsilon = np.broadcast_to(b.constant(op.inputs[1]), size).copy(), np.float32(op.attr_float("epsilon", 1e-5))
    return [builder().layer_norm(x=b.read(op.inputs[0]), axes=axes, gamma=gamma, epsilon=epsilon, **beta)]


def _rms_norm(b: MilBuild, op: Op) -> Sequence[Any]:
    rank = len(b.shape(op.inputs[0]))
    axes = list(range(op.attr_int("axis", -1) % rank, rank))
    x = b.read(op.inputs[0])
    mean = builder().reduce_mean(x=builder().mul(x=x, y=x), axes=axes, keep_dims=True)
    inverse = builder().rsqrt(x=mean, epsilon=np.float32(op.attr_float("epsilon", 1e-5)))
    return [builder().mul(x=builder().mul(x=x, y=inverse), y=b.constant(op.inputs[1]))]


def _instance_norm(b: MilBuild, op: Op) -> Sequence[Any]:
    gamma, beta = (b.constant(n) for n in op.inputs[1:3])
    return [builder().instance_norm(x=b.read(op.inputs[0]), gamma=gamma, beta=beta, epsilon=np.float32(op.attr_float("epsilon", 1e-5)))]


def _scale_and_zero(b: MilBuild, op: Op) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    scale = b.constant(op.inputs[1]).astype(np.float32)
    zero = b.constant(op.inputs[2]) if b.optional(op, 2) else np.zeros(scale.shape, np.uint8)
    return scale, zero


def _quantize(b: MilBuild, op: Op) -> Sequence[Any]:
    scale, zero = _scale_and_zero(b, op)
    if zero.dtype not in _ACTIVATIONS:
        raise UnsupportedModelError(f"Core ML quantizes activations to 8 bits, not to {zero.dtype}")
    axis = {} if scale.size == 1 else {"axis": op.attr_int("axis", 1)}
    shape = () if scale.size == 1 else (-1,)
    x = b.read(op.inputs[0])
    return [builder().quantize(input=x, scale=scale.reshape(shape), zero_point=zero.reshape(shape), output_dtype=str(zero.dtype), **axis)]


def _dequantize(b: MilBuild, op: Op) -> Sequence[Any]:
    from coremltools.converters.mil.mil import types

    scale, zero = _scale_and_zero(b, op)
    if op.inputs[0] in b.variables:
        along_axis = {} if scale.size == 1 else {"axis": op.attr_int("axis", 1)}
        flat = () if scale.size == 1 else (-1,)
        return [builder().dequantize(input=b.read(op.inputs[0]), scale=scale.reshape(flat), zero_point=zero.reshape(flat), **along_axis)]
    axis, block, codes = op.attr_int("axis", 1), op.attr_int("block_size", 0), b.constant(op.inputs[0])
    kind = b.graph.tensors[op.inputs[0]].dtype
    if kind not in _CODES or (block and codes.shape[axis] % block):  # an int32 bias, say: small, and Core ML has no such constants
        return [dequantize(codes, scale, zero, axis, block).astype(np.float32)]
    stored = types.nptype_from_builtin(getattr(types, _CODES[kind]))
    shape = scale.shape if block else np.broadcast_shapes((1,) * codes.ndim, along(scale, codes.ndim, axis, 0, codes.shape).shape)
    offset = {"offset": zero.astype(stored).reshape(shape)} if zero.any() else {}
    return [builder().constexpr_blockwise_shift_scale(data=codes.astype(stored), scale=scale.reshape(shape), **offset)]


LOWERINGS: Mapping[str, Lowering] = {
    "MatMul": _matmul, "Gemm": _gemm, "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm, "InstanceNormalization": _instance_norm, "QuantizeLinear": _quantize, "DequantizeLinear": _dequantize,
}  # fmt: skip
