"""What a scenario of a study is: checked, planned and simulated. The command line hands :class:`Simulations` to :mod:`hetsched.studies`."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import hetsched
from hetsched.app.inputs import soc as find_soc
from hetsched.app.planned import Planned
from hetsched.app.planning import plan
from hetsched.app.scenario import Scenario
from hetsched.app.scenario_figures import findings, findings_together
from hetsched.app.scenario_inputs import (
    LISTED,
    YAML,
    Inputs,
    columns_of,
    found_file,
    name_of,
    names_file,
    policy_of,
    sorted_inputs,
)
from hetsched.app.sessions import read_plan, soc_of_plan
from hetsched.app.sharing import asked_of_each, shared_duration_s, simulate_together, talker_of
from hetsched.app.simulating import simulate
from hetsched.app.workload_files import read_workload
from hetsched.errors import OptionError
from hetsched.plans import Deployment
from hetsched.policies import policy_named
from hetsched.scenarios import Findings, Prepared, Scalar
from hetsched.soc_files import soc_sha256
from hetsched.socs import HOST, SoC

#: Files beyond it are known by their beginning and their size, as readers of weights know them.
WHOLE_BYTES = 1 << 28
#: Plans that a process keeps open.
OPEN = 8


@dataclass(frozen=True, slots=True)
class Simulations:
    """The subject of ``hetsched study``: plans of models, simulated (:class:`hetsched.scenarios.Subject`)."""

    def name(self, key: str) -> str:
        """The one name of an input."""
        return name_of(key)

    def prepare(self, inputs: Mapping[str, Any], folder: Path) -> Prepared:
        """Check a scenario.

        Args:
            inputs: values by key, nested ones dotted; keys are those of :mod:`hetsched.app.scenario_inputs` and :class:`Scenario`.
            folder: where models and other files are looked for first.

        Raises:
            InputError: a key or a value makes no sense.
        """
        given = sorted_inputs(inputs)
        for group in (given.options, given.scenario):
            group |= {k: str(found_file(v, folder, f"{k} file")) for k, v in group.items() if names_file(k, v)}
        return _planned_already(given, folder) if given.plans else _to_be_planned(given, folder)

    def plan(self, scenario: Prepared, path: Path) -> None:
        """Plan the scenario's model.

        Raises:
            HetschedError: as :func:`hetsched.plan`.
        """
        task = scenario.task
        if task["plans"]:
            raise OptionError(f"{', '.join(task['plans'])}: a plan file is not planned again; name the model and its options instead")
        plan(task["model"], task["soc"], **task["plan"]).save(path)

    def measure(self, scenario: Prepared, path: Path, curves: bool) -> Findings:
        """Simulate the scenario.

        Raises:
            HetschedError: as :func:`hetsched.simulate`.
        """
        task = scenario.task
        at, policy, level = Scenario.of(task["scenario"]), task["policy"], task["level"]
        if len(task["plans"]) > 1:
            plans = [of_plan(Path(p), level) for p in task["plans"]]
            return findings_together(simulate_together(plans, at, policy=policy, level=level, **task["asked"]), curves)
        planned = of_plan(Path(task["plans"][0]) if task["plans"] else path, level)
        return findings(simulate(planned, scenario=at, policy=policy), at.period_s, curves)


def _to_be_planned(given: Inputs, folder: Path) -> Prepared:
    """A scenario of a model."""
    own, options = given.own, given.options
    at, policy, level = Scenario.of(given.scenario), *policy_of(own)
    model, soc = found_file(str(own["model"]), folder, "model file"), str(own.get("soc", HOST))
    chip = str(found_file(soc, folder, "SoC file")) if soc.endswith(YAML) else soc
    what_if = options.pop("set", {})
    overrides = {k: str(v) for k, v in what_if.items()}
    described = _soc(chip, tuple(sorted(overrides.items())))
    _check_fits(at, described, _can_answer(model, options.get("prompt"), options.get("generate")), str(own["model"]))
    fixed = {**options, "overrides": overrides, "levels": policy != "static" or level > 0}
    plan_key = _digest({
        "model": _content(model), "soc": soc_sha256(described), "options": _with_contents(fixed), "versions": _versions(),
    })  # fmt: skip
    about = {"model": model.stem if model.is_file() else model.name, "soc": Path(chip).stem}
    task = {"model": str(model), "soc": chip, "plan": fixed, "plans": []}
    return _prepared(own, about, columns_of({**options, "set": what_if}), at, plan_key, {**task, "policy": policy, "level": level})


def _planned_already(given: Inputs, folder: Path) -> Prepared:
    """A scenario of plan files: one, or several that run at once."""
    own, several = given.own, len(given.plans) > 1
    listed = {k: given.scenario.pop(k, ()) for k in LISTED[:2]} | {"priority": own.pop("priority", ())} if several else {}
    at, policy, level = Scenario.of(given.scenario), *policy_of(own)
    files = [found_file(name, folder, "plan file") for name in given.plans]
    found = [_deployment(f, f.stat().st_mtime_ns) for f in files]
    answering = [d.language is not None and d.language.prompt > 0 for d in found]
    names = " and ".join(given.plans)
    _check_fits(at, soc_of_plan(found[0], files[0]), several or answering[0], names)
    if (policy != "static" or level) and any(len({e.level for e in d.entries}) < 2 for d in found):
        raise OptionError(f"plan = {names}: there is one level only, and the scenario has a policy or a level; plan with --levels")
    plans = [[_content(f), _content(f.parent / d.model.path)] for f, d in zip(files, found, strict=True)]
    about = {
        "plan": " + ".join(f.stem for f in files), "model": " + ".join(Path(d.model.path).stem for d in found), "soc": found[0].soc.id,
    }  # fmt: skip
    task: dict[str, Any] = {"model": "", "soc": "", "plan": {}, "plans": [str(f) for f in files], "policy": policy, "level": level}
    if several:
        task["asked"] = _asked(listed)
        _check_together(at, found, answering, task["asked"])
    return _prepared(own, about, columns_of(listed), at, "", task, plans)


def _prepared(
    own: Mapping[str, Any], about: Mapping[str, Scalar], options: Mapping[str, Scalar], at: Scenario, plan_key: str, task: dict[str, Any],
    plans: object = None,
) -> Prepared:  # fmt: skip
    policy, level, fields = task["policy"], task["level"], at.model_dump(mode="json")
    columns = {
        **about, "policy": policy, **({"variant": own["variant"]} if "variant" in own else {}), **({"level": level} if level else {}),
        **options, **{k: v for k, v in columns_of(fields).items() if k not in options},
    }  # fmt: skip
    key = _digest({
        "plan": plan_key or [plans, _versions()], "columns": columns, "scenario": _with_contents(fields), "policy": _policy_content(policy),
    })  # fmt: skip
    return Prepared(columns, key, plan_key, {**task, "scenario": fields})


def _asked(listed: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What is asked of each of several plans.

    Raises:
        OptionError: a value is no list, or none of numbers.
    """
    values = {k: list(v) if isinstance(v, list | tuple) else [v] for k, v in listed.items()}
    for key in ("rate", "priority"):
        wrong = next((v for v in values[key] if isinstance(v, bool) or not isinstance(v, int | float)), None)
        if wrong is not None:
            raise OptionError(f"{key} = {listed[key]!r}: it must be a list of numbers, one a plan")
    deadlines = [Scenario.of({"deadline_s": v}).deadline_s for v in values["deadline_s"]]
    return {"rates": values["rate"], "deadlines_s": deadlines, "priorities": values["priority"]}


