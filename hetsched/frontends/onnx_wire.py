"""The bytes of an ONNX file: a copy without the big tensors, which stay where they are.

An ONNX file is one protobuf message. Walking its wire format (https://protobuf.dev/programming-guides/encoding/) costs
a few steps per node and never touches the weights, so a model of any size is parsed in megabytes: the raw data of each
tensor over :data:`INLINE_BYTES` is left out and replaced by the range of this very file where it lies. Tensors stored
as varints (``int32_data``, ``int64_data``) stay in the copy.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hetsched.errors import ModelError

#: Tensors up to this size stay in the parsed model; shapes, axes and scalars are far smaller.
INLINE_BYTES = 4096
#: The parsed part of a model may not be larger than this.
MAX_LIGHT_BYTES = 1 << 28
#: Messages within messages; protobuf itself reads 100.
_MAX_DEPTH = 100
#: ``external_data`` location that stands for the model file itself.
SELF = "\x01self"

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MODEL_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26})


@dataclass(frozen=True, slots=True)
class _Message:
    """Which fields of a message hold messages worth walking, and which hold raw little-endian elements."""

    children: dict[int, _Message]
    raw: frozenset[int] = frozenset()


# Field numbers from onnx.proto3: TensorProto.float_data 4, raw_data 9, double_data 10; AttributeProto.t 5;
# NodeProto.attribute 5; GraphProto.node 1, initializer 5; ModelProto.graph 7.
# AttributeProto.g 6; GraphProto.sparse_initializer 15; SparseTensorProto.values 1, indices 2.
_TENSOR = _Message({}, frozenset({4, 9, 10}))
_ATTRIBUTE = _Message({5: _TENSOR})
_NODE = _Message({5: _ATTRIBUTE})
_GRAPH = _Message({1: _NODE, 5: _TENSOR, 15: _Message({1: _TENSOR, 2: _TENSOR})})
_ATTRIBUTE.children[6] = _GRAPH
_MODEL = _Message({7: _GRAPH})


class DamagedError(Exception):
    """The bytes are not a protobuf message; the text says what is wrong."""


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    value, shift = 0, 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DamagedError("the file is truncated or damaged")


def fields(data: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Fields of the message in ``data[start:end]``: number, wire type, start of the tag, start and end of the payload.

    Raises:
        DamagedError: a field runs over the end, or the wire type is none of protobuf's.
    """
    at = start
    while at < end:
        tag_at = at
        tag, at = _varint(data, at, end)
        wire = tag & 7
        if wire == _LENGTH:
            length, at = _varint(data, at, end)
            stop = at + length
        elif wire == _VARINT:
            _, stop = _varint(data, at, end)
        elif wire in {_FIXED64, _FIXED32}:
            stop = at + (8 if wire == _FIXED64 else 4)
        else:
            raise DamagedError("the file is damaged")
        if stop > end or not tag >> 3:
            raise DamagedError("the file is truncated or damaged")
        yield tag >> 3, wire, tag_at, at, stop
        at = stop


def looks_like_model(head: bytes) -> bool:
    """Whether bytes from the start of a file can be those of an ONNX model: only its fields, in its wire types."""
    data, seen = memoryview(head), False
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at, len(data))
            number, wire = tag >> 3, tag & 7
            if number not in _MODEL_FIELDS or wire != (_VARINT if number in {1, 5} else _LENGTH):
                return False
            seen = True
            length, at = _varint(data, at, len(data))
            at += 0 if wire == _VARINT else length
    except DamagedError:
        return seen and len(head) < 4096
    return seen


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _entry(key: str, value: str) -> bytes:
    """A ``StringStringEntryProto`` as field 13 (``external_data``) of a TensorProto."""
    k, v = key.encode(), value.encode()
    body = b"\x0a" + _encode(len(k)) + k + b"\x12" + _encode(len(v)) + v
    return b"\x6a" + _encode(len(body)) + body


def _reference(offset: int, length: int) -> bytes:
    """What replaces raw data: ``data_location`` (field 14) = EXTERNAL, and where the bytes are."""
    return b"\x70\x01" + _entry("location", SELF) + _entry("offset", str(offset)) + _entry("length", str(length))


def _lighten(data: memoryview, start: int, end: int, message: _Message, depth: int = 0) -> bytes:
    if end - start <= INLINE_BYTES or depth > _MAX_DEPTH:
        return bytes(data[start:end])
    out: list[bytes | memoryview] = []
    copied = start
    for number, wire, tag_at, at, stop in fields(data, start, end):
        if wire != _LENGTH or stop - at <= INLINE_BYTES:
            continue
        if number in message.raw:
            out += [data[copied:tag_at], _reference(at, stop - at)]
            copied = stop
        elif number in message.children:
            part = _lighten(data, at, stop, message.children[number], depth + 1)
            out += [data[copied:tag_at], _encode(number << 3 | _LENGTH), _encode(len(part)), part]
            copied = stop
    out.append(data[copied:end])
    return b"".join(out)


def light_bytes(path: Path) -> tuple[bytes, str]:
    """The model file without its big tensors, and the SHA-256 of the whole file.

    Raises:
        ModelError: the file is empty, truncated, damaged, or its graph alone is over 256 MiB.
    """
    import hashlib

    if path.stat().st_size == 0:
        raise ModelError(f"the model file {str(path)!r} is empty")
    light, problem = b"", ""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        digest = hashlib.sha256(mapped).hexdigest()
        with memoryview(mapped) as data:
            try:
                light = _lighten(data, 0, len(data), _MODEL)
            except DamagedError as error:
                problem = str(error)  # raised below: a traceback would keep views of the mapping alive
    if problem:
        raise ModelError(f"cannot read the model {str(path)!r}: {problem}; fetch or export it again")
    if len(light) > MAX_LIGHT_BYTES:
        raise ModelError(f"the graph of {str(path)!r} takes {len(light) >> 20} MiB without its weights; at most 256 are read")
    return light, digest
