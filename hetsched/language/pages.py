"""The paged cache of a model: a pool of pages that sequences take from and give back, and a sequence's table of pages."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError, OptionError
from hetsched.language.cache_shape import CacheShape
from hetsched.language.recent import RecentTokens
from hetsched.language.rewriting import rewrite_page
from hetsched.language.stored_pages import StoredPages
from hetsched.language.turns import in_turn
from hetsched_kernels.page_layout import PAGE, page_bytes

Array = npt.NDArray[Any]
#: Stands for a page that a sequence has forgotten; lower numbers are pages that are not in memory.
GONE = -1


class PagePool:
    """Pages of all layers: page ``p`` of a sequence is page ``p`` of every layer, so a table serves all of them.

    Pages are counted by their users, so that sequences may share them. Memory is touched as pages are first written.

    Attributes:
        shape: what is held for a token.
        capacity: pages that there are.
        state_elements: float32 elements of a sequence's states of a fixed size, which no page holds.
        recent: the newest tokens of the sequence at work, where the cache has fewer bits than float16.
        stored: pages of sequences that are not in memory.
        window: tokens that a new token sees at most; 0: all.
        limit_bytes: most bytes in use; None: what all pages take.
        lock: held by the thread that is at work with the pages or the model.
        reclaim: called where no page is free or too much is in use; frees something, or says that it cannot.
    """

    def __init__(self, shape: CacheShape, pages: int, state_elements: int = 0, limit_bytes: int | None = None) -> None:
        self.shape = shape
        self.geometry = shape.geometry()
        self.capacity = pages
        self.page_bytes = page_bytes(self.geometry)
        self.memory: Array = np.zeros((shape.layers, pages * self.page_bytes), np.uint8)
        self.state_elements = state_elements
        self.stored = StoredPages()
        self.recent = RecentTokens(shape, self.stored)
        self.limit_bytes = limit_bytes
        self.users = np.zeros(pages, np.int32)
        self.window = 0
        self.lock = threading.RLock()
        self.reclaim: Callable[[], bool] | None = None
        self._free = list(range(pages - 1, -1, -1))
        self._most = 0
        self._tables: list[weakref.ref[PageTable]] = []

    @property
    def free(self) -> int:
        """Pages that nobody uses."""
        return len(self._free)

    @property
    def used_bytes(self) -> int:
        """Bytes of the pages in use, all layers together, and of the newest tokens in float16 beside a cache of fewer bits."""
        recent = self.recent.memory.nbytes + sum(t.recent.nbytes for t in self.tables() if t.recent is not None)
        return (self.capacity - self.free) * self.page_bytes * self.shape.layers + recent

    @property
    def most_bytes(self) -> int:
        """The same at its largest so far."""
        return self._most

    def tables(self) -> list[PageTable]:
        """All sequences that somebody still holds, the oldest first."""
        return [t for t in (ref() for ref in self._tables) if t is not None]

    def register(self, table: PageTable) -> None:
        """A sequence is new."""
        with self.lock:
            self._tables = [ref for ref in self._tables if ref() is not None] + [weakref.ref(table)]

    def page(self, number: int) -> Array:
        """A page of every layer, uint8 [layers, bytes]."""
        page: Array = self.memory[:, number * self.page_bytes : (number + 1) * self.page_bytes]
        return page

    def layer(self, index: int) -> Array:
        """A layer's cache, uint8."""
        layer: Array = self.memory[index]
        return layer

    def take(self) -> int:
        """A page for one user.

        Raises:
            ExecutionError: none is free.
        """
        self.fit(1)
        page = self._free.pop()
        self.users[page] = 1
        self._most = max(self._most, self.used_bytes)
        return page

    def fit(self, pages: int = 0) -> None:
        """Make room for so many pages, and for what is in use.

        Raises:
            ExecutionError: there is none.
        """
        while len(self._free) < pages or self._over(pages):
            if self.reclaim is None or not self.reclaim():
                tokens = self.capacity * int(self.geometry[PAGE])
                raise ExecutionError(
                    f"the cache is full: all its {self.capacity} pages ({tokens} tokens) are in use; give it more memory, raise the context"
                    " limit, or let it shrink"
                )
        self._most = max(self._most, self.used_bytes)

    def _over(self, pages: int) -> bool:
        more = pages * self.page_bytes * self.shape.layers
        return self.limit_bytes is not None and self.used_bytes + more > self.limit_bytes

    def share(self, page: int) -> int:
        """The same page for one more user."""
        if page >= 0:
            self.users[page] += 1
        elif page != GONE:
            self.stored.share(page)
        return page

    def give_back(self, page: int) -> None:
        """One user less; a page without users is free."""
        if page < GONE:
            self.stored.give_back(page)
        elif page >= 0:
            self.users[page] -= 1
            if self.users[page] == 0:
                self._free.append(page)

    def free_page(self, page: int) -> None:
        """A page has no users any more."""
        self.users[page] = 0
        self._free.append(page)

    def copy(self, source: int, target: int) -> None:
        """Copy a page in every layer."""
        self.page(target)[:] = self.page(source)

    def rewrite(self, keys: str, values: str) -> None:
        """Hold keys and values in smaller formats from now on; more pages fit into the same memory then.

        Programs go on with the same memory and the same descriptor, whose content changes.

        Raises:
            OptionError: there is no such format, or it is larger.
        """
        shape = replace(self.shape, keys=keys, values=values)
        geometry = shape.geometry()
        if page_bytes(geometry) > self.page_bytes:
            raise OptionError(f"a cache of {keys} keys and {values} values is larger than the present one: begin with it")
        for layer in range(shape.layers):
            for number in range(self.capacity):  # in order: a smaller page ends where the larger one of its number ends, or before
                if self.users[number]:
                    rewrite_page(self.layer(layer), number, self.geometry, self.layer(layer), number, geometry)
        self.shape, self.page_bytes = shape, page_bytes(geometry)
        self.geometry[:] = geometry
        before, self.capacity = self.capacity, self.memory.shape[1] // self.page_bytes
        self.users = np.concatenate([self.users, np.zeros(self.capacity - before, np.int32)])
        self._free = [*range(self.capacity - 1, before - 1, -1), *self._free]


