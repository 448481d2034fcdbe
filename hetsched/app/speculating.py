"""Guessed tokens in a plan: who guesses, how often a guess is accepted, and what that makes of the rate on a chip.

A step makes up to ``n`` guesses, one draft step each (none where they are looked up), and verifies them at once: the scores of
``n + 1`` positions. With the shares of :mod:`hetsched.acceptance` it takes ``Σ shares[d][k] · (verify(d + 1) + d · draft)`` on average and
gives ``Σ shares[d][k] · (k + 1)`` tokens; a step without guesses is a decode step.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hetsched.acceptance import MOST_GUESSES, Acceptance, Shares, independent, shortened, tokens_per_step
from hetsched.app.contexts import at_context
from hetsched.app.inputs import early_layers
from hetsched.app.language import PlannedLanguage
from hetsched.errors import OptionError
from hetsched.graph import Graph
from hetsched.plan_language import Language, Speculation, SpeculationPrediction
from hetsched.segments import schedule

if TYPE_CHECKING:
    from hetsched.app.planning import Length

#: Who guesses where nothing else is said.
LOOKUP = "lookup"
#: Operators whose states cannot go back to before a wrong guess.
_ONWARD = ("CausalConv", "SelectiveScan")


class Cost(NamedTuple):
    """Of one step, averaged over an answer."""

    seconds: float
    joules: float


def speculation_of(
    model: Path, generate: int, length: Length | None, acceptance: float | str | Path | None, draft: str | Path | None, layers: int | None
) -> Speculation | None:
    """What is asked for of guessed tokens; ``auto`` is as many guesses as there may be. None: nothing is guessed.

    Raises:
        OptionError: an option is missing or out of range, or does not fit the model or the file of accepted guesses.
    """
    if length is None:
        given = {"--acceptance": acceptance, "--draft": draft, "--draft-layers": layers}
        lost = next((f"{name} {value}" for name, value in given.items() if value is not None), None)
        if lost is not None:
            raise OptionError(f"{lost} is of guessed tokens: say how many at once with --speculate N, or auto")
        return None
    if acceptance is None:
        raise OptionError("--speculate needs --acceptance: a probability, or a file of 'hetsched run --save-acceptance'")
    if draft is not None and layers is not None:
        raise OptionError(f"--draft {draft} and --draft-layers {layers} both guess: leave one out")
    most = min(MOST_GUESSES, generate - 1)
    if length != "auto" and (isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= most):
        raise OptionError(f"--speculate {length} is out of range: use 1 to {most} tokens for an answer of {generate}, or auto")
    graph = _checked(model)
    guesser, path = _guesser(graph, model, draft, layers)
    assumed = _probability(acceptance)
    if assumed is not None:
        n = most if length == "auto" else length
        return Speculation(length=n, guesser=guesser, draft=path, shares=independent(assumed, n), assumed=assumed)
    found = _measured(Path(str(acceptance)), graph, guesser)
    n = min(most, found.length) if length == "auto" else length
    if n > found.length:
        raise OptionError(f"{acceptance} has counted {found.length} guesses at once, not {n}: run with --speculate {n}, or plan with fewer")
    return Speculation(length=n, guesser=guesser, draft=path, shares=shortened(found.shares, n))


def _checked(model: Path) -> Graph:
    """A decode step of a model whose tokens can be guessed.

    Raises:
        OptionError: its states do not go back.
    """
    graph = _step(model)
    if any(op.type in _ONWARD for op in graph.ops):
        raise OptionError(f"tokens of {graph.name!r} cannot be speculated: its states do not go back; leave --speculate out")
    return graph


def _step(model: Path) -> Graph:
    from hetsched import frontends

    return frontends.load(model, frontends.phase_dims(model, 1, 1))


def _guesser(graph: Graph, model: Path, draft: str | Path | None, layers: int | None) -> tuple[str, str]:
    """Who guesses, and the file of a smaller model that does."""
    from hetsched import frontends
    from hetsched.passes.sampling import scores_of

    if layers is not None:
        early_layers(model, layers, frontends.phase_dims(model, 1, 1))
        return f"layers:{layers}", ""
    if draft is None:
        return LOOKUP, ""
    other = _step(Path(draft))
    known, own = (g.tensors[scores_of(g)].shape[-1] for g in (other, graph))
    if known != own:
        raise OptionError(f"--draft {draft} knows {known} tokens and the model {own}: use a smaller one of the same family")
    return f"model:{other.sha256}", str(other.source)


def _probability(acceptance: float | str | Path) -> float | None:
    """None: it is a file.

    Raises:
        OptionError: it is out of range.
    """
    try:
        value = float(str(acceptance))
    except ValueError:
        return None
    if not 0.0 <= value <= 1.0:
        raise OptionError(f"--acceptance {acceptance} is out of range: use a probability from 0 to 1, or a file")
    return value


def _measured(path: Path, graph: Graph, guesser: str) -> Acceptance:
    found = Acceptance.from_file(path)
    if found.sha256 != graph.sha256:
        raise OptionError(f"{path} is of the model {found.model!r}, another file than {graph.name!r}: to assume the same, give the number")
    if found.guesser != guesser:
        raise OptionError(f"{path} is of guesses by {found.guesser}, and the plan has {guesser}: run with the same --draft options")
    return found


def with_guesses(planned: PlannedLanguage) -> Language:
    """What was asked for, with the figures of guessed tokens."""
    asked = planned.asked
    if asked.speculation is None:
        return asked
    guessed = asked.speculation.model_copy(update={"prediction": _predicted(planned, asked.speculation)})
    return asked.model_copy(update={"speculation": guessed})


def with_best_length(planned: PlannedLanguage) -> Language:
    """What was asked for, with as many guesses at once as are fastest; the rate with each number of them is kept."""
    asked = planned.asked
    assert asked.speculation is not None
    guessed = asked.speculation
    rates = tuple(_predicted(planned, _of_length(guessed, n)).decode_rate for n in range(1, guessed.length + 1))
    best = _of_length(guessed, 1 + rates.index(max(rates))).model_copy(update={"rates": rates})
    return asked.model_copy(update={"speculation": best, "prediction": None})


def _of_length(guessed: Speculation, length: int) -> Speculation:
    return guessed.model_copy(update={"length": length, "shares": shortened(guessed.shares, length)})


def _predicted(planned: PlannedLanguage, guessed: Speculation) -> SpeculationPrediction:
    plain, n = planned.prediction, guessed.length
    draft = _mean(planned, "draft", 1) if "draft" in planned.guessing else Cost(0.0, 0.0)
    verify = {rows: _mean(planned, "verify", rows) for rows in range(2, n + 2) if any(guessed.shares[rows - 1]) or rows == n + 1}
    step = step_cost(guessed.shares, Cost(1.0 / plain.decode_rate, plain.energy_per_token_j), verify, draft)
    tokens = tokens_per_step(guessed.shares)
    rate, (low, high) = tokens / step.seconds, planned.guessing["verify"].table.interval
    return SpeculationPrediction(
        tokens_per_step=tokens, step_s=step.seconds, verify_s=verify[n + 1].seconds, draft_s=n * draft.seconds, decode_rate=rate,
        decode_rate_interval=(rate / high, rate / low), gain=rate / plain.decode_rate, energy_per_token_j=step.joules / tokens,
    )  # fmt: skip


def step_cost(shares: Shares, decode: Cost, verify: dict[int, Cost], draft: Cost) -> Cost:
    """What a step costs on average.

    Args:
        shares: of numbers of guesses, and of accepted ones among them.
        decode: a step without guesses.
        verify: a step that verifies guesses, by its rows, which are one more.
        draft: one guess.

    Examples:
        >>> step_cost(((0.5,), (0.25, 0.25)), Cost(4.0, 1.0), {2: Cost(5.0, 2.0)}, Cost(1.0, 0.5))
        Cost(seconds=5.0, joules=1.75)
    """
    often = {guesses: sum(row) for guesses, row in enumerate(shares) if any(row)}
    steps = {guesses: verify[guesses + 1] if guesses else decode for guesses in often}
    seconds, joules = (sum(often[d] * (steps[d][k] + d * draft[k]) for d in often) for k in (0, 1))
    return Cost(seconds, joules)


def _mean(planned: PlannedLanguage, phase: str, rows: int) -> Cost:
    """A step of a phase, averaged over the answer: halfway between its ends, as costs grow in proportion to the context."""
    asked = planned.asked
    ends = (asked.prompt, max(asked.prompt, asked.prompt + asked.generate - rows))
    timed = [schedule(at.table, *at.placement) for at in (at_context(planned, phase, rows, past) for past in ends)]
    return Cost(_middle([t.latency_s for t in timed]), _middle([t.energy_j for t in timed]))


def _middle(values: Sequence[float]) -> float:
    return sum(values) / len(values)
