"""``hetsched plan`` with ``--rate``: several models that share one SoC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hetsched.app.coscheduling import PlannedTogether, plan_together
from hetsched.cli import options, show, traces
from hetsched.cli.planning import destinations
from hetsched.cli.progress import progress

#: The simulated run of all models, beside their plans.
TRACE = "together.pftrace"


def plan_shared(
    models: Sequence[Path], output: Path | None, quiet: bool, rates: Sequence[float], deadlines: Sequence[str], priorities: Sequence[int],
    dim: Sequence[str], time_limit: str, what_if: Sequence[str], *, memory_limit: str | None, force: Sequence[str], forbid: Sequence[str],
    **more: Any,
) -> PlannedTogether:  # fmt: skip
    """Plan the models together; write a plan each, and the trace of their simulated run, if a folder is given."""
    targets = destinations(models, output)
    deadlines_s = [options.seconds(d, "--deadline") or 0.0 for d in deadlines]
    with progress(" + ".join(m.name for m in models), quiet) as bar:
        found = plan_together(
            models, rates=rates, deadlines_s=deadlines_s, priorities=priorities, dims=options.dims(dim),
            time_limit_s=options.seconds(time_limit, "--time-limit") or 0.0, overrides=options.settings(what_if), progress=bar.stage,
            memory_limit_bytes=options.nbytes(memory_limit, "--memory-limit"), forced=options.pairs(force, "--force"),
            forbidden=options.pairs(forbid, "--forbid"), **more,
        )  # fmt: skip
    if output is None:
        return found
    saved = []
    for planned, target in zip(found.planned, targets, strict=True):
        assert target is not None
        planned.save(target)
        saved.append(replace(planned, path=target))
    traces.write(found.shared.trace, output / TRACE)
    return replace(found, planned=tuple(saved), trace_path=output / TRACE)


def show_shared(found: PlannedTogether) -> None:
    """Print how each model fares beside the others, and how it would with a plan of its own."""
    s = found.summary()
    rows = [
        [m["model"], f"{m['rate']:g}/s", show.seconds(m["deadline_ms"] / 1e3), *_outcome(m["together"]), *_outcome(m["planned_alone"])[1:]]
        for m in s["models"]
    ]
    columns = ["model", "rate", "deadline", "mean", "worst", "missed", "worst*", "missed*"]
    show.table(f"on {found.planned[0].soc.name}, together", columns, rows, numeric=range(1, 8), whole=0)
    show.line("* if every model ran by its own plan")
    for m in s["models"]:
        show.line(f"{m['model']}: " + ", ".join(f"{n} ops on {kind}" for kind, n in m["ops_by_processor"].items()))
    show.line("busy: " + ", ".join(f"{q} {u:.0%}" for q, u in s["utilisation"].items()))
    for p in found.planned:
        if p.path is not None:
            show.line(f"plan: {p.path}")
    if found.trace_path is not None:
        show.line(f"trace: {found.trace_path}")


def _outcome(found: Mapping[str, Any]) -> list[str]:
    if found["worst_ms"] is None:
        return ["-", "-", f"{found['missed']:.0%}"]
    return [show.seconds(found["mean_ms"] / 1e3), show.seconds(found["worst_ms"] / 1e3), f"{found['missed']:.0%}"]
