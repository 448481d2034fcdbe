"""Policies: which throttle level a phone should be at, from what can be seen of it. Used by simulated and by real runs.

A policy is a frozen dataclass whose fields are its options, with one method, ``wanted(observation) -> level``. It keeps no
state: what it needs to know of the past is in the :class:`Observation`. Plug-ins register under ``hetsched.policies``.
"""

from hetsched.policies.naming import policy_named, policy_names
from hetsched.policies.observation import SAVER, Level, Load, Observation, Policy, Trip

__all__ = ["SAVER", "Level", "Load", "Observation", "Policy", "Trip", "policy_named", "policy_names"]
