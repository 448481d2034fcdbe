"""The file of a stored executable: one header, one manifest (JSON) and arrays, checked as a whole before anything in it is used.

::

    magic, SHA-256 of all that follows, length of the manifest | manifest | arrays, each at a multiple of 64 bytes

The arrays are mapped, private to the process: what several processes read is in memory once.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MAGIC = b"hetsched executable 1\n"
_HEADER = struct.Struct(f"<{len(MAGIC)}s32sQ")
_ALIGNMENT = 4096
_LARGEST_MANIFEST = 64 << 20


class DamagedError(ValueError):
    """A file that is not what was written; the message says how."""


class StoredFence(NamedTuple):
    """As :class:`hetsched.plans.Fence`."""

    signal: int
    wait: int
    mode: Literal["spin", "block"]


class StoredPlacement(NamedTuple):
    """An op and its predicted time."""

    op: str
    seconds: float


class StoredPlan(NamedTuple):
    """What an executable needs of a :class:`hetsched.plans.Plan` while it runs."""

    arena_bytes: int
    placements: tuple[StoredPlacement, ...]
    fences: tuple[StoredFence, ...]


class Pieces(NamedTuple):
    """Bytes that are written from where they are: arrays at their places, in order, and zeros between them."""

    nbytes: int
    parts: tuple[tuple[int, Array], ...]

    def chunks(self) -> Iterator[Any]:
        """The bytes, one after another."""
        at = 0
        for place, part in self.parts:
            yield bytes(place - at)
            yield part.data
            at = place + part.nbytes
        yield bytes(self.nbytes - at)


class Contents(NamedTuple):
    """A manifest and the arrays (one dimension each) that it names; pieces are read as one array of bytes."""

    manifest: Mapping[str, Any]
    arrays: Mapping[str, Array]
    pieces: Mapping[str, Pieces] = MappingProxyType({})

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        return sum(a.nbytes for a in self.arrays.values()) + sum(p.nbytes for p in self.pieces.values())


def write(file: BinaryIO, contents: Contents) -> None:
    """Write a file; the manifest gets a key ``arrays``."""
    places, at = {}, 0
    sizes = [(name, a.nbytes, a.dtype.str) for name, a in contents.arrays.items()]
    for name, nbytes, kind in [*sizes, *((name, p.nbytes, "|u1") for name, p in contents.pieces.items())]:
        places[name] = [at, nbytes, kind]
        at += nbytes + -nbytes % _ALIGNMENT
    manifest = json.dumps({**contents.manifest, "arrays": places}, separators=(",", ":"), sort_keys=True).encode()
    digest = hashlib.sha256()
    file.write(_HEADER.pack(MAGIC, bytes(32), len(manifest)))

    def put(data: Any) -> None:
        digest.update(data)
        file.write(data)

    put(struct.pack("<Q", len(manifest)))
    put(manifest)
    put(bytes(_start(len(manifest)) - _HEADER.size - 8 - len(manifest)))
    for array in contents.arrays.values():
        put(np.ascontiguousarray(array).data)
        put(bytes(-array.nbytes % _ALIGNMENT))
    for pieces in contents.pieces.values():
        for chunk in pieces.chunks():
            put(chunk)
        put(bytes(-pieces.nbytes % _ALIGNMENT))
    file.seek(0)
    file.write(_HEADER.pack(MAGIC, digest.digest(), len(manifest)))


def _start(manifest_bytes: int) -> int:
    """Where the arrays begin."""
    end = _HEADER.size + 8 + manifest_bytes
    return end + -end % _ALIGNMENT


def read(path: Path) -> Contents:
    """Map a file.

    Raises:
        OSError: it cannot be read, or belongs to somebody else, whose code is not to be run.
        DamagedError: it is not what was written.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        if status.st_size < _HEADER.size:
            raise DamagedError("shorter than its header")
        mapped = mmap.mmap(file.fileno(), status.st_size, access=mmap.ACCESS_COPY)
    magic, digest, length = _HEADER.unpack_from(mapped)
    if magic != MAGIC or length > min(_LARGEST_MANIFEST, status.st_size):
        raise DamagedError("another format")
    whole = np.frombuffer(mapped, np.uint8)
    if hashlib.sha256(whole[_HEADER.size :].data).digest() != digest:
        raise DamagedError("its contents are not those that were written")
    at = _HEADER.size + 8
    manifest = json.loads(bytes(whole[at : at + length]))
    start = _start(length)
    arrays = {name: whole[start + at : start + at + n].view(kind) for name, (at, n, kind) in manifest["arrays"].items()}
    return Contents(manifest, arrays)
