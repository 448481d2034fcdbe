"""Short tables that say why: of one operator, and of a whole plan."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hetsched.cli.show import line, table

if TYPE_CHECKING:
    from hetsched.partition import Explanation, PlanExplanation


def op(found: Explanation) -> None:
    """Why an op is where it is, and what would have to change for it to be elsewhere."""
    for text in (*found.about, *found.lines()):
        line(text)
    table("", ["place", "precision", "op alone", "energy", "whole plan"], found.rows(), numeric=(2, 3, 4))
    for text in found.conditions():
        line(text)
    for refusal in found.refusals:
        line(f"refused: {refusal}")
    if found.power_basis:
        line(f"note: {found.power_basis}")


def op_dict(found: Explanation) -> dict[str, Any]:
    """The stable keys of ``explain OP --json``."""
    return {
        "placement": found.placement.model_dump(mode="json", exclude={"alternatives"}),
        "segment": found.segment.model_dump(mode="json", exclude={"ops"}),
        "plan_latency_s": found.plan_latency_s,
        "alternatives": [a.model_dump(mode="json") for a in found.alternatives],
        "siblings": {p.op: p.queue for p in found.siblings},
        "objective": found.objective,
        "elsewhere": [asdict(e) for e in found.elsewhere],
        "other_precisions": [asdict(e) for e in found.precisions],
        "off": list(found.closed),
        "conditions": found.conditions(),
        "power_basis": found.power_basis,
    }


def plan(found: PlanExplanation) -> None:
    """Where the time (or the energy) of a plan and of its baselines goes, and what the baselines lose."""
    whole = "energy" if found.unit == "J" else "latency"
    for text in found.about:
        line(text)
    rows = found.rows()
    if not rows:
        line("the plan file says nothing of where its time goes: make it again with 'hetsched plan'")
        return
    table("", ["placement", whole, "work", "launches", "syncs", "transfers", "segments"], rows, numeric=(1, 2, 3, 4, 5), whole=0)
    for text in found.lines():
        line(text)
    if found.most:
        line("what costs most, and what would bring it elsewhere:")
    for text in found.spending():
        line(f"  {text}")


def plan_dict(found: PlanExplanation) -> dict[str, Any]:
    """The stable keys of ``explain --json`` without an op."""
    mine = found.plan.accounts
    return {
        "about": list(found.about),
        "objective": found.plan.objective,
        "unit": found.unit,
        "accounts": None if mine is None else mine.model_dump(mode="json"),
        "baselines": {b.solver: b.model_dump(mode="json", exclude={"solver"}) for b in found.plan.baselines},
        "losses": found.as_dict(),
        "lines": found.lines(),
        "most": [asdict(x) for x in found.most],
    }
