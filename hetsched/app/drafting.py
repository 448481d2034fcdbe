"""What guesses tokens while text is generated, by the options of the user; and what it has been right about."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.errors import OptionError
from hetsched.language.session import LanguageModel
from hetsched.language.speculation import Drafter, DraftModel, EarlyDraft, Lookup, check_length
from hetsched.language.vocabularies import vocabulary_of
from hetsched.language.vocabulary import Vocabulary

if TYPE_CHECKING:
    from hetsched.acceptance import Acceptance
    from hetsched.language.generation import Answer
    from hetsched.plan_language import Speculation


def as_planned(guesses: Speculation, folder: Path) -> tuple[int, Path | None, int | None]:
    """How many tokens are guessed at once in a plan file in ``folder``, the smaller model and the number of layers that guess there."""
    return guesses.length, folder / guesses.draft if guesses.draft else None, guesses.layers or None


def rate_of(guesses: Speculation) -> dict[str, float]:
    """The rate of decoding that a plan predicts with its guesses."""
    return {} if guesses.prediction is None else {"decode_tok_s": guesses.prediction.decode_rate}


def check_drafter(length: int, draft: str | Path | None, layers: int | None, vocabulary: Vocabulary) -> None:
    """Check what can be checked before a model is opened.

    Raises:
        OptionError: the length is out of range, options exclude each other, or the smaller model has another vocabulary.
    """
    given = [f"--draft {draft}"] * (draft is not None) + [f"--draft-layers {layers}"] * (layers is not None)
    if not check_length(length) and given:
        raise OptionError(f"{given[0]} guesses no token: say how many with --speculate N")
    if len(given) > 1:
        raise OptionError(f"{given[0]} and {given[1]} both guess: leave one out")
    if draft is not None and vocabulary_of(Path(draft)).tokens != vocabulary.tokens:
        raise OptionError(f"--draft {draft} has another vocabulary than the model: use a smaller one of the same family")


def drafter_of(length: int, draft: str | Path | None, layers: int | None, model: LanguageModel, cores: tuple[int, ...]) -> Drafter | None:
    """What guesses ``length`` tokens for ``model``; None: nothing does.

    Raises:
        OptionError: the model has not so many layers.
    """
    if not length:
        return None
    if layers is not None:
        return EarlyDraft(model, layers, length)
    if draft is None:
        return Lookup(length)
    return DraftModel(LanguageModel(draft, cores=cores, context=model.context, precision=model.precision), length)


def acceptance_of(model: LanguageModel, drafter: Drafter | None, answers: Iterable[Answer]) -> Acceptance:
    """What a model accepted of a drafter's guesses in some answers.

    Raises:
        OptionError: nothing guesses, or no step is counted.
    """
    from hetsched.acceptance import Acceptance

    if drafter is None:
        raise OptionError("accepted guesses are counted where there are some: say how many with --speculate N")
    counts = [[0] * (d + 1) for d in range(drafter.length + 1)]
    for guesses, accepted in (step for answer in answers for step in answer.guessed):
        counts[guesses][accepted] += 1
    if not any(map(sum, counts)):
        raise OptionError("no step with guesses was computed: let the answer be longer than one token")
    return Acceptance(model=model.graph.name, sha256=model.graph.sha256, guesser=drafter.kind, steps=tuple(map(tuple, counts)))
