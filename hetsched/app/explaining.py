"""The verbs *explain* and *diff*: why an operator is where it is, and what changed between two plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.app.language import PlannedLanguage
from hetsched.app.planned import Planned, priced
from hetsched.app.sessions import open_session
from hetsched.app.static_ranges import STATIC, is_float_model
from hetsched.costs import CostTable
from hetsched.errors import OptionError, PlanError
from hetsched.partition.causes import amount
from hetsched.plans import Deployment, Entry
from hetsched.soc_words import POWER_NOTE, power_basis

#: Types of ops of which ``explain`` says what would bring them elsewhere.
MOST = 3
#: Objectives that have longer names in sentences.
_LEAST = {"edp": "energy times delay"}

if TYPE_CHECKING:
    from hetsched.partition import Explanation, PlanDiff, PlanExplanation
    from hetsched.partition.losses import Spent


def explain(target: str | Path | Planned, op: str, phase: str | None = None, level: int = 0, **plan_options: Any) -> Explanation:
    """Why ``op`` is where it is, what each alternative would have cost, and what would have to change for it to be elsewhere.

    Args:
        target: a plan file, a model file or a plan.
        op: the name of an op or of one of the user's own nodes.
        phase: of a plan with several: ``prefill`` or ``decode`` (the default).
        level: of a plan file with throttle levels: which.
        **plan_options: of :func:`hetsched.app.sessions.open_session`, if ``target`` is a model.

    Raises:
        OptionError: no op or node has the name, or the plan has no such phase or level.
    """
    from hetsched.partition import explain as explain_op

    planned = _phase(target, phase, level, plan_options)
    found = explain_op(planned.plan, op, planned.table, _wider(planned), planned.closed)
    return replace(found, power_basis=power_basis(planned.soc), about=_others(planned))


def explain_plan(target: str | Path | Planned, phase: str | None = None, level: int = 0, **plan_options: Any) -> PlanExplanation:
    """Where the time of a plan goes, and what the vendor's default and the best single processor lose against it, and where.

    Args:
        target: a plan file, a model file or a plan.
        phase: of a plan with several: ``prefill`` or ``decode`` (the default).
        level: of a plan file with throttle levels: which.
        **plan_options: of :func:`hetsched.app.sessions.open_session`, if ``target`` is a model.

    Raises:
        OptionError: the plan has no such phase or level.
    """
    from hetsched.partition import explain_plan as explain_whole

    planned = _phase(target, phase, level, plan_options)
    return replace(explain_whole(planned.plan), most=_most(planned), about=(_which(planned), *_others(planned)))


def _which(planned: Planned) -> str:
    """A plan in a sentence: of what, where, which of its file, and how good."""
    entry = planned.deployment.entries[planned.entry]
    parts: list[str] = [] if entry.phase == "inference" else [entry.phase]
    parts += [f"level {entry.level}"] if entry.level else []
    p = entry.plan
    return (
        f"{planned.graph.name} on {planned.soc.name}{''.join(f', {x}' for x in parts)}: {amount(p.prediction.latency_s, 'latency')},"
        f" {amount(p.prediction.energy_j, 'energy')}, found by {p.solver} for least {_LEAST.get(p.objective, p.objective)}"
    )


def _others(planned: Planned) -> tuple[str, ...]:
    """How to see the other plans of the same file."""
    entries = planned.deployment.entries
    own = entries[planned.entry]
    phases = [e.phase for e in entries if e.level == own.level and e.phase != own.phase]
    levels = sorted({e.level for e in entries} - {own.level})
    said = [f"this is the {own.phase}; the {x} with --phase {x}" for x in phases]
    said += [f"levels {', '.join(map(str, levels))} with --level N"] if levels else []
    return (f"({'; '.join(said)})",) if said else ()


def _most(planned: Planned) -> tuple[Spent, ...]:
    """What the plan spends most on, each with what would bring the costliest op elsewhere."""
    from hetsched.partition import explain as explain_op
    from hetsched.partition.losses import spent

    wider = _wider(planned)
    found = spent(planned.plan)[:MOST]
    explained = (explain_op(planned.plan, some.ops[0], planned.table, wider, planned.closed) for some in found)
    return tuple(replace(some, changes=tuple(e.openings())) for some, e in zip(found, explained, strict=True))


def _phase(target: str | Path | Planned, phase: str | None, level: int, plan_options: Mapping[str, Any]) -> Planned:
    """The plan of one phase.

    Raises:
        OptionError: there is no such phase or level.
    """
    planned = open_session(target, level=level, **plan_options)
    if isinstance(planned, PlannedLanguage):
        return planned.phases[_known(phase or "decode", list(planned.phases))]
    if phase is not None:
        _known(phase, [planned.deployment.entries[planned.entry].phase])
    return planned


def _wider(planned: Planned) -> tuple[CostTable, CostTable] | None:
    """The plan's costs with float and 8-bit integers to choose from for every op, and in the one of them that the plan does not have.

    None where the plan is in neither.
    """
    deployment, entry = planned.deployment, planned.deployment.entries[planned.entry]
    precision = entry.precision or deployment.precision
    if precision not in ("auto", "float", STATIC):
        return None
    integers = precision == STATIC or (precision == "auto" and not is_float_model(planned.graph))

    def at(other: str) -> CostTable:
        entries = [e.model_copy(update={"precision": other}) for e in deployment.entries]
        return priced(planned.graph, planned.soc, deployment.model_copy(update={"entries": tuple(entries)}), planned.entry)

    return at("mixed"), at("float" if integers else STATIC)


def _known(phase: str, phases: Sequence[str]) -> str:
    if phase not in phases:
        raise OptionError(f"the plan has no phase {phase!r}: it has {', '.join(phases)}")
    return phase


def diff(a: str | Path | Deployment, b: str | Path | Deployment, phase: str | None = None) -> PlanDiff:
    """What changed between two plans of the same model.

    Args:
        a: the first plan or its file.
        b: the second one.
        phase: of plans with several: ``prefill`` or ``decode`` (the default).

    Raises:
        PlanError: a plan file is malformed, or the plans are of different models or have no phase in common.
        OptionError: a plan has no such phase.
    """
    from hetsched.partition import diff as diff_plans

    first, second = (x if isinstance(x, Deployment) else Deployment.from_file(Path(x)) for x in (a, b))
    if first.model.sha256 != second.model.sha256:
        raise PlanError(f"these are plans of different models ({first.model.path} and {second.model.path}): there is nothing to compare")
    wanted = phase or ("decode" if "decode" in (first.entries[-1].phase, second.entries[-1].phase) else first.entries[0].phase)
    found = diff_plans(_entry(first, wanted).plan, _entry(second, wanted).plan)
    return replace(found, notes=(*_anchored_apart(first, second), *_shared_basis(first, second)))


def _anchored_apart(a: Deployment, b: Deployment) -> tuple[str, ...]:
    """A sentence where another measurement corrects the one plan than the other, which moves latencies that the models do not."""
    if a.anchors == b.anchors:
        return ()
    one, other = ("nothing" if not d.anchors else ", ".join(f"{x.latency_s * 1e3:g} ms on {x.chip}" for x in d.anchors) for d in (a, b))
    return (f"the first plan is anchored to {one}, the second to {other}: part of the difference is theirs (plan with --no-anchor)",)


def _shared_basis(a: Deployment, b: Deployment) -> tuple[str, ...]:
    """What the plans say of their power figures."""
    notes = [n for d in (a, b) for e in d.entries for n in e.plan.notes if n.startswith(POWER_NOTE)]
    return tuple(dict.fromkeys(notes))


def _entry(deployment: Deployment, phase: str) -> Entry:
    names = [e.phase for e in deployment.entries]
    return deployment.entries[names.index(_known(phase, names))]  # type: ignore[arg-type]
