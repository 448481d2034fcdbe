"""The least time of a block in which queues overlap, for each number of segments of its main queue.

The *main* queue is the one that is fastest at most of the block's work. With up to ``MOST`` segments of it between *E* and *F*
(:mod:`hetsched.partition.overlap` says what these are) :mod:`hetsched.partition.stage_model` bounds the block; more are bounded with
fractions of ops.
"""

from __future__ import annotations

import numpy as np

from hetsched.partition.overlap import Window
from hetsched.partition.problem import Budget
from hetsched.partition.stage_model import Spot, Staged, StageModel

INFINITE = float("inf")
MOST = 3
"""Segments of the main queue that are modelled one by one."""


def main_queue(window: Window) -> int:
    """The queue that is fastest at most of the work."""
    fastest = window.times.argmin(axis=0)
    return int(np.bincount(fastest, window.times.min(axis=0), len(window.times)).argmax())


def staged(window: Window, known: float, limit: float, budget: Budget, units: float) -> Staged:
    """A bound on every plan of a block in which queues overlap.

    Args:
        window: the block.
        known: a proven bound in seconds.
        limit: the most seconds of interest.
        budget: for the wall clock; nothing is charged.
        units: how much work may be done.
    """
    main, bound, left, more = main_queue(window), limit, units, False
    placed: tuple[tuple[Spot, ...], ...] = ()
    fractions = [max(known, window.fractional(main, k)) for k in range(MOST + 2)]
    for k, least in enumerate(fractions[:-1]):
        if least >= bound:
            break
        found = StageModel(window, main, k, least, bound).solve(budget, left)
        left -= found.units
        placed += found.placed
        if found.bound < bound:
            bound, more = found.bound, found.open
        if bound <= known * (1 + 1e-9) or left <= 0:
            return Staged(min(bound, fractions[k + 1]), True, placed, units - left)
    else:
        bound = min(bound, fractions[-1])
    return Staged(INFINITE if bound >= limit else bound, more, placed, units - left)
