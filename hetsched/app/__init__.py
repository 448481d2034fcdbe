"""One function per verb. This is where solver, simulator and runtime meet; everything below knows only its own part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetsched.app.calibrating_ranges import calibrate_ranges
    from hetsched.app.explaining import diff, explain
    from hetsched.app.inputs import load, soc
    from hetsched.app.planning import Planned, plan
    from hetsched.app.reporting import report
    from hetsched.app.running import run
    from hetsched.app.simulating import simulate

_HOMES = {
    "load": "inputs",
    "soc": "inputs",
    "plan": "planning",
    "Planned": "planning",
    "simulate": "simulating",
    "run": "running",
    "report": "reporting",
    "calibrate_ranges": "calibrating_ranges",
    "explain": "explaining",
    "diff": "explaining",
}
__all__ = ["Planned", "calibrate_ranges", "diff", "explain", "load", "plan", "report", "run", "simulate", "soc"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"hetsched.app.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hetsched.app' has no attribute {name!r}")
