"""Planning a prompt and its answer: both phases, together within a memory limit, and what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Literal

from hetsched.app.language import PHASE_DIMS, PlannedLanguage, joined, phase_graph, predicted
from hetsched.app.levels import price_switch
from hetsched.app.planned import Planned
from hetsched.errors import InfeasibleError, OptionError
from hetsched.graph import Graph
from hetsched.partition.switching import Placed
from hetsched.passes import PassReport
from hetsched.plan_language import Language
from hetsched.plans import Entry, Switch
from hetsched.socs import SoC

#: Plans one graph with the user's options, without the named queues.
PlanPhase = Callable[[Graph, Sequence[str]], Planned]


def plan_language(
    model: Path, chip: SoC, asked: Language, dims: Mapping[str, int], plan_phase: PlanPhase, memory_limit_bytes: int | None
) -> PlannedLanguage:
    """Plan both phases and price the answer.

    Where both phases together exceed the memory limit, because they hold weights on different processors, both are planned on the
    same smaller sets of queues, and the fastest pair that fits is taken.

    Args:
        model: the model file.
        chip: the SoC.
        asked: with a prompt and an answer.
        dims: other dims of the model (``batch``).
        plan_phase: plans one graph with the user's options.
        memory_limit_bytes: neither phase may exceed it, nor both together.

    Raises:
        OptionError: ``dims`` name the tokens, or the model has no phases.
        InfeasibleError: the weights as both phases hold them exceed the limit.
    """
    fixed = next((d for d in dims if d in PHASE_DIMS), None)
    if fixed is not None:
        raise OptionError(f"--dim {fixed} and --prompt both say which tokens are computed: leave one out")
    prefill = _planned(model, chip, asked, dims, (asked.prompt, 0), plan_phase)
    decode = _planned(model, chip, asked, dims, (1, asked.prompt + asked.generate - 1), plan_phase)
    best = _together(chip, asked, dims, prefill, decode)
    if memory_limit_bytes is not None and best.prediction.peak_memory_bytes > memory_limit_bytes:
        return _within(best, model, dims, plan_phase, memory_limit_bytes)
    return best


def _within(best: PlannedLanguage, model: Path, dims: Mapping[str, int], plan_phase: PlanPhase, limit: int) -> PlannedLanguage:
    """The fastest prompt and answer whose phases share a smaller set of queues and fit into the limit.

    Raises:
        InfeasibleError: none fits.
    """
    asked, chip, least = best.asked.model_copy(update={"prediction": None}), best.soc, best.prediction.peak_memory_bytes
    names = [q.name for q in best.table.queues]
    fitting: list[PlannedLanguage] = []
    for size in range(len(names) - 1, 0, -1):
        for allowed in combinations(names, size):
            barred = [n for n in names if n not in allowed]
            try:
                phases = [
                    _planned(model, chip, asked, dims, at, plan_phase, barred)
                    for at in ((asked.prompt, 0), (1, asked.prompt + asked.generate - 1))
                ]
            except InfeasibleError:
                continue
            found = _together(chip, asked, dims, *phases)
            least = min(least, found.prediction.peak_memory_bytes)
            if found.prediction.peak_memory_bytes <= limit:
                fitting.append(found)
    if not fitting:
        raise InfeasibleError(
            f"prefill and decode of {best.graph.name!r} hold {best.prediction.peak_memory_bytes} bytes together, more than the limit of "
            f"{limit}, and on the same processors {least} at least: raise it, or use a smaller model or precision"
        )
    return min(fitting, key=lambda p: p.prediction.ttft_s + asked.generate / p.prediction.decode_rate)


def _together(chip: SoC, asked: Language, dims: Mapping[str, int], prefill: Planned, decode: Planned) -> PlannedLanguage:
    """The two phases as one deployment, with their figures."""
    deployment = decode.deployment.model_copy(
        update={
            "entries": _entries(prefill, decode), "switches": _switches(prefill, decode), "language": asked,
            "model": decode.deployment.model.model_copy(update={"dims": dict(dims)}),
        }
    )  # fmt: skip
    found = predicted(joined(deployment, prefill, decode))
    update = {"language": asked.model_copy(update={"prediction": found})}
    return joined(deployment.model_copy(update=update), prefill, decode)


def _phases(prefill: Planned, decode: Planned) -> tuple[tuple[Literal["prefill", "decode"], Planned], ...]:
    return ("prefill", prefill), ("decode", decode)


def _entries(prefill: Planned, decode: Planned) -> tuple[Entry, ...]:
    """The entries of both phases, level by level; a level that one of them lacks is left out."""
    phases = _phases(prefill, decode)
    made = {
        (e.level, name): e.model_copy(update={"phase": name, "dims": dict(p.graph.dims)})
        for name, p in phases
        for e in p.deployment.entries
    }
    levels = sorted({e.level for e in decode.deployment.entries} & {e.level for e in prefill.deployment.entries})
    return tuple(made[level, name] for level in levels for name, _ in phases)


def _switches(prefill: Planned, decode: Planned) -> tuple[Switch, ...]:
    """From the prompt to the answer, and between the levels of each phase."""
    first, second = (Placed(p.graph, p.table, p.placement[1]) for p in (prefill, decode))
    out = [price_switch(("prefill", 0), ("decode", 0), first, second)]
    for name, p in _phases(prefill, decode):
        out += [s.model_copy(update={"before": (name, s.before[1]), "after": (name, s.after[1])}) for s in p.deployment.switches]
    return tuple(out)


def _planned(
    model: Path, chip: SoC, asked: Language, dims: Mapping[str, int], phase: tuple[int, int], plan_phase: PlanPhase,
    barred: Sequence[str] = (),
) -> Planned:  # fmt: skip
    """The plan of ``phase`` (new tokens, and tokens before them) without the queues ``barred``."""
    report: list[PassReport] = []
    graph = phase_graph(model, chip, asked, dims, *phase, report=report)
    return replace(plan_phase(graph, barred), passes=tuple(report))
