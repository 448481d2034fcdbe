"""Policies by name: the built-in ones and those of installed plug-ins."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

from hetsched.errors import OptionError
from hetsched.policies.observation import Policy

ENTRY_POINTS = "hetsched.policies"
BUILT_IN = {
    "battery-saver": "hetsched.policies.battery_saver:BatterySaver",
    "predictive": "hetsched.policies.predictive:Predictive",
    "reactive": "hetsched.policies.reactive:Reactive",
    "static": "hetsched.policies.static:Static",
}


def policy_names() -> list[str]:
    """Every policy that can be named."""
    return sorted({*BUILT_IN, *(e.name for e in entry_points(group=ENTRY_POINTS))})


def policy_named(name: str) -> Policy:
    """The policy of a name, with its default options.

    Raises:
        OptionError: no policy has that name, or what a plug-in registers under it is none.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        factory: Any = getattr(import_module(module), attribute)
    else:
        hits = [e for e in entry_points(group=ENTRY_POINTS) if e.name == name]
        if not hits:
            raise OptionError(f"no policy is called {name!r}: use {', '.join(policy_names())}")
        factory = hits[0].load()
    policy = factory()
    if not callable(getattr(policy, "wanted", None)) or not getattr(policy, "period_s", 0) > 0:
        raise OptionError(f"the policy {name!r} needs a method 'wanted' and a 'period_s' above 0: see hetsched.policies")
    return cast(Policy, policy)
