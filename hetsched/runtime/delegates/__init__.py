"""Delegates by name. Plug-ins register in the entry-point group ``hetsched.delegates`` (a class without arguments)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from hetsched.errors import PlanError

if TYPE_CHECKING:
    from hetsched.runtime.delegates.base import Delegate

ENTRY_POINT_GROUP = "hetsched.delegates"
_BUILT_IN = {
    "coreml": "hetsched.runtime.delegates.coreml:CoremlDelegate",
    "neuropilot": "hetsched.runtime.delegates.neuropilot:NeuropilotDelegate",
    "null": "hetsched.runtime.delegates.null:NullDelegate",
    "numba": "hetsched.runtime.delegates.numba_cpu:NumbaDelegate",
    "openvino": "hetsched.runtime.delegates.openvino:OpenvinoDelegate",
    "ort": "hetsched.runtime.delegates.ort:OrtDelegate",
    "qnn": "hetsched.runtime.delegates.qnn:QnnDelegate",
    "wgpu": "hetsched.runtime.delegates.wgpu.delegate:WgpuDelegate",
}


def delegate_targets() -> dict[str, str]:
    """Delegate name -> ``module:class``, sorted by name; a plug-in may not replace a built-in one."""
    from importlib.metadata import entry_points

    targets = {e.name: e.value for e in entry_points(group=ENTRY_POINT_GROUP)}
    return dict(sorted((targets | _BUILT_IN).items()))


def load_delegate(name: str) -> Delegate:
    """The delegate called ``name``.

    Raises:
        PlanError: there is none with that name.
    """
    targets = delegate_targets()
    if name not in targets:
        raise PlanError(f"no delegate is called {name!r} here: known are {', '.join(targets)}")
    module, _, cls = targets[name].partition(":")
    return cast("Delegate", getattr(import_module(module), cls)())
