"""How a simulated run went, for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.app.circumstances import beside, lying
from hetsched.cli import show
from hetsched.cli.lines import counted

if TYPE_CHECKING:
    from hetsched.app.simulating import Simulated

SIMULATED = "(simulated; temperatures rest on estimated thermal resistances and voltages, see the SoC file)"
#: Percent of a battery that a run has to move before its end, and how long it would last, are told.
MOVED = 0.1
#: Seconds from which on a run is long enough for its temperatures to be told.
WARMING_S = 1.0


def simulation(result: Simulated, trace: Path | None) -> None:
    """How the latency held and how warm it got."""
    s = result.summary()
    where = f"{s['model']} on {result.planned.soc.name} at {s['ambient_c']:g} °C{lying(s['case'])}"
    show.line(f"{where}: {counted(s['inferences'], 'inference')} in {show.seconds(s['duration_s'])}")
    show.line(f"  latency {latencies(s)}")
    if s["arrivals"]:
        show.line(f"  {arrivals(s['arrivals'])}")
    energy(s)
    phone(s, trace)


def latencies(s: Mapping[str, Any]) -> str:
    """How long inferences took: one figure where all took the same."""
    spread, text = s["latency_ms"], {k: show.seconds(v / 1e3) for k, v in s["latency_ms"].items()}
    if len({*text.values()}) > 1:
        return ", ".join(f"{k} {v}" for k, v in text.items())
    same = "" if s["inferences"] == 1 else ", from the first to the last"
    return f"{show.seconds(spread['mean'] / 1e3)}{same} (predicted without contention {show.seconds(s['predicted_ms'] / 1e3)})"


def energy(s: Mapping[str, Any]) -> None:
    """What the whole phone took, and how much of it no plan is to blame for."""
    taken = s["energy_j"]
    show.line(f"  energy {show.joules(sum(taken.values()))}, {s['average_power_w']:.2f} W on average")
    show.line(
        f"  {show.joules(taken.get('base', 0.0))} of it is the phone's base load, which a plan's energy leaves out{other_loads(taken)}"
    )


def phone(s: Mapping[str, Any], trace: Path | None) -> None:
    """What a run did to the phone, by its summary, and what that rests on."""
    if s["background"]:
        own = show.joules(sum(s["background_energy_j"].values()))
        show.line(f"  another app ran beside it ({beside(s['background'])}) and took {own} of the energy; the heat is that of both")
    if s["battery"]:
        show.line(f"  battery: {battery(s['battery'])}")
    if s["duration_s"] < WARMING_S and not s["throttled"]["steps"]:
        show.line("  too short to warm the phone: --duration says for how long it repeats")
    else:
        heat(s)
    if s["levels"]:
        switches, spent = counted(s["levels"]["switches"], "switch", "switches"), show.seconds(s["levels"]["switching_s"])
        show.line(f"  policy {s['policy']}: {switches}, which took {spent}; at level {at_levels(s['levels'])}")
    show.line(f"  {SIMULATED}")
    for basis in filter(None, (s["power_basis"], s["heat_basis"])):
        show.line(f"  ({basis})")
    if trace is not None:
        show.line(f"trace: {trace}")


def heat(s: Mapping[str, Any]) -> None:
    """How warm the phone got, and what came of that."""
    peak = s["peak_temperatures_c"]
    show.line("  at the end " + ", ".join(f"{k} {v:.1f} °C (peak {peak[k]:.1f})" for k, v in s["final_temperatures_c"].items()))
    show.line(f"  throttled: {throttling(s['throttled'])}")
    if s["thermal_status"]:
        show.line(f"  thermal status: {thermal_status(s['thermal_status'])}")


def other_loads(energy_j: Mapping[str, float]) -> str:
    """What other parts of the phone took, in words."""
    return "".join(f"; {name.removeprefix('load/')} {show.joules(v)}" for name, v in energy_j.items() if name.startswith("load/"))


def battery(found: Mapping[str, Any]) -> str:
    """What the run did to the battery, in words."""
    if found["empty_s"] is None and abs(found["used_percent"]) < MOVED:
        return f"{found['start_percent']:g} % of {found['capacity_wh']:g} Wh, which this run is too short to move"
    text = f"{found['start_percent']:.1f} -> {found['end_percent']:.1f} % of {found['capacity_wh']:g} Wh"
    if found["empty_s"] is not None:
        return f"{text}: empty after {_hours(found['empty_s'])}, and the run with it"
    if found["input_j"] > 0:
        lost = found["loss_j"] + found["conversion_loss_j"]
        return f"{text}; {show.joules(found['input_j'])} over the cable, {show.joules(lost)} of it lost as heat"
    left = "" if found["time_to_empty_s"] is None else f", empty in {_hours(found['time_to_empty_s'])} at this power"
    return f"{text}{left}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min" if seconds >= 120 else show.seconds(seconds)


def arrivals(found: Mapping[str, Any]) -> str:
    """What became of what arrived, in words."""
    text = f"{found['arrived']} arrived, {found['dropped']} dropped"
    if found["late"] is None:
        return text
    return f"{text}, {found['late']} after the deadline of {show.seconds(found['deadline_ms'] / 1e3)}: {found['missed']:.2%} missed"


def throttling(found: Mapping[str, Any]) -> str:
    """When throttling began and how low the clocks went, in words."""
    if not found or not found["steps"]:
        return "never"
    lowest = ", ".join(f"{name} {hz / 1e9:.2f} GHz" for name, hz in found["lowest_hz"].items())
    return f"from {found['first_s']:.0f} s on, {found['steps']} steps (trips on {', '.join(found['trips'])}); lowest clocks {lowest}"


def thermal_status(found: Mapping[str, Any]) -> str:
    """What apps would be told of the heat, in words."""
    system = {"android": "Android", "ios": "iOS"}[found["api"]]
    room = f", headroom {found['headroom']['last']:.2f} at the end (1: SEVERE)" if "headroom" in found else ""
    worst = (
        f"{found['worst']} at worst, first after {found['first_s'][found['worst']]:.0f} s" if len(found["seconds"]) > 1 else found["worst"]
    )
    return f"{system} {worst}{room}"


def at_levels(levels: Mapping[str, Any]) -> str:
    """How long a run was at each level, in words."""
    return ", ".join(f"{k} for {show.seconds(v)}" for k, v in levels["seconds"].items() if v > 0)
