"""The paged cache of a model: a pool of pages that sequences take from and give back, and a sequence's table of pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError, OptionError
from hetsched_kernels.paged_cache import PAGE, page_bytes, page_geometry

Array = npt.NDArray[Any]
#: Tokens of a page unless the caller says otherwise.
PAGE_TOKENS = 64


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a model's cache holds for a token.

    Attributes:
        layers: layers with attention.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: elements of a head.
        keys: format of the keys: fp16, fp8 or int8.
        values: format of the values: fp16, fp8, int8 or int4.
        page: tokens of a page.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    keys: str = "fp16"
    values: str = "fp16"
    page: int = PAGE_TOKENS

    def geometry(self) -> Array:
        """The descriptor that kernels take.

        Raises:
            OptionError: there is no such format or page size.
        """
        try:
            return page_geometry(self.heads, self.kv_heads, self.head_dim, self.keys, self.values, self.page)
        except ValueError as e:
            raise OptionError(f"the cache cannot be made: {e}") from e


class PagePool:
    """Pages of all layers: page ``p`` of a sequence is page ``p`` of every layer, so a table serves all of them.

    Pages are counted by their users, so that sequences may share them. Memory is touched as pages are first written.
    """

    def __init__(self, shape: CacheShape, pages: int) -> None:
        self.shape = shape
        self.geometry = shape.geometry()
        self.capacity = pages
        self.page_bytes = page_bytes(self.geometry)
        self.memory: Array = np.zeros((shape.layers, pages * self.page_bytes), np.uint8)
        self.users = np.zeros(pages, np.int32)
        self._free = list(range(pages - 1, -1, -1))
        self._most = 0

    @property
    def free(self) -> int:
        """Pages that nobody uses."""
        return len(self._free)

    @property
    def used_bytes(self) -> int:
        """Bytes of the pages in use, all layers together."""
        return (self.capacity - self.free) * self.page_bytes * self.shape.layers

    @property
    def most_bytes(self) -> int:
        """The same at its largest so far."""
        return self._most * self.page_bytes * self.shape.layers

    def layer(self, index: int) -> Array:
        """A layer's cache, uint8."""
        layer: Array = self.memory[index]
        return layer

    def take(self) -> int:
        """A page for one user.

        Raises:
            ExecutionError: none is free.
        """
        if not self._free:
            tokens = self.capacity * int(self.geometry[PAGE])
            raise ExecutionError(f"the cache is full: all its {self.capacity} pages ({tokens} tokens) are in use; raise the context limit")
        page = self._free.pop()
        self.users[page] = 1
        self._most = max(self._most, self.capacity - self.free)
        return page

    def share(self, page: int) -> int:
        """The same page for one more user."""
        self.users[page] += 1
        return page

    def give_back(self, page: int) -> None:
        """One user less; a page without users is free."""
        self.users[page] -= 1
        if self.users[page] == 0:
            self._free.append(page)

    def copy(self, source: int, target: int) -> None:
        """Copy a page in every layer."""
        size = self.page_bytes
        self.memory[:, target * size : (target + 1) * size] = self.memory[:, source * size : (source + 1) * size]


@dataclass
class PageTable:
    """A sequence: its pages in order, and how many tokens they hold.

    ``numbers`` is the int64 array that kernels read; it never moves, so that a program may know its address.
    """

    pool: PagePool
    context: int
    length: int = 0
    pages: list[int] = field(default_factory=list)
    numbers: Array = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = np.zeros(-(-self.context // self.pool.shape.page) + 1, np.int64)

    def extend(self, tokens: int) -> None:
        """Make room for new tokens; a page that others use too is copied before it is written to.

        Raises:
            OptionError: they exceed the context limit.
            ExecutionError: the pool has no page left.
        """
        after = self.length + tokens
        if after > self.context:
            raise OptionError(f"{after} tokens exceed the context limit of {self.context}: raise it with --context, or start anew")
        size = self.pool.shape.page
        last = self.length // size
        if self.length % size and self.pool.users[self.pages[last]] > 1:
            own = self.pool.take()
            self.pool.copy(self.pages[last], own)
            self.pool.give_back(self.pages[last])
            self.pages[last] = own
        while len(self.pages) * size < after:
            self.pages.append(self.pool.take())
        self.numbers[: len(self.pages)] = self.pages

    def cut(self, length: int) -> None:
        """Forget all tokens from ``length`` on."""
        self.length = min(self.length, length)
        needed = -(-self.length // self.pool.shape.page)
        for page in self.pages[needed:]:
            self.pool.give_back(page)
        del self.pages[needed:]

    def fork(self) -> PageTable:
        """Another sequence that begins with the same tokens, in the same pages."""
        return PageTable(self.pool, self.context, self.length, [self.pool.share(p) for p in self.pages])
