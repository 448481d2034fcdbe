"""Constants of static integers: weights as 8-bit, biases as 32-bit integers, computed when somebody reads them.

Planning needs shapes and types only, so nothing here touches a weight until :meth:`hetsched.tensors.Tensor.numpy` is
called on one of the new constants; each call computes it anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import DType, Op, Quantization, Role, Tensor, WeightRef

Array = npt.NDArray[Any]
_LARGEST_BIAS = 2.0**31 - 1
_BATCH_NORMALISED = "batch_norm"


def weight_axis(op: Op, weight: Tensor) -> int | None:
    """The axis of ``weight`` that runs over the output channels of a matrix operator; None where there is none."""
    rank = len(weight.shape)
    if "ConvTranspose" in op.type:
        return 1
    if "Conv" in op.type:
        return 0
    if rank != 2:
        return None
    if "Gemm" in op.type:
        return 0 if op.attr_int("transB", 0) else 1
    return 1


def weight_scales(weight: Array, axis: int) -> npt.NDArray[np.float32]:
    """Symmetric scale of each index of ``axis``: the largest magnitude over 127; 1 where all are (next to) zero."""
    others = tuple(i for i in range(weight.ndim) if i != axis)
    peak = np.abs(np.asarray(weight, np.float32)).max(axis=others, initial=0.0)
    scale = peak / np.float32(127)
    return np.asarray(np.where(scale > np.finfo(np.float32).tiny, scale, 1.0), np.float32)


def weight_codes(weight: Array, axis: int) -> npt.NDArray[np.int8]:
    """``weight`` in symmetric int8, -127 to 127, one scale for each index of ``axis``."""
    shape = [-1 if i == axis else 1 for i in range(weight.ndim)]
    scaled = np.asarray(weight, np.float32) / weight_scales(weight, axis).reshape(shape)
    return np.asarray(np.clip(np.rint(scaled), -127, 127)).astype(np.int8)


def quantized_weight(weight: Tensor, axis: int, name: str) -> tuple[Tensor, Tensor]:
    """The int8 form of a float weight, called ``name``, and its scales, called ``name/scale``; both lazy."""
    scale = Tensor(
        f"{name}/scale", (weight.shape[axis],), DType.F32, Role.WEIGHT, None,
        WeightRef(compute=lambda: weight_scales(weight.numpy(), axis)),
    )  # fmt: skip
    codes = Tensor(
        name, weight.shape, DType.I8, Role.WEIGHT, Quantization(scale.name, None, "channel", axis),
        WeightRef(compute=lambda: weight_codes(weight.numpy(), axis)),
    )  # fmt: skip
    return codes, scale


def has_integer_bias(op: Op, bias: Tensor, channels: int) -> bool:
    """Whether the bias of ``op`` can be 32-bit integers: one constant a channel, added before anything else is.

    A fused batch normalisation scales the sums before its own shift, so a bias beside it stays float.
    """
    vector = bias.is_constant and bias.dtype is DType.F32 and bias.shape == (channels,)
    return vector and not op.attr_int(_BATCH_NORMALISED, 0) and op.attr_float("beta", 1.0) == 1.0 and op.attr_float("alpha", 1.0) == 1.0


def quantized_bias(bias: Tensor, weight_scale: Tensor, activation_scale: float, name: str) -> tuple[Tensor, Tensor]:
    """The int32 form of a float bias, in steps of ``activation_scale`` times the weight's scales; with its scales, both lazy.

    A channel whose weights are so small that its bias would not fit gets a coarser step.
    """

    def scales() -> npt.NDArray[np.float32]:
        step = np.asarray(weight_scale.numpy(), np.float64) * activation_scale
        needed = np.abs(np.asarray(bias.numpy(), np.float64)) / _LARGEST_BIAS
        return np.maximum(step, needed * (1 + 1e-6)).astype(np.float32)

    def codes() -> npt.NDArray[np.int32]:
        steps = np.rint(np.asarray(bias.numpy(), np.float64) / scales())
        return np.asarray(np.clip(steps, -_LARGEST_BIAS, _LARGEST_BIAS)).astype(np.int32)

    scale = Tensor(f"{name}/scale", bias.shape, DType.F32, Role.WEIGHT, None, WeightRef(compute=scales))
    stored = Tensor(name, bias.shape, DType.I32, Role.WEIGHT, Quantization(scale.name, None, "channel", 0), WeightRef(compute=codes))
    return stored, scale
