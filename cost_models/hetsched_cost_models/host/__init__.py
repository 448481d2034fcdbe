"""This machine as a SoC: detected, measured once, kept in the user's cache folder.

Reading a kept measurement takes milliseconds and does not import numba.
"""

from __future__ import annotations

from collections.abc import Callable

from hetsched.socs import SoC
from hetsched_cost_models.host.chip import soc_of
from hetsched_cost_models.host.detect import Machine, detect
from hetsched_cost_models.host.measurement import HostMeasurement, cache_file, read_cached

__all__ = ["HostMeasurement", "Machine", "cache_file", "calibrate", "detect", "host_soc"]


def host_soc(progress: Callable[[str], None] | None = None) -> SoC:
    """The SoC ``host``; measures for a few seconds if this machine has not been measured yet.

    Args:
        progress: called with a short line on what is being measured.
    """
    machine = detect()
    measured = read_cached(machine.fingerprint)
    return soc_of(machine, measured if measured is not None else calibrate(progress))


def calibrate(progress: Callable[[str], None] | None = None, *, fresh: bool = False) -> HostMeasurement:
    """Measure this machine again and keep the result: the faster of this and earlier measurements, or this one if ``fresh``."""
    from hetsched_cost_models.host.measure import measure

    return measure(progress, fresh=fresh)
