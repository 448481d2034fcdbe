"""Reading flatbuffers: tables, vectors and strings, every offset checked against the end of the file.

A flatbuffer (https://flatbuffers.dev/internals/) is little-endian: a table is an offset to its vtable, which lists where
each field lies relative to the table, 0 for a field that has its default. Nothing is read before its range is known to
be inside the file, so damaged bytes give an error and never anything else. Lists may overlap in a hostile file, so that a
small one could be read for hours; what all reads of one file may take together is limited as well.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from hetsched.errors import ModelError

_U16, _I32, _U32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
_SCALARS = {c: struct.Struct(f"<{c}") for c in "bBhHiIqQfd"}


@dataclass(frozen=True, slots=True)
class Table:
    """One table: the bytes of the whole file, where the table starts, and how many bytes of lists may still be read."""

    data: memoryview
    at: int
    budget: list[int] = field(repr=False)

    @classmethod
    def root(cls, data: memoryview) -> Table:
        """The table that the file is.

        Raises:
            ModelError: the file is too short.
        """
        return cls(data, int(_read(data, _U32, 0)), [4 * len(data) + (1 << 16)])

    def scalar(self, field: int, code: str, default: float = 0) -> int | float:
        """A number field; ``code`` is the letter of :mod:`struct`."""
        at = self._field(field)
        return default if at is None else _read(self.data, _SCALARS[code], at)

    def integer(self, field: int, code: str, default: int = 0) -> int:
        """A whole-number field."""
        return int(self.scalar(field, code, default))

    def table(self, field: int) -> Table | None:
        """A field that is a table, None where it is left out."""
        at = self._reference(field)
        return None if at is None else Table(self.data, at, self.budget)

    def vector(self, field: int, size: int) -> tuple[int, int] | None:
        """Where a vector of elements of ``size`` bytes starts, and how many there are; None where it is left out.

        Raises:
            ModelError: it reaches beyond the end of the file.
        """
        at = self._reference(field)
        if at is None:
            return None
        count = int(_read(self.data, _U32, at))
        if at + 4 + count * size > len(self.data):
            raise damaged("a list reaches beyond the end of the file")
        return at + 4, count

    def numbers(self, field: int, code: str, limit: int = 1 << 24) -> tuple[int, ...] | tuple[float, ...]:
        """A vector of numbers; empty where it is left out.

        Raises:
            ModelError: it has more than ``limit`` elements: what is as long as that is a weight, and not read here.
        """
        size = _SCALARS[code].size
        found = self.vector(field, size)
        if found is None:
            return ()
        start, count = found
        if count > limit:
            raise damaged(f"a list has {count} elements where at most {limit} make sense")
        self._spend(count * size)
        return struct.unpack(f"<{count}{code}", self.data[start : start + count * size])

    def integers(self, field: int, code: str, limit: int = 1 << 24) -> tuple[int, ...]:
        """A vector of whole numbers; empty where it is left out."""
        return tuple(int(v) for v in self.numbers(field, code, limit))

    def tables(self, field: int) -> list[Table]:
        """A vector of tables; empty where it is left out."""
        found = self.vector(field, 4)
        if found is None:
            return []
        start, count = found
        self._spend(4 * count)
        return [Table(self.data, at + int(_read(self.data, _U32, at)), self.budget) for at in range(start, start + 4 * count, 4)]

    def text(self, field: int) -> str:
        """A string field; ``""`` where it is left out.

        Raises:
            ModelError: it is not UTF-8.
        """
        found = self.vector(field, 1)
        if found is None:
            return ""
        start, count = found
        self._spend(count)
        try:
            return bytes(self.data[start : start + count]).decode()
        except UnicodeDecodeError as error:
            raise damaged("a name in it is not text") from error

    def _spend(self, count: int) -> None:
        self.budget[0] -= count
        if self.budget[0] < 0:
            raise damaged("its lists overlap")

    def _field(self, field: int) -> int | None:
        vtable = self.at - int(_read(self.data, _I32, self.at))
        size = int(_read(self.data, _U16, vtable))
        slot = 4 + 2 * field
        if slot + 2 > size:
            return None
        offset = int(_read(self.data, _U16, vtable + slot))
        return self.at + offset if offset else None

    def _reference(self, field: int) -> int | None:
        at = self._field(field)
        return None if at is None else at + int(_read(self.data, _U32, at))


def _read(data: memoryview, form: struct.Struct, at: int) -> int | float:
    if at < 0 or at + form.size > len(data):
        raise damaged("an offset leads beyond the end of the file")
    value: int | float = form.unpack_from(data, at)[0]
    return value


def damaged(what: str) -> ModelError:
    """The error for a file that breaks the format."""
    return ModelError(f"the TFLite model is damaged: {what}; fetch or export it again")


def flexbuffer_numbers(data: bytes) -> dict[str, float]:
    """The numbers of a flexbuffer map (the options of custom operators), by name; other values are left out.

    Anything that does not parse gives an empty map: the options of a custom operator may have any format.
    """
    try:
        return _flexbuffer_map(data)
    except (IndexError, struct.error, UnicodeDecodeError, ValueError):
        return {}


def _flexbuffer_map(data: bytes) -> dict[str, float]:
    """See https://flatbuffers.dev/flexbuffers/: the root is last; a map is a vector with a sorted key vector before it."""
    packed, width = data[-2], data[-1]
    if width not in (1, 2, 4, 8) or packed >> 2 != 9:
        return {}
    size = 1 << (packed & 3)
    start = _back(data, len(data) - 2 - width, width)
    count = _unsigned(data, start - size, size)
    keys, key_size = _back(data, start - 3 * size, size), _unsigned(data, start - 2 * size, size)
    if count > 1024 or key_size not in (1, 2, 4, 8):
        return {}
    out: dict[str, float] = {}
    for i in range(count):
        name = _back(data, keys + i * key_size, key_size)
        kind = data[start + count * size + i] >> 2
        raw = data[start + i * size : start + (i + 1) * size]
        read = _FLEX_NUMBERS.get(kind)
        if read is not None and len(raw) == size:
            out[data[name : data.index(0, name)].decode()] = read(raw)
    return out


def _unsigned(data: bytes, at: int, size: int) -> int:
    if at < 0 or at + size > len(data):
        raise IndexError(at)
    return int.from_bytes(data[at : at + size], "little")


def _back(data: bytes, at: int, size: int) -> int:
    target = at - _unsigned(data, at, size)
    if target < 0:
        raise IndexError(target)
    return target


def _flex_float(raw: bytes) -> float:
    codes = {2: "e", 4: "f", 8: "d"}
    return float(struct.unpack(f"<{codes[len(raw)]}", raw)[0]) if len(raw) in codes else 0.0


_FLEX_NUMBERS: dict[int, Callable[[bytes], float]] = {
    1: lambda raw: int.from_bytes(raw, "little", signed=True),
    2: lambda raw: int.from_bytes(raw, "little"),
    3: _flex_float,
    26: lambda raw: int.from_bytes(raw, "little"),
}
