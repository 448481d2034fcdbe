"""What a simulated run did to the phone, as every ``simulate --json`` tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetsched.soc_words import heat_basis, power_basis
from hetsched.socs import SoC

if TYPE_CHECKING:
    from hetsched_simulations import Simulation


def phone_summary(run: Simulation, soc: SoC, policy: str) -> dict[str, Any]:
    """The stable keys for energy, heat, throttling, levels, case and battery.

    Args:
        run: the run.
        soc: that it was on.
        policy: who could switch between plans.
    """
    return {
        "energy_j": {k: float(v) for k, v in sorted(run.energy_j.items())},
        "average_power_w": run.energy.total / run.duration_s if run.duration_s else 0.0,
        "power_basis": power_basis(soc), "heat_basis": heat_basis(soc),
        "peak_temperatures_c": {k: float(v) for k, v in sorted(run.peak_temperatures_c.items())},
        "final_temperatures_c": {k: float(v) for k, v in sorted(run.final_temperatures_c.items())},
        "throttled": run.throttled, "thermal_status": None if run.status is None else run.status.to_dict(),
        "policy": policy, "levels": None if run.levels is None else run.levels.to_dict(),
        **run.phone(),
    }  # fmt: skip
