"""Inputs: seeded noise of a sensible kind, and the check of what a user feeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import OptionError
from hetsched.graph import DType, Graph, Tensor

#: Token ids stay below this, so that any vocabulary has them.
_MAX_TOKEN = 1000


def make_inputs(graph: Graph, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Seeded noise for every input of ``graph``.

    Floats are standard normal; 64-bit integers are small token ids, or a mask whose last quarter is padding if the name
    contains ``mask``, or zeros if it contains ``type``; other integers cover 0-255 (bytes) or their own smaller range;
    booleans are masks too.
    """
    rng = np.random.default_rng(seed)
    return {name: _noise(graph.tensors[name], rng) for name in graph.inputs}


def _noise(tensor: Tensor, rng: np.random.Generator) -> npt.NDArray[Any]:
    dtype = tensor.dtype.numpy
    name = tensor.name.lower()
    if tensor.dtype is DType.BOOL or "mask" in name:
        mask = np.ones(tensor.shape, dtype)
        if mask.ndim:
            mask[..., mask.shape[-1] - mask.shape[-1] // 4 :] = 0  # padding: a mask of ones only would prove nothing
        return mask
    if tensor.dtype.is_float:
        return rng.standard_normal(tensor.shape).astype(dtype)
    if "type" in name:
        return np.zeros(tensor.shape, dtype)
    high = _MAX_TOKEN if tensor.dtype is DType.I64 else 256
    return rng.integers(0, min(high, int(np.iinfo(dtype).max) + 1), tensor.shape).astype(dtype)


def validate_feeds(graph: Graph, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The feeds as arrays, in the order of the graph's inputs.

    Raises:
        OptionError: an input is missing, unknown, or has another shape or type than the model's.
    """
    unknown = [name for name in feeds if name not in graph.inputs]
    if unknown:
        raise OptionError(f"the model has no input {unknown[0]!r}: its inputs are {', '.join(graph.inputs)}")
    out: dict[str, npt.NDArray[Any]] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if name not in feeds:
            raise OptionError(f"input {name!r} ({tensor.dtype.value}{list(tensor.shape)}) is missing")
        array = np.asarray(feeds[name])
        if array.shape != tensor.shape:
            raise OptionError(f"input {name!r} has the shape {list(array.shape)}, but the plan is for {list(tensor.shape)}")
        if array.dtype != tensor.dtype.numpy:
            raise OptionError(f"input {name!r} is {array.dtype}, but the model takes {tensor.dtype.numpy}")
        out[name] = array
    return out
