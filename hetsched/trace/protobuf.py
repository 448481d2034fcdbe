"""Just enough of the protocol-buffer wire format for trace files: varints, fixed64 and length-delimited fields.

The format is described at https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from hetsched.errors import TraceError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """Base-128 encoding of an integer; negative ones as 64-bit two's complement."""
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    """An integer or enum field."""
    return varint(field << 3 | VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """A double field."""
    return varint(field << 3 | FIXED64) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """A sub-message (or bytes) field made of encoded parts."""
    body = b"".join(parts)
    return varint(field << 3 | BYTES) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A string field; lone surrogates become question marks."""
    return message(field, value.encode("utf-8", "replace"))


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """``(value, next position)`` of the varint at ``at``.

    Raises:
        TraceError: it is longer than ten bytes or runs past the end.
    """
    value = shift = 0
    while shift < 70 and at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
    raise TraceError("the trace is damaged or truncated: a protobuf integer does not end")


def fields(data: memoryview) -> Iterator[tuple[int, int | float | memoryview]]:
    """Fields of one message in file order, ``(number, value)``: int, float (fixed64 as double) or bytes.

    Raises:
        TraceError: a field runs past the end, or has a wire type that traces do not use.
    """
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = read_varint(data, at)
            yield number, value
            continue
        if wire == BYTES:
            length, at = read_varint(data, at)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise TraceError(f"the trace is damaged: protobuf wire type {wire} in field {number}")
        end = at + length
        if end > len(data):
            raise TraceError(f"the trace is truncated: protobuf field {number} needs {length} bytes and {len(data) - at} are left")
        chunk, at = data[at:end], end
        yield number, struct.unpack("<d", chunk)[0] if wire == FIXED64 else chunk
