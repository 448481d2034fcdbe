"""Gather and its kin, and ArgMax / ArgMin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched.runtime.lower.movement import endpoints
from hetsched_kernels import gather as kernels
from hetsched_kernels import search


def _emit_checked(low: Lowering, kernel: Any, source: Array, indices: Array, *args: Any) -> None:
    """Call a kernel that returns whether every index was in range."""
    refusal = f"the indices {low.tensor(1).name!r} point outside the tensor that they index"
    low.emit(kernel, source, indices, *args, dtypes=(source.dtype, indices.dtype), refusal=refusal)


def gather(low: Lowering) -> None:
    """Gather along one axis; int32 or int64 indices, negative ones count from the end."""
    shape = low.shape(0)
    axis = low.op.attr_int("axis", 0) % len(shape)
    (source,), (target,) = endpoints(low)
    indices = low.raw(1)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    _emit_checked(low, kernels.gather, source, indices, target, outer, shape[axis], inner)


def gather_elements(low: Lowering) -> None:
    """GatherElements."""
    shape = low.shape(0)
    (source,), (target,) = endpoints(low)
    indices = low.raw(1)
    dims, index_dims = np.array(shape, np.int64), np.array(low.shape(1), np.int64)
    _emit_checked(low, kernels.gather_elements, source, indices, target, dims, index_dims, low.op.attr_int("axis", 0) % len(shape))


def extremum_index(low: Lowering) -> None:
    """ArgMax and ArgMin."""
    shape = low.shape(0)
    axis = low.op.attr_int("axis", 0) % len(shape)
    x: Array = low.reals(0)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    last = bool(low.op.attr_int("select_last_index", 0))
    low.emit(search.argmax_f32, x, low.raw_output(), outer, shape[axis], inner, low.op.type == "ArgMax", last)
