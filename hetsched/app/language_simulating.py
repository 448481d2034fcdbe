"""Simulating a prompt and its answer: the prefill, then decode steps at growing contexts, each with contention and heat from cold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.app.circumstances import circumstances
from hetsched.app.guessing import GuessedAnswer, compared, guessed_answer, predicted_rate
from hetsched.app.language import PlannedLanguage, contexts_of, step
from hetsched.app.planned import Planned
from hetsched.app.scenario import Scenario
from hetsched.app.utilisation import write_from_spans
from hetsched.soc_words import heat_basis, power_basis
from hetsched.trace import Counter, Trace

if TYPE_CHECKING:
    from hetsched_simulations import Simulation


@dataclass(frozen=True, eq=False)
class SimulatedLanguage:
    """A simulated prompt and answer.

    ``steps`` are decode steps at some contexts: the tokens before each, and its simulation. Each starts from the phone at rest.
    """

    planned: PlannedLanguage
    prefill: Simulation = field(repr=False)
    steps: tuple[tuple[int, Simulation], ...] = field(repr=False)
    ambient_c: float = 25.0
    guessed: GuessedAnswer | None = field(default=None, repr=False)

    @property
    def trace(self) -> Trace:
        """The prefill and the first decode step after it."""
        out = joined_trace(self.prefill.trace, self.steps[0][1].trace, self.planned.graph.name)
        out.notes.insert(0, circumstances(Scenario(ambient_c=self.ambient_c), "static", self.prefill.phone()))
        return out

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``simulate --json`` for a plan with a prompt. Energies leave the phone's base load out."""
        asked, batch = self.planned.asked, self.planned.deployment.model.dims.get("batch", 1)
        contexts = np.arange(asked.prompt, asked.prompt + asked.generate)
        known = [past for past, _ in self.steps]
        seconds, joules = [s.first_s for _, s in self.steps], [s.energy.soc for _, s in self.steps]
        step_s, step_j = (np.interp(contexts, known, v) for v in (seconds, joules))
        predicted, guessed = predicted_rate(self.planned), None
        if self.guessed is not None:
            plain = step_s, step_j
            step_s, step_j = self.guessed.per_token(step_s, step_j)
            without = 1.0 / float(plain[0].mean()), float(plain[1].mean())
            guessed = compared(asked.generate / len(self.guessed.steps), 1.0 / float(step_s.mean()), *without)
        return {
            "model": self.planned.graph.name, "soc": self.planned.soc.id, "ambient_c": self.ambient_c,
            "prompt": asked.prompt, "generate": asked.generate,
            "ttft_ms": self.prefill.first_s * 1e3, "predicted_ttft_ms": self.planned.prediction.ttft_s * 1e3,
            "prefill_tok_s": batch * asked.prompt / self.prefill.first_s,
            "decode_tok_s": batch / float(step_s.mean()), "predicted_decode_tok_s": predicted, "speculation": guessed,
            "decode_ms": {"first": float(step_s[0]) * 1e3, "mean": float(step_s.mean()) * 1e3, "last": float(step_s[-1]) * 1e3},
            "duration_s": self.prefill.first_s + float(step_s.sum()),
            "energy_j": {"prefill": self.prefill.energy.soc, "decode": float(step_j.sum())},
            "energy_per_token_j": float(step_j.mean()) / batch,
            "power_basis": power_basis(self.planned.soc), "heat_basis": heat_basis(self.planned.soc), "case": self.prefill.phone()["case"],
        }  # fmt: skip


def simulate_language(
    planned: PlannedLanguage, ambient_c: float, contention: bool, progress: Callable[[float], None] | None, case: str = "table"
) -> SimulatedLanguage:
    """Simulate the prefill once, and a decode step at each context at which the plan is priced."""
    from hetsched_simulations import simulate as run_simulation

    def once(at: Planned) -> Simulation:
        clocks = at.deployment.entries[at.entry].clocks
        found = run_simulation(at.table, at.soc, *at.placement, ambient_c=ambient_c, contention=contention, clocks=clocks, case=case)
        write_from_spans(found.trace, at)
        return found

    contexts = contexts_of(planned.asked)
    prefill = once(planned.phases["prefill"])
    steps = []
    for k, past in enumerate(contexts):
        steps.append((past, once(step(planned, past))))
        if progress is not None:
            progress((k + 1) / len(contexts))
    return SimulatedLanguage(planned, prefill, tuple(steps), ambient_c, guessed_answer(planned, once))


def joined_trace(first: Trace, second: Trace, model: str) -> Trace:
    """``second`` after ``first``, as iterations of one trace."""
    shift = max((s.end_s for s in first.spans), default=0.0)
    last = max((s.iteration for s in first.spans), default=0) + 1
    segments = max((s.segment for s in first.spans), default=-1) + 1
    out = replace(
        first, model=model, spans=list(first.spans), counters=dict(first.counters), instants=list(first.instants), notes=list(first.notes)
    )
    out.spans += [
        replace(
            s, start_s=s.start_s + shift, end_s=s.end_s + shift, iteration=s.iteration + last,
            segment=s.segment + segments if s.segment >= 0 else s.segment,
        )
        for s in second.spans
    ]  # fmt: skip
    out.instants += [replace(i, time_s=i.time_s + shift) for i in second.instants]
    for name, counter in second.counters.items():
        mine = first.counters.get(name)
        times = [] if mine is None else [t for t in mine.times_s if t < shift]
        values = [] if mine is None else mine.values[: len(times)]
        out.counters[name] = Counter(name, counter.unit, [*times, *(t + shift for t in counter.times_s)], [*values, *counter.values])
    return out
