"""What a phase of a language model costs at any context: priced at a few of them, and in between where that is a straight line.

Attention reads as many keys and values as there are tokens, so times and bytes of each of its operators grow in proportion, and all
others stay. Where layers look at a window of their own the line bends; such a model is priced at every context that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from hetsched.app.language import PlannedLanguage, phase_graph
from hetsched.app.planned import Planned, priced
from hetsched.app.splitting import split

if TYPE_CHECKING:
    from hetsched_simulations.jobs import Parts
    from hetsched_simulations.workload import Command, Work

#: How far the cost in the middle may be off a straight line between both ends.
STRAIGHT = 1e-4
#: Contexts that a process remembers.
KEPT = 256


def at_context(planned: PlannedLanguage, phase: str, tokens: int, past: int) -> Planned:
    """A phase's placement on the cost table of so many new tokens after ``past``."""
    found = planned.phases[phase]
    source = found.graph.source
    if source is None or (phase == "decode" and past == _last(planned)):
        return found
    graph = phase_graph(source, planned.soc, planned.asked, planned.deployment.model.dims, tokens, past, phase=phase)
    graph = split(graph, planned.deployment.entries[found.entry].splits)
    return replace(found, graph=graph, table=priced(graph, planned.soc, planned.deployment, found.entry))


def parts_of(plans: Mapping[int, PlannedLanguage], pasts: tuple[int, ...]) -> Parts:
    """The commands of the parts of a chat.

    Args:
        plans: by level.
        pasts: all contexts that parts are priced for, ascending.
    """
    from hetsched_simulations.jobs import Part
    from hetsched_simulations.workload import chained

    @cache
    def of(level: int, part: Part) -> tuple[Command, ...]:
        if part.phase == "verify":
            drafts = [of(level, Part("draft", 1, part.past))] if "draft" in plans[level].guessing else []
            return chained([*drafts * (part.tokens - 1), alone(level, part)])
        return alone(level, part)

    def alone(level: int, part: Part) -> tuple[Command, ...]:
        planned, (low, high) = plans[level], (pasts[0], pasts[-1])
        if not low < part.past < high or len(pasts) < 4 or not straight(planned, low, high):
            return commands_at(planned, part.phase, part.tokens, part.past)
        if part.phase == "decode":
            high = _last(planned)
        first, second = (commands_at(planned, part.phase, part.tokens, past) for past in (low, high))
        return between(first, second, (part.past - low) / (high - low))

    return of


@lru_cache(KEPT)
def commands_at(planned: PlannedLanguage, phase: str, tokens: int, past: int) -> tuple[Command, ...]:
    """The commands of a phase at a context, remembered: a study and a comparison of policies ask again and again."""
    from hetsched_simulations.workload import commands_of

    at = at_context(planned, phase, tokens, past)
    return commands_of(at.table, *at.placement)


@lru_cache(KEPT)
def straight(planned: PlannedLanguage, low: int, high: int) -> bool:
    """Whether decode steps cost in the middle between two contexts what a straight line says."""
    last, middle = _last(planned), (low + high) // 2
    first, second, real = (commands_at(planned, "decode", 1, past) for past in (low, last, middle))
    if _shape(first) != _shape(second) or _shape(first) != _shape(real):
        return False
    told, known = (sum(w.seconds for c in made for w in c.work) for made in (between(first, second, (middle - low) / (last - low)), real))
    return abs(told - known) <= STRAIGHT * known


def between(first: tuple[Command, ...], second: tuple[Command, ...], share: float) -> tuple[Command, ...]:
    """Commands at a share of the way between those of two contexts, of one placement."""
    return tuple(
        replace(
            a, seconds=a.seconds + share * (b.seconds - a.seconds),
            work=tuple(_work(v, w, share) for v, w in zip(a.work, b.work, strict=True)),
        )
        for a, b in zip(first, second, strict=True)
    )  # fmt: skip


def _work(first: Work, second: Work, share: float) -> Work:
    if first == second:
        return first
    ends = {f.name: (getattr(first, f.name), getattr(second, f.name)) for f in fields(first)}
    return replace(first, **{name: a + share * (b - a) for name, (a, b) in ends.items() if isinstance(a, float)})


def _shape(commands: tuple[Command, ...]) -> list[tuple[int, list[str]]]:
    return [(c.queue, [w.kind for w in c.work]) for c in commands]


def _last(planned: PlannedLanguage) -> int:
    """The context that the plan's decode step is made for."""
    return planned.asked.prompt + planned.asked.generate - 1
