"""How several models fared side by side on a phone that warms, for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.app.circumstances import lying
from hetsched.cli import show
from hetsched.cli.lines import counted
from hetsched.cli.show_chat import answers
from hetsched.cli.show_simulation import energy, phone

if TYPE_CHECKING:
    from hetsched.app.sharing import SimulatedTogether


def shared(found: SimulatedTogether, trace: Path | None) -> None:
    """What each model missed, and what all of it did to the phone."""
    s = found.summary()
    where = f"on {found.planned[0].soc.name} at {s['ambient_c']:g} °C{lying(s['case'])}, {show.seconds(s['duration_s'])}"
    columns = ["model", "rate", "deadline", "priority", "mean", "p99", "worst", "missed"]
    show.table(where, columns, [_row(m) for m in s["models"] if m["rate"] is not None], numeric=range(1, 8), whole=0)
    for m in (m for m in s["models"] if m["rate"] is None):
        show.line(f"{m['model']}, priority {m['priority']}: {counted(m['turns'], 'turn')}, {m['tokens']} tokens of answers")
        answers(m, m["late"])
    energy(s)
    phone(s, trace)


def _row(m: Mapping[str, Any]) -> list[str]:
    spread = m["latency_ms"]
    figures = ["-"] * 3 if spread is None else [show.seconds(spread[k] / 1e3) for k in ("mean", "p99", "worst")]
    return [m["model"], f"{m['rate']:g}/s", show.seconds(m["deadline_ms"] / 1e3), str(m["priority"]), *figures, f"{m['missed']:.1%}"]
