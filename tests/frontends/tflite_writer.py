"""TFLite files written byte by byte: tables, and the few that every model has."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLOAT, INT32, STRING, RESOURCE, INT8, INT4 = 0, 2, 5, 13, 9, 17
RELU, RESHAPE, CUSTOM, ADD, CONV, CALL_ONCE, VAR_HANDLE, READ, ASSIGN, WHILE = 19, 22, 32, 0, 3, 129, 142, 143, 144, 119
FULLY, DENSIFY = 9, 124


@dataclass
class Table:
    """A flatbuffer table: field number -> (struct letters, value), or a child: a Table, a list of Tables, text, bytes, numbers."""

    fields: dict[int, Any] = field(default_factory=dict)


@dataclass
class Same:
    """A list that holds one table many times."""

    table: Table
    count: int


class Writer:
    """Tables first, what they point to after them, so that every offset is positive."""

    def __init__(self) -> None:
        self.out = bytearray(struct.pack("<I4s", 0, b"TFL3"))

    def root(self, table: Table) -> bytes:
        at = self.put(table)
        struct.pack_into("<I", self.out, 0, at)
        return bytes(self.out)

    def put(self, value: Any) -> int:
        if isinstance(value, Table):
            return self.table(value)
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            return self.vector(len(value), value + b"\0")
        if isinstance(value, np.ndarray):
            return self.vector(value.size, value.tobytes())
        if isinstance(value, Same):
            at = self.vector(value.count, bytes(4 * value.count))
            self.point(at + 4, value.table)
            (first,) = struct.unpack_from("<I", self.out, at + 4)
            struct.pack_into(f"<{value.count}I", self.out, at + 4, *(first - 4 * k for k in range(value.count)))
            return at
        at = self.vector(len(value), bytes(4 * len(value)))
        for k, child in enumerate(value):
            self.point(at + 4 + 4 * k, child)
        return at

    def vector(self, count: int, data: bytes) -> int:
        self.out += bytes(-len(self.out) % 16 + 12)
        at = len(self.out)
        self.out += struct.pack("<I", count) + data
        return at

    def point(self, at: int, child: Any) -> None:
        self.out += bytes(-len(self.out) % 4)
        struct.pack_into("<I", self.out, at, self.put(child) - at)

    def table(self, table: Table) -> int:
        self.out += bytes(-len(self.out) % 8)
        size = 2 * (max(table.fields, default=-1) + 1) + 4
        vtable = len(self.out)
        at = vtable + size + (-(vtable + size) % 8)
        self.out += bytes(at - vtable) + struct.pack("<i", at - vtable) + bytes(8 * len(table.fields) + 4)
        struct.pack_into("<HH", self.out, vtable, size, 8 * len(table.fields) + 8)
        for k, (number, value) in enumerate(table.fields.items()):
            struct.pack_into("<H", self.out, vtable + 4 + 2 * number, 8 + 8 * k)
            if isinstance(value, tuple):
                struct.pack_into(f"<{value[0]}", self.out, at + 8 + 8 * k, value[1])
        for k, value in enumerate(table.fields.values()):
            if not isinstance(value, tuple):
                self.point(at + 8 + 8 * k, value)
        return at


def i32(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


def tensor(name: str, shape: tuple[int, ...], kind: int = FLOAT, buffer: int = 0, signature: tuple[int, ...] = (), **more: Any) -> Table:
    fields: dict[int, Any] = {0: i32(*shape), 1: ("b", kind), 2: ("I", buffer), 3: name}
    if signature:
        fields[7] = i32(*signature)
    if "scale" in more:
        fields[4] = Table({2: np.array(more["scale"], np.float32), 3: np.array(more["zero"], np.int64), 6: ("i", more.get("axis", 0))})
    if more.get("sparse"):
        fields[6] = Table({0: i32(0)})
    return Table(fields)


def operator(code: int, inputs: tuple[int, ...], outputs: tuple[int, ...], options: dict[int, Any] | None = None) -> Table:
    return Table({0: ("I", code), 1: i32(*inputs), 2: i32(*outputs), **({} if options is None else {3: ("B", 1), 4: Table(options)})})


def subgraph(tensors: list[Table], operators: list[Table], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Table:
    return Table({0: tensors, 1: i32(*inputs), 2: i32(*outputs), 3: operators})


def model(codes: list[int | str], graphs: list[Table], buffers: list[bytes] | None = None, version: int = 3) -> bytes:
    rows = [
        Table({0: ("b", CUSTOM), 1: c, 3: ("i", CUSTOM)}) if isinstance(c, str) else Table({0: ("b", min(c, 127)), 3: ("i", c)})
        for c in codes
    ]
    data = [Table({0: b} if b else {}) for b in (b"", *(buffers or []))]
    return Writer().root(Table({0: ("I", version), 1: rows, 2: graphs, 4: data}))
