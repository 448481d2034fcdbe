"""The shipped SoC files of phones with the fitted chassis: which phone each is in, and the lines that the fit writes.

A SoC with runs of its own has the phone of those runs, and its figures a ``source``; every other one is taken to be in a phone of
its maker's class, and they are ``estimated``. Tablets, laptops and boards keep what their files say.
"""

from __future__ import annotations

import re
from pathlib import Path

from hetsched.soc_files import soc_paths
from hetsched_simulations.chassis.forms import (
    CASE_J_PER_KGK,
    HYSTERESIS_K,
    PACKAGE,
    POLLING_S,
    Parameters,
    case_j_per_k,
    case_k_per_w,
    set_point,
)
from hetsched_simulations.chassis.plans import PHONES
from hetsched_simulations.chassis.runs import Phone

OWN = {
    "apple-a19-pro": "iPhone 17 Pro", "apple-a18-pro": "iPhone 16 Pro", "snapdragon-8-gen-3": "Galaxy S24 Ultra",
    "tensor-g1": "Pixel 6a", "tensor-g3": "Pixel 8 Pro",
}  # fmt: skip
"""SoC -> the phone that its runs are of. Other runs stand for it: of an Exynos without a file, and of a Snapdragon in a tablet."""
LIKE = {"apple-a": "iPhone 16 Pro", "tensor-": "Pixel 8 Pro", "snapdragon-": "Galaxy S24 FE", "dimensity-": "Galaxy S24 FE",
        "generic-phone": "Galaxy S24 FE"}  # fmt: skip
"""Beginning of an id -> the phone whose size it is given."""
NO_PHONES = ("snapdragon-x-",)
FITTED_TO = "phones over minutes"
_LIKE = 'estimated: "as Pixel 8\'s thermal HAL has for the skin"'
_REST = f"hysteresis_k: {{value: {HYSTERESIS_K:g}, {_LIKE}}}, polling_s: {{value: {POLLING_S:g}, {_LIKE}}}, processors: [cpu, gpu, npu]"

_CAPACITY = re.compile(r"^( *- \{name: case, capacity_j_per_k: ).*$", re.MULTILINE)
_OUT = re.compile(r"^( *- \{between: \[case, ambient\], k_per_w: ).*$", re.MULTILINE)
_HELD = re.compile(rf"^ *- \{{node: {PACKAGE}, .*\n", re.MULTILINE)
_TRIPS = re.compile(r"^  trips:\n(?: {4}.*\n)+", re.MULTILINE)


def files() -> dict[str, Path]:
    """Id -> file of every SoC that is in phones."""
    return {i: p for i, p in soc_paths().items() if i.startswith(tuple(LIKE)) and not i.startswith(NO_PHONES)}


def phone_of(soc_id: str) -> Phone:
    """The phone that a SoC's file describes."""
    name = OWN.get(soc_id) or next(p for start, p in LIKE.items() if soc_id.startswith(start))
    size = PHONES[name]
    return Phone(name, size.maker, size.area_m2, size.grams / 1000)


def text(soc_id: str, path: Path, p: Parameters) -> str:
    """The file as the fit writes it."""
    phone, own, film = phone_of(soc_id), soc_id in OWN, p["film_w_per_m2k"]
    origin = f'source: "fitted to the runs of {FITTED_TO}' if own else f'estimated: "fitted to {FITTED_TO} with other SoCs'
    origin += " (make bench-thermal)"
    whose = f"the {phone.name}" if own else f"a phone like the {phone.name}"
    mass = f"{CASE_J_PER_KGK:g} J/kgK, as 100 J/K of 200 g, x {1000 * phone.mass_kg:g} g"
    capacity = f'{{value: {case_j_per_k(phone):g}, estimated: "{mass}: {whose}"}}}}'
    area = f"1 / ({film:g} W/m2K x {phone.area_m2:.3g} m2)"
    out = f'{{value: {case_k_per_w(phone, film):g}, {origin}: {area}, {whose}"}}}}'
    temperature = f'temperature_c: {{value: {p[set_point(phone.maker)]:g}, {origin}"}}'
    found = _HELD.sub("", path.read_text(encoding="utf-8"))
    found = _CAPACITY.sub(rf"\g<1>{capacity}", found)
    found = _OUT.sub(rf"\g<1>{out}", found)
    return _TRIPS.sub(rf"\g<0>    - {{node: {PACKAGE}, {temperature}, {_REST}}}\n", found, count=1)
