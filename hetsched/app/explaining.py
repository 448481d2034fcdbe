"""The verbs *explain* and *diff*: why an operator is where it is, and what changed between two plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.app.planning import Planned
from hetsched.app.sessions import open_session
from hetsched.errors import PlanError
from hetsched.plans import Deployment

if TYPE_CHECKING:
    from hetsched.partition import Explanation, PlanDiff


def explain(target: str | Path | Planned, op: str) -> Explanation:
    """Why ``op`` (an op or one of the user's own nodes) is where it is, and what each alternative would have cost.

    Raises:
        OptionError: no op or node has the name.
    """
    from hetsched.partition import explain as explain_op

    planned = open_session(target)
    return explain_op(planned.plan, op, table=planned.table)


def diff(a: str | Path | Deployment, b: str | Path | Deployment) -> PlanDiff:
    """What changed between two plans of the same model.

    Raises:
        PlanError: a plan file is malformed, or the plans are of different models.
    """
    from hetsched.partition import diff as diff_plans

    first, second = (x if isinstance(x, Deployment) else Deployment.from_file(Path(x)) for x in (a, b))
    if first.model.sha256 != second.model.sha256:
        raise PlanError(f"these are plans of different models ({first.model.path} and {second.model.path}): there is nothing to compare")
    return diff_plans(first.entries[0].plan, second.entries[0].plan)
