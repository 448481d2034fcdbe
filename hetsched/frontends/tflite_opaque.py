"""Operators that are kept whole under their own name: custom ones, and builtin ones that no ONNX operator can say.

They can be planned (their shapes are known and their bytes are counted) and not run: there is no kernel, and the message
says so by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hetsched.frontends.tflite_builder import Builder, Value
from hetsched.frontends.tflite_flatbuffer import flexbuffer_numbers
from hetsched.graph import AttrValue, Op, Role, Tensor

#: Domain of the operators that keep TFLite's name.
DOMAIN = "tflite"
Shapes = Callable[[Builder, int], list[tuple[int, ...]]]


def opaque(b: Builder, reason: str) -> None:
    """Keep the operator as it is, with ``reason`` among its attributes; variables it changes become states.

    Raises:
        UnsupportedModelError: the file leaves the shape of an output open.
    """
    inputs, changed = [], []
    for slot in range(len(b.op.inputs)):
        if not b.has(slot):
            inputs.append("")
            continue
        inputs.append(b.raw(b.value(slot)))
        if b.stored(slot).is_variable:
            changed.append(slot)
    shapes = _shapes(b)
    outputs = []
    for k, shape in enumerate(shapes):
        stored = b.result(k)
        tensor = Tensor(b.new_name(stored), shape, stored.element_type(), quantization=b.quantization(stored))
        b.tensors[tensor.name] = tensor
        b.define(stored, tensor.name)
        outputs.append(tensor.name)
    for slot in changed:
        before = b.tensors[b.value(slot).name]
        after = replace(before, name=b.fresh(f"{before.name}/after"), role=Role.ACTIVATION)
        b.tensors[after.name] = after
        b.written[b.stored(slot).name] = Value(after.name, tuple(range(len(after.shape))))
        outputs.append(after.name)
    b.keep(Op(b.op_name(b.node), b.op.type, tuple(inputs), tuple(outputs), _attrs(b, reason), DOMAIN, (b.node,)))


def _attrs(b: Builder, reason: str) -> dict[str, AttrValue]:
    options: dict[str, AttrValue] = {k: v for k, v in b.op.options.items() if isinstance(v, int | float | str)}
    options.update(flexbuffer_numbers(b.op.custom_options))
    return {**options, "reason": reason}


def _shapes(b: Builder) -> list[tuple[int, ...]]:
    """Shapes of the outputs: as the file has them with the batch that is bound, or as the operator is known to have them."""
    known = _KNOWN.get(b.op.type)
    if known is not None and b.op.is_custom:
        found = known(b, int(flexbuffer_numbers(b.op.custom_options).get("max_detections", 0)))
        return (found + [()] * len(b.op.outputs))[: len(b.op.outputs)]
    out = []
    for k in range(len(b.op.outputs)):
        stored = b.result(k)
        free = [i for i, d in enumerate(stored.signature) if d < 0]
        if any(i > 0 for i in free):
            raise b.unsupported(
                f"the shape of its result {stored.name!r} is left open in the file, and nothing is known about this operator"
            )
        lead = (b.shape(0)[:1] if free and b.has(0) else ()) or stored.shape[:1]
        out.append((*lead, *stored.shape[1:]))
    return out


def _detections(b: Builder, most: int) -> list[tuple[int, ...]]:
    """Boxes, classes, scores and their number."""
    return [(1, most, 4), (1, most), (1, most), (1,)]


def _poses(b: Builder, most: int) -> list[tuple[int, ...]]:
    """Keypoints (y, x), their scores, the score of every pose and their number; of BodyPix also a mask of every pose."""
    heat = b.shape(0) if b.has(0) else ()
    keypoints = heat[-1] if heat else 17
    masks = [(1, most, *b.shape(3)[1:3])] if b.has(3) else []
    return [(1, most, keypoints, 2), (1, most, keypoints), (1, most), (1,), *masks]


_KNOWN: dict[str, Shapes] = {"TFLite_Detection_PostProcess": _detections, "PosenetDecoderOp": _poses}
