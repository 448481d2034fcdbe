"""Products with weights of a few bits, computed on directly: int8 activations, quantized when they arrive."""

from __future__ import annotations

import numpy as np

from hetsched.graph import Tensor
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched_kernels import few_bits, gemm_groups, gguf_groups, quantize_groups
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.few_bits import GROUP, K, PackedGroups
from hetsched_kernels.groups import ZEROS, Groups
from hetsched_kernels.tile import LANES

_SCHEME = "gguf:"


def gguf_weights(tensor: Tensor, shape: tuple[int, int] | None = None) -> Groups:
    """A matrix ``[n, k]`` stored in GGUF's blocks; ``shape`` where the tensor is a stack of them."""
    n, k = shape or tensor.shape
    kind = "" if tensor.quantization is None else tensor.quantization.scheme.removeprefix(_SCHEME)
    return gguf_groups.gguf_groups(kind, tensor.numpy().reshape(-1).view(np.uint8), n, k)


def block_product(low: Lowering, n: int, bias: Array) -> None:
    """Gemm by a constant matrix in GGUF's blocks, at w8a8."""
    packed = low.packed(low.op.inputs[1], "groups", lambda: few_bits.pack_groups(gguf_weights(low.tensor(1))))
    _product(low, packed, low.output().elements // n, bias)


def _n_bits_weights(low: Lowering) -> Groups:
    """The weight of MatMulNBits: 4-bit codes, scales, and zero points where one is not 8."""
    tensor = low.tensor(1)
    q = tensor.quantization
    assert q is not None and q.zero_point is not None and q.group
    k = low.op.attr_int("K", 0)
    scales = np.asarray(low.graph.tensors[q.scale].values(), np.float32)
    zeros = np.asarray(low.graph.tensors[q.zero_point].values()).astype(np.int32)
    mins = None if (zeros == ZEROS[4]).all() else -scales * zeros.astype(np.float32)
    return Groups(np.asarray(tensor.values())[:, :k].astype(np.uint8), 4, q.group, scales, mins)


def n_bits_product(low: Lowering) -> None:
    """MatMulNBits of 4 bits at w8a8."""
    packed = low.packed(low.op.inputs[1], "groups", lambda: few_bits.pack_groups(_n_bits_weights(low)))
    _product(low, packed, low.output().elements // low.op.attr_int("N", 0), low.bias(5))


def _product(low: Lowering, packed: PackedGroups, m: int, bias: Array) -> None:
    x, out = low.reals(0), low.real_output()
    depth, group, cols = int(packed.shape[K]), int(packed.shape[GROUP]), x.size // m
    count = m * (depth // group)
    q, scales, sums = low.scratch(m * depth, np.uint8), low.scratch(count, np.float32), low.scratch(count, np.int32)
    low.emit(quantize_groups.quantize_groups, x, NO_F32, q, scales, sums, NO_F32, m, cols, depth, group)
    room = gemm_groups.gemm_groups_scratch(packed.shape)

    def part(first: int, last: int) -> tuple[object, ...]:
        scratch = low.scratch(room, np.float32)
        return (q, scales, sums, packed.data, packed.shape, bias, out, scratch, m, first, last, *low.activation())

    low.emit_split(gemm_groups.gemm_groups_f32, int(packed.shape[few_bits.N]), LANES, part)
