"""Inputs of a Core ML model as its description has them: fixed and flexible shapes, images, and binding those that are flexible."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.frontends.coreml_wire import Message, damaged
from hetsched.frontends.onnx_dims import bind_inputs
from hetsched.graph import MAX_RANK, DType, Role, Tensor
from hetsched.reference.element_types import NUMBER_OF

_ARRAY_TYPES = {65568: DType.F32, 65600: DType.F64, 131104: DType.I32, 65552: DType.F16, 131080: DType.I8}
_GRAY = frozenset({10, 40})


@dataclass(frozen=True, slots=True)
class Feature:
    """An input: default sizes, and which sizes every axis may have (lowest, highest or None; ``choices``: whole shapes)."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    ranges: tuple[tuple[int, int | None], ...]
    choices: tuple[tuple[int, ...], ...] = ()
    is_image: bool = False


def read_feature(message: Message) -> Feature:
    """An input of the description.

    Raises:
        UnsupportedModelError: it is neither an array nor an image.
    """
    name, kind = message.text("name"), message.message("type")
    if kind.has("imageType"):
        return _image(name, kind.message("imageType"))
    if not kind.has("multiArrayType"):
        raise UnsupportedModelError(f"the input {name!r} is neither an array nor an image, which is not supported")
    array = kind.message("multiArrayType")
    number = array.integer("dataType")
    shape = _sizes(name, array.integers("shape"))
    choices = tuple(_sizes(name, s.integers("shape")) for s in array.message("enumeratedShapes").messages("shapes"))
    rows = tuple(_range(r) for r in array.message("shapeRange").messages("sizeRanges"))
    if not shape:
        shape = choices[0] if choices else tuple(max(low, 1) for low, _ in rows)
    if choices:
        rows = tuple((min(c), max(c)) for c in zip(*choices, strict=False))
    if rows and len(rows) != len(shape):
        raise damaged(f"the input {name!r} has {len(shape)} axes and {len(rows)} ranges")
    return Feature(name, shape, _ARRAY_TYPES.get(number, DType.F32), rows or tuple((n, n) for n in shape), choices)


def _sizes(name: str, sizes: Sequence[int]) -> tuple[int, ...]:
    if len(sizes) > MAX_RANK or any(not 0 <= s < 1 << 40 for s in sizes):
        raise damaged(f"the input {name[:80]!r} has the shape {list(sizes)[:20]}")
    return tuple(sizes)


def _range(message: Message) -> tuple[int, int | None]:
    high = message.integer("upperBound")
    return max(message.integer("lowerBound"), 1), None if high < 0 else high


def _image(name: str, image: Message) -> Feature:
    """An image is ``[1, channels, height, width]``."""
    channels = 1 if image.integer("colorSpace") in _GRAY else 3
    shape = _sizes(name, (1, channels, image.integer("height"), image.integer("width")))
    flexible = image.message("imageSizeRange")
    rows = [(n, n) for n in shape[:2]]
    sides: list[tuple[int, int | None]] = [(n, n) for n in shape[2:]]
    if image.has("imageSizeRange"):
        sides = [_range(flexible.message("heightRange")), _range(flexible.message("widthRange"))]
    return Feature(name, shape, DType.F32, (*rows, *sides), is_image=True)


def bind(
    features: Sequence[Feature], dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]], model: str
) -> tuple[list[Tensor], dict[str, int]]:
    """The inputs with fixed shapes, and the value of every flexible axis (``<input>.<axis>``); the defaults are the file's.

    Raises:
        OptionError: a value is outside the range that the model allows, or names no axis.
    """
    from onnx import helper

    infos, defaults = [], {}
    for f in features:
        row: list[int | None] = []
        for k, (size, (low, high)) in enumerate(zip(f.shape, f.ranges, strict=True)):
            free = high is None or low != high
            row.append(None if free else size)
            if free and f"{f.name}.{k}" not in dims and f.name not in shapes:
                defaults[f"{f.name}.{k}"] = max(size, 1)
        infos.append(helper.make_tensor_value_info(f.name, NUMBER_OF[f.dtype], row))
    tensors, bound = bind_inputs(infos, {**defaults, **dims}, shapes, model)
    for f, tensor in zip(features, tensors, strict=True):
        for k, (size, (low, high)) in enumerate(zip(tensor.shape, f.ranges, strict=True)):
            if size < low or (high is not None and size > high):
                raise OptionError(f"the dim '{f.name}.{k}' of the model {model!r} cannot be {size}: it may be {low} to {high or 'any'}")
        if f.choices and tensor.shape not in f.choices:
            known = ", ".join(str(list(c)) for c in f.choices[:8])
            raise OptionError(f"the input {f.name!r} of the model {model!r} cannot be {list(tensor.shape)}: it may be {known}")
    return [Tensor(t.name, t.shape, t.dtype, Role.INPUT) for t in tensors], bound


def with_open_sizes(name: str, shape: Sequence[int | None], feature: Feature | None, dtype: DType) -> Feature:
    """The input of a function, whose open sizes are those of the description.

    Raises:
        ModelError: the description says nothing of an open size, or has another rank.
    """
    ranges = feature.ranges if feature is not None else tuple((n or 1, n) for n in shape)
    sizes = feature.shape if feature is not None else tuple(n or 0 for n in shape)
    if len(sizes) != len(shape) or (feature is None and None in shape):
        raise ModelError(f"the input {name!r} has the shape {list(shape)}, which the description does not explain: the model is damaged")
    rows = tuple(r if n is None else (n, n) for r, n in zip(ranges, shape, strict=True))
    fixed = tuple(s if n is None else n for s, n in zip(sizes, shape, strict=True))
    if math.prod(fixed) == 0:
        raise damaged(f"the input {name!r} has the shape {list(fixed)}")
    return Feature(name, fixed, dtype, rows, feature.choices if feature is not None else ())
