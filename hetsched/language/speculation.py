"""Speculated tokens: guessed cheaply, then checked by the model in one step of several tokens, so that none changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hetsched.errors import OptionError
from hetsched.language.pages import PageTable
from hetsched.language.session import LanguageModel
from hetsched.language.step_values import FEW_TOKENS

#: Most tokens that are speculated at once: with the one before them they are a step of few tokens.
MOST = FEW_TOKENS - 1


class Drafter(Protocol):
    """Guesses what comes next, up to ``length`` tokens at once."""

    length: int

    @property
    def kind(self) -> str:
        """Who guesses, as files of accepted guesses name it (:class:`hetsched.acceptance.Acceptance`)."""

    def propose(self, before: Sequence[int], most: int, table: PageTable) -> list[int]:
        """Up to ``most``, and up to ``length``, tokens that may follow ``before``; ``table`` holds these but the last."""


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

    @property
    def kind(self) -> str:
        """Of all lookups."""
        return "lookup"

    def propose(self, before: Sequence[int], most: int, table: PageTable | None = None) -> list[int]:
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

    @property
    def kind(self) -> str:
        """With the model's hash."""
        return f"model:{self.model.graph.sha256}"

    def propose(self, before: Sequence[int], most: int, table: PageTable | None = None) -> list[int]:
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


class EarlyDraft:
    """What the model would say after its first layers, its last norm and its head: the same weights, and the sequence's own caches.

    Keys and values of these layers are written where the step that checks the guesses writes them again.

    Attributes:
        length: most tokens of a guess.
        model: the model.
        layers: how many layers.
    """

    def __init__(self, model: LanguageModel, layers: int, length: int) -> None:
        """Check that the model has such layers.

        Raises:
            OptionError: it has not, or the length is out of range.
        """
        self.model, self.layers, self.length = model, layers, check_length(length)
        model.ready(long_prompts=False, layers=layers)

    @property
    def kind(self) -> str:
        """With the number of layers."""
        return f"layers:{self.layers}"

    def propose(self, before: Sequence[int], most: int, table: PageTable) -> list[int]:
        """Its best tokens, one after another."""
        out, begin = list(before[-1:]), table.length
        try:
            for _ in range(min(most, self.length)):
                out.append(int(self.model.early(out[-1], table, self.layers).argmax()))
        finally:
            table.cut(begin)
        return out[1:]
