"""Gather and its kin, and ArgMax / ArgMin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched.errors import ExecutionError
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched.runtime.lower.movement import endpoints
from hetsched_kernels import gather as kernels
from hetsched_kernels import search


def _checked(kernel: Callable[..., bool], tensor: str, *args: Any) -> None:
    """Run a kernel that returns whether every index was in range."""
    if not kernel(*args):
        raise ExecutionError(f"the indices {tensor!r} point outside the tensor that they index")


def gather(low: Lowering) -> None:
    """Gather along one axis; int32 or int64 indices, negative ones count from the end."""
    shape = low.shape(0)
    axis = low.op.attr_int("axis", 0) % len(shape)
    (source,), (target,) = endpoints(low)
    indices = low.raw(1)
    call = kernels.gather.compile(source.dtype, indices.dtype)
    args = (source, indices, target, math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    low.call(_checked, call, low.tensor(1).name, *args)


def gather_elements(low: Lowering) -> None:
    """GatherElements."""
    shape = low.shape(0)
    (source,), (target,) = endpoints(low)
    indices = low.raw(1)
    call = kernels.gather_elements.compile(source.dtype, indices.dtype)
    dims, index_dims = np.array(shape, np.int64), np.array(low.shape(1), np.int64)
    low.call(_checked, call, low.tensor(1).name, source, indices, target, dims, index_dims, low.op.attr_int("axis", 0) % len(shape))


def extremum_index(low: Lowering) -> None:
    """ArgMax and ArgMin."""
    shape = low.shape(0)
    axis = low.op.attr_int("axis", 0) % len(shape)
    x: Array = low.reals(0)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    last = bool(low.op.attr_int("select_last_index", 0))
    low.emit(search.argmax_f32, x, low.raw_output(), outer, shape[axis], inner, low.op.type == "ArgMax", last)
