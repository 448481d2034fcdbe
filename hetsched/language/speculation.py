"""Speculated tokens: guessed cheaply, then checked by the model in one step of several tokens, so that none changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hetsched.errors import OptionError
from hetsched.language.session import FEW_TOKENS, LanguageModel

#: Most tokens that are speculated at once: with the one before them they are a step of few tokens.
MOST = FEW_TOKENS - 1


class Drafter(Protocol):
    """Guesses what comes next."""

    length: int

    def propose(self, before: Sequence[int], most: int) -> list[int]:
        """Up to ``most``, and up to ``length``, tokens that may follow ``before``."""


def check_length(length: int) -> int:
    """How many tokens are speculated at once.

    Raises:
        OptionError: it is out of range.
    """
    if not 0 <= length <= MOST:
        raise OptionError(f"--speculate {length} is out of range: use 0 to {MOST} tokens")
    return length


class Lookup:
    """What followed the last few tokens when they came before: free, and good where an answer repeats its prompt.

    Attributes:
        length: most tokens of a guess.
        longest: so many last tokens are looked for first, then fewer, down to ``shortest``.
    """

    def __init__(self, length: int, longest: int = 4, shortest: int = 2) -> None:
        self.length, self.longest, self.shortest = check_length(length), longest, shortest

    def propose(self, before: Sequence[int], most: int) -> list[int]:
        """The tokens after the latest earlier place with the same last tokens."""
        ids = np.asarray(before, np.int64)
        for n in range(min(self.longest, ids.size - 1), self.shortest - 1, -1):
            same = np.ones(ids.size - n, np.bool_)
            for i in range(n):
                same &= ids[i : ids.size - n + i] == ids[ids.size - n + i]
            places = np.flatnonzero(same)
            if places.size:
                begin = int(places[-1]) + n
                return [int(i) for i in ids[begin : begin + min(most, self.length)]]
        return []


class DraftModel:
    """What a smaller model would say.

    Attributes:
        length: most tokens of a guess.
        model: the smaller model; its vocabulary is the larger one's.
    """

    def __init__(self, model: LanguageModel, length: int) -> None:
        self.model, self.length = model, check_length(length)
        self._table = model.sequence()

    def propose(self, before: Sequence[int], most: int) -> list[int]:
        """Its best tokens, one after another."""
        ids, out = list(before), []
        most = min(most, self.length, self.model.context - len(ids))
        if most < 1:
            return []
        self._table.cut(self._table.begins_with(ids[:-1]))
        new = ids[self._table.length :]
        for _ in range(most):
            out.append(int(self.model.compute(new, self._table)[-1].argmax()))
            new = out[-1:]
        return out
