"""A plan together with what it was made from, and how plan files refer to models and SoCs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isclose
from pathlib import Path
from typing import Any

from hetsched.costs import CostTable
from hetsched.errors import OptionError, SoCError
from hetsched.files import check_destination, write_atomically
from hetsched.graph import Graph
from hetsched.passes import PassReport
from hetsched.placement import placement_of
from hetsched.plans import Deployment, Entry, Plan, SoCRef, Switch
from hetsched.soc_words import power_basis
from hetsched.socs import SoC


@dataclass(frozen=True, eq=False)
class Planned:
    """A deployment together with what it was made from, so that it can be simulated, run and reported at once."""

    deployment: Deployment
    graph: Graph
    soc: SoC
    table: CostTable = field(repr=False)
    wall_s: float = 0.0
    path: Path | None = None
    passes: tuple[PassReport, ...] = ()
    ranges_path: Path | None = None
    entry: int = 0

    def __repr__(self) -> str:
        p = self.plan.prediction
        return f"Planned({self.graph.name!r} on {self.soc.id!r}: {p.latency_s * 1e3:.3f} ms, {len(self.plan.segments)} segments)"

    @property
    def plan(self) -> Plan:
        """The plan of one entry: the only one of a single-shot model."""
        return self.deployment.entries[self.entry].plan

    @cached_property
    def placement(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """``(order, alternative)`` as indices of the cost table.

        Raises:
            PlanError: the plan names an op, a queue or a precision that the table does not have.
        """
        return placement_of(self.plan, self.table)

    @property
    def period_s(self) -> float:
        """Seconds between results of a steady pipeline of independent inputs: the busiest queue's work."""
        busy: dict[str, float] = {}
        for s in self.plan.segments:
            busy[s.queue] = busy.get(s.queue, 0.0) + s.launch_s + s.transfer_s + s.work_s
        return max(busy.values(), default=0.0)

    @property
    def closed(self) -> tuple[str, ...]:
        """Queues that some ops could use and the plan may not: off at its level, or forbidden."""
        offered = {a.queue for p in self.plan.placements for a in p.alternatives}
        return tuple(q.name for k, q in enumerate(self.table.queues) if q.name not in offered and k in self.table.alt_queue)

    def save(self, path: str | Path) -> Path:
        """Write the plan file (to a temporary name, then renamed); the model's path is made relative to it."""
        path = Path(path)
        weights = dict.fromkeys(t.data.path for t in self.graph.tensors.values() if t.data is not None)
        check_destination(path, (self.graph.source, self.ranges_path, *weights))
        write_atomically(path, relocated(self.deployment, self.graph, path, self.ranges_path).to_json().encode())
        return path

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``plan --json``."""
        p = self.plan.prediction
        by_kind = {q.name: q.kind for q in self.table.queues}
        return {
            "model": self.graph.name,
            "soc": self.soc.id,
            "solver": self.plan.solver,
            "status": self.plan.status,
            "objective": self.plan.objective,
            "latency_ms": p.latency_s * 1e3,
            "latency_ms_interval": [v * 1e3 for v in p.latency_interval_s],
            "simulated_ms": None if p.simulated_s is None else p.simulated_s * 1e3,
            "energy_mj": p.energy_j * 1e3,
            "power_basis": power_basis(self.soc),
            "peak_memory_mb": p.peak_memory_bytes / 1e6,
            "lower_bound_ms": self.plan.bound_s * 1e3 if self.plan.objective == "latency" else None,
            "gap": self.plan.gap,
            "segments": len(self.plan.segments),
            "ops_by_processor": dict(sorted(Counter(by_kind[x.queue] for x in self.plan.placements).items())),
            "baselines": {b.solver: None if b.latency_s is None else b.latency_s * 1e3 for b in self.plan.baselines},
            "wall_s": self.wall_s,
            "plan_path": None if self.path is None else str(self.path),
            "period_ms": self.period_s * 1e3,
        } | self._corrections()

    def _corrections(self) -> dict[str, Any]:
        """Keys of the summary that only plans with accounts, corrections, a front or sensitivities have."""
        anchors, measured = self.deployment.anchors, self.deployment.measured
        from hetsched.partition.losses import explain_plan

        out: dict[str, Any] = {"anchored_to": [a.model_dump(mode="json") for a in anchors]} if anchors else {}
        if self.deployment.entries[self.entry].splits:
            out["splits"] = self.deployment.entries[self.entry].splits
        if len({e.level for e in self.deployment.entries}) > 1:
            out["levels"] = levels_summary(self.deployment.entries, self.deployment.switches)
        if self.plan.accounts is not None:
            out["accounts"] = self.plan.accounts.model_dump(mode="json")
            out["losses"] = explain_plan(self.plan).as_dict()
        if self.plan.front:
            out["front"] = [f.model_dump(mode="json") for f in self.plan.front]
        if self.plan.prediction.loss is not None:
            out["loss"] = self.plan.prediction.loss
        return out if measured is None else out | {"measured": {"source": measured.source, "ops": len({o.op for o in measured.ops})}}


def priced(graph: Graph, chip: SoC, deployment: Deployment, entry: int) -> CostTable:
    """The cost table that an entry of a plan file was made with, for its graph or (decode steps) one of another context."""
    from hetsched.app.corrections import corrected
    from hetsched.app.inputs import cost_table
    from hetsched_cost_models import table_at

    e = deployment.entries[entry]
    chip = chip.narrowed(e.queues)
    steps = None if deployment.language is None else deployment.language.steps
    plain = cost_table(graph, chip, e.precision or deployment.precision, deployment.runtime, steps)
    table = corrected(plain, deployment.anchors, deployment.measured)
    return table_at(table, chip, e.clocks) if e.clocks else table


def levels_summary(entries: tuple[Entry, ...], switches: tuple[Switch, ...]) -> list[Mapping[str, object]]:
    """The levels in figures, for ``plan --json``."""
    taken = {s.after: s for s in switches if s.before[1] < s.after[1]}
    out: list[Mapping[str, object]] = []
    for k, e in enumerate(entries):
        s = taken.get((e.phase, e.level))
        p = e.plan.prediction
        out.append(
            {
                "phase": e.phase, "level": e.level, "latency_ms": p.latency_s * 1e3, "energy_mj": p.energy_j * 1e3,
                "power_w": p.energy_j / p.latency_s if p.latency_s > 0 else 0.0, "clocks": e.clocks,
                "queues": sorted({x.queue for x in e.plan.placements}), "precisions": sorted({x.precision for x in e.plan.placements}),
                "places": sorted({f"{e.queues.get(x.queue, x.queue)} {x.precision}" for x in e.plan.placements}), "cores": e.queues,
                "same_as": next((o.level for o in entries[:k] if o.phase == e.phase and _same(o, e)), None),
                "switch_weight_mb": None if s is None else s.weight_bytes / 1e6,
                "switch_ms": None if s is None else (s.pack_s + s.handover_s) * 1e3,
            }
        )  # fmt: skip
    return out


def _same(first: Entry, second: Entry) -> bool:
    """Whether two levels do the same: every op in the same place, at clocks that make no difference to what they use."""
    (a, b), figures = (first.plan, second.plan), ("latency_s", "energy_j")
    placed = [{p.op: (p.queue, p.precision) for p in plan.placements} for plan in (a, b)]
    alike = all(isclose(getattr(a.prediction, f), getattr(b.prediction, f), rel_tol=1e-9) for f in figures)
    return alike and placed[0] == placed[1] and first.queues == second.queues


def relocated(deployment: Deployment, graph: Graph, plan_path: Path, ranges: Path | None = None) -> Deployment:
    """The deployment with the paths of the model and of its ranges relative to where the plan file will be."""
    changes: dict[str, Any] = {}
    if graph.source is not None:
        changes["model"] = deployment.model.model_copy(update={"path": _relative(graph.source, plan_path, "model")})
    if ranges is not None and deployment.ranges is not None:
        changes["ranges"] = deployment.ranges.model_copy(update={"path": _relative(ranges, plan_path, "ranges")})
    asked = deployment.language
    if asked is not None and asked.speculation is not None and asked.speculation.draft:
        guessed = asked.speculation.model_copy(update={"draft": _relative(Path(asked.speculation.draft), plan_path, "draft model")})
        changes["language"] = asked.model_copy(update={"speculation": guessed})
    return deployment.model_copy(update=changes)


def _relative(path: Path, plan_path: Path, what: str) -> str:
    import os

    relative = Path(os.path.relpath(path.resolve(), plan_path.resolve().parent)).as_posix()
    if relative != relative.encode("utf-8", "replace").decode():
        raise OptionError(f"the path {relative!r} of the {what} is not UTF-8, so a plan file cannot name it: rename the {what} file")
    return relative


def soc_ref(chip: SoC) -> SoCRef:
    """How a plan file refers to a SoC; one that no SoC file describes (``host``, or the user's own YAML) is embedded whole."""
    from hetsched.soc_files import list_socs, load_soc, soc_sha256

    digest = soc_sha256(chip)
    overrides = dict(chip.overrides)
    try:
        shipped = chip.id in list_socs() and soc_sha256(load_soc(chip.id, overrides=overrides)) == digest
    except SoCError:  # overrides of fields that only the user's own file has
        shipped = False
    return SoCRef(id=chip.id, sha256=digest, overrides=overrides, spec=None if shipped else chip.model_dump(mode="json"))


def op_names(graph: Graph, forced: Mapping[str, str] | None) -> dict[str, str]:
    """Replace the user's own node names in ``name -> queue`` by all ops that they became; an op's own name is that op.

    Raises:
        OptionError: no op or node has the name, or two names force one op to two queues.
    """
    out: dict[str, str] = {}
    for name, where in (forced or {}).items():
        for op in _became(graph, name):
            if out.setdefault(op, where) != where:
                raise OptionError(f"{op!r}, which {name!r} became, is forced to {out[op]} and to {where}: leave one out")
    return out


def op_queues(graph: Graph, forbidden: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """``(op, queue)`` pairs of ``name -> queue``, where a value may name several queues with commas between; ``*``: every op.

    Raises:
        OptionError: no op or node has the name.
    """
    wanted = (forbidden or {}).items()
    return tuple((op, q.strip()) for name, queues in wanted for op in _became(graph, name) for q in queues.split(","))


def _became(graph: Graph, name: str) -> tuple[str, ...]:
    """The op of that name, else all ops that the user's node became."""
    if name == "*" or any(op.name == name for op in graph.ops):
        return (name,)
    found = tuple(op.name for op in graph.ops if name in op.origin)
    if not found:
        from difflib import get_close_matches

        near = get_close_matches(name, dict.fromkeys(n for op in graph.ops for n in (op.name, *op.origin)), 3)
        hint = f"did you mean {', '.join(near)}?" if near else "the plan file lists the names"
        raise OptionError(f"no op or node of {graph.name!r} is called {name!r}: {hint}")
    return found
