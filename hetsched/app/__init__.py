"""One function per verb. This is where solver, simulator and runtime meet; everything below knows only its own part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetsched.app.calibrating_ranges import calibrate_ranges
    from hetsched.app.comparing import compare
    from hetsched.app.explaining import diff, explain
    from hetsched.app.generating import assistant
    from hetsched.app.importing import import_profile
    from hetsched.app.inputs import load, soc
    from hetsched.app.judging import accuracy
    from hetsched.app.planned import Planned
    from hetsched.app.planning import plan
    from hetsched.app.reporting import report
    from hetsched.app.running import run
    from hetsched.app.simulating import simulate
    from hetsched.app.updating import delta

_HOMES = {
    "load": "inputs",
    "soc": "inputs",
    "plan": "planning",
    "Planned": "planned",
    "simulate": "simulating",
    "run": "running",
    "report": "reporting",
    "calibrate_ranges": "calibrating_ranges",
    "explain": "explaining",
    "diff": "explaining",
    "import_profile": "importing",
    "accuracy": "judging",
    "assistant": "generating",
    "compare": "comparing",
    "delta": "updating",
}
__all__ = [
    "Planned", "accuracy", "assistant", "calibrate_ranges", "compare", "delta", "diff", "explain", "import_profile", "load", "plan",
    "report", "run", "simulate", "soc",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"hetsched.app.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hetsched.app' has no attribute {name!r}")
