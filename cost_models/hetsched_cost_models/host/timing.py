"""Timing on a machine that may be busy: what load can only make slower is measured by its fastest repeat.

Repeats are short and interleaved (every probe once, then every probe again), so that a burst of load from elsewhere cannot
hit all repeats of one probe. Work of one thread is timed by the thread's own processor time, which does not count the time
that others had the core.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

#: One repeat lasts at least this long, so that the clocks' resolution does not matter.
_MIN_S = 4e-4


@dataclass(slots=True)
class Timed:
    """Repeats of one call: ``count`` calls each; seconds of one call, by the thread's clock and by the wall's."""

    call: Callable[[], Any]
    count: int = 0
    thread_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def repeat(self) -> None:
        """Time ``count`` calls once more."""
        if not self.count:
            self.count = max(1, int(_MIN_S / max(_once(self.call), 1e-8)))
        wall, own = time.perf_counter(), time.thread_time()
        for _ in range(self.count):
            self.call()
        own, wall = time.thread_time() - own, time.perf_counter() - wall
        # Where the thread's clock is coarse (some systems tick in milliseconds) the wall clock is the better one.
        self.thread_s.append((own if own > 0.2 * wall else wall) / self.count)
        self.wall_s.append(wall / self.count)

    @property
    def best_s(self) -> float:
        """Seconds of one call, undisturbed."""
        return min(self.thread_s)

    @property
    def spread(self) -> float:
        """How much slower than the best the typical repeat was, by the wall clock: 0 on a quiet machine."""
        return median(self.wall_s) / min(self.wall_s) - 1.0


class Load:
    """What other programs do meanwhile: counts from when it is made."""

    def __init__(self) -> None:
        self._start = (time.perf_counter(), time.process_time(), busy_s())

    def others(self) -> float:
        """Cores that others kept busy, on average, since then; 0 where the system does not tell."""
        wall, own, busy = self._start
        return max(0.0, (busy_s() - busy - (time.process_time() - own)) / max(time.perf_counter() - wall, 1e-9))


def busy_s(path: Path = Path("/proc/stat")) -> float:
    """Processor seconds that all programs have used since the system started, those that a hypervisor took included."""
    try:
        user, nice, system, _, _, irq, soft, steal = (int(v) for v in path.read_text().split("\n")[0].split()[1:9])
        return (user + nice + system + irq + soft + steal) / float(os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError):
        return 0.0


def _once(call: Callable[[], Any]) -> float:
    call()
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@dataclass(frozen=True, slots=True)
class Patience:
    """How long spells of timing go on: slow moments (neighbours, clocks) last seconds, so spells are spread out.

    At least ``spells``, and then until a spell improves at most ``share`` of the calls by more than ``gain``, but no longer
    than ``limit_s``; ``pause_s`` lies between two spells.
    """

    spells: int = 5
    rounds: int = 2
    pause_s: float = 0.25
    gain: float = 0.03
    share: float = 0.05
    limit_s: float = 18.0


def until_settled(timed: Sequence[Timed], patience: Patience, between: Callable[[int], None]) -> int:
    """Spells of interleaved rounds until the fastest repeats settle; how many there were.

    Args:
        timed: what is timed; repeats are added to it.
        patience: when it ends.
        between: called before every spell with its number, from 1.
    """
    end = time.perf_counter() + patience.limit_s
    spell = 0
    while True:
        spell += 1
        between(spell)
        before = [t.best_s for t in timed] if spell > 1 else []
        for _ in range(patience.rounds):
            one_round(timed)
        better = sum(t.best_s < b * (1.0 - patience.gain) for t, b in zip(timed, before, strict=False))
        settled = spell >= patience.spells and better <= patience.share * len(timed)
        if settled or time.perf_counter() > end:
            return spell
        time.sleep(patience.pause_s)


def one_round(timed: Sequence[Timed]) -> None:
    """Time every call once more."""
    for t in timed:
        t.repeat()


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """Pin the calling thread for a while, where the system allows it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    with suppress(OSError):
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)
