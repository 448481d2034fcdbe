"""How a simulated run went, for people: one run, or one scenario under several policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli import show
from hetsched.sizes import size

if TYPE_CHECKING:
    from hetsched.app.simulating import Simulated


def simulation(result: Simulated, trace: Path | None) -> None:
    """How the latency held and how warm it got."""
    s = result.summary()
    lat = s["latency_ms"]
    where = f"{s['model']} on {result.planned.soc.name} at {s['ambient_c']:g} °C{lying(s['case'])}"
    show.line(f"{where}: {s['inferences']} inference(s) in {show.seconds(s['duration_s'])}")
    show.line("  latency " + ", ".join(f"{k} {show.seconds(v / 1e3)}" for k, v in lat.items()))
    if s["arrivals"]:
        show.line(f"  {arrivals(s['arrivals'])}")
    base = s["energy_j"].get("base", 0.0)
    whole = sum(s["energy_j"].values())
    show.line(f"  energy {show.joules(whole)}, {s['average_power_w']:.2f} W on average")
    show.line(f"  {show.joules(base)} of it is the phone's base load, which a plan's energy leaves out{other_loads(s['energy_j'])}")
    phone(s, trace)


def phone(s: Mapping[str, Any], trace: Path | None) -> None:
    """What a run did to the phone, by its summary, and what that rests on."""
    if s["background"]:
        show.line(f"  another app ran beside it ({beside(s['background'])}); energy and heat are those of both")
    if s["battery"]:
        show.line(f"  battery: {battery(s['battery'])}")
    peak = s["peak_temperatures_c"]
    show.line("  at the end " + ", ".join(f"{k} {v:.1f} °C (peak {peak[k]:.1f})" for k, v in s["final_temperatures_c"].items()))
    show.line(f"  throttled: {throttling(s['throttled'])}")
    if s["thermal_status"]:
        show.line(f"  thermal status: {thermal_status(s['thermal_status'])}")
    if s["levels"]:
        switches, spent = s["levels"]["switches"], show.seconds(s["levels"]["switching_s"])
        show.line(f"  policy {s['policy']}: {switches} switch(es) in {spent}; at level {at_levels(s['levels'])}")
    show.line("  (simulated; temperatures rest on estimated thermal resistances and voltages, see the SoC file)")
    for basis in filter(None, (s["power_basis"], s["heat_basis"])):
        show.line(f"  ({basis})")
    if trace is not None:
        show.line(f"trace: {trace}")


def beside(app: Mapping[str, Any]) -> str:
    """What another app took, in words."""
    parts = [f"{share:.0%} of {name}" for name, share in app["shares"].items()]
    parts += [f"{size(app['dram'])}/s of bandwidth"] if app["dram"] else []
    times = f", {show.seconds(app['on'])} on and {show.seconds(app['off'])} off on average" if "on" in app else ""
    return ", ".join(parts) + times


def lying(case: Mapping[str, Any] | None) -> str:
    """What its case makes of the temperature around a phone, in words; nothing for a table."""
    if case is None or case["name"] == "table":
        return ""
    return f" ({case['name']}: as at {case['seen_c']:.1f} °C, heat leaves {case['cooling']:.2f} x as well as on a table)"


def other_loads(energy_j: Mapping[str, float]) -> str:
    """What other parts of the phone took, in words."""
    return "".join(f"; {name.removeprefix('load/')} {show.joules(v)}" for name, v in energy_j.items() if name.startswith("load/"))


def battery(found: Mapping[str, Any]) -> str:
    """What the run did to the battery, in words."""
    text = f"{found['start_percent']:.1f} -> {found['end_percent']:.1f} % of {found['capacity_wh']:g} Wh"
    if found["empty_s"] is not None:
        return f"{text}: empty after {_hours(found['empty_s'])}, and the run with it"
    if found["input_j"] > 0:
        lost = found["loss_j"] + found["conversion_loss_j"]
        return f"{text}; {show.joules(found['input_j'])} over the cable, {show.joules(lost)} of it lost as heat"
    left = "" if found["time_to_empty_s"] is None else f", empty in {_hours(found['time_to_empty_s'])} at this rate"
    return f"{text}{left}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else show.seconds(seconds)


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


def comparison(summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Several policies side by side, by the summaries of their runs."""
    some = next(iter(summaries.values()))
    rows = []
    for policy, s in summaries.items():
        heat, levels, slowed = s["peak_temperatures_c"], s["levels"], s["throttled"]
        rows.append([
            policy, str(s["inferences"]), *(show.seconds(s["latency_ms"][k] / 1e3) for k in ("median", "p90", "p99")),
            f"{max(heat.values()):.1f} °C" if heat else "-",
            show.seconds(slowed["seconds"]) if slowed["steps"] else "never",
            show.joules(sum(s["energy_j"].values())), "0" if levels is None else str(levels["switches"]),
        ])  # fmt: skip
    columns = ["policy", "inferences", "median", "p90", "p99", "hottest", "throttled", "energy", "switches"]
    show.table(compared_where(some), columns, rows, numeric=(1, 2, 3, 4, 6, 7, 8), whole=0, spare=(3, 8, 1))
    beneath_comparison(summaries)


def compared_where(s: Mapping[str, Any]) -> str:
    """What was compared on which phone, in words, by the summary of any of the runs."""
    return f"{s['model']} on {s['soc']} at {s['ambient_c']:g} °C{lying(s['case'])}, {show.seconds(s['duration_s'])}"


def beneath_comparison(summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Levels, batteries and traces of runs that were compared."""
    for policy, s in summaries.items():
        if s["levels"] is not None:
            show.line(f"{policy}: at level {at_levels(s['levels'])}")
        if s["battery"]:
            show.line(f"{policy}: battery {battery(s['battery'])}")
    show.line("(simulated; temperatures rest on estimated thermal resistances and voltages, see the SoC file)")
    for s in summaries.values():
        if s["trace_path"] is not None:
            show.line(f"trace: {s['trace_path']}")


def at_levels(levels: Mapping[str, Any]) -> str:
    """How long a run was at each level, in words."""
    return ", ".join(f"{k} for {show.seconds(v)}" for k, v in levels["seconds"].items() if v > 0)
