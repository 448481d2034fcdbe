"""How a simulated chat went, for people: one run, or one under several policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli import show
from hetsched.cli.show_simulation import beneath_comparison, compared_where, lying, phone

if TYPE_CHECKING:
    from hetsched.app.chatting import SimulatedChat

#: Turns that the table shows, spread evenly over the run.
ROWS = 8


def chat(result: SimulatedChat, trace: Path | None) -> None:
    """First tokens and rates over the run, what it took, how warm it got."""
    s = result.summary()
    rate = s["decode_tok_s"]
    where = f"{s['model']} on {result.planned.soc.name} at {s['ambient_c']:g} °C{lying(s['case'])}"
    show.line(f"{where}: {s['turns']} turn(s) in {show.seconds(s['duration_s'])}, {s['tokens']} tokens of answers")
    ends = f"{rate['first_minute']:.3g} in the first minute, {rate['last_minute']:.3g} in the last"
    show.line(f"  {rate['mean']:.3g} tok/s while it answers: {ends} (predicted {s['predicted_decode_tok_s']:.3g})")
    if s["ttft_ms"]:
        show.line("  first token after " + ", ".join(f"{k} {show.seconds(v / 1e3)}" for k, v in s["ttft_ms"].items()))
    if s["missed"] is not None:
        show.line(f"  {s['missed']} of {s['turns']} turns after the deadline")
    if s["note"]:
        show.line(f"  {s['note']}")
    _turns(s["per_turn"])
    show.line(
        f"  energy {show.joules(sum(s['energy_j'].values()))}, {s['average_power_w']:.2f} W on average; a token takes"
        f" {show.joules(s['energy_per_token_j'])}, with the phone's base load {show.joules(s['energy_per_token_with_base_j'])}"
    )
    phone(s, trace)


def _turns(turns: Sequence[Mapping[str, Any]]) -> None:
    """Some turns, the first and the last among them."""
    count = min(len(turns), ROWS)
    picked = sorted({round(k * (len(turns) - 1) / max(count - 1, 1)) for k in range(count)})
    rows = [
        [
            str(k + 1), show.seconds(t["start_s"]), str(t["past"]), str(t["prompt"]), str(t["generate"]),
            show.seconds(t["ttft_ms"] / 1e3), f"{t['tok_s']:.3g}",
        ]
        for k, t in ((k, turns[k]) for k in picked)
    ]  # fmt: skip
    if rows:
        show.table("", ["turn", "at", "context", "prompt", "answer", "first token", "tok/s"], rows, numeric=(0, 1, 2, 3, 4, 5, 6))


def comparison(summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Several policies side by side."""
    some = next(iter(summaries.values()))
    rows = []
    for policy, s in summaries.items():
        heat, rate, first = s["peak_temperatures_c"], s["decode_tok_s"], s["ttft_ms"]
        rows.append([
            policy, str(s["tokens"]), f"{rate['first_minute']:.3g}", f"{rate['last_minute']:.3g}",
            show.seconds(first["median"] / 1e3) if first else "-", f"{max(heat.values()):.1f} °C" if heat else "-",
            show.joules(s["energy_per_token_j"]), "0" if s["levels"] is None else str(s["levels"]["switches"]),
        ])  # fmt: skip
    columns = ["policy", "tokens", "tok/s, first min", "last min", "first token", "hottest", "a token", "switches"]
    show.table(compared_where(some), columns, rows, numeric=(1, 2, 3, 4, 5, 6, 7), whole=0)
    if some["note"]:
        show.line(some["note"])
    beneath_comparison(summaries)
