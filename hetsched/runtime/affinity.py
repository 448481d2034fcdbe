"""Pinning: which cores a queue's worker may use, read off the queue's name (``cpu:0-3``, ``cpu:0,2``)."""

from __future__ import annotations

import os
import re

_CORES = re.compile(r"^[a-z0-9_.-]+:(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)$")


def cores_of(queue: str) -> tuple[int, ...]:
    """Core numbers in a queue's name, ascending; empty if it names none.

    Examples:
        >>> cores_of("cpu:0-3")
        (0, 1, 2, 3)
        >>> cores_of("npu")
        ()
    """
    match = _CORES.match(queue)
    if match is None:
        return ()
    cores: list[int] = []
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        cores.extend(range(int(first), int(last or first) + 1))
    return tuple(sorted(dict.fromkeys(cores)))


def pin(queue: str) -> str | None:
    """Pin the calling thread to the cores of ``queue``; returns a note where that is not possible."""
    cores = cores_of(queue)
    if not cores:
        return f"the worker of queue {queue} is not pinned: its name gives no cores"
    if not hasattr(os, "sched_setaffinity"):
        return f"the worker of queue {queue} is not pinned: this system cannot pin threads"
    absent = [c for c in cores if c not in os.sched_getaffinity(os.getpid())]
    if absent:
        return f"the worker of queue {queue} is not pinned: core {absent[0]} is not available to this process"
    os.sched_setaffinity(0, cores)
    return None
