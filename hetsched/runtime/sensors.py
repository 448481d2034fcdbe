"""What this machine says of its heat, its battery and its cores, where Linux shows it (``/sys``).

Nothing here fails: what is absent, unreadable or absurd is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SYS = Path("/sys")
#: Temperatures of a working machine, in °C: beyond them a sensor is not connected, or counts in another unit.
_LOWEST_C, _HIGHEST_C = -40.0, 200.0


@dataclass(frozen=True, slots=True)
class Zone:
    """A thermal zone.

    Attributes:
        name: its type, such as ``x86_pkg_temp`` or ``skin-therm``.
        temperature_c: now.
        trips_c: where clocks are slowed (trips of the type ``passive``), ascending.
        critical_c: where the machine switches off; None: it does not say.
    """

    name: str
    temperature_c: float
    trips_c: tuple[float, ...] = ()
    critical_c: float | None = None

    @property
    def skin(self) -> bool:
        """Whether it is what a hand feels."""
        return "skin" in self.name.lower()


@dataclass(frozen=True, slots=True)
class Readings:
    """Thermal zones, and the share of the charge that is left (None: no battery)."""

    zones: tuple[Zone, ...] = ()
    battery: float | None = None


def read_machine(root: Path = SYS) -> Readings:
    """What the machine shows now.

    Args:
        root: where the kernel shows it.
    """
    folders = sorted((root / "class/thermal").glob("thermal_zone*"), key=lambda p: (len(p.name), p.name))
    supplies = sorted((root / "class/power_supply").glob("*"))
    batteries = [s for s in supplies if _text(s / "type") == "Battery" and _text(s / "scope") != "Device"]  # not those of a mouse
    charges = [c / 100 for s in batteries if (c := _number(s / "capacity")) is not None and 0 <= c <= 100]
    zones = tuple(z for z in (_zone(folder) for folder in folders) if z is not None)
    return Readings(zones, sum(charges) / len(charges) if charges else None)


def core_speeds(cores: Sequence[int], root: Path = SYS) -> tuple[float, ...]:
    """How fast each core is beside the others: by the kernel's capacity, else by its top clock. Equal where neither is shown."""
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        found = [_number(root / f"devices/system/cpu/cpu{core}" / name) for core in cores]
        if all(found):
            return tuple(v or 0.0 for v in found)
    return (1.0,) * len(cores)


def _zone(folder: Path) -> Zone | None:
    now = _degrees(folder / "temp")
    if now is None:
        return None
    trips: dict[str, list[float]] = {}
    for file in sorted(folder.glob("trip_point_*_temp")):
        at = _degrees(file)
        if at is not None and at > 0:
            trips.setdefault(_text(file.with_name(file.name.removesuffix("temp") + "type")), []).append(at)
    return Zone(_text(folder / "type"), now, tuple(sorted(trips.get("passive", ()))), min(trips.get("critical", ()), default=None))


def _degrees(file: Path) -> float | None:
    """A file's thousandths of a degree in °C."""
    value = _number(file)
    return value / 1e3 if value is not None and _LOWEST_C <= value / 1e3 <= _HIGHEST_C else None


def _number(file: Path) -> float | None:
    text = _text(file)
    return float(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else None


def _text(file: Path) -> str:
    """A file's text; empty where there is none."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
