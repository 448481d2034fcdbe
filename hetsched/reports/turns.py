"""A chat for the page: its turns as a table, what they come to as tiles, and the wait for each first token as a curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from hetsched.reports.curves import Series
from hetsched.reports.summary import Tile
from hetsched.reports.units import digits, interval, quantity
from hetsched.trace import Trace
from hetsched.trace.turns import Turn, ends, turns

#: Turns that the table shows, half of them the first and half the last.
MOST = 40


@dataclass(frozen=True)
class TurnsView:
    """Rows under heads, and what goes without a column."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    hint: str


def turns_of(trace: Trace) -> list[Turn]:
    """The turns that a trace holds (of very many, every second, fourth, ... one)."""
    return list(turns(trace.instants))


def turns_view(found: Sequence[Turn]) -> TurnsView | None:
    """The table; None: this is no chat. Prompts and answers have a column where they differ."""
    if not found:
        return None
    sizes = {(t.prompt, t.generate) for t in found}
    hint = "Context are the tokens of the conversation before the turn; it starts again at 0 where the next turn would not have fitted."
    if len(sizes) == 1:
        hint = f"Each turn reads {found[0].prompt} tokens and answers with {found[0].generate}. {hint}"
    if len(found) > MOST:
        hint += f" The first {MOST // 2} and the last {MOST // 2} of {found[-1].number + 1} turns."
    columns = [(head, cell) for head, cell in _COLUMNS.items() if len(sizes) > 1 or head not in ("Prompt", "Answer")]
    return TurnsView([head for head, _ in columns], [[cell(t) for _, cell in columns] for t in ends(found, MOST)], hint)


_COLUMNS: Mapping[str, Callable[[Turn], str]] = {
    "Turn": lambda t: str(t.number + 1), "At (min)": lambda t: f"{int(t.began_s) // 60}:{int(t.began_s) % 60:02d}",
    "Context": lambda t: str(t.past), "Prompt": lambda t: str(t.prompt), "Answer": lambda t: str(t.generate),
    "First token": lambda t: quantity(t.first_s, "s"), "tok/s": lambda t: digits(t.rate),
}  # fmt: skip


def turn_tiles(found: Sequence[Turn], origin: str) -> list[Tile]:
    """How many turns there were, how long the first token took, and how fast the answers came."""
    firsts, rates = ([getattr(t, name) for t in found] for name in ("first_s", "rate"))
    last, begun = found[-1], sum(t.past == 0 for t in found)
    several = len(found) > 1
    first = f"median; {interval(min(firsts), max(firsts), 's')}" if several else ""
    rate = f"median; first turn {digits(rates[0])}, last {digits(last.rate)}" if several else ""
    return [
        Tile("Turns", str(last.number + 1), f"{begun} conversation{'' if begun == 1 else 's'}", origin),
        Tile("First token", quantity(float(median(firsts)), "s"), first, origin),
        Tile("Answers", f"{digits(float(median(rates)))} tok/s", rate, origin),
    ]


def first_tokens(found: Sequence[Turn]) -> Series:
    """The wait for the first token, turn by turn."""
    return Series("first token", "c-ours", [t.began_s for t in found], [t.first_s for t in found])
