"""Running a plan on this machine, and checking what it computed.

::

    with hetsched.runtime.compile(graph, plan) as executable:
        observed = executable.run(feeds, observe=True)
        report = hetsched.runtime.check(graph, plan, feeds, observed)
        result = executable.run(feeds, repeat=10)

Everything is imported on first use: a stored executable needs little of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetsched.runtime.checking import CheckReport, TensorCheck, check
    from hetsched.runtime.compiling import compile
    from hetsched.runtime.executable import Executable, RunResult
    from hetsched.runtime.inputs import make_inputs
    from hetsched.runtime.support import supported

_HOMES = {
    "CheckReport": "checking",
    "TensorCheck": "checking",
    "check": "checking",
    "compile": "compiling",
    "Executable": "executable",
    "RunResult": "executable",
    "make_inputs": "inputs",
    "supported": "support",
}
__all__ = ["CheckReport", "Executable", "RunResult", "TensorCheck", "check", "compile", "make_inputs", "supported"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"hetsched.runtime.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hetsched.runtime' has no attribute {name!r}")
