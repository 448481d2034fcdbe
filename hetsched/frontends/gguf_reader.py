"""The header of a GGUF file (versions 2 and 3): metadata and tensor descriptions, never the weights.

Layout: the GGUF specification of the ggml project (``docs/gguf.md``). Everything is checked against the size of the file
before anything is allocated; arrays of text (the tokenizer's vocabulary) are stepped over and can be read later.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.graph import MAX_ELEMENTS, Role, Tensor, WeightRef
from hetsched.reference.gguf_types import BY_NUMBER
from hetsched.versions import check_gguf

MAGIC = b"GGUF"
_MAX_NAME = 1 << 16  # bytes of a key or a tensor name, as in the specification
_MAX_TEXT = 1 << 24  # bytes of a text value
_MAX_ITEMS = 1 << 22  # texts in all arrays of a file
_KEPT_ITEMS = 4096  # numeric arrays up to this length are read at once
_MAX_ALIGNMENT = 1 << 20
_TEXT, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True, slots=True)
class GgufArray:
    """A long array, or one of text: ``count`` elements of the value type ``kind`` that begin at byte ``offset``."""

    kind: int
    count: int
    offset: int


Value: TypeAlias = int | float | str | bool | tuple[int | float, ...] | GgufArray


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF file says before its weights; ``sha256`` covers the header and the size of the file."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Tensor]
    sha256: str


def read_header(path: Path) -> GgufHeader:
    """Read the header of the file at ``path``.

    The file may end before its weights (a header-only or a sparse file).

    Raises:
        ModelError: the file is damaged.
        UnsupportedModelError: it is of version 1, big-endian, or has a tensor type that is not known.
    """
    size = path.stat().st_size
    if size < 24:
        raise ModelError(f"the GGUF file {str(path)!r} has only {size} bytes: it is truncated")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Reader(path, data, size).header()


def header_of(path: Path) -> GgufHeader:
    """The header of a file, read once while the file stays as it is: both phases of a model, all contexts and the vocabulary need it.

    Raises:
        ModelError: as :func:`read_header`.
        UnsupportedModelError: the same.
    """
    about = path.stat()
    return _read(path, about.st_size, about.st_mtime_ns)


@lru_cache(4)
def _read(path: Path, size: int, changed_ns: int) -> GgufHeader:
    return read_header(path)


class _Reader:
    """A position in the file; every step is checked first."""

    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self.path, self.data, self.size, self.at, self.items = path, data, size, 0, 0

    def header(self) -> GgufHeader:
        """Everything before the weights."""
        if self.take(4) != MAGIC:
            raise self.damaged("it does not begin with GGUF")
        self.check_version(self.number("I"))
        tensors, entries = self.number("Q"), self.number("Q")
        self.fits(tensors, 24, "tensors")
        self.fits(entries, 13, "metadata entries")
        metadata: dict[str, Value] = {}
        for _ in range(entries):
            key = self.text(_MAX_NAME)
            if key in metadata:
                raise self.damaged(f"the key {key!r} is there twice")
            metadata[key] = self.value(self.number("I"), key)
        infos = [self.tensor_info() for _ in range(tensors)]
        start = self.aligned(metadata)
        check_gguf(metadata, any(BY_NUMBER[n].is_blocked for _, _, n, _ in infos if n in BY_NUMBER), f"the GGUF file {str(self.path)!r}")
        digest = hashlib.sha256(self.data[: min(self.at, self.size)] + self.size.to_bytes(8, "little")).hexdigest()
        return GgufHeader(self.path, metadata, self.placed(infos, start), digest)

    def check_version(self, version: int) -> None:
        if version in (2, 3):
            return
        if version and not version & 0xFFFF:
            raise UnsupportedModelError(f"the GGUF file {str(self.path)!r} is big-endian, which is not supported: convert it")
        raise UnsupportedModelError(f"the GGUF file {str(self.path)!r} has the version {version}; versions 2 and 3 are supported")

    def value(self, kind: int, key: str) -> Value:
        if kind == _TEXT:
            return self.text(_MAX_TEXT)
        if kind == _ARRAY:
            return self.array(key)
        if kind not in _SCALARS:
            raise self.damaged(f"the value of {key!r} has the unknown type {kind}")
        code = _SCALARS[kind]
        value: int | float = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]
        return bool(value) if kind == _BOOL else value

    def array(self, key: str) -> Value:
        kind, count = self.number("I"), self.number("Q")
        start = self.at
        if kind == _TEXT:
            self.fits(count, 8, f"texts in {key!r}")
            self.skip_texts(count, key)
            return GgufArray(kind, count, start)
        if kind not in _SCALARS:
            raise UnsupportedModelError(f"the array {key!r} of {str(self.path)!r} has elements of type {kind}, which is not supported")
        code = _SCALARS[kind]
        width = struct.calcsize("<" + code)
        self.fits(count, width, f"elements in {key!r}")
        if count > _KEPT_ITEMS:
            self.at += count * width
            return GgufArray(kind, count, start)
        return struct.unpack(f"<{count}{code}", self.take(count * width))

    def skip_texts(self, count: int, key: str) -> None:
        self.items += count
        if self.items > _MAX_ITEMS:
            raise self.damaged(f"{key!r} has {count} texts, and at most {_MAX_ITEMS} are read")
        at, size, data, length = self.at, self.size, self.data, struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at + 8 > size:
                break
            at += 8 + length(data, at)[0]
        if at > size:
            raise self.damaged(f"it ends within {key!r}")
        self.at = at

    def tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        name, rank = self.text(_MAX_NAME), self.number("I")
        if rank > 4:
            raise self.damaged(f"the tensor {name!r} has {rank} dimensions and at most 4 are possible")
        shape = tuple(self.number("Q") for _ in range(rank))[::-1]
        if any(d == 0 or d > MAX_ELEMENTS for d in shape):
            raise self.damaged(f"the tensor {name!r} has the shape {list(shape)}")
        return name, shape, self.number("I"), self.number("Q")

    def aligned(self, metadata: Mapping[str, Value]) -> int:
        """Where the weights begin."""
        step = metadata.get("general.alignment", 32)
        if not isinstance(step, int) or not 8 <= step <= _MAX_ALIGNMENT or step % 8:
            raise self.damaged(f"general.alignment is {step!r}, which must be a multiple of 8 up to {_MAX_ALIGNMENT}")
        return -(-self.at // step) * step

    def placed(self, infos: list[tuple[str, tuple[int, ...], int, int]], start: int) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for name, shape, number, offset in infos:
            if name in tensors:
                raise self.damaged(f"the tensor {name!r} is there twice")
            tensors[name] = self.tensor(name, shape, number, start + offset)
        return tensors

    def tensor(self, name: str, shape: tuple[int, ...], number: int, offset: int) -> Tensor:
        layout = BY_NUMBER.get(number)
        if layout is None:
            raise UnsupportedModelError(f"the tensor {name!r} of {str(self.path)!r} has the type {number}, which is not known")
        if layout.is_blocked and (not shape or shape[-1] % layout.elements):
            raise self.damaged(f"the tensor {name!r} of shape {list(shape)} is not whole blocks of {layout.name}")
        if offset >= 1 << 63:
            raise self.damaged(f"the tensor {name!r} begins at byte {offset}")
        length = math.prod(shape) // layout.elements * layout.nbytes
        return Tensor(name, shape, layout.dtype, Role.WEIGHT, layout.quantization, WeightRef(self.path, offset, length))

    def fits(self, count: int, least: int, what: str) -> None:
        """Refuse a count that the rest of the file cannot hold, ``least`` bytes each."""
        if count * least > self.size - self.at:
            raise self.damaged(f"it says that it has {count} {what}, which cannot be in its {self.size} bytes")

    def number(self, code: str) -> int:
        value: int = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]
        return value

    def text(self, limit: int) -> str:
        length = self.number("Q")
        if length > limit:
            raise self.damaged(f"it has a text of {length} bytes where at most {limit} are possible")
        return self.take(length).decode("utf-8", "replace")

    def take(self, length: int) -> bytes:
        if length > self.size - self.at:
            raise self.damaged("its header is truncated")
        self.at += length
        return self.data[self.at - length : self.at]

    def damaged(self, why: str) -> ModelError:
        return ModelError(f"the GGUF file {str(self.path)!r} is damaged: {why}; fetch or convert it again")
