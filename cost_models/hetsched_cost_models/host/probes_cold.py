"""Calls on other arrays each time: what an operator meets in a model.

What it reads first was just written and lies in the core's cache; its weights, its second operand and the place of its result
were last used an inference ago. Only the pages of two pools are touched, however many calls are made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

#: More than the private caches of today's cores hold.
_COLD_BYTES = 12 << 20
_POOL_BYTES = 24 << 20
_LINE = 64
_SEED = 7


@cache
def _pool(written: bool) -> Any:
    """Bytes that start on a cache line: random float32, or room for results (which are never read)."""
    room = np.empty(_POOL_BYTES + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    pool = room[start : start + _POOL_BYTES]
    if written:
        pool[:] = 0
    else:
        pool.view(np.float32)[:] = np.random.default_rng(_SEED).standard_normal(_POOL_BYTES // 4, dtype=np.float32)
    return pool


class Cold:
    """A call whose arguments move through memory.

    Args:
        kernel: what is called.
        args: its arguments.
        reads: positions of the arrays that are read from memory that is not cached.
        writes: positions of those that are written there.
    """

    def __init__(self, kernel: Callable[..., Any], args: Sequence[Any], reads: Sequence[int] = (), writes: Sequence[int] = ()) -> None:
        self._kernel = kernel
        self._variants = [tuple(args)]
        moved = sum(_lines(args[i].nbytes) for i in (*reads, *writes))
        if 0 < moved <= _POOL_BYTES:
            self._variants = [_moved(args, reads, writes, k) for k in range(max(2, -(-_COLD_BYTES // moved)))]
        self._next = 0

    def __call__(self) -> None:
        """Call it with the next arguments."""
        self._kernel(*self._variants[self._next])
        self._next = (self._next + 1) % len(self._variants)


def _lines(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE


def _moved(args: Sequence[Any], reads: Sequence[int], writes: Sequence[int], turn: int) -> tuple[Any, ...]:
    """The arguments with those arrays at their ``turn``-th place."""
    out = list(args)
    for places, written in ((reads, False), (writes, True)):
        step = sum(_lines(args[i].nbytes) for i in places)
        at = turn * step % _POOL_BYTES
        if at + step > _POOL_BYTES:
            at = 0
        for i in places:
            out[i] = _pool(written)[at : at + args[i].nbytes].view(args[i].dtype)
            at += _lines(args[i].nbytes)
    return tuple(out)