@dataclass(eq=False)
class PageTable:
    """A sequence: its pages in order, and the tokens that they hold.

    ``numbers`` is the int64 array that kernels read; it never moves, so that a program may know its address. The pages of a sequence
    that nobody holds any more are given back.

    Attributes:
        pool: where the pages are.
        context: most tokens.
        length: tokens that the pages hold.
        pages: numbers of the pages.
        tokens: ids of the tokens.
        priority: where memory is short, sequences of the lowest leave it first.
        used: when it was last at work, in turns.
        away: whether it has left memory, pages aside that others have.
        adapter: the adapter that its last tokens were computed with.
        states: float32, its states of a fixed size after its last token. They cannot go back.
        exact: whether all its tokens were computed at the model's own precision, each with all before it in sight.
        fresh: its newest tokens that are in float16, too.
        recent: where these are while another sequence is at work.
        recent_stored: the number of the page outside memory where they are instead.
    """

    pool: PagePool
    context: int
    length: int = 0
    pages: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    priority: int = 0
    used: int = 0
    away: bool = False
    adapter: str = ""
    exact: bool = True
    fresh: int = 0
    recent: Array | None = None
    recent_stored: list[int] = field(default_factory=list)
    numbers: Array = field(init=False)
    states: Array = field(init=False)

    def __post_init__(self) -> None:
        self.states = np.zeros(self.pool.state_elements, np.float32)
        self.numbers = np.zeros(-(-self.context // self.pool.shape.page) + 1, np.int64)
        self.pool.register(self)
        for pages in (self.pages, self.recent_stored):
            weakref.finalize(self, _give_back, self.pool, pages).atexit = False

    @property
    def gone(self) -> int:
        """First tokens that it has forgotten; a whole number of pages."""
        return self.pages.count(GONE) * self.pool.shape.page

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
        # Nothing that lies in a forgotten page is visible: any page may stand for it.
        self.numbers[: len(self.pages)] = [self.pages[-1] if p == GONE else p for p in self.pages]

    @in_turn
    def cut(self, length: int) -> None:
        """Forget all tokens from ``length`` on; all of them where the first ones have been forgotten up to there, or a state goes back."""
        back = length < self.length and self.states.size
        before, self.length = self.length, min(self.length, length if length > self.gone and not back else 0)
        self.fresh = max(self.fresh - (before - self.length), 0)
        if not self.fresh:
            self.pool.recent.forget(self)
        if not self.length:
            self.exact = True
            self.states.fill(0)
        del self.tokens[self.length :]
        needed = -(-self.length // self.pool.shape.page)
        for page in self.pages[needed:]:
            self.pool.give_back(page)
        del self.pages[needed:]

    @in_turn
    def fork(self) -> PageTable:
        """Another sequence that begins with the same tokens, in the same pages."""
        other = PageTable(self.pool, self.context, priority=self.priority)
        other.adopt(self, self.length)
        return other

    @in_turn
    def adopt(self, other: PageTable, length: int) -> None:
        """Hold the first ``length`` tokens of another sequence, in the same pages; none where its state is further."""
        if other.states.size and length < other.length:
            length = 0
        pages = [self.pool.share(p) for p in other.pages[: -(-length // self.pool.shape.page)]]
        tokens = other.tokens[:length]
        self.cut(0)
        self.pages.extend(pages)
        self.tokens, self.length, self.away = tokens, length, other.away
        self.fresh = max(other.fresh - (other.length - length), 0)
        if self.fresh:
            self.pool.recent.copy(other, self)
        if length:
            self.states[:] = other.states
            self.exact = other.exact

    def begins_with(self, tokens: list[int]) -> int:
        """How many of ``tokens`` it begins with."""
        most = min(self.length, len(tokens))
        return next((i for i in range(most) if self.tokens[i] != tokens[i]), most)

    def forget_before(self, position: int) -> None:
        """Give back pages whose tokens all lie before ``position``."""
        for index in range(min(max(position, 0) // self.pool.shape.page, len(self.pages) - 1)):
            page, self.pages[index] = self.pages[index], GONE
            self.pool.give_back(page)


def _give_back(pool: PagePool, pages: list[int]) -> None:
    with pool.lock:
        for page in pages:
            pool.give_back(page)
