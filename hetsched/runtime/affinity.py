"""Pinning: which cores a queue's worker may use, read off the queue's name (``cpu:0-3``, ``cpu:0,2``)."""

from __future__ import annotations

import contextlib
import os
import re
from functools import cache

from hetsched import cores
from hetsched.errors import SoCError

_CORES = re.compile(r"^[a-z0-9_.-]+:\d[\d,-]*$")


def cores_of(queue: str) -> tuple[int, ...]:
    """Core numbers in a queue's name, ascending; empty if it names none.

    Raises:
        SoCError: the list is malformed or longer than any machine's.

    Examples:
        >>> cores_of("cpu:0-3")
        (0, 1, 2, 3)
        >>> cores_of("npu")
        ()
    """
    return cores.cores_of(queue) if _CORES.match(queue) else ()


def usable(queue: str) -> tuple[int, ...]:
    """The cores of ``queue`` that this process may use, as far as its name gives any."""
    try:
        cores = cores_of(queue)
    except SoCError:
        return ()
    return tuple(c for c in cores if c in allowed())


@cache
def allowed() -> frozenset[int]:
    """The cores that this process may use: those of its first thread before that is pinned to some of them; all where none are pinned."""
    if not hasattr(os, "sched_getaffinity"):
        return frozenset(range(os.cpu_count() or 1))
    return frozenset(os.sched_getaffinity(os.getpid()))


def pin(queue: str) -> str | None:
    """Pin the calling thread to the cores of ``queue``; returns a note where that is not possible."""
    try:
        cores = cores_of(queue)
    except SoCError as e:
        return f"the worker of queue {queue[:80]} is not pinned: {e}"
    if not cores:
        return f"the worker of queue {queue} is not pinned: its name gives no cores"
    if not hasattr(os, "sched_setaffinity"):
        return f"the worker of queue {queue} is not pinned: this system cannot pin threads"
    absent = [c for c in cores if c not in allowed()]
    if absent:
        return f"the worker of queue {queue} is not pinned: core {absent[0]} is not available to this process"
    os.sched_setaffinity(0, cores)
    return None


def pin_to(cores: tuple[int, ...], thread: int = 0) -> None:
    """Pin a thread (0: the calling one) to those of ``cores`` that this process may use, where threads can be pinned at all."""
    if hasattr(os, "sched_setaffinity"):
        allowed()  # before this thread is pinned, if it is the first
        with contextlib.suppress(OSError):  # none of them
            os.sched_setaffinity(thread, cores)


def unpin(thread: int) -> None:
    """Let a thread, by its native id, be on all cores that this process may use."""
    if hasattr(os, "sched_setaffinity"):
        pin_to(tuple(sorted(allowed())), thread)
