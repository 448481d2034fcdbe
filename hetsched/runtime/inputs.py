"""Inputs: seeded noise of a sensible kind, and the check of what a user feeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.errors import OptionError
from hetsched.graph import DType, Graph, Role, Tensor

#: Smallest and largest value of an input.
Bounds: TypeAlias = tuple[float, float]

#: Token ids stay below this where nothing says how many there are, so that any vocabulary has them.
_MAX_TOKEN = 1000
_STATE_WORDS = ("past_key", "past_value", "past.", "cache", "state")
#: Indices keep their values on the way through these.
_CARRIERS = frozenset({"Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Slice", "Split", "Concat", "Expand"})


def make_inputs(graph: Graph, seed: int = 0, within: Mapping[str, Bounds] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Seeded noise for every input of ``graph``.

    States (by role, or by a name such as ``past_key_values`` or ``state``) are what the file starts them with, else zero,
    quantized ones their zero point. Masks (booleans, or by name) are ones beside states, and end in a quarter of padding
    otherwise. Floats are standard normal, or within their calibrated ``within`` (smallest and largest value, by input); quantized
    integers cover their type. Integers that become indices (of Gather, Scatter and their kin, through any operators on integers)
    stay within what they index; other 64-bit ones are small token ids, or zeros if the name contains ``type``; others cover 0-255
    (bytes) or their own smaller range.

    Raises:
        OptionError: no noise makes indices that are within what they index; the message names the node.
    """
    from hetsched.runtime.index_values import first_misfit

    bounds = {name: within[name] for name in graph.inputs if name in within} if within else {}
    feeds = _drawn(graph, seed, bounds, {})
    limits: dict[str, int] = {}
    while (misfit := first_misfit(graph, feeds)) is not None:
        smaller = {n: _half(limits.get(n, int(np.abs(feeds[n]).max(initial=0)) + 1)) for n in misfit.inputs if not is_state(graph, n)}
        if all(limits.get(n) == 1 for n in smaller):
            raise OptionError(
                f"no seeded noise suits node {misfit.node!r} ({misfit.type}): the index {misfit.value} is outside of its {misfit.size}"
                f" places; give the values of {', '.join(misfit.inputs)} with --input"
            )
        limits.update(smaller)
        feeds = _drawn(graph, seed, bounds, limits)
    return feeds


def _half(limit: int) -> int:
    return max(1, limit // 2)


def _drawn(graph: Graph, seed: int, bounds: Mapping[str, Bounds], limits: Mapping[str, int]) -> dict[str, npt.NDArray[Any]]:
    """Noise for every input: floats within their ``bounds``, whole numbers below their ``limits``."""
    rng = np.random.default_rng(seed)
    feeds = {name: _noise(graph, graph.tensors[name], rng, limits.get(name)) for name in graph.inputs}
    for name, (low, high) in bounds.items():
        if graph.tensors[name].dtype.is_float and not is_state(graph, name):
            feeds[name] = _spread(feeds[name], low, high)
    return feeds


def _spread(noise: npt.NDArray[Any], low: float, high: float) -> npt.NDArray[Any]:
    """Standard normal noise moved into ``[low, high]``: its middle in the middle, three deviations at the ends."""
    moved = (low + high) / 2 + np.clip(noise.astype(np.float64), -3, 3) * ((high - low) / 6)
    out: npt.NDArray[Any] = moved.astype(noise.dtype)
    return out


def _noise(graph: Graph, tensor: Tensor, rng: np.random.Generator, below: int | None = None) -> npt.NDArray[Any]:
    dtype = tensor.dtype.numpy
    name = tensor.name.lower()
    if is_state(graph, tensor.name):
        return first_value(graph, tensor)
    if tensor.dtype is DType.BOOL or "mask" in name:
        mask = np.ones(tensor.shape, dtype)
        if mask.ndim and not any(is_state(graph, n) for n in graph.inputs):
            mask[..., mask.shape[-1] - mask.shape[-1] // 4 :] = 0  # padding: a mask of ones only would prove nothing
        return mask
    if tensor.dtype.is_float:
        return rng.standard_normal(tensor.shape).astype(dtype)
    info = np.iinfo(dtype)
    if tensor.quantization is not None:
        return rng.integers(int(info.min), int(info.max), tensor.shape, endpoint=True).astype(dtype)
    limit = _indexed(graph, tensor.name) if below is None else below
    if limit is None and "type" in name:
        return np.zeros(tensor.shape, dtype)
    if limit is None:
        limit = _MAX_TOKEN if tensor.dtype is DType.I64 else 256
    return rng.integers(0, max(1, min(limit, int(info.max) + 1)), tensor.shape).astype(dtype)


def is_state(graph: Graph, name: str) -> bool:
    """Whether an input is a state: by its role, because an output continues it, or by its name."""
    tensor = graph.tensors[name]
    known = tensor.role is Role.STATE or name in graph.states.values() or name in graph.first_values
    return known or (tensor.dtype.is_float and any(word in name.lower() for word in _STATE_WORDS))


def first_value(graph: Graph, tensor: Tensor) -> npt.NDArray[Any]:
    """What a state starts with: what the file says, else zeros, which are the zero point of a quantized one."""
    if tensor.name in graph.first_values:
        return np.array(graph.first_values[tensor.name].numpy())
    q = tensor.quantization
    zero = np.zeros((), tensor.dtype.numpy) if q is None or q.zero_point is None else graph.tensors[q.zero_point].numpy()
    along = [-1 if q is not None and i == q.axis else 1 for i in range(len(tensor.shape))] if zero.size > 1 else []
    return np.array(np.broadcast_to(zero.reshape(along), tensor.shape).astype(tensor.dtype.numpy))


def _indexed(graph: Graph, name: str) -> int | None:
    """The smallest extent that the integers in tensor ``name`` index, themselves or moved and cast; None if they index nothing."""
    from hetsched.runtime.index_values import ALONG_AXIS

    limits, open_, seen = [], [name], {name}
    while open_:
        tensor = open_.pop()
        for i in graph.consumers.get(tensor, ()):
            op = graph.ops[i]
            if op.type in ALONG_AXIS and tensor in op.inputs[1:]:
                data = graph.tensors[op.inputs[0]].shape
                if data:
                    limits.append(data[op.attr_int("axis", 0) % len(data)])
            elif op.type in _CARRIERS and op.inputs[0] == tensor:
                new = [o for o in op.outputs if o and o not in seen]
                open_ += new
                seen.update(new)
    return min(limits, default=None)


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
