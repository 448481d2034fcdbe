"""Products of a step with weights that stay in 16 bits, as a Hugging Face folder stores them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import DType, Tensor
from hetsched.language.building import Building
from hetsched.language.fusion import Fused
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.few_bits import PackedGroups
from hetsched_kernels.gemm_halves import gemm_halves_f32, gemm_halves_scratch
from hetsched_kernels.halves import BRAIN, HALF, pack_halves
from hetsched_kernels.program import Call

Array = npt.NDArray[Any]
_FORMS = {DType.F16: HALF, DType.BF16: BRAIN}


def is_half(weight: Tensor) -> bool:
    """Whether a matrix is stored as float16 or bfloat16."""
    return weight.quantization is None and weight.dtype in _FORMS and len(weight.shape) == 2


def half_product(
    b: Building, one: Fused, columns: Callable[[int], Sequence[tuple[int, int]]], finish: tuple[int, float, float]
) -> None:  # fmt: skip
    """A product with such a matrix, the same numbers as in float32.

    Args:
        b: the step.
        one: the product.
        columns: parts of so many columns.
        finish: code and parameters of the function that its result goes through.
    """
    op, out, x = one.op, one.writes[0], b.read(one.reads[0])
    weight = b.graph.tensors[op.inputs[1]]
    n, k = weight.shape
    data = b.store.get(op.inputs[1], lambda: packed_halves(weight)).data.view(np.uint16)
    bias, to = b.constant(op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else NO_F32, b.write(out)
    calls, parts = [], columns(n)
    for first, last in parts:
        scratch = b.turn("halves", gemm_halves_scratch(k), 2 * len(parts))
        args = (x, data, _FORMS[weight.dtype], bias, to, scratch, b.whole.rows, n, k, first, last, *finish)
        calls.append(Call(gemm_halves_f32, (), args))
    b.emit(calls, one.reads, [out])


def packed_halves(weight: Tensor) -> PackedGroups:
    """A matrix in 16 bits in the order that :data:`gemm_halves_f32` reads it in; its shape is [n, k, form]."""
    raw = np.ascontiguousarray(weight.numpy()).view(np.uint16).reshape(weight.shape)
    return PackedGroups(pack_halves(raw).view(np.uint8), np.array([*weight.shape, _FORMS[weight.dtype]], np.int64))
