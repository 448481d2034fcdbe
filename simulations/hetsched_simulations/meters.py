"""What a run has come to, from the history of its device: joules by where they went, and what the governors did."""

from __future__ import annotations

import numpy as np

from hetsched.costs import FloatArray
from hetsched_simulations.device import Device
from hetsched_simulations.history import Columns
from hetsched_simulations.result import Energy, Throttling


def energy(device: Device, columns: Columns) -> Energy:
    """What the run drew."""
    elapsed, power = float(columns.seconds.sum()), device.power
    return Energy(
        _by_processor(device, columns.seconds @ columns.dynamic_w), _by_processor(device, columns.seconds @ columns.static_w),
        float(columns.seconds @ columns.dram_w), power.base_w * elapsed, {name: watts * elapsed for name, watts in power.loads_w.items()},
        float(columns.seconds @ device.copying_w(columns.busy)),
    )  # fmt: skip


def background_energy(device: Device, columns: Columns) -> Energy | None:
    """What another app has of it; None: there is none. What rests, and a rest of the device, is not counted as its."""
    if device.background is None:
        return None
    dynamic_w, share, dram_w, active = device.history.others()
    leaks_w = (columns.static_w - device.power.idle_w * np.clip(1.0 - active, 0.0, 1.0)) * share
    return Energy(
        _by_processor(device, columns.seconds @ dynamic_w), _by_processor(device, columns.seconds @ leaks_w),
        float(columns.seconds @ dram_w), 0.0,
    )  # fmt: skip


def throttling(device: Device, columns: Columns) -> Throttling:
    """What the governors did."""
    names, elapsed = device.clusters.names, float(columns.seconds.sum())
    mean = (columns.seconds @ columns.hz / elapsed).tolist()
    lowest = columns.hz.min(axis=0).tolist()
    return Throttling(
        device.steps, device.first_step_s, float(columns.seconds[columns.throttled].sum()),
        dict(zip(names, lowest, strict=True)), dict(zip(names, mean, strict=True)), tuple(device.tripped),
    )  # fmt: skip


def _by_processor(device: Device, joules: FloatArray) -> dict[str, float]:
    """By name of the processor, of joules by cluster."""
    return dict(zip((p.name for p in device.soc.processors), (device.to_processor @ joules).tolist(), strict=True))
