"""Policies by name: the built-in ones and those of installed plug-ins."""

from __future__ import annotations

from typing import cast

from hetsched import plugins
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
    return plugins.names(ENTRY_POINTS, BUILT_IN)


def policy_named(name: str) -> Policy:
    """The policy of a name, with its default options.

    Raises:
        OptionError: no policy has that name, or what a plug-in registers under it is none.
    """
    factory = plugins.factory(ENTRY_POINTS, BUILT_IN, name)
    if factory is None:
        raise OptionError(f"no policy is called {name!r}: use {', '.join(policy_names())}")
    policy = factory()
    if not callable(getattr(policy, "wanted", None)) or not getattr(policy, "period_s", 0) > 0:
        raise OptionError(f"the policy {name!r} needs a method 'wanted' and a 'period_s' above 0: see hetsched.policies")
    return cast(Policy, policy)
