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
from hetsched.plans import Entry, Plan, Switch
from hetsched.sizes import size
from hetsched.socs import SoC

#: Plans one graph with the user's options, without the named queues, with these cores at the last level (None: chosen for it).
PlanPhase = Callable[[Graph, Sequence[str], str | None], Planned]


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
    best = _together(chip, asked, dims, *_both(model, chip, asked, dims, plan_phase))
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
    for count in range(len(names) - 1, 0, -1):
        for allowed in combinations(names, count):
            barred = [n for n in names if n not in allowed]
            try:
                phases = _both(model, chip, asked, dims, plan_phase, barred)
            except InfeasibleError:
                continue
            found = _together(chip, asked, dims, *phases)
            least = min(least, found.prediction.peak_memory_bytes)
            if found.prediction.peak_memory_bytes <= limit:
                fitting.append(found)
    if not fitting:
        raise InfeasibleError(
            f"prefill and decode of {best.graph.name!r} hold {size(best.prediction.peak_memory_bytes, 6)} together, more than the limit of "
            f"{size(limit, 6)}, and on the same processors {size(least, 6)} at least: raise it, or use a smaller model or precision"
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
    whole = joined(deployment, prefill, decode)
    said = [*whole.between.sentences(), *_steady(decode)]
    entries = [e if (e.phase, e.level) != ("prefill", 0) else _saying(e, said) for e in deployment.entries]
    update = {"language": asked.model_copy(update={"prediction": predicted(whole)}), "entries": tuple(entries)}
    return joined(deployment.model_copy(update=update), prefill, decode)


def _saying(entry: Entry, said: Sequence[str]) -> Entry:
    """The entry with notes before those of its plan."""
    return entry.model_copy(update={"plan": entry.plan.model_copy(update={"notes": (*said, *entry.plan.notes)})})


def _steady(decode: Planned) -> tuple[str, ...]:
    """What a pipeline of tokens comes to, where that was asked for."""
    if decode.plan.objective != "period":
        return ()
    return (
        f"tokens of one answer wait for each other; of several answers at once, where the CPU chooses one's token while another's step"
        f" is computed, there can be {1 / decode.period_s:.3g} tok/s in all (the busiest queue's work, last step)",
    )


def _phases(prefill: Planned, decode: Planned) -> tuple[tuple[Literal["prefill", "decode"], Planned], ...]:
    return ("prefill", prefill), ("decode", decode)


def _entries(prefill: Planned, decode: Planned) -> tuple[Entry, ...]:
    """The entries of both phases, level by level; a level that one of them lacks is left out."""
    phases = _phases(prefill, decode)
    made = {
        (e.level, name): e.model_copy(update={"phase": name, "dims": dict(p.graph.dims), "plan": _of_phase(e.plan, name)})
        for name, p in phases
        for e in p.deployment.entries
    }
    levels = sorted({e.level for e in decode.deployment.entries} & {e.level for e in prefill.deployment.entries})
    return tuple(made[level, name] for level in levels for name, _ in phases)


def _of_phase(plan: Plan, phase: str) -> Plan:
    """The plan, whose notes on levels name the phase."""
    return plan.model_copy(update={"notes": tuple(f"{phase}, {n}" if n.startswith("level ") else n for n in plan.notes)})


def _switches(prefill: Planned, decode: Planned) -> tuple[Switch, ...]:
    """From the prompt to the answer, and between the levels of each phase."""
    first, second = (Placed(p.graph, p.table, p.placement[1]) for p in (prefill, decode))
    out = [price_switch(("prefill", 0), ("decode", 0), first, second)]
    for name, p in _phases(prefill, decode):
        out += [s.model_copy(update={"before": (name, s.before[1]), "after": (name, s.after[1])}) for s in p.deployment.switches]
    return tuple(out)


def _both(
    model: Path, chip: SoC, asked: Language, dims: Mapping[str, int], plan_phase: PlanPhase, barred: Sequence[str] = ()
) -> tuple[Planned, Planned]:
    """Prefill and decode without the queues ``barred``; the last level's cores are those that suit the decode steps."""
    decode = _planned(model, chip, asked, dims, (1, asked.prompt + asked.generate - 1), plan_phase, barred)
    saver = next((t for e in decode.deployment.entries for t in e.queues.values()), None)
    return _planned(model, chip, asked, dims, (asked.prompt, 0), plan_phase, barred, saver), decode


def _planned(
    model: Path, chip: SoC, asked: Language, dims: Mapping[str, int], phase: tuple[int, int], plan_phase: PlanPhase,
    barred: Sequence[str] = (), saver: str | None = None,
) -> Planned:  # fmt: skip
    """The plan of ``phase`` (new tokens, and tokens before them) without the queues ``barred``; ``saver``: cores of the last level."""
    report: list[PassReport] = []
    graph = phase_graph(model, chip, asked, dims, *phase, report=report)
    return replace(plan_phase(graph, barred, saver), passes=tuple(report))
