"""Removing operators that do nothing at inference, and those whose results nobody reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hetsched.graph import Op, Tensor

_ONE_INPUT = frozenset({"Concat", "Sum", "Max", "Min", "Mean"})
_SHAPE_ONLY = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"})


def without_dead(ops: Sequence[Op], outputs: Sequence[str]) -> list[Op]:
    """The operators that some output depends on."""
    needed = set(outputs)
    kept: list[Op] = []
    for op in reversed(ops):
        if any(o in needed for o in op.outputs):
            kept.append(op)
            needed.update(op.inputs)
    return kept[::-1]


def without_no_ops(ops: Sequence[Op], tensors: Mapping[str, Tensor], inputs: Sequence[str], outputs: Sequence[str]) -> list[Op]:
    """The operators without those that only pass their input on; the graph's own input and output names stay.

    Where such an operator writes a graph output, the producer of its input writes that output instead, unless the input
    is itself an input, a constant or an output of the graph.
    """
    keep = set(outputs)
    fixed = keep | set(inputs) | {n for n, t in tensors.items() if t.is_constant}
    new: dict[str, str] = {}
    kept: list[Op] = []
    for op in ops:
        op = _renamed(op, new)
        if not _does_nothing(op, tensors):
            kept.append(op)
            continue
        source, target = op.inputs[0], op.outputs[0]
        if target not in keep:
            new[target] = source
        elif source not in fixed:
            new[source] = target
            fixed.add(source)
        else:
            kept.append(op)
    return [_renamed(op, new) for op in kept]


def _resolve(name: str, new: Mapping[str, str]) -> str:
    while name in new:
        name = new[name]
    return name


def _renamed(op: Op, new: Mapping[str, str]) -> Op:
    """``op`` and its body with tensors by their new names."""
    if not new:
        return op
    body = tuple(_renamed(part, new) for part in op.body)
    inputs, outputs = (tuple(_resolve(n, new) for n in names) for names in (op.inputs, op.outputs))
    same = inputs == op.inputs and outputs == op.outputs and body == op.body
    return op if same else replace(op, inputs=inputs, outputs=outputs, body=body)


def _does_nothing(op: Op, tensors: Mapping[str, Tensor]) -> bool:
    if op.domain or not op.inputs or not op.inputs[0] or len(op.outputs) != 1:
        return False
    x, y = tensors[op.inputs[0]], tensors[op.outputs[0]]
    if x.shape != y.shape or x.dtype is not y.dtype:
        return False
    if op.type in {"Identity", "Cast"} or op.type in _SHAPE_ONLY:
        return True
    if op.type in _ONE_INPUT:
        return len(op.inputs) == 1
    if op.type == "Transpose":
        perm = op.attr_ints("perm", tuple(range(len(x.shape)))[::-1])
        return [p for p in perm if x.shape[p] != 1] == [i for i, n in enumerate(x.shape) if n != 1]
    if op.type in {"Pad", "Slice"}:
        return _is_whole(op, tensors)
    return False


def _is_whole(op: Op, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a Pad or Slice that keeps the shape keeps every element in place (not one that reverses or shifts)."""
    data = tensors[op.inputs[1 if op.type == "Pad" else -1]]
    if data.data is None or data.data.array is None:
        return False
    if op.type == "Pad":
        return not data.numpy().any()
    return len(op.inputs) < 5 or bool((data.numpy() == 1).all())
