"""``diff``: what changed between two plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.partition.causes import duration, joules
from hetsched.plans import Plan
from hetsched.sizes import size

#: Ops that are named where several have the same to say.
_NAMED = 3


@dataclass(frozen=True)
class Move:
    """An op that is somewhere else, or runs in another precision, in the second plan."""

    op: str
    before: str
    after: str
    cause: str


@dataclass(frozen=True)
class PlanDiff:
    """The second plan against the first. ``only_*`` are ops that one plan lacks; figures are (first, second)."""

    moves: tuple[Move, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    latency_s: tuple[float, float]
    energy_j: tuple[float, float]
    peak_memory_bytes: tuple[int, int]
    segments: tuple[int, int]
    order_changed: bool
    notes: tuple[str, ...] = ()
    """What the figures rest on."""

    @property
    def same(self) -> bool:
        """Whether the plans place and order every op alike."""
        return not (self.moves or self.only_first or self.only_second or self.order_changed)

    def lines(self) -> list[str]:
        """Sentences for a human."""
        a, b = self.latency_s
        e, f = self.energy_j
        out = [
            f"latency {duration(a)} -> {duration(b)} ({_percent(a, b)}), energy {joules(e)} -> {joules(f)} ({_percent(e, f)}),"
            f" peak memory {size(self.peak_memory_bytes[0])} -> {size(self.peak_memory_bytes[1])},"
            f" segments {self.segments[0]} -> {self.segments[1]}"
        ]
        out += [f"note: {note}" for note in self.notes]
        if self.same:
            return [*out, "every op is in the same place, in the same order"]
        alike: dict[tuple[str, str], list[Move]] = {}
        for m in self.moves:
            alike.setdefault((m.before, m.after), []).append(m)
        for (before, after), moves in sorted(alike.items(), key=lambda found: -len(found[1])):
            why = moves[0].cause if len(moves) == 1 else f"{moves[0].op}: {moves[0].cause}"
            out.append(f"{_named([m.op for m in moves])}: {before} -> {after} ({why})")
        for names, which in ((self.only_first, "first"), (self.only_second, "second")):
            if names:
                out.append(f"{_named(names)}: only in the {which} plan")
        if not self.moves and self.order_changed:
            out.append("no op has moved, but the order is another")
        return out


def _named(names: Sequence[str]) -> str:
    """A few names, and how many there are."""
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{len(names)} ops ({shown} ...)"


def _percent(a: float, b: float) -> str:
    return f"{(b / a - 1) * 100:+.1f} %" if a > 0 else "-"


def diff(first: Plan, second: Plan) -> PlanDiff:
    """Compare two plans of one model (ops are matched by name; ops of another model show up as missing)."""
    before = {p.op: p for p in first.placements}
    after = {p.op: p for p in second.placements}
    moves = tuple(
        Move(name, f"{p.queue} {p.precision}", f"{after[name].queue} {after[name].precision}", after[name].cause)
        for name, p in before.items()
        if name in after and (p.queue, p.precision) != (after[name].queue, after[name].precision)
    )
    return PlanDiff(
        moves,
        tuple(name for name in before if name not in after),
        tuple(name for name in after if name not in before),
        (first.prediction.latency_s, second.prediction.latency_s),
        (first.prediction.energy_j, second.prediction.energy_j),
        (first.prediction.peak_memory_bytes, second.prediction.peak_memory_bytes),
        (len(first.segments), len(second.segments)),
        first.order != second.order,
    )
