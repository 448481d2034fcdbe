"""Planning a prompt and its answer: all phases, together within a memory limit, and what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from hetsched.app.language import PHASE_DIMS, PlannedLanguage, joined, phase_graph, predicted
from hetsched.app.levels import price_switch
from hetsched.app.planned import Planned
from hetsched.app.speculating import LOOKUP, with_best_length, with_guesses
from hetsched.errors import InfeasibleError, OptionError
from hetsched.graph import Graph
from hetsched.partition.switching import Placed
from hetsched.passes import PassReport
from hetsched.plan_language import Language
from hetsched.plans import Entry, Phase, Plan, Switch
from hetsched.sizes import size
from hetsched.socs import SoC

#: Plans one graph with the user's options, without the named queues, with these cores at the last level (None: chosen for it).
PlanPhase = Callable[[Graph, Sequence[str], str | None], Planned]
#: The plans of all phases by name, in the order of a plan file.
Phases = dict[Phase, Planned]


def plan_language(
    model: Path, chip: SoC, asked: Language, dims: Mapping[str, int], plan_phase: PlanPhase, memory_limit_bytes: int | None,
    best_length: bool = False,
) -> PlannedLanguage:  # fmt: skip
    """Plan all phases and price the answer.

    Where the phases together exceed the memory limit, because they hold weights on different processors, both are planned on the
    same smaller sets of queues, and the fastest of those that fit are taken.

    Args:
        model: the model file.
        chip: the SoC.
        asked: with a prompt and an answer.
        dims: other dims of the model (``batch``).
        plan_phase: plans one graph with the user's options.
        memory_limit_bytes: no phase may exceed it, nor all together.
        best_length: guess as many tokens at once as are fastest, of those that ``asked`` has at most.

    Raises:
        OptionError: ``dims`` name the tokens, or the model has no phases.
        InfeasibleError: the weights as the phases hold them exceed the limit.
    """
    fixed = next((d for d in dims if d in PHASE_DIMS), None)
    if fixed is not None:
        raise OptionError(f"--dim {fixed} and --prompt both say which tokens are computed: leave one out")
    if asked.speculation is not None and dims.get("batch", 1) != 1:
        raise OptionError(f"--dim batch={dims['batch']}: sequences accept different guesses; plan one with --speculate")
    best = _together(asked, dims, _computed(model, chip, asked, dims, plan_phase))
    if best_length:
        asked = with_best_length(best)
        best = _together(asked, dims, _computed(model, chip, asked, dims, plan_phase))
    if memory_limit_bytes is not None and best.prediction.peak_memory_bytes > memory_limit_bytes:
        return _within(best, model, dims, plan_phase, memory_limit_bytes)
    return best


def _computed(model: Path, chip: SoC, asked: Language, dims: Mapping[str, int], plan_phase: PlanPhase) -> Phases:
    """All phases; where a session computes them, on one team of cores: that on which prompt and answer are fastest.

    Raises:
        InfeasibleError: what is forced or forbidden leaves no team on which everything runs.
    """
    phases = _all(model, chip, asked, dims, plan_phase)
    used = dict.fromkeys(placed.queue for p in phases.values() for placed in p.plan.placements)
    if asked.steps is None or len(used) == 1:
        return phases
    alone: list[Phases] = []
    for queue in used:
        with suppress(InfeasibleError):
            alone.append(_all(model, chip, asked, dims, plan_phase, [q.name for q in phases["decode"].table.queues if q.name != queue]))
    if not alone:
        raise InfeasibleError(
            f"text of {phases['decode'].graph.name!r} is generated on one queue of this machine, and {', '.join(used)} are forced on some "
            "operators: force all on one, or none"
        )

    def seconds(made: Phases) -> float:
        prompt, token = (made[name].plan.prediction.latency_s for name in ("prefill", "decode"))
        return prompt + asked.generate * token

    return min(alone, key=seconds)


def _within(best: PlannedLanguage, model: Path, dims: Mapping[str, int], plan_phase: PlanPhase, limit: int) -> PlannedLanguage:
    """The fastest prompt and answer whose phases share a smaller set of queues and fit into the limit.

    Raises:
        InfeasibleError: none fits.
    """
    asked, chip, least = best.asked.model_copy(update={"prediction": None}), best.soc, best.prediction.peak_memory_bytes
    names = [q.name for q in best.table.queues]
    fitting: list[PlannedLanguage] = []
    for count in range(len(names) - 1, 0, -1):
        for allowed in combinations(names, count if asked.steps is None else 1):
            barred = [n for n in names if n not in allowed]
            try:
                phases = _all(model, chip, asked, dims, plan_phase, barred)
            except InfeasibleError:
                continue
            found = _together(asked, dims, phases)
            least = min(least, found.prediction.peak_memory_bytes)
            if found.prediction.peak_memory_bytes <= limit:
                fitting.append(found)
    if not fitting:
        raise InfeasibleError(
            f"prefill and decode of {best.graph.name!r} hold {size(best.prediction.peak_memory_bytes, 6)} together, more than the limit of "
            f"{size(limit, 6)}, and on the same processors {size(least, 6)} at least: raise it, or use a smaller model or precision"
        )
    return min(fitting, key=lambda p: p.prediction.ttft_s + asked.generate / p.prediction.decode_rate)


def _together(asked: Language, dims: Mapping[str, int], phases: Phases) -> PlannedLanguage:
    """The phases as one deployment, with their figures."""
    decode, every = phases["decode"], list(phases.values())
    deployment = decode.deployment.model_copy(
        update={
            "entries": _entries(phases), "switches": _switches(phases), "language": asked,
            "model": decode.deployment.model.model_copy(update={"dims": dict(dims)}),
        }
    )  # fmt: skip
    whole = joined(deployment, every)
    said = [*whole.between.sentences(), *_steady(decode)]
    entries = [e if (e.phase, e.level) != ("prefill", 0) else _saying(e, said) for e in deployment.entries]
    whole = joined(deployment.model_copy(update={"language": asked.model_copy(update={"prediction": predicted(whole)})}), every)
    update = {"language": with_guesses(whole), "entries": tuple(entries)}
    return joined(deployment.model_copy(update=update), every)


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


def _entries(phases: Phases) -> tuple[Entry, ...]:
    """The entries of all phases, level by level; a level that one of them lacks is left out."""
    made = {
        (e.level, name): e.model_copy(update={"phase": name, "dims": dict(p.graph.dims), "plan": _of_phase(e.plan, name)})
        for name, p in phases.items()
        for e in p.deployment.entries
    }
    levels = sorted(set.intersection(*({e.level for e in p.deployment.entries} for p in phases.values())))
    return tuple(made[level, name] for level in levels for name in phases)


def _of_phase(plan: Plan, phase: str) -> Plan:
    """The plan, whose notes on levels name the phase."""
    return plan.model_copy(update={"notes": tuple(f"{phase}, {n}" if n.startswith("level ") else n for n in plan.notes)})


def _switches(phases: Phases) -> tuple[Switch, ...]:
    """From the prompt to the answer, and between the levels of each phase."""
    first, second = (Placed(p.graph, p.table, p.placement[1]) for p in (phases["prefill"], phases["decode"]))
    out = [price_switch(("prefill", 0), ("decode", 0), first, second)]
    for name, p in phases.items():
        out += [s.model_copy(update={"before": (name, s.before[1]), "after": (name, s.after[1])}) for s in p.deployment.switches]
    return tuple(out)


def _all(
    model: Path, chip: SoC, asked: Language, dims: Mapping[str, int], plan_phase: PlanPhase, barred: Sequence[str] = ()
) -> Phases:  # fmt: skip
    """All phases without the queues ``barred``; the last level's cores are those that suit the decode steps.

    Guessed tokens are verified where the decode steps are computed, so that weights and caches stay there.
    """
    last = asked.prompt + asked.generate - 1
    decode = _planned(model, chip, asked, dims, ("decode", 1, last), plan_phase, barred)
    saver = next((t for e in decode.deployment.entries for t in e.queues.values()), None)
    out: Phases = {"prefill": _planned(model, chip, asked, dims, ("prefill", asked.prompt, 0), plan_phase, barred, saver), "decode": decode}
    if asked.speculation is not None:
        n, others = asked.speculation.length, _others(decode)
        out["verify"] = _planned(model, chip, asked, dims, ("verify", n + 1, last - n), plan_phase, others, saver)
        if asked.speculation.guesser != LOOKUP:
            own = Path(asked.speculation.draft) if asked.speculation.draft else model
            at = barred if asked.speculation.draft else others
            out["draft"] = _planned(own, chip, asked, dims, ("draft", 1, last), plan_phase, at, saver)
    return out


def _others(decode: Planned) -> list[str]:
    """The queues that a plan does not use at any level."""
    used = {p.queue for e in decode.deployment.entries for p in e.plan.placements}
    return [q.name for q in decode.table.queues if q.name not in used]


def _planned(
    model: Path, chip: SoC, asked: Language, dims: Mapping[str, int], phase: tuple[Phase, int, int], plan_phase: PlanPhase,
    barred: Sequence[str] = (), saver: str | None = None,
) -> Planned:  # fmt: skip
    """The plan of ``phase`` (name, new tokens, tokens before them) without the queues ``barred``; ``saver``: cores of the last level."""
    report: list[PassReport] = []
    name, tokens, past = phase
    graph = phase_graph(model, chip, asked, dims, tokens, past, report, name)
    return replace(plan_phase(graph, barred, saver), passes=tuple(report))
