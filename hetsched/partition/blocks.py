"""Cutting a graph at ops that are comparable to all others, and which light ops to leave out so that more can be cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Block:
    """The ops between two cuts. ``entry`` and ``exit`` are ops, or -1 for the start and the end of the inference."""

    entry: int
    inner: tuple[int, ...]
    exit: int


def reach(ops: Sequence[int], preds: Mapping[int, Iterable[int]]) -> dict[int, int]:
    """Per op a bit set of the ops before and after it in every order, itself included.

    Args:
        ops: in topological order.
        preds: the ops that each one follows (of ``ops`` only).
    """
    before, after = dict.fromkeys(ops, 0), dict.fromkeys(ops, 0)
    for v in ops:
        mask = 1 << v
        for p in preds[v]:
            mask |= before[p]
        before[v] = mask
    for v in reversed(ops):
        after[v] |= 1 << v
        for p in preds[v]:
            after[p] |= after[v]
    return {v: before[v] | after[v] for v in ops}


def incomparable(ops: Sequence[int], preds: Mapping[int, Iterable[int]]) -> dict[int, int]:
    """How many other ops each op is neither an ancestor nor a descendant of."""
    return {v: len(ops) - mask.bit_count() for v, mask in reach(ops, preds).items()}


def blocks(ops: Sequence[int], preds: Mapping[int, Iterable[int]]) -> list[Block]:
    """The ops between neighbouring cuts (ops that are comparable to every other), first block first."""
    count = incomparable(ops, preds)
    out: list[Block] = []
    entry, inner = -1, list[int]()
    for v in ops:
        if count[v] == 0:
            out.append(Block(entry, tuple(inner), v))
            entry, inner = v, []
        else:
            inner.append(v)
    out.append(Block(entry, tuple(inner), -1))
    return out


def light_ops(preds: Sequence[Sequence[int]], least: Sequence[float], share: float) -> list[tuple[int, float]]:
    """Ops that stand beside most others for least work, most rewarding first.

    Args:
        preds: of every op.
        least: what each op costs at least.
        share: most to leave out, as a share of the sum of ``least``.

    Returns:
        The ops with the share that they and those before them make up.
    """
    n, total = len(preds), sum(least)
    comparable = reach(range(n), dict(enumerate(preds)))
    width = (n + 7) // 8
    packed = np.frombuffer(b"".join(comparable[v].to_bytes(width, "little") for v in range(n)), np.uint8).reshape(n, width)
    count = n - np.array([comparable[v].bit_count() for v in range(n)], np.int64)
    cost = np.array(least)
    left, out = share * total, list[tuple[int, float]]()
    gone = np.zeros(n, np.bool_)
    while total > 0:
        worth = np.where((count > 0) & ~gone & (cost <= left), count / (cost + 1e-4 * total), 0.0)
        v = int(worth.argmax())
        if worth[v] <= 0:
            break
        gone[v] = True
        left -= least[v]
        count -= 1 - np.unpackbits(packed[v], count=n, bitorder="little")
        out.append((v, share - left / total))
    return out


def bridged(preds: Sequence[Sequence[int]], left_out: Collection[int]) -> dict[int, list[int]]:
    """The predecessors of the ops that stay, those through left-out ops included."""
    through: list[list[int]] = []
    for row in preds:
        kept = [u for p in row for u in (through[p] if p in left_out else (p,))]
        through.append(list(dict.fromkeys(kept)))
    return {v: through[v] for v in range(len(preds)) if v not in left_out}
