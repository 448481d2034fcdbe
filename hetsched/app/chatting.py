"""A simulated chat: turns of prompts and answers for minutes, as long as the phone takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.app.guessing import compared, predicted_rate
from hetsched.app.language import PlannedLanguage
from hetsched.app.phone_summary import phone_summary
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched_simulations import Simulation
    from hetsched_simulations.jobs import Done, JobLog

SHOWN = 1000
"""Turns that the summary lists."""
MINUTE_S = 60.0


@dataclass(frozen=True, eq=False)
class SimulatedChat:
    """A simulated chat and what it was a chat with."""

    planned: PlannedLanguage
    outcome: Simulation = field(repr=False)
    ambient_c: float
    policy: str = "static"
    deadline_s: float | None = None
    note: str | None = None
    """What the user should know of the conversations."""
    plain: SimulatedChat | None = field(default=None, repr=False)
    """The same chat without guessed tokens; None: none are guessed."""

    @property
    def trace(self) -> Trace:
        """What happened when."""
        return self.outcome.trace

    @property
    def jobs(self) -> JobLog:
        """The turns."""
        assert self.outcome.jobs is not None
        return self.outcome.jobs

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``simulate --json`` for a chat.

        ``energy_per_token_j`` is the plan's: without the phone's base load and other apps.
        """
        run, batch = self.outcome, self.planned.deployment.model.dims.get("batch", 1)
        figures = turn_figures(self.jobs, batch, run.duration_s)
        return {
            "model": self.planned.graph.name, "soc": self.planned.soc.id, "ambient_c": self.ambient_c, "duration_s": run.duration_s,
            "note": self.note, **figures,
            "predicted_ttft_ms": self.planned.prediction.ttft_s * 1e3, "predicted_decode_tok_s": predicted_rate(self.planned),
            "speculation": self._compared(figures),
            "missed": None if self.deadline_s is None else self.jobs.late(self.deadline_s),
            "energy_per_token_j": run.plan_j / figures["tokens"], "energy_per_token_with_base_j": run.energy.total / figures["tokens"],
            **phone_summary(run, self.planned.soc, self.policy),
        }  # fmt: skip

    def _compared(self, figures: Mapping[str, Any]) -> dict[str, Any] | None:
        if self.plain is None:
            return None
        pieces, other = self.jobs.pieces, self.plain.summary()
        per_step = self.jobs.tokens / max(sum(p.times for p in pieces), 1)
        return compared(per_step, figures["decode_tok_s"]["mean"], other["decode_tok_s"]["mean"], other["energy_per_token_j"])


def turn_figures(jobs: JobLog, batch: int, end_s: float) -> dict[str, Any]:
    """What became of the turns of a chat in a run that ended then; ``batch`` answers are made side by side."""
    done = jobs.done
    return {
        "turns": len(done), "conversations": sum(d.job.past == 0 for d in done), "tokens": batch * jobs.tokens,
        "prompt_tokens": batch * sum(d.job.prompt for d in done), "ttft_ms": _spread([(d.first_s - d.job.arrived_s) * 1e3 for d in done]),
        "decode_tok_s": {
            "mean": batch * _rate(jobs, 0.0, end_s), "first_minute": batch * _rate(jobs, 0.0, MINUTE_S),
            "last_minute": batch * _rate(jobs, max(end_s - MINUTE_S, 0.0), end_s),
        },
        "per_turn": [_turn(d, batch) for d in done[:SHOWN]],
    }  # fmt: skip


def _turn(d: Done, batch: int) -> Mapping[str, float]:
    rest = d.ended_s - d.first_s
    return {
        "start_s": d.began_s, "past": d.job.past, "prompt": d.job.prompt, "generate": d.job.generate,
        "ttft_ms": (d.first_s - d.job.arrived_s) * 1e3, "tok_s": batch * d.job.generate / rest if rest > 0 else 0.0, "level": d.level,
    }  # fmt: skip


def _spread(values: list[float]) -> dict[str, float] | None:
    """Of first tokens; None: no turn has ended."""
    if not values:
        return None
    middle, most = np.percentile(values, [50, 90]).tolist()
    return {"first": values[0], "median": middle, "p90": most, "last": values[-1]}


def _rate(jobs: JobLog, begin_s: float, end_s: float) -> float:
    """Tokens a second of the time in which they were made, between two moments; 0: there were none."""
    tokens = seconds = 0.0
    for p in jobs.pieces:
        inside = min(p.end_s, end_s) - max(p.start_s, begin_s)
        if inside > 0:
            tokens, seconds = tokens + p.tokens * inside / (p.end_s - p.start_s), seconds + inside
    return tokens / seconds if seconds > 0 else 0.0
