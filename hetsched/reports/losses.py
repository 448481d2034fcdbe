"""Where the time of a plan and of its baselines goes, and what the baselines lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.partition.losses import explain_plan
from hetsched.plans import Plan
from hetsched.reports.summary import readable


@dataclass(frozen=True)
class LossView:
    """A table, the plan's row last, and sentences."""

    whole: str
    rows: Sequence[Sequence[str]]
    lines: Sequence[str]
    basis: str


def loss_view(plan: Plan) -> LossView | None:
    """The table beside the baselines; None where the plan file says nothing of it."""
    found = explain_plan(plan)
    if plan.accounts is None:
        return None
    rows = [[readable(name), *cells] for name, *cells in found.rows()]
    if found.unit == "J":
        return LossView("energy", rows, found.lines(), "Joules of one inference.")
    return LossView("latency", rows, found.lines(), "Seconds along the critical path, so that they add up to the latency.")
