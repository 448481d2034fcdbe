"""What a worker does: a batch of scenarios, each claimed, planned if needed, simulated and recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hetsched.errors import HetschedError, OptionError, PlanError
from hetsched.scenarios import Findings, Prepared, Subject, refuses
from hetsched.studies.folder import MARK, Folder


@dataclass(frozen=True, slots=True)
class Batch:
    """Scenarios that share a plan, and where they belong."""

    folder: Path
    scenarios: tuple[Prepared, ...]
    curves: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """A scenario that could not be simulated, in a sentence, and the exit code that it asks for."""

    key: str
    message: str
    exit_code: int


def work(subject: Subject, batch: Batch) -> tuple[Failure, ...]:
    """Run a batch; returns what failed. A scenario that has a record by now is left alone.

    Raises:
        OptionError: this machine does not see the study's folder.
    """
    folder = Folder(batch.folder)
    if not (batch.folder / MARK).is_file():
        raise OptionError(f"a worker does not see {batch.folder}: it needs the study's folder and the models at the same paths as here")
    failures = []
    for scenario in batch.scenarios:
        with folder.claimed(scenario.key):
            if folder.record(scenario.key).is_file():
                continue
            try:
                found = _measured(subject, folder, scenario, batch.curves)
            except HetschedError as e:
                failures.append(Failure(scenario.key, str(e), e.exit_code))
                continue
            folder.write(scenario, found)
    return tuple(failures)


def _measured(subject: Subject, folder: Folder, scenario: Prepared, curves: bool) -> Findings:
    """What a scenario gives; a refusal is a finding.

    Raises:
        HetschedError: a mistake in the study, or a failure.
    """
    plan = folder.plan(scenario.plan_key)
    try:
        if scenario.plan_key and not plan.is_file():
            with folder.claimed(scenario.plan_key):
                if not plan.is_file():
                    subject.plan(scenario, plan)
        return subject.measure(scenario, plan, curves)
    except PlanError as e:
        if str(plan) not in str(e):
            raise
        raise OptionError(f"the plan {plan} of this study is damaged or of another version: remove it, and run the study again") from e
    except HetschedError as e:
        if not refuses(e):
            raise
        return Findings({}, refused=str(e))
