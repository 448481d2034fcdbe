"""Stored integers: whether an operator computes on the reals that they stand for, and whether moving them changes what they mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched.graph import DType, Graph, Op, Tensor
from hetsched.passes.unfuse import parts


def absorbs(op: Op, tensor: str) -> bool:
    """Whether ``op`` holds the QuantizeLinear that writes ``tensor`` or the DequantizeLinear that reads it: it then computes on reals."""
    return any(
        (part.type == "DequantizeLinear" and part.inputs[0] == tensor) or (part.type == "QuantizeLinear" and part.outputs[0] == tensor)
        for part in parts(op)
    )


def requantized(op: Op, graph: Graph, moved: Sequence[str]) -> str | None:
    """Why data that are stored otherwise after moving cannot be: kernels quantize to 8 bits only."""
    for y in (graph.tensors[o] for o in op.outputs if o):
        if y.quantization is None or y.dtype in (DType.I8, DType.U8):
            continue
        if any(_stored_otherwise(graph.tensors[n], y, graph) for n in moved):
            return f"tensor {y.name!r} is {y.dtype.value} with another scale than what it is made of, and kernels quantize to 8 bits only"
    return None


def _stored_otherwise(x: Tensor, y: Tensor, graph: Graph) -> bool:
    """Whether equal integers of two quantized tensors stand for different reals."""
    if x.quantization is None or y.quantization is None:
        return False
    a, b = x.quantization, y.quantization
    pairs = ((a.scale, b.scale), (a.zero_point, b.zero_point))
    return x.dtype is not y.dtype or not all(m == n or (m and n and _equal(graph.tensors[m], graph.tensors[n])) for m, n in pairs)


def _equal(x: Tensor, y: Tensor) -> bool:
    return bool(np.array_equal(x.numpy(), y.numpy()))
