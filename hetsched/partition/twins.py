"""Identical branches of a block: heads of an attention, for which any permutation of a plan is a plan that costs the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hetsched.partition.blocks import Block
from hetsched.partition.relaxed import Relaxed

if TYPE_CHECKING:
    from hetsched.partition.overlap import Window

COMPARED = 3
"""Ops of a branch, the longest ones, whose places order it among identical branches."""


def twins(relaxed: Relaxed, block: Block, tensors: Collection[int]) -> list[list[tuple[int, ...]]]:
    """Groups of identical branches, each a row of inner ops; the ops at the same position of a group correspond.

    Args:
        relaxed: a relaxation.
        block: one of its blocks. A branch is a set of inner ops that is connected without the entry and the exit.
        tensors: whose transfers the block pays.
    """
    groups: dict[str, list[tuple[int, ...]]] = {}
    for branch in _branches(relaxed, block):
        groups.setdefault(_signature(relaxed, block, branch, tensors), []).append(branch)
    return [group for group in groups.values() if len(group) > 1]


def _branches(relaxed: Relaxed, block: Block) -> list[tuple[int, ...]]:
    """The connected parts of the inner ops, each in topological order."""
    root = {v: v for v in block.inner}

    def find(v: int) -> int:
        while root[v] != v:
            root[v] = root[root[v]]
            v = root[v]
        return v

    for v in block.inner:
        for u in relaxed.preds[v]:
            if u in root:
                a, b = sorted((find(u), find(v)))
                root[b] = a
    parts: dict[int, list[int]] = {}
    for v in block.inner:
        parts.setdefault(find(v), []).append(v)
    return [tuple(part) for part in parts.values()]


def _signature(relaxed: Relaxed, block: Block, branch: Sequence[int], tensors: Collection[int]) -> str:
    """Equal for branches that cost the same wherever they go. Tensors from outside must be the very same."""
    c = relaxed.c
    place = {v: i for i, v in enumerate(branch)}
    made = {t: (i, k) for i, v in enumerate(branch) for k, t in enumerate(c.outputs[v])}
    rows: list[object] = []
    for v in branch:
        rows.append([(c.queue[x], c.domain[x], c.time[x]) for x in c.alts[v]])
        rows.append([(place.get(u, -1 - u), matrix) for u, matrix in relaxed.preds[v].items() if u in place or u == block.entry])
        rows.append([(made.get(t, t), t in tensors) for t in c.inputs[v]])
        rows.append((relaxed.arrive[v], relaxed.follow[v], v in c.results))
    for t in made:
        outside = [s for s in c.succs[c.producer[t]] if t in c.inputs[s] and s not in place]
        rows.append((t in tensors, c.transfer[t], [s - block.exit for s in outside]))
    return repr(rows)


def order_twins(model: Any, window: Window, places: Callable[[int], Mapping[int, Any]]) -> None:
    """Let identical branches come in one order: nothing is lost, because they may be exchanged.

    Args:
        model: a CP-SAT model.
        window: the block.
        places: of an op, a literal for each number that stands for a place.
    """
    c = window.relaxed.c
    for group in twins(window.relaxed, window.block, window.tensors):
        longest = sorted(range(len(group[0])), key=lambda i: (-min(c.time[a] for a in c.alts[group[0][i]]), i))[:COMPARED]
        base = 1 + max(max(places(v)) for branch in group for v in branch)
        codes = [sum(base ** (COMPARED - 1 - j) * k * x for j, i in enumerate(longest) for k, x in places(b[i]).items()) for b in group]
        for first, second in pairwise(codes):
            model.add(first <= second)
