"""Points spread evenly over a cube, however many are taken."""

from __future__ import annotations

import random


def spread(count: int, axes: int, seed: int) -> list[tuple[float, ...]]:
    """The first ``count`` points of an additive recurrence in [0, 1) by ``axes``.

    Steps are the powers of the generalised golden ratio, the root of x^(axes + 1) = x + 1 (M. Roberts, "The Unreasonable
    Effectiveness of Quasirandom Sequences", 2018); the seed chooses where it begins. More points continue the sequence.

    Examples:
        >>> spread(3, 1, seed=0) == spread(5, 1, seed=0)[:3]
        True
    """
    ratio = 2.0
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1.0 / (axes + 1))
    steps = [ratio ** -(k + 1) for k in range(axes)]
    begin = random.Random(seed)
    starts = [begin.random() for _ in range(axes)]
    return [tuple((start + n * step) % 1.0 for start, step in zip(starts, steps, strict=True)) for n in range(count)]
