"""The inputs of a study's scenario: what they are called, whom they concern, and the files that they name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hetsched.app.levels import LEVELS
from hetsched.app.scenario import Scenario
from hetsched.errors import ModelError, OptionError
from hetsched.frontends.registry import FOLDER_FILES
from hetsched.policies import policy_named
from hetsched.scenarios import Scalar

#: Options of :func:`hetsched.plan` that a scenario may have; ``set`` is ``overrides`` there.
PLAN_OPTIONS = (
    "objective", "precision", "runtime", "solver", "dims", "ranges", "time_limit_s", "memory_limit_bytes", "forced", "forbidden",
    "prompt", "generate", "kv", "experts", "sampling", "speculate", "acceptance", "draft", "draft_layers", "splits", "set",
)  # fmt: skip
#: Keys of a scenario that are neither plan options nor fields of :class:`Scenario`.
OWN = ("model", "plan", "soc", "policy", "level", "variant", "priority")
#: Inputs that list a figure a plan where several plans run at once.
LISTED = ("rate", "deadline_s", "priority")
#: Options whose values are mappings, and so may be one level of dotted keys.
MAPPINGS = ("dims", "forced", "forbidden", "set")
#: Inputs that name a file; a ``case`` does where it ends so.
FILES = ("ranges", "experts", "acceptance", "draft", "workload")
YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Inputs:
    """The inputs by whom they concern: the study itself, the plan, the simulation."""

    own: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    scenario: dict[str, Any] = field(default_factory=dict)

    @property
    def plans(self) -> tuple[str, ...]:
        """Plan files, where they take the place of a model."""
        given = self.own.get("plan", ())
        return tuple(given) if isinstance(given, list | tuple) else (given,)


def name_of(key: str) -> str:
    """The one name of an input, which may be written without its unit: that of its column.

    Examples:
        >>> name_of("ambient"), name_of("ambient_c"), name_of("chat.prompt"), name_of("set.npu.int8_tops")
        ('ambient_c', 'ambient_c', 'chat.prompt', 'set.npu.int8_tops')
    """
    head, dot, rest = key.partition(".")
    return (head if head in (*OWN, *PLAN_OPTIONS) else Scenario.field_of(head)) + dot + rest


def sorted_inputs(inputs: Mapping[str, Any]) -> Inputs:
    """The inputs by whom they concern.

    Raises:
        OptionError: a key that nobody has, a value that JSON has not, or neither a model nor a plan.
    """
    found = Inputs()
    for key, value in inputs.items():
        if not _is_plain(value):
            raise OptionError(f"{key} = {value!r}: it must be text, a finite number, true, false, or a list of such")
        head, _, rest = name_of(key).partition(".")
        if head in OWN and not rest:
            found.own[head] = value
        elif head in PLAN_OPTIONS:
            _put(found.options, key, head, rest, value, head in MAPPINGS)
        elif head in Scenario.model_fields or head == "rate":
            _put(found.scenario, key, head, rest, value, mapping=bool(rest))
        else:
            known = (*OWN, *PLAN_OPTIONS, *Scenario.model_fields, "rate")
            near = get_close_matches(head, known, n=1, cutoff=0.6)
            instead = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(known)}"
            raise OptionError(f"{key} = {value!r}: no scenario has {head!r}; {instead}")
    _check_subject(found)
    return found


def _check_subject(found: Inputs) -> None:
    """Whether it is told what is simulated.

    Raises:
        OptionError: it is not, or twice.
    """
    own = found.own
    if "plan" in own:
        if not found.plans or not all(isinstance(p, str) for p in found.plans):
            raise OptionError(f"plan = {own['plan']!r}: it is a plan file, or a list of plan files that run at once")
        told = next((k for k in ("model", "soc") if k in own), next(iter(found.options), None))
        if told is not None:
            raise OptionError(f"plan = {own['plan']!r}: a plan file has its model, its SoC and its options; leave {told!r} out")
    elif not isinstance(own.get("model"), str):
        raise OptionError(
            "the scenarios have no model: write 'model: FILE' (or 'plan: FILE') under 'base', or list models in the grid"
            if own.get("model") is None
            else f"model = {own['model']!r}: it is a file or a folder; several models at once are told as plan files, 'plan: [A, B]'"
        )
    if "priority" in own and len(found.plans) < 2:
        raise OptionError(f"priority = {own['priority']!r}: it is of plans that run at once; list them under 'plan'")
    if not isinstance(own.get("variant", ""), str):
        raise OptionError(f"variant = {own['variant']!r}: it is the name of one of the variants; list their inputs under 'variants'")


def _is_plain(value: Any) -> bool:
    """Whether a value is what JSON has. YAML has more: dates, bytes, sets, infinities."""
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _put(group: dict[str, Any], key: str, head: str, rest: str, value: Any, mapping: bool) -> None:
    if not mapping and rest:
        raise OptionError(f"{key} = {value!r}: {head!r} has no parts, write {head}: ...")
    if mapping and not rest:
        raise OptionError(f"{key} = {value!r}: {head!r} needs parts, such as {head}: {{NAME: VALUE}}")
    if rest:
        group.setdefault(head, {})[rest] = value
    else:
        group[head] = value


def policy_of(own: Mapping[str, Any]) -> tuple[str, int]:
    """The policy, and the level at which a run begins.

    Raises:
        OptionError: there is no such policy or level.
    """
    policy, level = str(own.get("policy", "static")), own.get("level", 0)
    policy_named(policy)
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= LEVELS[-1]:
        raise OptionError(f"level = {level!r}: a throttle level is {', '.join(map(str, (0, *LEVELS)))}")
    return policy, level


def names_file(key: str, value: Any) -> bool:
    """Whether an input names a file."""
    return isinstance(value, str) and value != "uniform" and (key in FILES or (key == "case" and value.endswith(YAML)))


def found_file(name: str, folder: Path, what: str) -> Path:
    """A file (or a model that is a folder) in the study's folder, or in the current one.

    Raises:
        ModelError: in neither.
    """
    for path in (folder / name, Path(name)):
        if path.is_file() or (path.is_dir() and any((path / known).is_file() for known in FOLDER_FILES)):
            return path.resolve()
        if path.exists():
            raise ModelError(f"the {what} {name!r} is neither a plain file nor a folder with {' or '.join(FOLDER_FILES)}: name another one")
    raise ModelError(f"there is no {what} {name!r}, neither beside the file that names it nor here: give its path as seen from one of them")


def columns_of(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Values that a table can hold; parts of mappings have dotted names."""
    out: dict[str, Scalar] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            out |= {f"{name}.{k}": v for k, v in columns_of(value).items()}
        else:
            out[name] = value if value is None or isinstance(value, str | int | float) else json.dumps(value)
    return out
