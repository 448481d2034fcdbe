"""What Loop and Scan say about themselves: how often they run, what they carry, walk along and collect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.onnx_nodes import plain_attributes
from hetsched.frontends.onnx_subgraphs import subgraph

if TYPE_CHECKING:
    import onnx

    from hetsched.frontends.onnx_trace import Trace


def trip_count(trace: Trace, node: onnx.NodeProto, name: str) -> int | None:
    """The constant first input of a Loop; None where there is none."""
    if not node.input[0] or not trace.is_known(node.input[0]):
        return None
    value = trace.tensors[node.input[0]].numpy().reshape(-1)
    if value.size != 1 or value.dtype.kind not in "iu":
        raise ModelError(f"the Loop node {name!r} has a trip count that is not one whole number: the model file is damaged")
    return max(0, int(value[0]))


def loop_counts(node: onnx.NodeProto, name: str) -> tuple[int, int]:
    """How many values a Loop carries from trip to trip, and how many it collects.

    Raises:
        ModelError: it has fewer inputs or outputs than every Loop has.
    """
    carried = len(node.input) - 2
    scans = len(node.output) - carried
    if carried < 0 or scans < 0 or not all(node.input[2:]):
        raise ModelError(f"the Loop node {name!r} has inputs and outputs that do not fit each other: the model file is damaged")
    return carried, scans


@dataclass(frozen=True)
class ScanForm:
    """The attributes of a Scan: how many states it carries, and along which axes it walks and collects."""

    body: onnx.GraphProto
    states: int
    steps: int
    input_axes: tuple[int, ...]
    output_axes: tuple[int, ...]
    input_reversed: tuple[int, ...]
    output_reversed: tuple[int, ...]

    @classmethod
    def of(cls, trace: Trace, node: onnx.NodeProto, name: str) -> Self:
        """The form of a node.

        Raises:
            ModelError: attributes, inputs and outputs do not fit each other.
            UnsupportedModelError: it is of opset 8, whose Scan is another operator.
        """
        if trace.opset < 9:
            raise UnsupportedModelError(
                f"node {name!r} is a Scan of opset 8, which is not supported: export the model with opset 9 or newer"
            )
        attrs = plain_attributes(node, name, trace.model)
        scanned = attrs.get("num_scan_inputs")
        states = len(node.input) - scanned if isinstance(scanned, int) else -1
        collected = len(node.output) - states
        if not isinstance(scanned, int) or scanned < 1 or states < 0 or collected < 0 or not all(node.input):
            raise ModelError(
                f"the Scan node {name!r} has {len(node.input)} inputs of which {scanned!r} are walked: the model file is damaged"
            )

        def listed(key: str, count: int) -> tuple[int, ...]:
            value = attrs.get(key, (0,) * count)
            if not isinstance(value, tuple) or len(value) != count or not all(isinstance(v, int) for v in value):
                raise ModelError(
                    f"the Scan node {name!r} has {value!r} as {key}, and {count} numbers are needed: the model file is damaged"
                )
            return tuple(int(v) for v in value)

        axes = listed("scan_input_axes", scanned)
        lengths = [_length(trace, i, axis, name) for i, axis in zip(node.input[states:], axes, strict=True)]
        if len(set(lengths)) != 1:
            raise ModelError(f"the Scan node {name!r} walks along axes of the lengths {lengths}: the model file is damaged")
        return cls(
            subgraph(node, name, "body", len(node.input), len(node.output)), states, lengths[0], axes,
            listed("scan_output_axes", collected), listed("scan_input_directions", scanned), listed("scan_output_directions", collected),
        )  # fmt: skip


def _length(trace: Trace, name: str, axis: int, node: str) -> int:
    shape = trace.tensor(name).shape
    if not -len(shape) <= axis < len(shape):
        raise ModelError(f"the Scan node {node!r} walks along axis {axis} of {name!r}, which has the shape {list(shape)}")
    return shape[axis]
