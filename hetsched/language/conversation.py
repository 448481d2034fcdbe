"""Turns of a conversation: each renders all messages, and computes only what the cache does not hold yet."""

from __future__ import annotations

from collections.abc import Iterator

from hetsched.language.chat_template import render
from hetsched.language.generation import Answer, Token, generate
from hetsched.language.pages import PageTable
from hetsched.language.sampling import Sampling
from hetsched.language.session import LanguageModel
from hetsched.language.speculation import Drafter
from hetsched.language.vocabulary import Vocabulary


class Conversation:
    """A conversation with a model.

    Attributes:
        messages: what was said, each with ``role`` and ``content``.
        answer: the last answer, with its times.
        table: the sequence in the cache.
    """

    def __init__(
        self,
        model: LanguageModel,
        vocabulary: Vocabulary,
        *,
        system: str | None = None,
        sampling: Sampling | None = None,
        drafter: Drafter | None = None,
        priority: int = 0,
    ) -> None:
        self.model, self.vocabulary, self.sampling, self.drafter = model, vocabulary, sampling, drafter
        self.messages: list[dict[str, str]] = [] if system is None else [{"role": "system", "content": system}]
        self.table: PageTable = model.sequence(priority)
        self.answer = Answer()

    def say(self, text: str, *, most: int) -> Iterator[Token]:
        """Say something and yield the answer's tokens; it counts as said once the answer has ended.

        Raises:
            OptionError: the conversation exceeds the context, or the template refuses it.
        """
        asked = [*self.messages, {"role": "user", "content": text}]
        prompt = self.prompt_of(asked)
        own = self.model.power.precision in ("", self.model.precision)
        self.model.residency.begin_with(self.table, prompt, self.model.adapter, exact=own)
        self.answer = Answer()
        yield from generate(
            self.model, self.vocabulary, prompt, self.table, most=most, sampling=self.sampling, answer=self.answer, drafter=self.drafter
        )  # fmt: skip
        self.messages = [*asked, {"role": "assistant", "content": self.answer.text}]

    def prompt_of(self, messages: list[dict[str, str]]) -> list[int]:
        """The tokens of messages, up to where the assistant's answer begins."""
        v = self.vocabulary
        begin, end = (v.tokens[t] if t is not None else "" for t in (v.begin, v.end))
        written = render(v.template, messages, begin=begin, end=end)
        return v.encode(written, begin=not (begin and written.startswith(begin)))
