"""The newest tokens of a sequence in float16, beside a cache of fewer bits: what is asked for most is not rounded coarsely yet.

A token sees the tokens of its own page as they were computed, and those of earlier pages as the cache keeps them, however many tokens
a step has. So tokens are the same whether they come one by one or several are checked at once. (A residual of full precision is KIVI's:
Liu et al., 2024.)
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.language.cache_shape import CacheShape
from hetsched.language.stored_pages import StoredPages

if TYPE_CHECKING:
    from hetsched.language.pages import PageTable

Array = npt.NDArray[Any]


class RecentTokens:
    """The last two pages of the sequence at work. Programs know the address; other sequences keep copies of theirs, in memory or outside.

    Attributes:
        memory: uint8 [layers, bytes]; page p of a sequence is page p mod 2. Empty where the cache is float16 itself.
        geometry: the descriptor of these pages.
    """

    def __init__(self, shape: CacheShape, stored: StoredPages) -> None:
        self.geometry = shape.plain.geometry()
        self.memory: Array = np.zeros((shape.layers, shape.recent_bytes // max(shape.layers, 1)), np.uint8)
        self._page, self._stored = shape.page, stored
        self._owner: weakref.ref[PageTable] | None = None

    def use(self, table: PageTable) -> None:
        """A sequence is at work."""
        owner = self._at_work()
        if owner is table or not self.memory.size:
            return
        if owner is not None and owner.fresh:
            owner.recent = self.memory.copy()
            if owner.away:
                self.leave(owner)
        kept = self.of(table) if table.fresh else None
        if kept is not None:
            self.memory[:] = kept
        self._owner = weakref.ref(table)
        self.forget(table)

    def of(self, table: PageTable) -> Array | None:
        """A sequence's: a view, which is another's once that is at work; None: it has none."""
        if self._at_work() is table:
            return self.memory
        if table.recent_stored:
            return self._stored.read(table.recent_stored[0], len(self.memory))[0]
        return table.recent

    def copy(self, source: PageTable, target: PageTable) -> None:
        """Let a sequence have another's, too."""
        kept = self.of(source)
        if kept is None:
            target.fresh = 0
        elif self._at_work() is target:
            self.memory[:] = kept
        else:
            target.recent = kept.copy()

    def leave(self, table: PageTable) -> bool:
        """Keep a sequence's outside memory; whether it had any there."""
        if table.recent is None:
            return False
        table.recent_stored.append(self._stored.write(table.recent, self.geometry, 1))
        table.recent = None
        return True

    def forget(self, table: PageTable) -> None:
        """A sequence needs its copy no more."""
        table.recent = None
        while table.recent_stored:
            self._stored.give_back(table.recent_stored.pop())

    def _at_work(self) -> PageTable | None:
        return self._owner() if self._owner is not None else None

    def after(self, fresh: int, rows: int, length: int) -> int:
        """How many of the newest tokens lie there after a step, of ``length`` then."""
        before = ((length - 1) // self._page - 1) * self._page
        return length - max(length - rows - fresh if rows <= self._page else length - self._page, before, 0)
