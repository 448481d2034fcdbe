"""MatMul, Gemm and products with weights of a few bits, in float32 and float16."""

from __future__ import annotations

import math

import numpy as np

from hetsched.graph import DType, Tensor
from hetsched.runtime.delegates.wgpu.lowering import GpuLowering
from hetsched.runtime.delegates.wgpu.program import Slot
from hetsched.runtime.lower.lowering import Array
from hetsched.runtime.lower.matrix import promoted

#: Weights of a word.
_NIBBLES = 8


def in_four_bits(tensor: Tensor) -> bool:
    """Whether a weight lies in groups of 4 bits that :func:`packed_product` takes as they are."""
    q = tensor.quantization
    grouped = q is not None and q.granularity == "group" and not q.block_bytes and (q.group or 0) % _NIBBLES == 0
    return grouped and tensor.is_constant and tensor.dtype in (DType.U4, DType.I4) and len(tensor.shape) == 2


def matmul(low: GpuLowering) -> None:
    """MatMul and FusedMatMul (A, B, bias)."""
    a_shape, b_shape = promoted(low.shape(0), low.shape(1))
    k, n = b_shape[-2:]
    bias = low.vector(2, n)
    if low.tensor(1).is_constant and math.prod(b_shape[:-2]) == 1:
        rows = math.prod(a_shape[:-1])
        if in_four_bits(low.tensor(1)):
            packed_product(low, bias, rows, n, k, transposed=False)
        else:
            _product(low, bias, rows, n, k, transposed=False)
        return
    out, lead = low.float_target(), low.output().shape
    batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    starts = [
        np.broadcast_to(np.arange(math.prod(s[:-2])).reshape(s[:-2]) * math.prod(s[-2:]), batch).reshape(-1) for s in (a_shape, b_shape)
    ]  # fmt: skip
    offsets = low.program.weight(low.op.name, "offsets", "i32", lambda: np.stack(starts, -1))
    m = a_shape[-2]
    _running(low, offsets, bias, out, (m, n, k), ((k, 1), (n, 1)), 1.0, math.prod(lead) // max(m * n, 1))


def general_product(low: GpuLowering) -> None:
    """Gemm and FusedGemm: alpha and beta are folded into constants."""
    op, n = low.op, low.output().shape[-1]
    alpha, beta = op.attr_float("alpha", 1.0), op.attr_float("beta", 1.0)
    turned_a, turned_b = bool(op.attr_int("transA", 0)), bool(op.attr_int("transB", 0))
    m, k = reversed(low.shape(0)) if turned_a else low.shape(0)
    folded = low.has(2) and low.tensor(2).is_constant
    bias = low.vector(2, n, (lambda: np.broadcast_to(low.constant_reals(2).reshape(-1) * np.float32(beta), (n,))) if folded else None)
    if low.tensor(1).is_constant:
        if in_four_bits(low.tensor(1)) and not turned_a and alpha == 1.0:
            packed_product(low, bias, m, n, k, turned_b)
        else:
            _product(low, bias, m, n, k, turned_b, alpha, (1, m) if turned_a else (k, 1))
        return
    offsets = low.program.weight("", "no offsets", "i32", lambda: np.zeros(2))
    a, b = (1, m) if turned_a else (k, 1), (1, k) if turned_b else (n, 1)
    _running(low, offsets, bias, low.float_target(), (m, n, k), (a, b), alpha, 1)


def matmul_n_bits(low: GpuLowering) -> None:
    """MatMulNBits: A, W, scales, zero points, group indices, bias; W is ``[N, K]``."""
    shape, n = low.shape(0), low.output().shape[-1]
    bias = low.vector(5, n)
    rows, k = math.prod(shape[:-1]), shape[-1]
    if in_four_bits(low.tensor(1)):
        packed_product(low, bias, rows, n, k, transposed=True)
    else:
        _product(low, bias, rows, n, k, transposed=True)


def _product(
    low: GpuLowering, bias: Slot, rows: int, n: int, k: int, transposed: bool, factor: float = 1.0, steps: tuple[int, int] | None = None
) -> None:
    """A times a constant matrix; ``steps``: from row to row and from element to element of A."""
    blocks = -(-n // 4)

    def pack() -> Array:
        weights = low.constant_reals(1) * np.float32(factor)
        matrix = weights.reshape(n, -1).T[:k] if transposed else weights.reshape(k, n)
        return np.pad(matrix, ((0, 0), (0, blocks * 4 - n))).reshape(k, blocks, 4).transpose(1, 0, 2)

    out = low.float_target()
    weights = low.program.weight(low.op.inputs[1], f"matrix {transposed} {factor}", low.compute, pack)
    bindings = {"a": low.floats(0), "w": weights, "bias": bias, "y": out}
    low.static("matmul", bindings, [rows, n, k, *(steps or (k, 1))], -(-rows // 4), (blocks, 1))
    low.store(out)


def _running(
    low: GpuLowering, offsets: Slot, bias: Slot, out: Slot, sizes: tuple[int, int, int], steps: tuple[tuple[int, int], tuple[int, int]],
    scale: float, batch: int,
) -> None:  # fmt: skip
    """Products of two tensors computed while running; ``steps``: of A along rows and k, of B along k and columns."""
    m, n, k = sizes
    bindings = {"a": low.floats(0), "b": low.floats(1), "bias": bias, "offsets": offsets, "y": out}
    low.static("matmul_batched", bindings, [m, n, k, *steps[0], *steps[1], scale], batch * m * -(-n // 4))
    low.store(out)


def packed_product(low: GpuLowering, bias: Slot, rows: int, n: int, k: int, transposed: bool) -> None:
    """A times a matrix of 4-bit weights in groups along k, which stay 4 bits in device memory."""
    tensor, name = low.tensor(1), low.op.inputs[1]
    q = tensor.quantization
    assert q is not None and q.group
    shift = 8 if tensor.dtype is DType.I4 else 0

    def along_k(values: Array) -> Array:
        return values.reshape(n, -1).T if transposed else values.reshape(-1, n)

    def words() -> Array:
        nibbles = along_k(tensor.values().astype(np.int32) + shift).astype(np.uint32)
        filled = np.pad(nibbles, ((0, -nibbles.shape[0] % _NIBBLES), (0, 0))).reshape(-1, _NIBBLES, n)
        packed: Array = np.bitwise_or.reduce(filled << (4 * np.arange(_NIBBLES, dtype=np.uint32))[:, None], axis=1)
        return packed

    def scales() -> Array:
        return along_k(np.asarray(low.graph.tensors[q.scale].values(), np.float32))

    def zeros() -> Array:
        if q.zero_point is None:
            return np.full_like(scales(), shift)
        return along_k(np.asarray(low.graph.tensors[q.zero_point].values(), np.float32)) + shift

    out, weight = low.float_target(), low.program.weight
    bindings = {
        "a": low.floats(0), "w": weight(name, f"nibbles {transposed}", "u32", words),
        "scale": weight(name, f"scales {transposed}", "f32", scales), "zero": weight(name, f"zeros {transposed}", "f32", zeros),
        "bias": bias, "y": out,
    }  # fmt: skip
    low.static("matmul_w4", bindings, [rows, n, k, -(-k // _NIBBLES), q.group // _NIBBLES], n * -(-rows // 4))
    low.store(out)
