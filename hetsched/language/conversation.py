"""Turns of a conversation: each renders all messages, and computes only what the cache does not hold yet."""

from __future__ import annotations

from collections.abc import Iterator

from hetsched.language.chat_template import render
from hetsched.language.generation import Answer, Token, generate
from hetsched.language.pages import PageTable
from hetsched.language.sampling import Sampling
from hetsched.language.session import LanguageModel
from hetsched.language.vocabulary import Vocabulary


class Conversation:
    """A conversation with a model.

    Attributes:
        messages: what was said, each with ``role`` and ``content``.
        answer: the last answer, with its times.
        table: the sequence in the cache.
    """

    def __init__(
        self, model: LanguageModel, vocabulary: Vocabulary, *, system: str | None = None, sampling: Sampling | None = None
    ) -> None:
        self.model, self.vocabulary, self.sampling = model, vocabulary, sampling
        self.messages: list[dict[str, str]] = [] if system is None else [{"role": "system", "content": system}]
        self.table: PageTable = model.sequence()
        self.answer = Answer()
        self._cached: list[int] = []

    def say(self, text: str, *, most: int) -> Iterator[Token]:
        """Say something and yield the answer's tokens; it counts as said once the answer has ended.

        Raises:
            OptionError: the conversation exceeds the context, or the template refuses it.
        """
        asked = [*self.messages, {"role": "user", "content": text}]
        prompt = self.prompt_of(asked)
        same = shared_tokens(prompt, self._cached)
        self.table.cut(min(same, len(prompt) - 1))
        self.answer = Answer()
        self._cached = list(prompt)
        yield from generate(
            self.model, self.vocabulary, prompt, self.table, most=most, sampling=self.sampling, answer=self.answer
        )  # fmt: skip
        self._cached = [*prompt, *self.answer.tokens][: self.table.length]
        self.messages = [*asked, {"role": "assistant", "content": self.answer.text}]

    def prompt_of(self, messages: list[dict[str, str]]) -> list[int]:
        """The tokens of messages, up to where the assistant's answer begins."""
        v = self.vocabulary
        begin, end = (v.tokens[t] if t is not None else "" for t in (v.begin, v.end))
        written = render(v.template, messages, begin=begin, end=end)
        return v.encode(written, begin=not (begin and written.startswith(begin)))


def shared_tokens(a: list[int], b: list[int]) -> int:
    """How many tokens two sequences begin with in common."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
