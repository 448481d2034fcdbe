"""Turns of a chat, as a trace keeps them: an instant each, whose detail is a sentence for people that reads back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hetsched.trace import Instant

T = TypeVar("T")
KIND = "turn"
_COUNT, _FIGURE = r"(\d{1,12})", r"(\d{1,16}(?:\.\d{1,16})?(?:e[+-]\d\d)?)"
_NAME = re.compile(f"turn {_COUNT}")
_DETAIL = re.compile(f"{_COUNT} tokens after {_COUNT}: first token after {_FIGURE} ms, then {_COUNT} at {_FIGURE} tok/s")


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt after ``past`` tokens of the same conversation, and its answer; ``number`` counts from 0."""

    number: int
    began_s: float
    past: int
    prompt: int
    generate: int
    first_s: float
    """From the prompt's arrival to the first token."""
    rate: float
    """Tokens a second of the answer after that."""

    def instant(self) -> Instant:
        """What a trace keeps of it (four digits of the first token, three of the rate)."""
        detail = (
            f"{self.prompt} tokens after {self.past}: first token after {self.first_s * 1e3:.4g} ms,"
            f" then {self.generate} at {self.rate:.3g} tok/s"
        )
        return Instant(KIND, f"turn {self.number}", self.began_s, detail)


def turns(instants: Iterable[Instant]) -> Iterator[Turn]:
    """The turns among the instants of a trace, in its order; what does not read as one is passed over."""
    for i in instants:
        name, detail = _NAME.fullmatch(i.name), _DETAIL.fullmatch(i.detail)
        if i.kind == KIND and name and detail:
            prompt, past, first, generate, rate = detail.groups()
            yield Turn(int(name[1]), i.time_s, int(past), int(prompt), int(generate), float(first) / 1e3, float(rate))


def ends(items: Sequence[T], count: int) -> list[T]:
    """``count`` of the items: the first half and the last half of them; all where there are no more.

    How a conversation grows is in turns that follow each other, and what heat does to it at the end.

    Examples:
        >>> ends("abcdefgh", 4), ends("abc", 4)
        (['a', 'b', 'g', 'h'], ['a', 'b', 'c'])
    """
    return list(items) if len(items) <= count else [*items[: count // 2], *items[len(items) - (count - count // 2) :]]
