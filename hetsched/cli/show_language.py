"""Short tables for prompts and answers of language models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hetsched.app.circumstances import lying
from hetsched.app.language import PlannedLanguage
from hetsched.app.language_simulating import SimulatedLanguage
from hetsched.cli.lines import counted
from hetsched.cli.show import brief, joules, levels, line, proof, seconds, table
from hetsched.sizes import size


def plan(planned: PlannedLanguage) -> None:
    """The two phases beside each other, what they add up to, and the notes."""
    asked, p, summary = planned.asked, planned.prediction, planned.summary()
    prefill = planned.phases["prefill"].plan
    line(
        f"{planned.graph.name} on {planned.soc.name}: first token of {asked.prompt} after {seconds(p.ttft_s)}"
        f" ({_span(p.ttft_interval_s, seconds)}), then {p.decode_rate:.3g} tok/s ({_span(p.decode_rate_interval, _rate)})"
    )
    last = asked.prompt + asked.generate
    step_s = summary["phases"]["decode"]["latency_ms"] / 1e3
    first_j = joules(prefill.prediction.energy_j)
    rows = [
        [f"prefill of {asked.prompt}", seconds(p.ttft_s), _rate(p.prefill_rate), first_j, _where(planned, "prefill")],
        [f"decode to {last}", seconds(1 / p.decode_rate), _rate(p.decode_rate), joules(p.energy_per_token_j), _where(planned, "decode")],
    ]
    table("", ["phase", "latency", "tok/s", "energy", "ops"], rows, numeric=(1, 2, 3))
    line(f"decode: an average token; the last one takes {seconds(step_s)}")
    if summary["speculation"] is not None:
        line(_guessed(summary["speculation"]))
    line(
        f"peak memory {size(p.peak_memory_bytes)}, of it caches {size(p.kv_cache_bytes)} at the end"
        f" ({p.kv_bytes_per_token} bytes a token, {planned.kv})"
    )
    if "levels" in summary:
        levels(summary["levels"])
    for name, phase in planned.phases.items():
        found = phase.plan
        beside = ", ".join(f"{b.solver} {seconds(b.latency_s)}" for b in found.baselines if b.latency_s is not None)
        line(f"{name}: {found.solver}, {proof(found)}; {counted(len(found.segments), 'segment')}; beside it {beside}")
        for text in brief(found):
            line(f"  {text}")
    for note in dict.fromkeys(n for phase in planned.phases.values() for n in phase.plan.notes):
        line(f"note: {note}")
    if planned.path is not None:
        line(f"plan: {planned.path}")


def _guessed(s: Mapping[str, Any]) -> str:
    """What guessed tokens bring."""
    drafted = {"lookup": "a lookup", "layers": f"the first {counted(s['draft_layers'] or 0, 'layer')}", "model": str(s["draft"])}
    drafts = f", its guesses {seconds(s['draft_ms'] / 1e3)} of it" if s["draft_ms"] else ""
    span = _span(tuple(s["decode_tok_s_interval"]), _rate)
    return (
        f"with {counted(s['length'], 'guess', 'guesses')} at once by {drafted[s['drafter']]}: {s['tokens_per_step']:.3g} tokens a step of"
        f" {seconds(s['step_ms'] / 1e3)}{drafts}, {_rate(s['decode_tok_s'])} tok/s ({span}), {compared_rates(s['gain'])},"
        f" {joules(s['energy_per_token_j'])} a token"
    )


def compared_rates(gain: float) -> str:
    """How a rate with guesses compares with that without."""
    return f"{gain:.3g} times as fast as without" if gain >= 1.0 else f"only {gain:.3g} times as fast as without: leave guesses out"


def _where(planned: PlannedLanguage, phase: str) -> str:
    counts = planned.phases[phase].summary()["ops_by_processor"]
    return ", ".join(f"{n} on {kind}" for kind, n in counts.items())


def _rate(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _span(interval: tuple[float, float], text: Callable[[float], str]) -> str:
    low, high = (text(v) for v in interval)
    return f"80 %: {low} to {high}"


def guesses(s: Mapping[str, Any]) -> str:
    """What guessed tokens brought in a simulation."""
    plain = s["without"]
    energy = "" if plain["energy_per_token_j"] is None else f", {joules(plain['energy_per_token_j'])} a token"
    gain = "" if s["gain"] is None else f", {compared_rates(s['gain'])}"
    return f"guessed tokens: {s['tokens_per_step']:.3g} tokens a step{gain} ({plain['decode_tok_s']:.3g} tok/s{energy})"


def simulation(result: SimulatedLanguage, trace: Path | None) -> None:
    """First token and decode steps, simulated beside predicted."""
    s = result.summary()
    where = f"{s['model']} on {result.planned.soc.name} at {s['ambient_c']:g} °C{lying(s['case'])}"
    line(f"{where}: {s['prompt']} tokens in, {s['generate']} out")
    line(f"  first token after {seconds(s['ttft_ms'] / 1e3)} (predicted without contention {seconds(s['predicted_ttft_ms'] / 1e3)})")
    line(f"  then {s['decode_tok_s']:.3g} tok/s (predicted {s['predicted_decode_tok_s']:.3g})")
    if s["speculation"] is not None:
        line(f"  {guesses(s['speculation'])}")
    line("  a token takes " + ", ".join(f"{k} {seconds(v / 1e3)}" for k, v in s["decode_ms"].items()))
    line(f"  energy {joules(s['energy_j']['prefill'])} prefill, {joules(s['energy_j']['decode'])} answer, without the phone's base load")
    line("  (each step starts from the phone at rest: no throttling in a long answer)")
    if s["power_basis"]:
        line(f"  ({s['power_basis']})")
    if trace is not None:
        line(f"trace: {trace}")
