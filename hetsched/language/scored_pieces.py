"""SentencePiece vocabularies (Kudo and Richardson, 2018) in GGUF: pieces with scores, spaces as U+2581, bytes as a last resort."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

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
    pieces: list[str] = list(text)
    following, before = [*range(1, len(pieces)), -1], list(range(-1, len(pieces) - 1))
    waiting: list[tuple[float, int, int, str]] = []

    def offer(left: int) -> None:
        right = following[left] if left >= 0 else -1
        if right >= 0 and (whole := pieces[left] + pieces[right]) in scores:
            heapq.heappush(waiting, (-scores[whole], left, right, whole))

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
