"""What every profile becomes: times of operators, run after run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from hetsched.errors import TraceError
from hetsched.trace import Span, Trace

#: An operator does not take longer; a larger time is a slip of units or damage.
LONGEST_S = 1e5
#: More rows are no profile of a network.
MAX_TIMINGS = 2_000_000


@dataclass(frozen=True, slots=True)
class Timing:
    """One operator in one inference (``run``). What a format does not say is empty or None."""

    name: str
    type: str
    seconds: float
    queue: str = "cpu"
    """Empty while a profile is read: it does not say where the operator ran (:func:`placed`)."""
    shape: tuple[int, ...] | None = None
    """Of its first output."""
    precision: str = ""
    run: int = 0
    start_s: float | None = None


@dataclass(frozen=True)
class Profile:
    """Timings of one or several inferences, in the order of the file."""

    format: str
    timings: tuple[Timing, ...]
    notes: tuple[str, ...] = field(default=())
    model: str = ""
    soc: str = ""
    home: str = "cpu"
    """Where timings count that do not say where they were taken."""
    unplaced: int = 0
    """How many did not say it."""

    def per_op(self) -> list[Timing]:
        """Each operator once: its median over the runs of its time within a run, in the order in which they first ran."""
        sums: dict[tuple[str, str, tuple[int, ...] | None, str, str], dict[int, float]] = {}
        for t in self.timings:
            runs = sums.setdefault((t.name, t.type, t.shape, t.queue, t.precision), {})
            runs[t.run] = runs.get(t.run, 0.0) + t.seconds
        return [
            Timing(name, kind, median(runs.values()), queue, shape, precision)
            for (name, kind, shape, queue, precision), runs in sums.items()
        ]  # fmt: skip

    @property
    def runs(self) -> int:
        """Number of inferences."""
        return len({t.run for t in self.timings})


_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def number(text: str) -> float:
    """A number as profiles write it: ``1234.5``, ``1,234.5``, ``1.2e-3``.

    Raises:
        ValueError: it is none. A comma that does not part thousands (``1,58``) is refused: it would be a guess.

    Examples:
        >>> number(" 12,345.5 ")
        12345.5
    """
    plain = text.strip()
    if _THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    if not _NUMBER.fullmatch(plain):
        raise ValueError(f"{text!r} is not a number")
    return float(plain)


def checked(profile: Profile, where: str) -> Profile:
    """The profile, if it has operators and every time is one.

    Raises:
        TraceError: no operator, too many, or a time that is negative, not a number or absurdly long.
    """
    if not profile.timings:
        raise TraceError(f"{where} ({profile.format}) has no operator with a time: profile single operators, not only the whole model")
    if len(profile.timings) > MAX_TIMINGS:
        raise TraceError(f"{where} has {len(profile.timings)} timings, at most {MAX_TIMINGS} are read: profile fewer inferences")
    for t in profile.timings:
        if not (math.isfinite(t.seconds) and 0 <= t.seconds <= LONGEST_S) or (t.start_s is not None and not 0 <= t.start_s <= 1e9):
            raise TraceError(f"{where}: operator {t.name or t.type!r} has the time {t.seconds} s, which makes no sense: it is damaged")
    return profile


def placed(profile: Profile, queue: str | None) -> Profile:
    """The profile with a queue for every timing: the one given, else its own, else :attr:`Profile.home`, which the notes say."""
    if queue is not None:
        return replace(profile, timings=tuple(replace(t, queue=queue) for t in profile.timings))
    unplaced = sum(not t.queue for t in profile.timings)
    if not unplaced:
        return profile
    some = f"{unplaced} of {len(profile.timings)} times"
    note = f"{some} do not say where they were taken and count as {profile.home}: --queue says otherwise"
    timings = tuple(t if t.queue else replace(t, queue=profile.home) for t in profile.timings)
    return replace(profile, timings=timings, notes=(*profile.notes, note), unplaced=unplaced)


def trace_of(profile: Profile, names: Sequence[str] | None = None, model: str = "", soc: str = "") -> Trace:
    """A profile as a trace with the origin ``imported``.

    Formats without start times have their operators laid end to end on each queue, run after run.

    Args:
        profile: the profile.
        names: name of the op that each timing is shown as (of a plan's graph); default: the profile's own.
        model: name of the model, as a report knows it.
        soc: id of the SoC.
    """
    shown = [t.name or t.type for t in profile.timings] if names is None else list(names)
    trace = Trace("imported", model or profile.model, soc or profile.soc, tuple(sorted({t.queue for t in profile.timings})))
    trace.notes.extend((f"imported from {profile.format}", *profile.notes))
    spans = _timed(profile.timings, shown) if all(t.start_s is not None for t in profile.timings) else _laid(profile.timings, shown)
    trace.spans.extend(sorted(spans, key=lambda s: (s.start_s, s.queue, s.end_s)))
    return trace


def _timed(timings: Iterable[Timing], names: Iterable[str]) -> list[Span]:
    return [
        Span(t.queue, "op", n, float(t.start_s or 0.0), float(t.start_s or 0.0) + t.seconds, -1, t.run)
        for t, n in zip(timings, names, strict=True)
    ]  # fmt: skip


def _laid(timings: Iterable[Timing], names: Iterable[str]) -> list[Span]:
    at, run, spans = 0.0, None, []
    for t, n in zip(timings, names, strict=True):
        if run is not None and t.run != run:
            at += 1e-4  # a visible gap between inferences
        run = t.run
        spans.append(Span(t.queue, "op", n, at, at + t.seconds, -1, t.run))
        at += t.seconds
    return spans
