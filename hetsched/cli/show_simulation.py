"""How a simulated run went, for people: one run, or one scenario under several policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli import show

if TYPE_CHECKING:
    from hetsched.app.simulating import Simulated


def simulation(result: Simulated, trace: Path | None) -> None:
    """How the latency held and how warm it got."""
    s = result.summary()
    lat = s["latency_ms"]
    where = f"{s['model']} on {result.planned.soc.name} at {s['ambient_c']:g} °C"
    show.line(f"{where}: {s['inferences']} inference(s) in {show.seconds(s['duration_s'])}")
    show.line("  latency " + ", ".join(f"{k} {show.seconds(v / 1e3)}" for k, v in lat.items()))
    base = s["energy_j"].get("base", 0.0)
    whole = sum(s["energy_j"].values())
    show.line(f"  energy {show.joules(whole)}, {s['average_power_w']:.2f} W on average")
    show.line(f"  {show.joules(base)} of it is the phone's base load, which a plan's energy leaves out")
    peak = s["peak_temperatures_c"]
    show.line("  at the end " + ", ".join(f"{k} {v:.1f} °C (peak {peak[k]:.1f})" for k, v in s["final_temperatures_c"].items()))
    show.line(f"  throttled: {throttling(s['throttled'])}")
    if s["thermal_status"]:
        show.line(f"  thermal status: {thermal_status(s['thermal_status'])}")
    if s["levels"]:
        switches, spent = s["levels"]["switches"], show.seconds(s["levels"]["switching_s"])
        show.line(f"  policy {s['policy']}: {switches} switch(es) in {spent}; at level {at_levels(s['levels'])}")
    show.line("  (simulated; temperatures rest on estimated thermal resistances and voltages, see the SoC file)")
    if s["power_basis"]:
        show.line(f"  ({s['power_basis']})")
    if trace is not None:
        show.line(f"trace: {trace}")


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
    title = f"{some['model']} on {some['soc']} at {some['ambient_c']:g} °C, {show.seconds(some['duration_s'])}"
    show.table(title, columns, rows, numeric=(1, 2, 3, 4, 6, 7, 8), whole=0, spare=(3,))
    for policy, s in summaries.items():
        if s["levels"] is not None:
            show.line(f"{policy}: at level {at_levels(s['levels'])}")
    show.line("(simulated; temperatures rest on estimated thermal resistances and voltages, see the SoC file)")
    for s in summaries.values():
        if s["trace_path"] is not None:
            show.line(f"trace: {s['trace_path']}")


def at_levels(levels: Mapping[str, Any]) -> str:
    """How long a run was at each level, in words."""
    return ", ".join(f"{k} for {show.seconds(v)}" for k, v in levels["seconds"].items() if v > 0)
