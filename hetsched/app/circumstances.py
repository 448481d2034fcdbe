"""What a simulated run was put through, in words: for terminals, traces and pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hetsched.app.scenario import Chat, Scenario
from hetsched.reports.units import duration
from hetsched.sizes import size


def lying(case: Mapping[str, Any] | None) -> str:
    """What its case makes of the temperature around a phone; nothing for a table."""
    if case is None or case["name"] == "table":
        return ""
    return f" ({case['name']}: as at {case['seen_c']:.1f} °C, heat leaves {case['cooling']:.2f} x as well as on a table)"


def beside(app: Mapping[str, Any]) -> str:
    """What another app took."""
    parts = [f"{share:.0%} of {name}" for name, share in app["shares"].items()]
    parts += [f"{size(app['dram'])}/s of bandwidth"] if app["dram"] else []
    times = f", {duration(app['on'])} on and {duration(app['off'])} off on average" if "on" in app else ""
    return ", ".join(parts) + times


def circumstances(scenario: Scenario, policy: str, phone: Mapping[str, Any]) -> str:
    """A sentence on what a plan was put through; what is as usual goes without saying.

    Args:
        scenario: what was asked for.
        policy: who could switch between plans.
        phone: how the phone lay and what else ran on it, of :meth:`hetsched_simulations.Simulation.phone`.
    """
    return "; ".join([f"at {scenario.ambient_c:g} °C{lying(phone['case'])}", *_told(scenario, policy, phone)])


def _told(at: Scenario, policy: str, phone: Mapping[str, Any]) -> Iterator[str]:
    if at.period_s is not None:
        yield f"{'at random, on average ' if at.poisson else ''}one every {duration(at.period_s)}{', queued' if at.queue else ''}"
    if at.workload is not None:
        yield f"arrivals of {Path(at.workload).name}"
    if at.chat is not None:
        yield _chat(at.chat)
    if at.think_s > 0:
        yield f"{duration(at.think_s)} to think"
    if at.deadline_s is not None:
        yield f"deadline {duration(at.deadline_s)}"
    if policy != "static":
        yield f"policy {policy}"
    if at.battery is not None:
        yield f"battery from {100 * at.battery:g} %" + (f", charging with {at.charging_w:g} W" if at.charging_w else "")
    if at.loads:
        yield "loads " + ", ".join(f"{name} {watts:.3g} W" for name, watts in at.loads.items())
    if phone["background"]:
        yield f"another app beside it ({beside(phone['background'])})"


def _chat(chat: Chat) -> str:
    said = {"prompts": chat.prompt, "answers": chat.generate, "a window": chat.window}
    parts = [f"{name} of {tokens}" for name, tokens in said.items() if tokens is not None]
    return "a chat" + (f" with {', '.join(parts)} tokens" if parts else "") + (f", {chat.turns} turns" if chat.turns is not None else "")
