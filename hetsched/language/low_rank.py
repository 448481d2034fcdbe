"""What a low-rank adapter adds to a product: two small products and a sum."""

from __future__ import annotations

import numpy as np

from hetsched.language.adapters import Adapter
from hetsched.language.building import Building
from hetsched.language.fusion import Fused
from hetsched.language.run_values import Descriptor
from hetsched_kernels import codes
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.binary import binary_f32
from hetsched_kernels.gemm import gemm_f32, gemm_f32_scratch, pack_b_f32
from hetsched_kernels.program import Call

_SLACK = 64
_NOTHING = (codes.NONE, 0.0, 0.0)


def add_low_rank(b: Building, one: Fused, adapter: Adapter) -> None:
    """Add ``high (low x)`` to the result of a product."""
    weight, x, out = one.op.inputs[1], one.reads[0], one.writes[0]
    low, high = adapter.low[weight], adapter.high[weight]
    (rank, k), n = low.shape, high.shape[0]
    between, added = b.keep("low rank", b.capacity * rank + _SLACK), b.keep("added", b.capacity * n + _SLACK)
    a, c = pack_b_f32(low, True), pack_b_f32(np.ascontiguousarray(high), True)
    to, ones = b.read(out), np.ones(1, np.int64)
    first, second, third = [], [], []
    for number, part in enumerate(b.parts):
        scratch = b.keep(f"low rank {number}", max(gemm_f32_scratch(b.most, rank, k), gemm_f32_scratch(b.most, n, rank)))
        first.append(Call(gemm_f32, (), (part.of(b.read(x), k), a, NO_F32, part.of(between, rank), scratch, part.rows, rank, k, *_NOTHING)))
        second.append(Call(gemm_f32, (), (part.of(between, rank), c, NO_F32, part.of(added, n), scratch, part.rows, n, rank, *_NOTHING)))
        sizes, rows = Descriptor((part.times(n),)), part.of(to, n, sized=True)
        third.append(Call(binary_f32, (), (rows, part.of(added, n, sized=True), rows, codes.BINARY["Add"], sizes, ones, ones)))
    b.emit(first, [x], ["low rank"])
    b.emit(second, ["low rank"], ["added"])
    b.emit(third, ["added", out], [out])
