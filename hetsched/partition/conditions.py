"""The sentences on what would have to change."""

from __future__ import annotations

from hetsched.partition.causes import amount
from hetsched.partition.counterfactuals import Change, Elsewhere, Figure

_NOUNS: dict[Figure, str] = {"time": "its work there", "sync": "every sync", "launch": "the launch", "transfer": "its transfers"}


def sentence(found: Elsewhere, objective: str) -> str:
    """What going there costs and at which figures it would pay: ``gpu f16 costs 145 µs more; it would pay if …``."""
    place = _place(found)
    if found.extra < 0:
        return f"{place} would gain {amount(-found.extra, objective)}"
    if not found.changes:
        return f"{place} costs the plan nothing"
    costs = f"{place} costs {amount(found.extra, objective)} more"
    enough = [condition(c, found, objective) for c in found.changes if c.below is not None]
    if enough:
        return f"{costs}; it would pay if {', or if '.join(enough)}"
    nearest = found.changes[0]
    return f"{costs}; no single figure would make it pay: with {_NOUNS[nearest.figure]} at 0 still {amount(nearest.left, objective)}"


def shortest(found: Elsewhere, objective: str) -> str:
    """The smallest change alone: ``gpu f16 if a sync with gpu took at most 47.5 µs (now 120 µs)``; empty where none suffices."""
    if not found.changes or found.changes[0].below is None:
        return ""
    return f"{_place(found)} if {condition(found.changes[0], found, objective)}"


def in_precision(found: Elsewhere, objective: str) -> str:
    """A place that another precision would open: ``npu if w8a8: saves 0.4 ms``."""
    change = amount(abs(found.extra), objective)
    effect = "no change" if found.extra == 0 else f"saves {change}" if found.extra < 0 else f"costs {change} more"
    return f"{found.queue} if {found.precision}{_company(found)}: {effect}"


def condition(change: Change, found: Elsewhere, objective: str) -> str:
    """What a figure would have to be: ``it ran 2.9 times faster there (at most 1.45 ms, now 4.26 ms)``."""
    unit, several = "energy" if objective == "energy" else "latency", len(found.ops) > 1
    now, verb = amount(change.now, unit), "needed" if unit == "energy" else "took"
    if change.figure == "time" and change.below:
        faster = "needed {} times less" if unit == "energy" else "ran {} times faster"
        ratio = faster.format(f"{change.now / change.below:.3g}")
        return f"{'they' if several else 'it'} {ratio} there (at most {amount(change.below, unit)}, now {now})"
    subject = {
        "time": "their work there" if several else "its work there", "sync": f"a sync with {found.queue}",
        "launch": f"a launch on {found.queue}", "transfer": f"converting and moving {'their' if several else 'its'} tensors",
    }[change.figure]  # fmt: skip
    return f"{subject} {verb} {f'at most {amount(change.below, unit)}' if change.below else 'nothing'} (now {now})"


def _place(found: Elsewhere) -> str:
    return f"{found.queue} {found.precision}{_company(found)}"


def _company(found: Elsewhere) -> str:
    others = len(found.ops) - 1
    return f" with {others} neighbour{'s' if others > 1 else ''}" if others else ""
