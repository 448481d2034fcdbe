"""An ML program (MIL) as its messages describe it: operations with their arguments, types and constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import UnsupportedModelError
from hetsched.frontends.coreml_wire import Message, damaged
from hetsched.graph import MAX_ELEMENTS, MAX_RANK, DType

#: ``DataType`` of MIL: type, and bits of one element. Types of fewer than 4 bits only index tables.
TYPES: dict[int, tuple[DType, int]] = {
    1: (DType.BOOL, 8), 2: (DType.STRING, 64), 10: (DType.F16, 16), 11: (DType.F32, 32), 12: (DType.F64, 64), 13: (DType.BF16, 16),
    21: (DType.I8, 8), 22: (DType.I16, 16), 23: (DType.I32, 32), 24: (DType.I64, 64), 25: (DType.I4, 4), 31: (DType.U8, 8),
    32: (DType.U16, 16), 33: (DType.U32, 32), 34: (DType.U64, 64), 35: (DType.U4, 4), 36: (DType.U8, 2), 37: (DType.U8, 1),
    38: (DType.U8, 6), 39: (DType.U8, 3), 40: (DType.F8E4M3, 8), 41: (DType.F8E5M2, 8),
}  # fmt: skip
#: Names of types, as ``cast`` has them.
NAMES = {
    "fp16": DType.F16, "fp32": DType.F32, "fp64": DType.F64, "int8": DType.I8, "int16": DType.I16, "int32": DType.I32, "int64": DType.I64,
    "uint8": DType.U8, "uint16": DType.U16, "uint32": DType.U32, "bool": DType.BOOL, "int4": DType.I4, "uint4": DType.U4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Type:
    """Type of a value: elements, bits of each as stored, and sizes (None where the file leaves one open)."""

    dtype: DType
    bits: int
    shape: tuple[int | None, ...]
    is_state: bool = False

    @property
    def elements(self) -> int:
        """Number of elements; 0 where a size is open."""
        return math.prod(d or 0 for d in self.shape)


@dataclass(frozen=True, slots=True)
class Value:
    """A constant: texts, numbers in memory (packed types as bytes), or its place in a file of weights."""

    type: Type
    texts: tuple[str, ...] = ()
    array: npt.NDArray[Any] | None = None
    blob: tuple[str, int] | None = None

    def in_bytes(self) -> Value:
        """The same constant as a list of bytes, for elements that do not fill whole ones."""
        kind = Type(DType.U8, 8, ((self.type.elements * self.type.bits + 7) // 8,))
        return Value(
            kind, array=None if self.array is None else np.ascontiguousarray(self.array).view(np.uint8).reshape(-1), blob=self.blob
        )


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation. Arguments are names of values, or constants; attributes of compressed constants are among them."""

    kind: str
    name: str
    args: Mapping[str, tuple[str | Value, ...]]
    outputs: tuple[tuple[str, Type], ...]
    has_blocks: bool


@dataclass(frozen=True, slots=True)
class Program:
    """The function that is planned: inputs with their types, names of the outputs, operations in order."""

    inputs: tuple[tuple[str, Type], ...]
    outputs: tuple[str, ...]
    operations: tuple[Operation, ...]


def read_program(message: Message, wanted: str) -> Program:
    """The function ``wanted`` of an ML program (``main``, or the only one, where that is not there).

    Raises:
        ModelError: the program is damaged.
        UnsupportedModelError: it has several functions and none is the default one.
    """
    functions = message.mapping("functions")
    name = next((n for n in (wanted, "main") if n in functions), next(iter(functions), "") if len(functions) == 1 else "")
    if not name:
        raise UnsupportedModelError(f"the model has the functions {', '.join(functions)[:200]} and no default one")
    function = functions[name]
    blocks = function.mapping("block_specializations")
    opset = function.text("opset")
    block = blocks.get(opset) or next(iter(blocks.values()), None)
    if block is None:
        raise damaged(f"its function {name!r} is empty")
    return Program(
        tuple((v.text("name"), read_type(v.message("type"), v.text("name"))) for v in function.messages("inputs")),
        tuple(block.texts("outputs")),
        tuple(_operation(o, i) for i, o in enumerate(block.messages("operations"))),
    )


