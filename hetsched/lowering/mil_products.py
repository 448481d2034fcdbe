"""MIL operations for products, normalisations and quantization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Op
from hetsched.lowering.mil import Lowering, MilBuild

_ACTIVATIONS = (np.dtype(np.int8), np.dtype(np.uint8))


def _mb() -> Any:
    from coremltools.converters.mil import Builder

    return Builder


def _matmul(b: MilBuild, op: Op) -> Sequence[Any]:
    return [_mb().matmul(x=b.read(op.inputs[0]), y=b.read(op.inputs[1]))]


def _gemm(b: MilBuild, op: Op) -> Sequence[Any]:
    left, right = (bool(op.attr_int(n, 0)) for n in ("transA", "transB"))
    out = _mb().matmul(x=b.read(op.inputs[0]), y=b.read(op.inputs[1]), transpose_x=left, transpose_y=right)
    alpha, beta = op.attr_float("alpha", 1.0), op.attr_float("beta", 1.0)
    if alpha != 1:
        out = _mb().mul(x=out, y=np.float32(alpha))
    if b.optional(op, 2):
        added = b.read(op.inputs[2])
        out = _mb().add(x=out, y=added if beta == 1 else _mb().mul(x=added, y=np.float32(beta)))
    return [out]


def _batch_norm(b: MilBuild, op: Op) -> Sequence[Any]:
    gamma, beta, mean, variance = (b.constant(n) for n in op.inputs[1:5])
    x, epsilon = b.read(op.inputs[0]), op.attr_float("epsilon", 1e-5)
    scale = gamma / np.sqrt(variance + epsilon)
    axes = (1, -1, *(1,) * (len(b.shape(op.inputs[0])) - 2))
    scaled = _mb().mul(x=x, y=scale.reshape(axes).astype(np.float32))
    return [_mb().add(x=scaled, y=(beta - mean * scale).reshape(axes).astype(np.float32))]


def _layer_norm(b: MilBuild, op: Op) -> Sequence[Any]:
    rank = len(b.shape(op.inputs[0]))
    axes = list(range(op.attr_int("axis", -1) % rank, rank))
    beta = {"beta": b.constant(op.inputs[2])} if b.optional(op, 2) else {}
    gamma, epsilon = b.constant(op.inputs[1]), np.float32(op.attr_float("epsilon", 1e-5))
    return [_mb().layer_norm(x=b.read(op.inputs[0]), axes=axes, gamma=gamma, epsilon=epsilon, **beta)]


def _rms_norm(b: MilBuild, op: Op) -> Sequence[Any]:
    rank = len(b.shape(op.inputs[0]))
    axes = list(range(op.attr_int("axis", -1) % rank, rank))
    x = b.read(op.inputs[0])
    mean = _mb().reduce_mean(x=_mb().mul(x=x, y=x), axes=axes, keep_dims=True)
    inverse = _mb().rsqrt(x=mean, epsilon=np.float32(op.attr_float("epsilon", 1e-5)))
    return [_mb().mul(x=_mb().mul(x=x, y=inverse), y=b.constant(op.inputs[1]))]


def _instance_norm(b: MilBuild, op: Op) -> Sequence[Any]:
    gamma, beta = (b.constant(n) for n in op.inputs[1:3])
    return [_mb().instance_norm(x=b.read(op.inputs[0]), gamma=gamma, beta=beta, epsilon=np.float32(op.attr_float("epsilon", 1e-5)))]


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
    return [_mb().quantize(input=x, scale=scale.reshape(shape), zero_point=zero.reshape(shape), output_dtype=str(zero.dtype), **axis)]


def _dequantize(b: MilBuild, op: Op) -> Sequence[Any]:
    scale, zero = _scale_and_zero(b, op)
    if op.inputs[0] in b.variables:
        axis = {} if scale.size == 1 else {"axis": op.attr_int("axis", 1)}
        shape = () if scale.size == 1 else (-1,)
        return [_mb().dequantize(input=b.read(op.inputs[0]), scale=scale.reshape(shape), zero_point=zero.reshape(shape), **axis)]
    codes = b.constant(op.inputs[0])
    if codes.dtype not in _ACTIVATIONS:  # an int32 bias: small, and Core ML has no such constants
        axes = _broadcast(scale, codes.ndim, op.attr_int("axis", 1))
        return [((codes.astype(np.float64) - zero.astype(np.float64).reshape(axes)) * scale.reshape(axes)).astype(np.float32)]
    axes = _broadcast(scale, codes.ndim, op.attr_int("axis", 1))
    offset = {"offset": zero.astype(codes.dtype).reshape(axes)} if zero.any() else {}
    return [_mb().constexpr_blockwise_shift_scale(data=codes, scale=scale.reshape(axes), **offset)]


def _broadcast(scale: npt.NDArray[Any], rank: int, axis: int) -> tuple[int, ...]:
    """The shape of scales beside codes of ``rank`` axes."""
    if scale.size == 1:
        return (1,) * rank
    return tuple(scale.size if i == axis % rank else 1 for i in range(rank))


def _matmul_nbits(b: MilBuild, op: Op) -> Sequence[Any]:
    """Block-wise 4-bit weights stay 4-bit in the package."""
    from coremltools.converters.mil.mil import types

    k, n, bits, group = (op.attr_int(name, 0) for name in ("K", "N", "bits", "block_size"))
    if bits != 4 or b.optional(op, 4) or k % group:
        raise UnsupportedModelError("only 4-bit weights in whole groups, without an index of groups, are written for Core ML")
    packed = b.constant(op.inputs[1]).reshape(n, -1)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(n, k)
    scale = b.constant(op.inputs[2]).reshape(n, k // group).astype(np.float32)
    zeros = np.full((n, k // group), 8, np.uint8)
    if b.optional(op, 3):
        stored = b.constant(op.inputs[3]).reshape(n, -1)
        zeros = np.stack([stored & 15, stored >> 4], -1).reshape(n, -1)[:, : k // group]
    kind = types.nptype_from_builtin(types.uint4)
    weight = _mb().constexpr_blockwise_shift_scale(data=codes.astype(kind), scale=scale, offset=zeros.astype(kind))
    out = _mb().matmul(x=b.read(op.inputs[0]), y=weight, transpose_y=True)
    return [_mb().add(x=out, y=b.read(op.inputs[5])) if b.optional(op, 5) else out]


LOWERINGS: Mapping[str, Lowering] = {
    "MatMul": _matmul, "Gemm": _gemm, "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm, "InstanceNormalization": _instance_norm, "QuantizeLinear": _quantize, "DequantizeLinear": _dequantize,
    "MatMulNBits": _matmul_nbits,
}  # fmt: skip
