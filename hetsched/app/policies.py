"""The plans of all levels of a plan file, for a policy to switch between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from hetsched.app.levels import price_switch
from hetsched.app.planned import Planned
from hetsched.app.sessions import read_plan
from hetsched.errors import OptionError
from hetsched.partition.switching import Placed
from hetsched.plans import Switch
from hetsched.policies import policy_named

if TYPE_CHECKING:
    from hetsched_simulations import LevelPlan, Levels

#: Plan files whose levels a process keeps open.
OPEN = 8


def other_levels(planned: Planned, policy: str) -> dict[int, Planned]:
    """The plans of the other levels, by level; none for ``static``.

    Raises:
        OptionError: no policy has this name, or there is nothing to switch to.
        PlanError: the plan file, its model or its SoC has changed.
    """
    if policy == "static":
        return {}
    policy_named(policy)
    if len({e.level for e in planned.deployment.entries}) < 2:
        raise OptionError(f"the policy {policy} needs plans to switch between: make a plan file with 'hetsched plan --levels -o FILE'")
    if planned.path is None:
        raise OptionError(f"the policy {policy} needs a plan file: save the plan and give its path")
    return dict(_others(planned))


@lru_cache(OPEN)
def _others(planned: Planned) -> dict[int, Planned]:
    """The plans of the other levels of an opened plan file, read once a process: a study simulates them again and again."""
    assert planned.path is not None
    own = planned.deployment.entries[planned.entry].level
    there = sorted({e.level for e in planned.deployment.entries})
    return {n: read_plan(planned.path, n) for n in there if n != own}


def levels_of(planned: Planned, others: dict[int, Planned], policy: str, battery: float) -> Levels | None:
    """What the simulator needs of them; None if there is nothing to switch to."""
    from hetsched_simulations import Levels

    if not others:
        return None
    own = planned.deployment.entries[planned.entry].level
    plans = {n: level_plan(p) for n, p in others.items()}
    return Levels(policy_named(policy), plans, _prices({own: planned, **others}), own, battery)


def together(levels: Sequence[Levels | None]) -> Levels | None:
    """The levels of several models as one: those that all have, at the price of all their switches."""
    there = [v for v in levels if v is not None]
    if not there or len(there) < len(levels):
        return None
    common = sorted(set.intersection(*(set(v.others) for v in there)))

    def price(first: int, second: int) -> Switch:
        prices = [v.switch(first, second) for v in there]
        names = ("weight_bytes", "pack_s", "state_bytes", "handover_s")
        return prices[0].model_copy(update={name: sum(getattr(p, name) for p in prices) for name in names})

    return replace(there[0], others={n: there[0].others[n] for n in common}, switch=price)


def level_plan(planned: Planned) -> LevelPlan:
    """A level's plan as the simulator takes it."""
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
