"""Guessed tokens in a simulated phone: fewer as it throttles, and what the same answers take without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hetsched.acceptance import shortened
from hetsched.app.contexts import at_context
from hetsched.app.language import PlannedLanguage
from hetsched.app.planned import Planned
from hetsched.costs import FloatArray
from hetsched.plan_language import Speculation

if TYPE_CHECKING:
    from hetsched_simulations import Simulation
    from hetsched_simulations.guessing import Guessed, Guessing

_Plan = TypeVar("_Plan", bound=Planned)


def guessing_of(asked: Speculation | None, seed: int) -> Guessing | None:
    """What the simulator draws; throttle levels guess as the power levels of :mod:`hetsched.language.power` do."""
    from hetsched.app.levels import LEVELS
    from hetsched.language.power import level_for, level_named
    from hetsched_simulations.guessing import Guessing

    if asked is None:
        return None
    lengths = {level: level_named(level_for(level)).speculated(asked.length) for level in LEVELS}
    return Guessing(asked.shares, seed, {level: shortened(asked.shares, n) for level, n in lengths.items()})


def guesses(planned: Planned) -> bool:
    """Whether tokens of a plan's answers are guessed."""
    return isinstance(planned, PlannedLanguage) and planned.asked.speculation is not None


def without_guesses(planned: _Plan) -> _Plan:
    """The plan, one token a step."""
    if not isinstance(planned, PlannedLanguage):
        return planned
    plain = planned.deployment.model_copy(update={"language": planned.asked.model_copy(update={"speculation": None})})
    return replace(planned, deployment=plain, guessing={})


def predicted_rate(planned: PlannedLanguage) -> float:
    """Tokens a second as the plan predicts them, with guesses where it has any."""
    asked = planned.asked.speculation
    return planned.prediction.decode_rate if asked is None or asked.prediction is None else asked.prediction.decode_rate


def compared(tokens_per_step: float, rate: float, plain_rate: float, plain_j: float | None) -> dict[str, Any]:
    """The keys ``speculation`` of ``simulate --json``: tokens a step, and what the same is without guesses."""
    without = {"decode_tok_s": plain_rate, "energy_per_token_j": plain_j}
    return {"tokens_per_step": tokens_per_step, "gain": rate / plain_rate if plain_rate else None, "without": without}


@dataclass(frozen=True, eq=False, slots=True)
class GuessedAnswer:
    """An answer whose tokens are guessed.

    Attributes:
        steps: its steps, drawn by the plan's shares.
        prompt: tokens before it.
        pasts: the two contexts of ``costs``.
        costs: by the number of guesses, [2, 2]: seconds and joules of a step that makes and verifies them, at each of ``pasts``.
    """

    steps: Sequence[Guessed]
    prompt: int
    pasts: tuple[int, int]
    costs: Mapping[int, FloatArray]

    def per_token(self, decode_s: FloatArray, decode_j: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Seconds and joules of each token: its share of its step; ``decode_…`` are those of steps of one token, by their place."""
        made = np.array([s.accepted + 1 for s in self.steps])
        begins = np.cumsum(made) - made
        each = np.stack([decode_s[begins], decode_j[begins]])
        for guesses, cost in self.costs.items():
            mine = np.array([s.guesses == guesses for s in self.steps])
            each[:, mine] = [np.interp(self.prompt + begins[mine], self.pasts, cost[k]) for k in (0, 1)]
        seconds, joules = np.repeat(each / made, made, axis=1)
        return seconds, joules


def guessed_answer(planned: PlannedLanguage, simulated: Callable[[Planned], Simulation]) -> GuessedAnswer | None:
    """The plan's answer with its guesses, each kind of step ``simulated`` at two contexts; None: nothing is guessed."""
    asked, guessing = planned.asked, guessing_of(planned.asked.speculation, 0)
    if guessing is None or asked.speculation is None:
        return None
    steps = guessing.steps(asked.generate)
    pasts = (asked.prompt, max(asked.prompt + asked.generate - asked.speculation.length - 1, asked.prompt + 1))

    def cost(phase: str, rows: int) -> FloatArray:
        runs = [simulated(at_context(planned, phase, rows, past)) for past in pasts]
        return np.array([[r.first_s for r in runs], [r.energy.soc for r in runs]])

    draft = cost("draft", 1) if "draft" in planned.guessing else np.zeros((2, 2))
    costs = {n: cost("verify", n + 1) + n * draft for n in sorted({s.guesses for s in steps} - {0})}
    return GuessedAnswer(steps, asked.prompt, pasts, costs)
