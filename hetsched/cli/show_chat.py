"""How a simulated chat went, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.app.circumstances import lying
from hetsched.cli import show
from hetsched.cli.lines import counted
from hetsched.cli.show_language import guesses
from hetsched.cli.show_simulation import energy, phone
from hetsched.trace.turns import ends

if TYPE_CHECKING:
    from hetsched.app.chatting import SimulatedChat

#: Turns that the table shows, half of them the first and half the last.
ROWS = 8


def chat(result: SimulatedChat, trace: Path | None) -> None:
    """First tokens and rates over the run, what it took, how warm it got."""
    s = result.summary()
    where = f"{s['model']} on {result.planned.soc.name} at {s['ambient_c']:g} °C{lying(s['case'])}"
    show.line(f"{where}: {counted(s['turns'], 'turn')} in {show.seconds(s['duration_s'])}, {s['tokens']} tokens of answers")
    answers(s, s["missed"], f" (predicted {s['predicted_decode_tok_s']:.3g})")
    if s["speculation"] is not None:
        show.line(f"  {guesses(s['speculation'])}")
    energy(s)
    show.line(
        f"  a token takes {show.joules(s['energy_per_token_j'])},"
        f" with everything else that the phone draws {show.joules(s['energy_per_token_with_base_j'])}"
    )
    phone(s, trace)


def answers(s: Mapping[str, Any], late: int | None, beside: str = "") -> None:
    """Rates, first tokens, what was late and turns; ``beside`` stands after the rates."""
    rate = s["decode_tok_s"]
    ends = f"{rate['first_minute']:.3g} in the first minute, {rate['last_minute']:.3g} in the last"
    show.line(f"  {rate['mean']:.3g} tok/s while it answers: {ends}{beside}")
    if s["ttft_ms"]:
        show.line("  first token after " + ", ".join(f"{k} {show.seconds(v / 1e3)}" for k, v in s["ttft_ms"].items()))
    if late is not None:
        show.line(f"  {late} of {s['turns']} turns after the deadline")
    if s["note"]:
        show.line(f"  {s['note']}")
    _turns(s["per_turn"])


def _turns(turns: Sequence[Mapping[str, Any]]) -> None:
    """The first turns, and the last ones."""
    rows = [
        [
            str(k + 1), show.seconds(t["start_s"]), str(t["past"]), str(t["prompt"]), str(t["generate"]),
            show.seconds(t["ttft_ms"] / 1e3), f"{t['tok_s']:.3g}",
        ]
        for k, t in ends(list(enumerate(turns)), ROWS)
    ]  # fmt: skip
    if rows:
        show.table("", ["turn", "at", "context", "prompt", "answer", "first token", "tok/s"], rows, numeric=(0, 1, 2, 3, 4, 5, 6))
