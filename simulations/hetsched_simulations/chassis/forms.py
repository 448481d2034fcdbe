"""What a chassis is made of: few parameters, and how they become the thermal network and the trips of a SoC on a phone.

- ``film_w_per_m2k``: heat that a square metre of the outside gives to the room per kelvin, so case -> ambient is ``1 / (film x area)``.
- ``google_c``, ``other_c``: temperature that the phone lets its package get to, beside the skin's trips of the file. Pixels are cooler.
- ``npu_draw``: what a loop on the NPU draws, as a share of the file's ``dynamic_w``; CPUs and GPUs draw all of it.

The case holds 500 J/kgK, as the shipped files do (100 J/K of 200 g); everything else of a SoC file stays.
"""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.soc_quantities import Figure
from hetsched.soc_thermal import Thermal, Trip
from hetsched.socs import SoC
from hetsched_simulations.chassis.runs import Phone, Run

CASE_J_PER_KGK = 500.0
PACKAGE, CASE, AMBIENT = "soc", "case", "ambient"
HYSTERESIS_K, POLLING_S = 1.9, 7.0
"""Of the package's trip, as Pixel's thermal HAL has for the skin."""
Parameters = Mapping[str, float]


def set_point(maker: str) -> str:
    """The parameter with the temperature that phones of a maker hold."""
    return "google_c" if maker == "google" else "other_c"


def bearing(run: Run) -> tuple[str, ...]:
    """The parameters that bear on a run."""
    return ("film_w_per_m2k", set_point(run.phone.maker), *(("npu_draw",) if run.queue == "npu" else ()))


def in_phone(soc: SoC, phone: Phone, p: Parameters) -> SoC:
    """The SoC in a phone: its network with the phone's case, its trips and the package's."""
    kept = tuple(t for t in soc.thermal.trips if t.node != PACKAGE)
    trips = (*kept, held(PACKAGE, p[set_point(phone.maker)], tuple(q.name for q in soc.processors)))
    return soc.model_copy(update={"thermal": chassis(soc.thermal, phone, p["film_w_per_m2k"], trips)})


def held(node: str, temperature_c: float, processors: tuple[str, ...]) -> Trip:
    """The trip of a node that the phone holds at a temperature."""
    return Trip(
        node=node, temperature_c=_fitted(temperature_c), hysteresis_k=_fitted(HYSTERESIS_K), polling_s=_fitted(POLLING_S),
        processors=processors,
    )  # fmt: skip


def chassis(thermal: Thermal, phone: Phone, film_w_per_m2k: float, trips: tuple[Trip, ...]) -> Thermal:
    """The network of a SoC with a phone's case, and these trips."""
    nodes = tuple(n.model_copy(update={"capacity_j_per_k": _fitted(case_j_per_k(phone))}) if n.name == CASE else n for n in thermal.nodes)
    out = _fitted(case_k_per_w(phone, film_w_per_m2k))
    paths = tuple(r.model_copy(update={"k_per_w": out}) if set(r.between) == {CASE, AMBIENT} else r for r in thermal.resistances)
    return thermal.model_copy(update={"nodes": nodes, "resistances": paths, "trips": trips})


def case_j_per_k(phone: Phone) -> float:
    """Heat capacity of a phone's case and all that is as warm, rounded as the SoC files have it."""
    return float(f"{CASE_J_PER_KGK * phone.mass_kg:.4g}")


def case_k_per_w(phone: Phone, film_w_per_m2k: float) -> float:
    """Thermal resistance from the case to the room, rounded likewise."""
    return float(f"{1.0 / (film_w_per_m2k * phone.area_m2):.3g}")


def _fitted(value: float) -> Figure:
    return Figure(value=value, source="fitted")
