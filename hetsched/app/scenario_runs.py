"""What a scenario of a study is: checked, planned and simulated. The command line hands :class:`Simulations` to :mod:`hetsched.studies`."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import hetsched
from hetsched.app.inputs import soc as find_soc
from hetsched.app.levels import LEVELS
from hetsched.app.planned import Planned
from hetsched.app.planning import plan
from hetsched.app.scenario import Scenario
from hetsched.app.scenario_figures import findings
from hetsched.app.sessions import read_plan
from hetsched.app.simulating import simulate
from hetsched.errors import ModelError, OptionError
from hetsched.frontends.registry import FOLDER_FILES
from hetsched.policies import policy_named
from hetsched.scenarios import Findings, Prepared, Scalar
from hetsched.soc_files import soc_sha256
from hetsched.socs import HOST

#: Options of :func:`hetsched.plan` that a scenario may have; ``set`` is ``overrides`` there.
PLAN_OPTIONS = (
    "objective", "precision", "runtime", "solver", "dims", "ranges", "time_limit_s", "memory_limit_bytes", "forced", "forbidden",
    "prompt", "generate", "kv", "experts", "sampling", "splits", "set",
)  # fmt: skip
#: Keys of a scenario that are neither plan options nor fields of :class:`Scenario`.
OWN = ("model", "soc", "policy", "level", "variant")
#: Options whose values are mappings, and so may be one level of dotted keys.
MAPPINGS = ("dims", "forced", "forbidden", "set")
#: Inputs that name a file; a ``case`` does where it ends so.
FILES = ("ranges", "experts", "workload")
YAML = (".yaml", ".yml")
#: Files beyond it are known by their beginning and their size, as readers of weights know them.
WHOLE_BYTES = 1 << 28
#: Plans that a process keeps open.
OPEN = 8


@dataclass(frozen=True, slots=True)
class Simulations:
    """The subject of ``hetsched study``: plans of models, simulated (:class:`hetsched.scenarios.Subject`)."""

    def prepare(self, inputs: Mapping[str, Any], folder: Path) -> Prepared:
        """Check a scenario.

        Args:
            inputs: values by key, nested ones dotted; keys are those of :data:`OWN`, :data:`PLAN_OPTIONS` and :class:`Scenario`.
            folder: where models and other files are looked for first.

        Raises:
            InputError: a key or a value makes no sense.
        """
        from hetsched_simulations.surroundings import surroundings

        own, options, scenario = _sorted(inputs)
        for group in (options, scenario):
            group |= {k: str(_found(v, folder, f"{k} file")) for k, v in group.items() if _names_file(k, v)}
        at, model, policy, level = Scenario.of(scenario), _found(str(own["model"]), folder, "model file"), *_policy(own)
        surroundings(at.case, at.ambient_c)
        soc = str(own.get("soc", HOST))
        chip = str(_found(soc, folder, "SoC file")) if soc.endswith(YAML) else soc
        what_if = options.pop("set", {})
        overrides = {k: str(v) for k, v in what_if.items()}
        fixed = {**options, "overrides": overrides, "levels": policy != "static" or level > 0}
        plan_key = _digest({
            "model": _content(model), "soc": _soc_digest(chip, tuple(sorted(overrides.items()))), "options": _with_contents(fixed),
            "versions": _versions(),
        })  # fmt: skip
        fields = at.model_dump(mode="json")
        columns = {
            "model": model.stem if model.is_file() else model.name, "soc": Path(chip).stem, "policy": policy,
            **({"variant": own["variant"]} if "variant" in own else {}), **({"level": level} if level else {}),
            **_columns({**options, "set": what_if}), **_columns(fields),
        }  # fmt: skip
        task = {"model": str(model), "soc": chip, "policy": policy, "level": level, "plan": fixed, "scenario": fields}
        key = _digest({"plan": plan_key, "columns": columns, "scenario": _with_contents(fields)})
        return Prepared(columns, key, plan_key, task)

    def plan(self, scenario: Prepared, path: Path) -> None:
        """Plan the scenario's model.

        Raises:
            HetschedError: as :func:`hetsched.plan`.
        """
        task = scenario.task
        plan(task["model"], task["soc"], **task["plan"]).save(path)

    def measure(self, scenario: Prepared, path: Path, curves: bool) -> Findings:
        """Simulate the scenario.

        Raises:
            HetschedError: as :func:`hetsched.simulate`.
        """
        task = scenario.task
        at = Scenario.of(task["scenario"])
        return findings(simulate(of_plan(path, task["level"]), scenario=at, policy=task["policy"]), at.period_s, curves)


@lru_cache(OPEN)
def of_plan(path: Path, level: int) -> Planned:
    """A plan file, opened once a process."""
    return read_plan(path, level)


def _sorted(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The inputs by whom they concern: the study, the plan, the simulation.

    Raises:
        OptionError: a key that none of them has, or no model.
    """
    own: dict[str, Any] = {}
    options: dict[str, Any] = {}
    scenario: dict[str, Any] = {}
    for key, value in inputs.items():
        if not _is_plain(value):
            raise OptionError(f"{key} = {value!r}: it must be text, a finite number, true, false, or a list of such")
        head, _, rest = key.partition(".")
        if key in OWN:
            own[key] = value
        elif head in PLAN_OPTIONS:
            _put(options, key, head, rest, value, head in MAPPINGS)
        elif _of_scenario(head):
            _put(scenario, key, head, rest, value, mapping=bool(rest))
        else:
            known = (*OWN, *PLAN_OPTIONS, *Scenario.model_fields, "rate")
            near = get_close_matches(head, known, n=1, cutoff=0.6)
            instead = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(known)}"
            raise OptionError(f"{key} = {value!r}: no scenario has {head!r}; {instead}")
    if not isinstance(own.get("model"), str):
        raise OptionError("the scenarios have no model: write 'model: FILE' under 'base', or list models in the grid")
    if not isinstance(own.get("variant", ""), str):
        raise OptionError(f"variant = {own['variant']!r}: it is the name of one of the variants; list their inputs under 'variants'")
    return own, options, scenario


