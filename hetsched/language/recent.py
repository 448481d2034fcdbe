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

from hetsched_kernels.paged_cache import page_bytes

if TYPE_CHECKING:
    from hetsched.language.pages import CacheShape, PageTable

Array = npt.NDArray[Any]
_PLAIN = "fp16"
#: Pages that lie there: the newest and the one before, to which a sequence may go back.
_PAGES = 2


class RecentTokens:
    """The last two pages of the sequence at work. Programs know the address; other sequences keep copies of theirs.

    Attributes:
        memory: uint8 [layers, bytes]; page p of a sequence is page p mod 2. Empty where the cache is float16 itself.
        geometry: the descriptor of these pages.
    """

    def __init__(self, shape: CacheShape, plain: CacheShape) -> None:
        self.geometry = plain.geometry()
        size = 0 if shape.keys == shape.values == _PLAIN else _PAGES * page_bytes(self.geometry)
        self.memory: Array = np.zeros((shape.layers, size), np.uint8)
        self._page = shape.page
        self._owner: weakref.ref[PageTable] | None = None

    def use(self, table: PageTable) -> None:
        """A sequence is at work."""
        owner = self._owner() if self._owner is not None else None
        if owner is table or not self.memory.size:
            return
        if owner is not None:
            owner.recent = self.memory.copy()
        if table.fresh and table.recent is not None:
            self.memory[:] = table.recent
        self._owner, table.recent = weakref.ref(table), None

    def of(self, table: PageTable) -> Array | None:
        """A copy of a sequence's."""
        owner = self._owner() if self._owner is not None else None
        kept = self.memory if owner is table else table.recent
        return None if kept is None else kept.copy()

    def after(self, fresh: int, rows: int, length: int) -> int:
        """How many of the newest tokens lie there after a step, of ``length`` then."""
        before = ((length - 1) // self._page - 1) * self._page
        return length - max(length - rows - fresh if rows <= self._page else length - self._page, before, 0)
