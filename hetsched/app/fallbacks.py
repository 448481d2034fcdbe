"""What a run may do after a failure: nothing, compute the failed segments on the CPU, or plan again without the processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetsched.errors import HetschedError, InfeasibleError, OptionError
from hetsched.trace import Instant, Trace

if TYPE_CHECKING:
    from hetsched.app.planned import Planned
    from hetsched.app.running import Ran
    from hetsched.runtime.assignment import Chosen, Moved
    from hetsched.runtime.fallback import Fallback

#: None of them is silent.
POLICIES = ("none", "cpu", "next-best")


def check_policy(policy: str) -> None:
    """Raises :class:`OptionError` for a policy that there is not."""
    if policy not in POLICIES:
        raise OptionError(f"--fallback {policy}: use one of {', '.join(POLICIES)}")


def run_with_fallback(
    policy: str, planned: Planned, chosen: Chosen, attempt: Callable[[Planned, Mapping[str, Moved]], Ran]
) -> Ran:  # fmt: skip
    """Run a plan, and again after what the policy does about a failure, until it ran or nothing is left to do.

    Args:
        policy: one of :data:`POLICIES`.
        planned: what to run.
        chosen: the delegates that the user named.
        attempt: runs a plan, some of its ops moved to other delegates; its errors name the segments that failed.

    Raises:
        HetschedError: what the last attempt failed with.
    """
    from hetsched.runtime.fallback import CpuFallback

    happened: list[Fallback] = []
    cpu = CpuFallback(planned.graph, planned.plan, chosen)
    barred: list[str] = []
    while True:
        try:
            ran = attempt(planned, cpu.moved)
        except HetschedError as e:
            if happened and not e.segments:
                raise type(e)(f"{happened[-1]}; then: {e}") from e
            if policy == "none" or not e.segments:
                raise
            if policy == "cpu":
                happened.extend(cpu.move(e))
            else:
                planned, fallback = _next_best(planned, e, barred)
                happened.append(fallback)
            continue
        return _told(ran, policy, tuple(happened))


def _told(ran: Ran, policy: str, happened: tuple[Fallback, ...]) -> Ran:
    """The run, which says what happened: in its summary, its notes and its trace."""
    if not happened:
        return replace(ran, fallback=policy)
    notes = [f"fallback ({policy}): {f}" for f in happened]
    if policy == "cpu":
        notes.append("the prediction is of the plan without its fallbacks")
    _tell(ran.result.trace, happened, notes)
    return replace(ran, fallback=policy, fallbacks=happened, notes=tuple(dict.fromkeys((*notes, *ran.notes))))


def _tell(trace: Trace, happened: tuple[Fallback, ...], notes: list[str]) -> None:
    """The failure was before the run that the trace shows, so its instants are at the beginning."""
    trace.instants.extend(Instant("fallback", f.queue, 0.0, str(f)) for f in happened)
    trace.notes.extend(notes)


def _next_best(planned: Planned, error: HetschedError, barred: list[str]) -> tuple[Planned, Fallback]:
    """A plan that does without the processor that failed; its kind is added to ``barred``.

    Raises:
        HetschedError: there is none; of the same kind as ``error``.
    """
    from hetsched.app.planning import plan
    from hetsched.runtime.fallback import Fallback

    segment = next(s for s in planned.plan.segments if s.index in error.segments)
    kind = planned.soc.by_name[planned.soc.queues[segment.queue].partition(":")[0]].kind
    barred.append(kind)
    entry, source = planned.deployment.entries[planned.entry], planned.graph.source
    options: dict[str, Any] = {} if source is None else {"dims": entry.dims or planned.deployment.model.dims}
    try:
        again = plan(
            planned.graph if source is None else source, planned.soc, objective=planned.plan.objective,
            precision=entry.precision or planned.deployment.precision, runtime=planned.deployment.runtime, ranges=planned.ranges_path,
            forbidden={"*": ",".join(barred)}, simulated=False, anchors=planned.deployment.anchors, **options,
        )  # fmt: skip
    except InfeasibleError as e:
        raise type(error)(f"{error}; --fallback next-best found no plan without the {' and the '.join(barred)}: {e}") from error
    to = f"a plan without the {' and the '.join(barred)}"
    return again, Fallback(segment.index, segment.queue, str(error), error.delegate, to)
