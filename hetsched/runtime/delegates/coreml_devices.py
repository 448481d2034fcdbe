"""Where Core ML itself would run a program's operations (``MLComputePlan``), against the processor that the plan names. macOS only.

Core ML decides for itself among the units that it is allowed: the CPU is always one of them. What goes elsewhere is said, not hidden.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hetsched.lowering.mil import Units

#: Class of a device in coremltools -> processor of a plan.
_PROCESSORS = {"MLNeuralEngineComputeDevice": "npu", "MLGPUComputeDevice": "gpu", "MLCPUComputeDevice": "cpu"}
_SHOWN = 3


def elsewhere(plan: Any, units: Units) -> list[str]:
    """A sentence for each other processor that Core ML prefers for some operations.

    Args:
        plan: the ``MLComputePlan`` of a compiled program.
        units: the processor that the plan names.
    """
    found: dict[str, list[str]] = {}
    total = 0
    for operation in _operations(plan.model_structure.program.functions["main"].block):
        usage = plan.get_compute_device_usage_for_mlprogram_operation(operation)
        if usage is None:  # constants run nowhere
            continue
        total += 1
        device = _PROCESSORS.get(type(usage.preferred_compute_device).__name__, "another device")
        if device != units:
            found.setdefault(device, []).append(operation.operator_name)
    return [
        f"Core ML prefers the {device} for {len(names)} of {total} operations that the plan has on the {units}: "
        f"{', '.join(dict.fromkeys(names[:_SHOWN]))}{', …' if len(names) > _SHOWN else ''}"
        for device, names in sorted(found.items())
    ]


def of_package(compiled: str, units: Units) -> list[str]:
    """The same for a compiled package, ``.mlmodelc``."""
    import coremltools as ct
    from coremltools.models.compute_plan import MLComputePlan

    from hetsched.lowering.mil import UNITS

    return elsewhere(MLComputePlan.load_from_path(compiled, compute_units=ct.ComputeUnit[UNITS[units]]), units)


def _operations(block: Any) -> Iterable[Any]:
    for operation in block.operations:
        yield operation
        for inner in operation.blocks:
            yield from _operations(inner)
