"""Running a float model on samples and recording the range of every float activation.

An ONNX model runs in ONNX Runtime as the file has it, in groups of tensors so that their memory is bounded; any other runs
in the reference executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError
from hetsched.graph import Graph, Op, Tensor
from hetsched.ranges import ChannelRange, Granularity, Method, TensorRange
from hetsched.runtime.clipping import clipped
from hetsched.runtime.histogram import CHANNEL_BINS, TENSOR_BINS, Histogram

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
#: Tensors that ONNX Runtime keeps for one sample at a time may take this much.
GROUP_BYTES = 256 << 20
_MIN_MAX_BINS = 2


@dataclass(frozen=True, slots=True)
class Calibration:
    """How ranges are found.

    ``percentile`` is the share of values kept, in percent, for that ``method``; ``granularity`` is one range a tensor or one
    a channel; ``symmetric`` ranges reach as far below zero as above.
    """

    method: Method = "minmax"
    percentile: float = 99.99
    granularity: Granularity = "tensor"
    symmetric: bool = False


def calibrated(
    graph: Graph, samples: Sequence[Feeds], options: Calibration, progress: Callable[[float], None] | None = None
) -> dict[str, TensorRange | ChannelRange]:
    """Ranges of the inputs and of every float activation that the model file has, by name.

    Args:
        graph: the float graph as the loader leaves it, before any pass.
        samples: inputs, one set per sample.
        options: how ranges are found.
        progress: called with the share done, 0..1.

    Raises:
        ExecutionError: an activation is not a number for some sample.
        CheckError: neither ONNX Runtime nor the reference executor can run the model.
    """
    say = progress or (lambda _: None)
    floats = {n: t for n, t in graph.tensors.items() if t.dtype.is_float and not t.is_constant and not t.is_packed and t.elements}
    convolved = _convolved(graph)
    axes = {n: _channel_axis(t, n in convolved) if options.granularity == "channel" else None for n, t in floats.items()}
    bins = _MIN_MAX_BINS if options.method == "minmax" else 0
    seen: dict[str, Histogram] = {}
    for done, number, values in _activations(graph, floats, samples):
        for name, value in values.items():
            axis = axes[name]
            rows = value.reshape(1, -1) if axis is None else np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1)
            if np.isnan(rows).any():
                raise ExecutionError(f"the tensor {name!r} is not a number (NaN) for sample {number}: give inputs that the model can take")
            if name not in seen:
                seen[name] = Histogram(len(rows), bins or (TENSOR_BINS if axis is None else CHANNEL_BINS))
            seen[name].add(rows)
        say(done)
    return {name: _range(seen[name], axes[name], options) for name in floats if name in seen}


def _range(histogram: Histogram, axis: int | None, o: Calibration) -> TensorRange | ChannelRange:
    found = [clipped(histogram, c, o.method, o.percentile, o.symmetric) for c in range(len(histogram.minimum))]
    pairs = [(_rounded(low), _rounded(high)) for low, high in found]
    if axis is None:
        return TensorRange(min=pairs[0][0], max=pairs[0][1])
    return ChannelRange(axis=axis, min=tuple(low for low, _ in pairs), max=tuple(high for _, high in pairs))


def _rounded(value: float) -> float:
    """Nine digits: what tells any two float32 apart."""
    return float(f"{value:.9g}") + 0.0


def _convolved(graph: Graph) -> frozenset[str]:
    """Tensors whose second axis is a convolution's channels."""
    return frozenset(n for op in graph.ops if "Conv" in op.type or "Pool" in op.type for n in (*op.inputs[:1], *op.outputs) if n)


def _channel_axis(tensor: Tensor, convolved: bool) -> int | None:
    """The second axis of images and of what convolutions read or write, the last of all else; None for vectors."""
    rank = len(tensor.shape)
    if rank < 2:
        return None
    return 1 if convolved or rank == 4 else rank - 1


def _activations(graph: Graph, floats: Mapping[str, Tensor], samples: Sequence[Feeds]) -> Iterator[tuple[float, int, dict[str, Array]]]:
    """``(share done, number of the sample, values by name)``, each tensor of each sample once."""
    from hetsched.frontends import format_of

    inputs = [n for n in graph.inputs if n in floats]
    if graph.source is not None and format_of(graph.source) == "onnx":
        from hetsched.runtime.oracle import OnnxOracle

        for number, feeds in enumerate(samples):
            yield 0.0, number, {n: np.asarray(feeds[n]) for n in inputs}
        groups = list(_groups([t for n, t in floats.items() if n not in inputs]))
        for g, group in enumerate(groups):
            oracle = OnnxOracle(graph.source, group, graph.dims)
            for number, feeds in enumerate(samples):
                yield (g + (number + 1) / len(samples)) / len(groups), number, _shaped(oracle.run(feeds), floats)
        return
    from hetsched.runtime.oracle import executed

    for number, feeds in enumerate(samples):
        yield (number + 1) / len(samples), number, _shaped(executed(graph, feeds), floats)


def _shaped(values: Mapping[str, Array], floats: Mapping[str, Tensor]) -> dict[str, Array]:
    """Those of ``values`` that are the tensors looked for, in their order (a loader may have given a name another shape)."""
    found = {n: values[n] for n in floats if n in values}
    return {n: v for n, v in found.items() if v.shape == floats[n].shape and v.dtype.kind == "f"}


def _groups(tensors: Sequence[Tensor]) -> Iterator[list[str]]:
    """Names in groups of at most :data:`GROUP_BYTES`, or one large tensor alone."""
    group: list[str] = []
    used = 0
    for t in tensors:
        if group and used + t.nbytes > GROUP_BYTES:
            yield group
            group, used = [], 0
        group.append(t.name)
        used += t.nbytes
    if group:
        yield group


def quantized_op(graph: Graph) -> Op | None:
    """An operator that reads or writes quantized activations, so that the model brings ranges of its own; None if there is none."""

    def quantized(op: Op) -> bool:
        return any(graph.tensors[n].quantization is not None and not graph.tensors[n].is_constant for n in (*op.inputs, *op.outputs) if n)

    return next((op for op in graph.ops if op.type in ("QuantizeLinear", "DynamicQuantizeLinear") or quantized(op)), None)