def read_type(message: Message, name: str) -> Type:
    """The type of the value ``name``.

    Raises:
        UnsupportedModelError: it is a list, tuple or dictionary, or of a type that is not handled.
    """
    state = message.has("stateType")
    if state:
        message = message.message("stateType").message("wrappedType")
    if not message.has("tensorType"):
        raise UnsupportedModelError(f"the value {name!r} is a list, tuple or dictionary, which is not supported")
    tensor = message.message("tensorType")
    number = tensor.integer("dataType")
    if number not in TYPES:
        raise UnsupportedModelError(f"the value {name!r} has the element type number {number} of MIL, which is not supported")
    shape: list[int | None] = []
    for dim in tensor.messages("dimensions"):
        shape.append(dim.message("constant").integer("size") if dim.has("constant") else None)
    if len(shape) > MAX_RANK or any(d is not None and not 0 <= d <= MAX_ELEMENTS for d in shape):
        raise damaged(f"the value {name[:80]!r} has the shape {shape[:20]}")
    return Type(*TYPES[number], tuple(shape), state)


def _operation(message: Message, index: int) -> Operation:
    outputs = tuple((o.text("name"), read_type(o.message("type"), o.text("name"))) for o in message.messages("outputs"))
    kind, attributes = message.text("type"), message.mapping("attributes")
    args: dict[str, tuple[str | Value, ...]] = {}
    for key, argument in message.mapping("inputs").items():
        args[key] = tuple(_binding(b, f"{kind}_{index}.{key}") for b in argument.messages("arguments"))
    named = ""
    for key, value in attributes.items():
        if key == "name":
            named = "".join(read_value(value, key).texts)
        else:
            args.setdefault(key, (read_value(value, outputs[0][0] if outputs else key),))
    name = named or (outputs[0][0] if outputs else f"{kind}_{index}")
    return Operation(kind, name, args, outputs, message.has("blocks"))


def _binding(message: Message, name: str) -> str | Value:
    return message.text("name") if message.has("name") else read_value(message.message("value"), name)


def read_value(message: Message, name: str) -> Value:
    """The constant ``name``.

    Raises:
        ModelError: it has another number of elements than its type says.
    """
    kind = read_type(message.message("type"), name)
    if message.has("blobFileValue"):
        place = message.message("blobFileValue")
        return Value(kind, blob=(place.text("fileName"), place.integer("offset")))
    tensor = message.message("immediateValue").message("tensor")
    if tensor.has("strings"):
        return Value(kind, tuple(tensor.message("strings").texts("values")))
    array = _numbers(tensor, kind)
    packed = kind.dtype.bits != kind.bits or kind.dtype in {DType.I4, DType.U4, DType.BF16, DType.F8E4M3, DType.F8E5M2}
    if packed:
        if array.nbytes != (kind.elements * kind.bits + 7) // 8:
            raise damaged(f"the constant {name[:80]!r} needs {(kind.elements * kind.bits + 7) // 8} bytes and has {array.nbytes}")
        return Value(kind, array=array)
    if kind.dtype is DType.STRING:
        return Value(kind)
    if array.dtype == np.uint8 and kind.dtype is not DType.U8 and tensor.has("bytes"):
        if array.nbytes % kind.dtype.numpy.itemsize:
            raise damaged(f"the constant {name[:80]!r} is cut off")
        array = array.view(kind.dtype.numpy)
    sizes = tuple(d or 0 for d in kind.shape)
    if array.size != kind.elements:
        raise damaged(f"the constant {name[:80]!r} of shape {list(sizes)} has {array.size} elements")
    return Value(kind, array=array.astype(kind.dtype.numpy).reshape(sizes))


def _numbers(tensor: Message, kind: Type) -> npt.NDArray[Any]:
    if tensor.has("bytes"):
        return np.frombuffer(tensor.message("bytes").raw("values"), np.uint8)
    if tensor.has("floats"):
        return tensor.message("floats").reals("values")
    if tensor.has("doubles"):
        return tensor.message("doubles").reals("values", "<f8")
    for name in ("ints", "longInts", "bools"):
        if tensor.has(name):
            return np.array(tensor.message(name).integers("values"), np.int64)
    return np.zeros(0, np.int64)
