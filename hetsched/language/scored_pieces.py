"""SentencePiece vocabularies (Kudo and Richardson, 2018) in GGUF: pieces with scores, spaces as U+2581, bytes as a last resort."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping

#: What stands for a space.
SPACE = "\u2581"


def merged(text: str, scores: Mapping[str, float]) -> list[str]:
    """The pieces of a text: neighbours are joined while the vocabulary has them, the best score (then leftmost) first.

    Args:
        text: with spaces as :data:`SPACE`.
        scores: of every piece of the vocabulary.

    Examples:
        >>> merged("abc", {"a": -3.0, "b": -3.0, "c": -3.0, "ab": -2.0, "bc": -1.0})
        ['a', 'bc']
    """

    def cost(left: str, right: str) -> float | None:
        score = scores.get(left + right)
        return None if score is None else -score

    return _joined(text, cost)


def merged_by_rank(text: str, ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """The pieces of a text: neighbours are joined while they are a pair, the lowest rank (then leftmost) first.

    Examples:
        >>> merged_by_rank("abc", {("a", "b"): 1, ("b", "c"): 0})
        ['a', 'bc']
    """
    return _joined(text, lambda left, right: ranks.get((left, right)))


def _joined(text: str, cost: Callable[[str, str], float | None]) -> list[str]:
    """Neighbours are joined while their pair has a cost, the lowest one first."""
    pieces: list[str] = list(text)
    following, before = [*range(1, len(pieces)), -1], list(range(-1, len(pieces) - 1))
    waiting: list[tuple[float, int, int, str]] = []

    def offer(left: int) -> None:
        right = following[left] if left >= 0 else -1
        found = cost(pieces[left], pieces[right]) if right >= 0 else None
        if found is not None:
            heapq.heappush(waiting, (found, left, right, pieces[left] + pieces[right]))

    for i in range(len(pieces) - 1):
        offer(i)
    while waiting:
        _, left, right, whole = heapq.heappop(waiting)
        if not pieces[left] or not pieces[right] or pieces[left] + pieces[right] != whole:
            continue
        pieces[left], pieces[right] = whole, ""
        following[left] = following[right]
        if following[right] >= 0:
            before[following[right]] = left
        offer(before[left])
        offer(left)
    return [p for p in pieces if p]
