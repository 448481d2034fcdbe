"""Tensors that passes made of tensors of the file: the same elements quantized, or with their axes in another order.

Checks that compare an execution with the file's own run find here what such a tensor must be.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import Graph, Tensor

Array = npt.NDArray[Any]
_INTEGERS = "/integers"
_ORDER = re.compile(r"(.+)/(\d+(?:_\d+)*)")


def base_of(name: str) -> str:
    """The tensor that ``name`` was made of by its name: itself if it was not.

    Examples:
        >>> base_of("view_11/integers"), base_of("conv/0_2_3_1"), base_of("conv")
        ('view_11', 'conv', 'conv')
    """
    if name.endswith(_INTEGERS):
        return name.removesuffix(_INTEGERS)
    match = _ORDER.fullmatch(name)
    return match[1] if match and len(match[2]) > 1 else name


def derived(graph: Graph, name: str, base: Array) -> Array | None:
    """What the tensor ``name`` is for a value of its base; None if it is not that tensor quantized or transposed."""
    if base_of(name) == name:
        return None
    t = graph.tensors[name]
    if name.endswith(_INTEGERS):
        return _quantized(graph, t, base)
    perm = tuple(int(i) for i in name.rpartition("/")[2].split("_"))
    if sorted(perm) != list(range(base.ndim)) or tuple(base.shape[i] for i in perm) != t.shape:
        return None
    return np.ascontiguousarray(base.transpose(perm))


def _quantized(graph: Graph, t: Tensor, base: Array) -> Array | None:
    from hetsched.reference.quantized import quantize

    q = t.quantization
    if q is None or q.granularity != "tensor" or base.shape != t.shape or base.dtype.kind != "f":
        return None
    zero_point = None if q.zero_point is None else graph.tensors[q.zero_point].numpy()
    return quantize(base, graph.tensors[q.scale].numpy(), zero_point, t.dtype)
