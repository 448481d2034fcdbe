"""From whatever the user points at (a plan file, a model file, a :class:`Planned`) to a :class:`Planned`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hetsched import wrong_fields
from hetsched.app.inputs import soc as find_soc
from hetsched.app.inputs import targeted
from hetsched.app.language import asked_in, joined, loaded, predicted, rewritten
from hetsched.app.planned import Planned, priced
from hetsched.app.planning import plan
from hetsched.app.speculating import with_guesses
from hetsched.app.splitting import split
from hetsched.app.static_ranges import ranges_of_plan
from hetsched.errors import ModelError, OptionError, PlanError, SoCError
from hetsched.files import is_plan_file
from hetsched.graph import Graph
from hetsched.passes import PassReport
from hetsched.plan_rules import check_graph
from hetsched.plans import Deployment, Entry
from hetsched.socs import SoC


def open_session(target: str | Path | Graph | Planned, soc: str | Path | SoC | None = None, level: int = 0, **plan_options: Any) -> Planned:
    """A planned model: read back from a plan file, or planned now.

    Args:
        target: a plan file, a model file, a graph or a :class:`Planned`.
        soc: for a model: where to plan it (default ``host``). For a plan file: must be left out.
        level: of a plan file: the throttle level whose plan is wanted.
        plan_options: passed to :func:`hetsched.app.planning.plan` for a model.

    Raises:
        PlanError: the plan file is malformed, or its model or SoC is not the one it was made for.
    """
    if isinstance(target, Planned):
        return target
    if isinstance(target, Graph) or not is_plan_file(Path(target)):
        if level:
            raise OptionError(f"--level {level} belongs to a plan file made with 'plan --levels', and {target} is a model")
        return plan(target, "host" if soc is None else soc, **plan_options)
    if soc is not None:
        raise PlanError(f"{target} is already a plan for a SoC: leave --soc out, or give the model file instead")
    return read_plan(Path(target), level)


def read_plan(path: Path, level: int = 0) -> Planned:
    """Rebuild graph and cost table of a plan file, at one of the levels that it has plans for.

    Raises:
        PlanError: malformed, or the model or the SoC has changed since.
        OptionError: there is no plan for the level.
    """
    deployment = Deployment.from_file(path)
    _check_parameters(deployment, path)
    chip = soc_of_plan(deployment, path)
    there = sorted({e.level for e in deployment.entries})
    if level not in there:
        raise OptionError(f"{path} has no plan for level {level}: it has {', '.join(map(str, there))} (make more with 'plan --levels')")
    phases = [_entry(deployment, k, chip, path) for k, e in enumerate(deployment.entries) if e.level == level]
    if len(phases) == 1:
        return phases[0]
    names = [p.deployment.entries[p.entry].phase for p in phases]
    if names not in (["prefill", "decode"], ["prefill", "decode", "verify"], ["prefill", "decode", "verify", "draft"]):
        raise PlanError(f"{path} has the phases {', '.join(names)} and not prefill and decode: make the plan again")
    whole = joined(deployment, phases, level)
    if level == 0 or deployment.language is None:
        return whole
    figures = deployment.language.model_copy(update={"prediction": predicted(whole)})
    whole = joined(deployment.model_copy(update={"language": figures}), phases, level)
    return joined(deployment.model_copy(update={"language": with_guesses(whole)}), phases, level)


def _entry(deployment: Deployment, index: int, chip: SoC, path: Path) -> Planned:
    """One entry of a plan file with its graph and its cost table."""
    passes: list[PassReport] = []
    entry = deployment.entries[index]
    graph = targeted(_model_of(deployment, entry, path, passes), chip, passes)
    graph, ranges = ranges_of_plan(graph, deployment, entry, path, passes)
    try:
        whole = rewritten(graph, deployment.language and asked_in(deployment.language, entry.phase))
        graph = split(whole, entry.splits)
    except OptionError as e:
        raise PlanError(f"the plan {path} does not fit its model: {e}") from e
    uncut = sorted(entry.splits.keys() & {op.name for op in graph.ops} | entry.splits.keys() - {op.name for op in whole.ops})
    if uncut:
        raise PlanError(f"the plan {path} cuts {uncut[0]!r}, which the model does not have or which cannot be cut there: make it again")
    check_graph(entry.plan, graph)
    try:
        chip.narrowed(entry.queues)
    except SoCError as e:
        raise PlanError(f"the plan {path} does not fit its SoC: {e}; make the plan again") from e
    table = priced(graph, chip, deployment, index)
    return Planned(deployment, graph, chip, table, 0.0, path, tuple(passes), ranges, index)


def _check_parameters(deployment: Deployment, path: Path) -> None:
    """Refuse a plan whose cost parameters are not this version's."""
    from hetsched_cost_models import parameter_version

    if deployment.parameters != parameter_version():
        raise PlanError(f"{path} was priced with other cost parameters ({deployment.parameters!r}): make the plan again")


def _model_of(deployment: Deployment, entry: Entry, path: Path, passes: list[PassReport]) -> Graph:
    """The model of an entry, which for a draft may be a smaller one."""
    asked, ref, dims = deployment.language, deployment.model, entry.dims or deployment.model.dims
    where, sha256 = path.parent / ref.path, ref.sha256
    if entry.phase == "draft" and asked is not None and asked.speculation is not None and asked.speculation.draft:
        where, sha256 = path.parent / asked.speculation.draft, asked.speculation.guesser.removeprefix("model:")
    if not where.is_file():
        raise PlanError(f"the model of {path} is not at {where}: keep plan and model together, or make the plan again")
    try:
        graph = loaded(where, asked, dims, entry.phase, passes)
    except (ModelError, OptionError) as e:
        raise PlanError(f"the model of {path} cannot be loaded: {e}") from e
    if graph.sha256 != sha256:
        raise PlanError(f"the model {where} has changed since {path} was made: make the plan again with 'hetsched plan'")
    return graph


def soc_of_plan(deployment: Deployment, path: Path) -> SoC:
    """The SoC that a plan file was made for.

    Raises:
        PlanError: it has changed since, or what the file says of it is malformed.
    """
    from pydantic import ValidationError

    from hetsched.soc_files import soc_sha256

    ref = deployment.soc
    if ref.spec is not None:
        try:
            chip = SoC.model_validate(ref.spec)
        except ValidationError as e:
            raise PlanError(f"the SoC inside {path} is malformed: {wrong_fields.fault(e, SoC, ref.spec)}; make the plan again") from e
    else:
        chip = find_soc(ref.id, ref.overrides)
    if soc_sha256(chip) != ref.sha256:
        raise PlanError(f"the SoC file of {ref.id} has changed since {path} was made: make the plan again with 'hetsched plan'")
    return chip
