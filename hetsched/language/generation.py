"""Generating: a prompt's tokens in, new tokens out one by one, with the times that they took."""

from __future__ import annotations

import codecs
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy.typing as npt

from hetsched.errors import OptionError
from hetsched.language.pages import PageTable
from hetsched.language.sampling import Chooser, Sampling
from hetsched.language.session import LanguageModel
from hetsched.language.speculation import Drafter
from hetsched.language.vocabulary import Vocabulary

Array = npt.NDArray[Any]


class Token(NamedTuple):
    """A generated token: its id, and the text that is complete with it (a character may take several tokens)."""

    id: int
    text: str


@dataclass
class Answer:
    """What was generated so far, and how long it took.

    Attributes:
        prompt_tokens: tokens of the prompt.
        reused_tokens: how many of them were in the cache already.
        tokens: ids that were generated, the end token included.
        text: what they say.
        finish: ``stop`` (the model ended its answer), ``length``, or empty while it goes on.
        first_s: from the prompt's tokens to the first new one.
        steps_s: duration of each later token; of those that one step gave, the first has all of it.
        guessed: of each step after the first token: tokens that were speculated, and how many of them the model would have chosen.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish: str = ""
    first_s: float = 0.0
    steps_s: list[float] = field(default_factory=list)
    guessed: list[tuple[int, int]] = field(default_factory=list)

    @property
    def drafted(self) -> int:
        """Tokens that were speculated."""
        return sum(d for d, _ in self.guessed)

    @property
    def accepted(self) -> int:
        """How many of them the model would have chosen."""
        return sum(k for _, k in self.guessed)

    @property
    def prefill_rate(self) -> float:
        """Tokens of the prompt that were computed, a second."""
        return (self.prompt_tokens - self.reused_tokens) / self.first_s if self.first_s else 0.0

    @property
    def decode_rate(self) -> float:
        """Later tokens a second."""
        return len(self.steps_s) / sum(self.steps_s) if self.steps_s else 0.0

    def summary(self) -> dict[str, Any]:
        """Keys of ``run --json``."""
        return {
            "prompt_tokens": self.prompt_tokens, "reused_tokens": self.reused_tokens, "generated_tokens": len(self.tokens),
            "text": self.text, "token_ids": self.tokens, "finish": self.finish, "ttft_ms": self.first_s * 1e3,
            "prefill_tok_s": self.prefill_rate, "decode_tok_s": self.decode_rate, "drafted_tokens": self.drafted,
            "accepted_tokens": self.accepted, "acceptance": self.accepted / self.drafted if self.drafted else None,
            "tokens_per_step": 1.0 + self.accepted / len(self.guessed) if self.guessed else None,
        }  # fmt: skip


def generate(
    model: LanguageModel,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    table: PageTable,
    *,
    most: int,
    sampling: Sampling | None = None,
    answer: Answer | None = None,
    drafter: Drafter | None = None,
) -> Iterator[Token]:
    """Continue a prompt.

    Args:
        model: the model.
        vocabulary: its vocabulary.
        prompt: ids; the first ``table.length`` of them are in the cache already and are not computed again.
        table: the sequence; afterwards it has the prompt and the answer, its last token aside.
        most: tokens that are generated at most.
        sampling: how tokens are chosen (None: greedy).
        answer: filled while tokens come.
        drafter: speculates tokens; the same tokens are chosen as without it.

    Yields:
        Each new token, the end token with an empty text.

    Raises:
        OptionError: nothing is left to compute of the prompt, or prompt and answer exceed the context.
    """
    new = list(prompt[table.length :])
    if not new:
        raise OptionError("the prompt is empty: give at least one token")
    if most < 1:
        raise OptionError(f"--generate {most} makes no sense: use at least 1")
    if len(prompt) + most - 1 > model.context:
        raise OptionError(
            f"{len(prompt)} tokens of the prompt and {most} of the answer exceed the context limit of {model.context}: raise --context"
        )
    if drafter is not None and table.states.size:
        raise OptionError(f"tokens of {model.graph.name!r} cannot be speculated: its states do not go back; leave --speculate out")
    record = Answer() if answer is None else answer
    record.prompt_tokens, record.reused_tokens = len(prompt), table.length
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    begin, before = time.perf_counter(), list(prompt)
    chooser: Chooser | None = None
    while not record.finish:
        drafts = []
        with model.pool.lock:  # scores are those of this sequence until its tokens are chosen
            if drafter is not None and record.tokens:
                drafts = drafter.propose(before, min(most - len(record.tokens) - 1, model.power.speculated(drafter.length)), table)
            scores = model.compute([*new, *drafts], table, scored=1 + len(drafts))
            chooser = chooser or Chooser(sampling or Sampling(), scores.shape[1])
            scored_ns = time.perf_counter_ns()
            chosen = _chosen(chooser, scores, before, drafts, vocabulary.ends)
            if model.recorder is not None:
                model.recorder.chosen(scored_ns, time.perf_counter_ns(), len(chosen))
            table.cut(table.length - (1 + len(drafts) - len(chosen)))
        now = time.perf_counter()
        if record.tokens:
            record.guessed.append((len(drafts), len(chosen) - 1))
            record.steps_s += [now - begin] + [0.0] * (len(chosen) - 1)
        else:
            record.first_s = now - begin
        begin = now
        for token in chosen:
            ended = token in vocabulary.ends
            record.tokens.append(token)
            record.finish = "stop" if ended else "length" if len(record.tokens) == most else ""
            said = b"" if ended or token >= len(vocabulary) else vocabulary.bytes_of(token)  # rows beyond it make its matrices even
            text = decoder.decode(said, bool(record.finish))
            record.text += text
            if record.finish and model.recorder is not None:
                first, later = record.first_s, sum(record.steps_s)
                model.recorder.turn(record.reused_tokens, record.prompt_tokens, len(record.tokens), first, later)
            yield Token(token, text)
        new = chosen[-1:]


def _chosen(chooser: Chooser, scores: Array, before: list[int], drafts: list[int], ends: Collection[int]) -> list[int]:
    """The tokens that a step gives: speculated ones as long as they are chosen, and one more; ``before`` has them afterwards."""
    out: list[int] = []
    for number in range(len(drafts) + 1):
        out.append(chooser.choose(scores[number], before))
        before.append(out[-1])
        if out[-1] in ends or drafts[number : number + 1] != out[-1:]:
            break
    return out