def _is_plain(value: Any) -> bool:
    """Whether a value is what JSON has. YAML has more: dates, bytes, sets, infinities."""
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _of_scenario(name: str) -> bool:
    """Whether a name means a field of :class:`Scenario`, as :meth:`Scenario.of` reads it."""
    return name == "rate" or any(f in Scenario.model_fields for f in (name, f"{name}_s", f"{name}_c", f"{name}_w"))


def _put(group: dict[str, Any], key: str, head: str, rest: str, value: Any, mapping: bool) -> None:
    if not mapping and rest:
        raise OptionError(f"{key} = {value!r}: {head!r} has no parts, write {head}: ...")
    if mapping and not rest:
        raise OptionError(f"{key} = {value!r}: {head!r} needs parts, such as {head}: {{NAME: VALUE}}")
    if rest:
        group.setdefault(head, {})[rest] = value
    else:
        group[head] = value


def _policy(own: Mapping[str, Any]) -> tuple[str, int]:
    """The policy, and the level at which a run begins.

    Raises:
        OptionError: there is no such policy or level.
    """
    policy, level = str(own.get("policy", "static")), own.get("level", 0)
    policy_named(policy)
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= LEVELS[-1]:
        raise OptionError(f"level = {level!r}: a throttle level is {', '.join(map(str, (0, *LEVELS)))}")
    return policy, level


def _names_file(key: str, value: Any) -> bool:
    """Whether an input names a file."""
    return isinstance(value, str) and value != "uniform" and (key in FILES or (key == "case" and value.endswith(YAML)))


def _found(name: str, folder: Path, what: str) -> Path:
    """A file (or a model that is a folder) in the study's folder, or in the current one.

    Raises:
        ModelError: in neither.
    """
    for path in (folder / name, Path(name)):
        if path.is_file() or (path.is_dir() and any((path / known).is_file() for known in FOLDER_FILES)):
            return path.resolve()
        if path.exists():
            raise ModelError(f"the {what} {name!r} is neither a plain file nor a folder with {' or '.join(FOLDER_FILES)}: name another one")
    raise ModelError(f"there is no {what} {name!r}, neither beside the study file nor here: give its path as seen from one of them")


def _columns(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Values that a table can hold; parts of mappings have dotted names."""
    out: dict[str, Scalar] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            out |= {f"{name}.{k}": v for k, v in _columns(value).items()}
        else:
            out[name] = value if value is None or isinstance(value, str | int | float) else json.dumps(value)
    return out


def _with_contents(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with the content of a file in place of its path."""
    return {k: _content(Path(v)) if _names_file(k, v) else v for k, v in values.items()}


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


@lru_cache(1024)
def _soc_digest(name: str, overrides: tuple[tuple[str, str], ...]) -> str:
    return soc_sha256(find_soc(name, dict(overrides)))


@cache
def _versions() -> list[str]:
    from hetsched_cost_models import parameter_version

    return [hetsched.__version__, parameter_version()]
