"""Pages that are not in memory: written to a temporary file when they leave, or mapped from a file of a prefix."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError
from hetsched_kernels.page_layout import page_bytes

Array = npt.NDArray[Any]


@dataclass
class Stored:
    """A page outside memory.

    Attributes:
        geometry: descriptor of the cache that it was written in.
        size: its bytes, all layers together.
        users: sequences that have it.
        offset: where it lies in the temporary file.
        mapped: its bytes in a mapped file; None: it lies in the temporary one.
    """

    geometry: Array
    size: int
    users: int
    offset: int = 0
    mapped: Array | None = None


class StoredPages:
    """Pages outside memory, by numbers below -1. The temporary file is made when the first page leaves and vanishes with the process."""

    def __init__(self) -> None:
        self._pages: dict[int, Stored] = {}
        self._next = -2
        self._file: IO[bytes] | None = None
        self._end = 0
        self._gaps: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def disk_bytes(self) -> int:
        """Bytes of the pages in the temporary file."""
        return sum(p.size for p in self._pages.values() if p.mapped is None)

    def write(self, page: Array, geometry: Array, users: int) -> int:
        """Keep a page ``[layers, bytes]`` on disk; returns its number.

        Raises:
            ExecutionError: the disk is full, or no temporary file can be made.
        """
        gaps = self._gaps.get(page.size)
        offset = gaps.pop() if gaps else self._end
        self._end = max(self._end, offset + page.size)
        try:
            self._file = self._file or tempfile.TemporaryFile(prefix="hetsched-pages-", buffering=0)  # noqa: SIM115
            self._file.seek(offset)
            rest = memoryview(page.tobytes())
            while rest:  # a disk that is nearly full takes a part of it
                rest = rest[self._file.write(rest) :]
        except OSError as e:
            self._gaps.setdefault(page.size, []).append(offset)
            raise ExecutionError(f"a page of the cache cannot leave memory for a temporary file ({e}): free some disk space") from e
        return self._add(Stored(geometry.copy(), page.size, users, offset))

    def map(self, page: Array, geometry: Array) -> int:
        """Refer to a page in a mapped file, for one user; returns its number."""
        return self._add(Stored(geometry.copy(), page.size, 1, mapped=page))

    def read(self, number: int, layers: int) -> tuple[Array, Array]:
        """A page ``[layers, bytes]``, and the descriptor that it was written with."""
        page = self._pages[number]
        shape = (layers, page.size // layers if layers else page_bytes(page.geometry))
        if page.mapped is not None:
            return page.mapped.reshape(shape), page.geometry
        assert self._file is not None
        self._file.seek(page.offset)
        return np.frombuffer(self._file.read(page.size), np.uint8).reshape(shape), page.geometry

    def users(self, number: int) -> int:
        """How many sequences have a page."""
        return self._pages[number].users

    def share(self, number: int) -> None:
        """One user more."""
        self._pages[number].users += 1

    def give_back(self, number: int) -> None:
        """One user less; a page without users is forgotten."""
        self._pages[number].users -= 1
        if self._pages[number].users == 0:
            self.forget(number)

    def forget(self, number: int) -> None:
        """A page is in memory again, or nobody has it any more."""
        page = self._pages.pop(number)
        if page.mapped is None:
            self._gaps.setdefault(page.size, []).append(page.offset)

    def _add(self, page: Stored) -> int:
        number = self._next
        self._next -= 1
        self._pages[number] = page
        return number
