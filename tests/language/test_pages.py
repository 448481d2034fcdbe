"""Pages of the cache: taken, shared, copied before they are written to, given back."""

from __future__ import annotations

import pytest

from hetsched.errors import ExecutionError, OptionError
from hetsched.language.cache_shape import CacheShape
from hetsched.language.pages import PagePool, PageTable

SHAPE = CacheShape(layers=2, heads=4, kv_heads=2, head_dim=16, page=16)


def test_a_sequence_grows_and_shrinks() -> None:
    pool = PagePool(SHAPE, 4)
    table = PageTable(pool, 60)
    table.extend(17)
    table.length = 17
    assert len(table.pages) == 2 and pool.free == 2 and table.numbers[:2].tolist() == table.pages
    assert pool.used_bytes == 2 * 2 * pool.page_bytes
    table.cut(16)
    assert table.length == 16 and pool.free == 3 and pool.most_bytes == 2 * 2 * pool.page_bytes
    table.cut(0)
    assert pool.free == 4 and pool.used_bytes == 0


def test_a_fork_shares_whole_pages_and_copies_the_one_it_writes_to() -> None:
    pool = PagePool(SHAPE, 5)
    first = PageTable(pool, 64)
    first.extend(20)
    first.length = 20
    pool.memory[:, :] = 7
    second = first.fork()
    assert pool.free == 3 and second.pages == first.pages
    second.extend(1)
    assert pool.free == 2
    assert second.pages[0] == first.pages[0] and second.pages[1] != first.pages[1]
    own = second.pages[1] * pool.page_bytes
    assert (pool.memory[:, own : own + pool.page_bytes] == 7).all()
    first.cut(0)
    assert pool.free == 3  # the shared page is still the second's
    second.cut(0)
    assert pool.free == 5 and (pool.users == 0).all()


def test_limits_are_named() -> None:
    pool = PagePool(SHAPE, 1)
    table = PageTable(pool, 40)
    with pytest.raises(OptionError, match="41 tokens exceed the context limit of 40"):
        table.extend(41)
    with pytest.raises(ExecutionError, match="the cache is full: all its 1 pages"):
        table.extend(17)
    with pytest.raises(OptionError, match="no cache of int4 keys"):
        PagePool(CacheShape(1, 1, 1, 16, "int4", "int4"), 1)
    with pytest.raises(OptionError, match="16 to 256 tokens, not 8"):
        PagePool(CacheShape(1, 1, 1, 16, page=8), 1)