def _check_together(at: Scenario, found: Sequence[Deployment], answering: Sequence[bool], asked: Mapping[str, list[Any]]) -> None:
    """Refuse plans that cannot run at once before anything runs.

    Raises:
        OptionError: they are for several SoCs, or what is asked of them does not fit.
    """
    shared_duration_s(at)
    asked_of_each(len(found), talker_of(answering, at), asked["rates"], asked["deadlines_s"], asked["priorities"])
    socs = list(dict.fromkeys(d.soc.sha256 for d in found))
    if len(socs) > 1:
        raise OptionError(f"plans for {' and '.join(dict.fromkeys(d.soc.id for d in found))} cannot run at once: plan for one SoC")


def _check_fits(at: Scenario, soc: SoC, answers: bool, subject: str) -> None:
    """Refuse what the device or the model cannot do before anything runs.

    Raises:
        OptionError: a case or a cable for a device that has none, or a chat with a model that does not answer.
    """
    from hetsched_simulations.battery import stored
    from hetsched_simulations.surroundings import surroundings

    surroundings(at.case, at.ambient_c, soc)
    stored(soc, at.battery, at.charging_w)
    asks = at.workload is not None and any(a.prompt is not None or a.generate is not None for a in read_workload(at.workload))
    if (at.chat is not None or asks) and not answers:
        what = "chat" if at.chat is not None else f"workload = {at.workload}"
        raise OptionError(f"{what}: {subject} has no prompt and answer to chat with; plan a language model with 'prompt' and 'generate'")


def _can_answer(model: Path, prompt: int | None, generate: int | None) -> bool:
    """Whether a prompt and its answer are planned, of a model that has such phases.

    Raises:
        OptionError: they are asked for, and the model has none.
    """
    if prompt is None or generate is None:
        return False
    _check_phases(model)
    return True


@lru_cache(64)
def _check_phases(model: Path) -> None:
    from hetsched import frontends

    frontends.phase_dims(model, 1, 0)


@lru_cache(OPEN)
def of_plan(path: Path, level: int) -> Planned:
    """A plan file, opened once a process."""
    return read_plan(path, level)


@lru_cache(64)
def _deployment(path: Path, changed_ns: int) -> Deployment:
    """What is in a plan file, as of its last change."""
    return Deployment.from_file(path)


@lru_cache(1024)
def _soc(name: str, overrides: tuple[tuple[str, str], ...]) -> SoC:
    return find_soc(name, dict(overrides))


def _policy_content(name: str) -> Any:
    """What a policy's decisions depend on: its options and, of a plug-in, its code."""
    policy = policy_named(name)
    module = sys.modules[type(policy).__module__]
    file = None if module.__name__.startswith("hetsched.") else getattr(module, "__file__", None)
    return [name, repr(policy) if file is None else _content(Path(file))]


def _with_contents(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with the content of a file in place of its path."""
    return {k: _content(Path(v)) if names_file(k, v) else v for k, v in values.items()}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _content(path: Path) -> str:
    """Digest of a file, or of all files of a folder."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return _digest([[f.name, _file_digest(f, f.stat().st_size, f.stat().st_mtime_ns)] for f in files])


@lru_cache(256)
def _file_digest(path: Path, size: int, changed_ns: int) -> str:
    """Digest of a file's content; size and time of change are those that it has now."""
    with path.open("rb") as file:
        if size > WHOLE_BYTES:
            return hashlib.sha256(file.read(WHOLE_BYTES) + size.to_bytes(8, "little")).hexdigest()
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _versions() -> list[str]:
    from hetsched_cost_models import parameter_version

    return [hetsched.__version__, parameter_version()]
