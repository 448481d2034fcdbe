"""Simulated runs of plans: queues, fences, shared bandwidth, clocks, power, heat and the governor that cools.

:func:`simulate` runs a placement and returns a :class:`Simulation` with its trace; :func:`latency` is the short form that
solvers rank plans by. See ``docs/simulator.md`` for what is modelled and what is not.
"""

from hetsched_simulations.result import Energy, Levelled, Simulation, Switched, Throttling
from hetsched_simulations.simulation import latency, simulate
from hetsched_simulations.switching import LevelPlan, Levels

__all__ = ["Energy", "LevelPlan", "Levelled", "Levels", "Simulation", "Switched", "Throttling", "latency", "simulate"]
