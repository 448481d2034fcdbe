"""The verb *import*: a profile taken on a device, as a trace and as measured times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.app.inputs import cost_table, load, targeted
from hetsched.app.inputs import soc as find_soc
from hetsched.app.planned import Planned
from hetsched.app.planning import plan
from hetsched.app.utilisation import write_from_profile
from hetsched.errors import InfeasibleError, OptionError
from hetsched.graph import Graph
from hetsched.measured import Measured
from hetsched.socs import SoC
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched.profiles import Profile


@dataclass(frozen=True, eq=False)
class Imported:
    """A profile, its trace and, with a model, what of the model it measured."""

    profile: Profile = field(repr=False)
    trace: Trace = field(repr=False)
    measured: Measured | None = None
    source: str = ""
    unmatched: tuple[str, ...] = ()
    planned: Planned | None = field(default=None, repr=False)
    """The prediction that a page draws it beside; with a model and a SoC."""

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``import --json``."""
        ops = self.profile.per_op()
        out: dict[str, Any] = {
            "profile": self.source, "format": self.profile.format, "model": self.trace.model, "soc": self.trace.soc,
            "queues": list(self.trace.queues), "runs": self.profile.runs, "operators": len(ops),
            "total_ms": sum(t.seconds for t in ops) * 1e3, "notes": list(self.profile.notes),
        }  # fmt: skip
        if self.measured is not None:
            found = {o.op: o.by for o in self.measured.ops}
            out |= {
                "model_ops": self.measured.total, "matched": len(found), "matched_by_name": sum(b == "name" for b in found.values()),
                "unmatched_rows": list(self.unmatched),
            }  # fmt: skip
        return out

    def save(self, path: str | Path) -> Path:
        """Write the trace (``.pftrace``, ``.parquet``), the measured times (``.json``) or a page with the prediction (``.html``).

        Raises:
            OptionError: another ending, or the file cannot be written.
        """
        from hetsched.files import check_destination, write_atomically
        from hetsched.profiles import measurements
        from hetsched.trace import files

        target = Path(path)
        check_destination(target)
        if target.suffix == ".json":
            named = replace(self.profile, model=self.trace.model, soc=self.trace.soc)
            write_atomically(target, measurements.to_json(named).encode())
        elif target.suffix == ".html":
            self._page(target)
        elif target.name.endswith((*files.PERFETTO, *files.PARQUET)):
            files.write(self.trace, target)
        else:
            raise OptionError(
                f"{str(target)!r} must end in .html (a page), .pftrace or .parquet (a trace for 'report') or .json (for 'plan')"
            )
        return target

    def _page(self, target: Path) -> None:
        """Draw the profile beside the prediction, op by op.

        Raises:
            OptionError: there is no prediction, or nothing of the model in the profile.
        """
        from hetsched.app.reporting import report

        if self.planned is None or self.measured is None:
            raise OptionError(f"{str(target)!r} would draw the profile beside a prediction: give --model and --soc too")
        if not self.measured.ops:
            raise OptionError(f"nothing in {self.source} is an operator of {self.trace.model!r}, so there is nothing to draw beside it")
        report([self.planned, self.trace], target)


def import_profile(
    path: str | Path,
    model: str | Path | Graph | None = None,
    soc: str | Path | None = None,
    *,
    queue: str | None = None,
    dims: Mapping[str, int] | None = None,
    planned: bool = False,
) -> Imported:
    """Read a profile of any known format (``docs/measurements.md``).

    Args:
        path: the profile.
        model: the model that ran, so that operators are called as in its plans.
        soc: the SoC that it ran on (an id or a file), which decides what is fused in its plans.
        queue: where everything ran, instead of what the profile says.
        dims: symbolic dimensions, if ``model`` is a path.
        planned: with a model and a SoC, also plan it, for a page.

    Raises:
        TraceError: the profile is absent, damaged or of an unknown format.
        OptionError: a queue that the SoC does not have.
        InputError: bad model or SoC.
    """
    from hetsched.profiles import read
    from hetsched.profiles.matching import match, measured
    from hetsched.profiles.timings import trace_of

    file = Path(path)
    chip = None if soc is None else find_soc(soc)
    if queue is not None:
        known = ("cpu", "gpu", "npu") if chip is None else tuple(dict.fromkeys((*chip.queues, *(p.kind for p in chip.processors))))
        if queue not in known:
            raise OptionError(f"--queue {queue!r} is no queue{'' if chip is None else f' of {chip.id}'}: use one of {', '.join(known)}")
    profile = read(file, queue)
    chip_id = "" if chip is None else chip.id
    if model is None:
        return Imported(profile, trace_of(profile, soc=chip_id), source=file.name)
    graph = model if isinstance(model, Graph) else load(model, dims)
    graph = graph if chip is None else targeted(graph, chip)
    found = match(profile.timings, graph)
    pairs = list(zip(profile.timings, found.op, strict=True))
    names = [op or t.name or t.type for t, op in pairs]
    missed = tuple(dict.fromkeys(t.name or t.type for t, op in pairs if op is None))
    trace = trace_of(profile, names, graph.name, chip_id)
    beside = _beside(model, chip, profile, dims) if planned and chip is not None else None
    if chip is not None:
        table = cost_table(graph, chip, "auto", "default") if beside is None else beside.table
        write_from_profile(trace, table, chip)
    return Imported(profile, trace, measured(profile, graph, file.name), file.name, missed, beside)


def _beside(model: str | Path | Graph, chip: SoC, profile: Profile, dims: Mapping[str, int] | None) -> Planned:
    """The prediction that a profile is compared with: everything where the profile ran, if that was one queue; else the best plan.

    Op by op, times say something only on the same processor; a queue that cannot run the whole model leaves the best plan.
    """
    ran = {t.queue for t in profile.timings}
    alike = [q for q, target in chip.queues.items() if q in ran or chip.by_name[target.partition(":")[0]].kind in ran]
    options: dict[str, Any] = {} if isinstance(model, Graph) else {"dims": dims}
    if len(ran) == 1 and alike:
        try:
            return plan(model, chip, solver=f"single:{alike[0]}", **options)
        except InfeasibleError:
            pass
    return plan(model, chip, **options)
