"""Protobuf messages of a Core ML file, read field by field where they lie in the mapped file.

Reading the wire format (https://protobuf.dev/programming-guides/encoding/) directly has three reasons: weights stay where they
are and become ranges of the file, which parsed messages cannot give; nothing has to be installed (importing coremltools takes over
a second and brings a stack of dependencies); and what is not asked for is never decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError
from hetsched.frontends.coreml_schema import SCHEMA
from hetsched.frontends.onnx_wire import DamagedError, fields

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def damaged(what: str) -> ModelError:
    """The error for a file that is no valid Core ML model."""
    return ModelError(f"the Core ML model is damaged: {what}; fetch or export it again")


class Message:
    """One message; its fields are asked for by the names of :data:`hetsched.frontends.coreml_schema.SCHEMA`.

    Args:
        data: the whole file.
        start: first byte of the message.
        end: the byte after its last.
        kind: its type.

    Raises:
        ModelError: the bytes are no protobuf message.
    """

    __slots__ = ("_data", "_numbers", "_rows", "kind")

    def __init__(self, data: memoryview, start: int, end: int, kind: str) -> None:
        self._data, self.kind, self._numbers = data, kind, SCHEMA[kind]
        self._rows: dict[int, list[tuple[int, int, int]]] = {}
        problem = ""
        try:
            for number, wire, _, at, stop in fields(data, start, end):
                self._rows.setdefault(number, []).append((wire, at, stop))
        except DamagedError as error:
            problem = str(error)
        if problem:
            raise damaged(f"its {kind} is not readable ({problem})")

    def _of(self, name: str, *wires: int) -> list[tuple[int, int, int]]:
        entry = self._numbers[name]
        rows = self._rows.get(entry if isinstance(entry, int) else entry[0], [])
        if any(row[0] not in wires for row in rows):
            raise damaged(f"{name!r} of its {self.kind} has the wrong wire type")
        return rows

    def has(self, name: str) -> bool:
        """Whether the field is there."""
        entry = self._numbers[name]
        return (entry if isinstance(entry, int) else entry[0]) in self._rows

    def which(self, *names: str) -> str:
        """The first of ``names`` that is there (of all fields where none are given), or ``""``."""
        return next((n for n in names or self._numbers if self.has(n)), "")

    def numbers(self) -> list[int]:
        """The numbers of all fields, in the file's order."""
        return list(self._rows)

    def message(self, name: str) -> Message:
        """A field that is a message; an empty one where it is left out."""
        rows = self._of(name, _LENGTH)
        _, at, stop = rows[-1] if rows else (0, 0, 0)
        return Message(self._data, at, stop, self._kind_of(name))

    def messages(self, name: str) -> Iterator[Message]:
        """A repeated field of messages."""
        kind = self._kind_of(name)
        return (Message(self._data, at, stop, kind) for _, at, stop in self._of(name, _LENGTH))

    def mapping(self, name: str) -> Mapping[str, Message]:
        """A map from texts to messages, in the file's order."""
        kind = self._kind_of(name)
        out: dict[str, Message] = {}
        for _, at, stop in self._of(name, _LENGTH):
            entry = Message(self._data, at, stop, "Entry")
            rows = entry._of("value", _LENGTH)
            _, low, high = rows[-1] if rows else (0, 0, 0)
            out[entry.text("key")] = Message(self._data, low, high, kind)
        return out

    def _kind_of(self, name: str) -> str:
        entry = self._numbers[name]
        assert not isinstance(entry, int)
        return entry[1]

    def integer(self, name: str, default: int = 0) -> int:
        """A whole number (64 bits with sign)."""
        rows = self._of(name, _VARINT)
        return self._varints(rows[-1][1], rows[-1][2])[0] if rows else default

    def flag(self, name: str) -> bool:
        """A truth value."""
        return bool(self.integer(name))

    def integers(self, name: str) -> list[int]:
        """A repeated whole number, packed or not."""
        return [v for _, at, stop in self._of(name, _VARINT, _LENGTH) for v in self._varints(at, stop)]

    def _varints(self, at: int, stop: int) -> list[int]:
        raw = np.frombuffer(self._data, np.uint8, stop - at, at) if stop > at else np.zeros(0, np.uint8)
        ends = np.flatnonzero(raw < 0x80)
        if len(raw) and (not len(ends) or ends[-1] != len(raw) - 1):
            raise damaged(f"a number in its {self.kind} is cut off")
        out, start = [], 0
        for end in ends.tolist():
            if end - start > 9:
                raise damaged(f"a number in its {self.kind} is too long")
            value = sum((int(raw[k]) & 0x7F) << 7 * (k - start) for k in range(start, end + 1)) & (1 << 64) - 1
            out.append(value - (1 << 64) if value >> 63 else value)
            start = end + 1
        return out

    def real(self, name: str, default: float = 0.0) -> float:
        """A float of 32 bits."""
        values = self.reals(name)
        return float(values[-1]) if len(values) else default

    def reals(self, name: str, dtype: str = "<f4") -> npt.NDArray[np.floating]:
        """A repeated float, packed or not."""
        size = np.dtype(dtype).itemsize
        rows = self._of(name, _LENGTH, _FIXED32 if size == 4 else _FIXED64)
        if any((stop - at) % size for _, at, stop in rows):
            raise damaged(f"{name!r} of its {self.kind} is cut off")
        parts = [np.frombuffer(self._data, dtype, (stop - at) // size, at) if stop > at else np.zeros(0, dtype) for _, at, stop in rows]
        return np.concatenate(parts) if parts else np.zeros(0, dtype)

    def text(self, name: str) -> str:
        """A text; empty where it is left out."""
        texts = self.texts(name)
        return texts[-1] if texts else ""

    def texts(self, name: str) -> list[str]:
        """A repeated text."""
        out = []
        for _, at, stop in self._of(name, _LENGTH):
            try:
                out.append(bytes(self._data[at:stop]).decode())
            except UnicodeDecodeError as error:
                raise damaged(f"{name!r} of its {self.kind} is not text") from error
        return out

    def span(self, name: str) -> tuple[int, int] | None:
        """Offset and length, within the file, of raw bytes or of packed numbers; None where there are none, or in several parts."""
        rows = self._of(name, _LENGTH, _FIXED32, _FIXED64)
        return (rows[0][1], rows[0][2] - rows[0][1]) if len(rows) == 1 and rows[0][0] == _LENGTH else None

    def raw(self, name: str) -> bytes:
        """Raw bytes."""
        return b"".join(bytes(self._data[at:stop]) for _, at, stop in self._of(name, _LENGTH))
