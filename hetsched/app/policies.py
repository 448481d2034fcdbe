"""The plans of all levels of a plan file, for a policy to switch between."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from hetsched.app.language import PlannedLanguage
from hetsched.app.levels import price_switch
from hetsched.app.planned import Planned
from hetsched.app.sessions import read_plan
from hetsched.errors import OptionError
from hetsched.partition.switching import Placed
from hetsched.plans import Switch
from hetsched.policies import policy_named

if TYPE_CHECKING:
    from hetsched_simulations import LevelPlan, Levels


def other_levels(planned: Planned | PlannedLanguage, policy: str) -> dict[int, Planned]:
    """The plans of the other levels, by level; none for ``static``.

    Raises:
        OptionError: no policy has this name, or there is nothing to switch to.
        PlanError: the plan file, its model or its SoC has changed.
    """
    if policy == "static":
        return {}
    policy_named(policy)
    if isinstance(planned, PlannedLanguage):
        raise OptionError(f"the plan of {planned.graph.name!r} is a prompt and its answer, simulated once: use --policy static")
    there = sorted({e.level for e in planned.deployment.entries})
    if len(there) < 2:
        raise OptionError(f"the policy {policy} needs plans to switch between: make a plan file with 'hetsched plan --levels -o FILE'")
    if planned.path is None:
        raise OptionError(f"the policy {policy} needs a plan file: save the plan and give its path")
    own = planned.deployment.entries[planned.entry].level
    found = {n: read_plan(planned.path, n) for n in there if n != own}
    return {n: p for n, p in found.items() if isinstance(p, Planned)}


def levels_of(planned: Planned, others: dict[int, Planned], policy: str, battery: float) -> Levels | None:
    """What the simulator needs of them; None if there is nothing to switch to."""
    from hetsched_simulations import Levels

    if not others:
        return None
    own = planned.deployment.entries[planned.entry].level
    plans = {n: _level_plan(p) for n, p in others.items()}
    return Levels(policy_named(policy), plans, _prices({own: planned, **others}), own, battery)


def _level_plan(planned: Planned) -> LevelPlan:
    from hetsched_simulations import LevelPlan

    return LevelPlan(planned.table, *planned.placement, planned.deployment.entries[planned.entry].clocks)


def _prices(plans: dict[int, Planned]) -> Callable[[int, int], Switch]:
    """What a switch takes, between any two levels: the plan file only prices neighbours, by the same rule."""
    placed = {n: Placed(p.graph, p.table, p.placement[1]) for n, p in plans.items()}
    phase = next(p.deployment.entries[p.entry].phase for p in plans.values())

    @cache
    def price(first: int, second: int) -> Switch:
        return price_switch((phase, first), (phase, second), placed[first], placed[second])

    return price
