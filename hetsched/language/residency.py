"""Which sequences' pages are in memory: the least important and longest unused leave it, come back, or the cache shrinks."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from hetsched.errors import OptionError
from hetsched.language.pages import GONE, PagePool, PageTable
from hetsched.language.rewriting import rewrite_page
from hetsched.language.step_values import FEW_TOKENS
from hetsched.language.turns import in_turn

#: Formats that a cache shrinks to.
_SMALL = ("int8", "int8")


@dataclass(frozen=True, slots=True)
class Shrink:
    """How the cache may shrink where no other sequence can leave memory.

    Attributes:
        window: tokens that a new token still sees at least; until then what lies further back is forgotten, half of it at a time.
            0: nothing is forgotten.
        integer: whether float16 keys and values may become int8 after that.
    """

    window: int = 0
    integer: bool = False


class Residency:
    """Decides who leaves memory when a pool has no free page."""

    def __init__(self, pool: PagePool, context: int, shrink: Shrink | None = None) -> None:
        self.pool, self.context, self.shrink = pool, context, shrink or Shrink()
        self.evicted_pages = self.returned_pages = 0
        self._turn = self._limit = self._shortened = 0
        self._now: weakref.ref[PageTable] | None = None
        pool.reclaim = self._reclaim

    def use(self, table: PageTable, *, whole: bool = False) -> None:
        """A sequence is at work: bring its pages into memory, where they stay until another one is.

        Args:
            table: the sequence.
            whole: whether what no new token sees stays, too.

        Raises:
            OptionError: it belongs to another model.
            ExecutionError: there is no room for them.
        """
        if table.pool is not self.pool:
            raise OptionError("the sequence belongs to another model: take one of this model's own")
        self._turn += 1
        table.used, table.away, self._now = self._turn, False, weakref.ref(table)
        if not whole:
            self.slide(table)
        for index in range(len(table.pages)):
            if table.pages[index] < GONE:
                self._bring_back(table.pages[index])
        self.pool.recent.use(table)
        self.pool.fit()

    def limit(self, window: int) -> None:
        """Let new tokens see at most ``window`` tokens (0: all that the cache has not forgotten)."""
        self._limit = window
        self._settle()

    def seen(self, table: PageTable) -> int:
        """Tokens that the next one of a sequence sees: by the limits, and by what it has forgotten. 0: all."""
        limits = [w for w in (self.pool.window, table.length + 1 - table.gone if table.gone else 0) if w]
        return min(limits, default=0)

    def slide(self, table: PageTable) -> None:
        """Forget what no new token of a sequence sees any more."""
        if self.pool.window:
            table.forget_before(table.length + 1 - self.pool.window - FEW_TOKENS)  # a step may be taken back

    def evict(self, table: PageTable) -> int:
        """Let a sequence leave memory; pages that another one in memory has stay. Returns how many pieces of memory became free."""
        table.away, freed = True, 0
        recent = self.pool.recent.leave(table)
        for page in dict.fromkeys(p for p in table.pages if p >= 0):
            holders = [t for t in self.pool.tables() if page in t.pages]
            if all(t.away for t in holders):
                stored = self.pool.stored.write(self.pool.page(page), self.pool.geometry, len(holders))
                _replace(holders, page, stored)
                self.pool.free_page(page)
                freed += 1
        self.evicted_pages += freed
        return freed + recent

    @in_turn
    def begin_with(self, table: PageTable, tokens: list[int], adapter: str = "", *, exact: bool = True) -> None:
        """Let a sequence hold as many of ``tokens`` as it, or any other of the pool, begins with; pages are shared.

        The last one is left to be computed, and nothing is shared that another adapter computed; where ``exact``, nothing either that
        was computed at a lower power level.
        """
        asked = tokens[:-1]
        if table.adapter != adapter:
            table.cut(0)
        table.adapter = adapter
        others = [t for t in self.pool.tables() if not t.gone and t is not table and t.adapter == adapter and t.exact >= exact]
        best = max([table, *others], key=lambda t: t.begins_with(asked))
        if best is table:
            table.cut(table.begins_with(asked))
        else:
            table.adopt(best, best.begins_with(asked))

    def _bring_back(self, stored: int) -> None:
        page = self.pool.take()
        holders = [t for t in self.pool.tables() if stored in t.pages]
        if not holders:  # making room let its tokens be forgotten
            self.pool.give_back(page)
            return
        source, geometry = self.pool.stored.read(stored, self.pool.shape.layers)
        if (geometry == self.pool.geometry).all():
            self.pool.page(page)[:] = source
        else:
            for layer in range(self.pool.shape.layers):
                rewrite_page(source[layer], 0, geometry, self.pool.layer(layer), page, self.pool.geometry)
        _replace(holders, stored, page)
        self.pool.users[page] = len(holders)
        self.pool.stored.forget(stored)
        self.returned_pages += 1

    def _reclaim(self) -> bool:
        """Free a page, or the newest tokens of a sequence in float16; whether that succeeded."""
        now = self._now() if self._now is not None else None
        others = [t for t in self.pool.tables() if t is not now and (t.recent is not None or any(p >= 0 for p in t.pages))]
        if any(self.evict(t) for t in sorted(others, key=lambda t: (t.priority, t.used))):
            return True
        return self._shorten() or self._to_integers()

    def _shorten(self) -> bool:
        """Let new tokens see less far back until that frees a page."""
        while self.shrink.window:
            wide = self._shortened or self.context
            if wide <= self.shrink.window:
                return False
            self._shortened = max(self.shrink.window, wide // 2)
            self._settle()
            for table in self.pool.tables():
                self.slide(table)
            if self.pool.free:
                return True
        return False

    def _settle(self) -> None:
        self.pool.window = min((w for w in (self._limit, self._shortened) if w), default=0)

    def _to_integers(self) -> bool:
        shape = self.pool.shape
        if not self.shrink.integer or "fp16" not in (shape.keys, shape.values):
            return False
        self.pool.rewrite(*(small if now == "fp16" else now for now, small in zip((shape.keys, shape.values), _SMALL, strict=True)))
        return self.pool.free > 0


def _replace(tables: list[PageTable], old: int, new: int) -> None:
    for table in tables:
        table.pages[table.pages.index(old)] = new
