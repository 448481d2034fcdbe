"""How much work a simulated run had done, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetsched.costs import FloatArray

if TYPE_CHECKING:
    from hetsched_simulations import Simulation

Progress = tuple[FloatArray, FloatArray]
"""Times, ascending, and the work done by each; linear in between."""


def work_times(outcome: Simulation, period_s: float | None) -> dict[str, Progress]:
    """Work over time, by what is done: ``inference``, or tokens of ``prefill`` and of ``decode``.

    Args:
        outcome: the run.
        period_s: distance of arrivals, if inferences came one a period and not as jobs.
    """
    jobs = outcome.jobs
    if jobs is not None and jobs.pieces:
        read = [(d.began_s, d.first_s, float(d.job.prompt)) for d in jobs.done]
        made = [(p.start_s, p.end_s, float(p.tokens)) for p in jobs.pieces]
        return {"prefill": _steps(read), "decode": _steps(made)} if read else {"decode": _steps(made)}
    if jobs is not None:
        return {"inference": _steps([(d.began_s, d.ended_s, 1.0) for d in jobs.done])}
    latencies = np.asarray(outcome.latencies_s)
    taken = latencies if period_s is None else np.ceil(latencies / period_s - 1e-9) * period_s
    begins = np.concatenate([[0.0], np.cumsum(taken)[:-1]])
    if period_s is None:
        ends = np.cumsum(latencies)
        return {"inference": (np.concatenate([[0.0], ends]), np.arange(len(ends) + 1.0))}
    times = np.stack([begins, begins + latencies], axis=1).ravel()
    return {"inference": (times, np.repeat(np.arange(len(latencies) + 1.0), 2)[1:-1])}


def computed_times(outcome: Simulation, period_s: float | None) -> dict[str, Progress]:
    """The same by what is computed: where tokens are guessed, ``decode`` and ``draft`` steps and rows of ``verify``."""
    out = work_times(outcome, period_s)
    pieces = [] if outcome.jobs is None else outcome.jobs.pieces
    if any(p.part.phase == "verify" for p in pieces):
        del out["decode"]
        rows = [(p.part.phase, p.start_s, p.end_s, p.times * p.part.tokens) for p in pieces]
        rows += [("draft", p.start_s, p.end_s, p.times * (p.part.tokens - 1)) for p in pieces if p.part.phase == "verify"]
        for phase in dict.fromkeys(r[0] for r in rows):
            out[phase] = _steps([(begin, end, float(amount)) for name, begin, end, amount in rows if name == phase])
    return out


def _steps(work: list[tuple[float, float, float]]) -> Progress:
    """From (begin, end, amount) of pieces of work one after another."""
    begin, end, amount = (np.array(v) for v in zip(*work, strict=True))
    done = np.concatenate([[0.0], np.cumsum(amount)])
    return np.stack([begin, end], axis=1).ravel(), np.repeat(done, 2)[1:-1]
