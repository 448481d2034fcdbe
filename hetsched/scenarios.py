"""What a study hands to whoever simulates a scenario, and what comes back: plain data that crosses processes.

Studies (:mod:`hetsched.studies`) decide which scenarios there are and when each runs; :mod:`hetsched.app.scenario_runs` knows what a
scenario is. Neither imports the other: the command line hands a :class:`Subject` over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scenario, checked.

    ``inputs`` are its columns, defaults filled in. ``key`` names the scenario by everything that its result depends on (the content of
    its model and SoC files and the version of the cost parameters included), and ``plan_key`` the plan that it needs; both are
    hexadecimal digests, and ``plan_key`` is empty where nothing has to be planned.
    """

    inputs: Mapping[str, Scalar]
    key: str
    plan_key: str
    task: Mapping[str, Any] = field(default_factory=dict)
    """What the subject needs to run it; JSON."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantity over time: ``times_s`` ascending, one value each."""

    unit: str
    times_s: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """What a scenario gave: figures by column, curves by name. ``refused`` says why there are none."""

    figures: Mapping[str, Scalar]
    curves: Mapping[str, Curve] = field(default_factory=dict)
    refused: str = ""


class Subject(Protocol):
    """What a study varies and measures; an instance is sent to other processes."""

    def name(self, key: str) -> str:
        """The one name of an input, however it is written."""
        ...

    def prepare(self, inputs: Mapping[str, Any], folder: Path) -> Prepared:
        """Check a scenario; files are looked for in ``folder`` first, then in the current one.

        Raises:
            InputError: a key or a value is wrong; one sentence with both.
        """
        ...

    def plan(self, scenario: Prepared, path: Path) -> None:
        """Make the plan that a scenario needs and write it to ``path``, whole or not at all.

        Raises:
            HetschedError: it cannot be made; what :func:`refuses` accepts is a finding.
        """
        ...

    def measure(self, scenario: Prepared, path: Path, curves: bool) -> Findings:
        """Simulate a scenario with the plan at ``path``.

        Raises:
            HetschedError: as :meth:`plan`.
        """
        ...


def refuses(error: Exception) -> bool:
    """Whether an error is a finding (the model does not run there) rather than a mistake in the study."""
    from hetsched.errors import InfeasibleError, UnknownRuntimeError, UnsupportedModelError

    return isinstance(error, InfeasibleError | UnknownRuntimeError | UnsupportedModelError)
