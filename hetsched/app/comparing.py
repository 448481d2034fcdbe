"""The verb *compare*: models x SoCs. Does it run, what falls back, how fast, how warm, and which is the cheapest that holds?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hetsched.app.accelerator_needs import Fallback, addressed, fallbacks_of, first_compile_s, held
from hetsched.app.inputs import load
from hetsched.app.inputs import soc as find_soc
from hetsched.app.planned import Planned
from hetsched.app.planning import plan
from hetsched.app.planning_task import TIME_LIMIT_S
from hetsched.errors import InfeasibleError, OptionError, UnknownRuntimeError, UnsupportedModelError
from hetsched.graph import Graph
from hetsched.sizes import size
from hetsched.soc_quantities import TIERS
from hetsched.soc_words import power_basis
from hetsched.socs import SoC

Verdict = Literal["runs", "falls back", "not on the NPU", "refused"]
Progress = Callable[[str, float], None]
#: A target is held if at most this share of the inferences misses it.
MISSES = 0.01
CHEAP = "SoCs go from cheap to dear by a proxy, as prices are not published: tier, then age, then the NPU's peak"


@dataclass(frozen=True, slots=True)
class Sustained:
    """A simulated run at the target's rate: the latency that all but 1 % of the inferences reach, and whether that holds it."""

    p99_s: float
    last_s: float
    throttled: bool
    holds: bool
    inferences: int = 1


@dataclass(frozen=True)
class Cell:
    """One model on one SoC. ``refused`` cells have only a reason; ``compile_s`` is None where nothing is known."""

    model: str
    soc: str
    verdict: Verdict
    reason: str = ""
    fallbacks: tuple[Fallback, ...] = ()
    latency_s: float | None = None
    interval_s: tuple[float, float] | None = None
    energy_j: float | None = None
    npu_bytes: int | None = None
    limit_bytes: float | None = None
    compile_s: float | None = None
    anchor: str = ""
    sustained: Sustained | None = None

    @property
    def warning(self) -> str:
        """Why it may not load, if so."""
        if self.npu_bytes is None or self.limit_bytes is None or self.npu_bytes <= self.limit_bytes:
            return ""
        return f"needs {size(self.npu_bytes)} on the NPU, which addresses {size(self.limit_bytes)}: split it into sessions"

    def as_dict(self) -> dict[str, Any]:
        """The stable keys of a cell of ``compare --json``."""
        s = self.sustained
        return {
            "model": self.model, "soc": self.soc, "verdict": self.verdict, "reason": self.reason,
            "fallbacks": [{"type": f.type, "count": f.count, "reason": f.reason} for f in self.fallbacks],
            "latency_ms": _ms(self.latency_s),
            "latency_ms_interval": None if self.interval_s is None else [v * 1e3 for v in self.interval_s],
            "energy_mj": _ms(self.energy_j), "npu_memory_mb": None if self.npu_bytes is None else self.npu_bytes / 1e6,
            "npu_limit_mb": None if self.limit_bytes is None else self.limit_bytes / 1e6, "warning": self.warning,
            "first_compile_s_estimated": self.compile_s, "anchored_to": self.anchor,
            "sustained": None if s is None
            else {
                "p99_ms": s.p99_s * 1e3, "last_ms": s.last_s * 1e3, "throttled": s.throttled, "holds": s.holds, "inferences": s.inferences,
            },
        }  # fmt: skip


@dataclass(frozen=True)
class Matrix:
    """Every cell, models first, SoCs from cheap to dear (:func:`cheapest_first`), and what was asked for."""

    models: tuple[str, ...]
    socs: tuple[SoC, ...]
    cells: tuple[Cell, ...]
    target_s: float | None = None
    duration_s: float | None = None
    ambient_c: float = 25.0

    def cell(self, model: str, soc: str) -> Cell:
        """The cell of a model and a SoC."""
        return next(c for c in self.cells if (c.model, c.soc) == (model, soc))

    def cheapest(self, model: str) -> str | None:
        """Id of the cheapest SoC that holds the target for a model; None if none does, or without a target."""
        held = (c.soc for c in self.cells if c.model == model and c.sustained is not None and c.sustained.holds)
        return next(held, None)

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``compare --json``."""
        out: dict[str, Any] = {"models": list(self.models), "socs": [s.id for s in self.socs], "cells": [c.as_dict() for c in self.cells]}
        out |= {
            "order": CHEAP, "markets": {s.id: None if s.market is None else s.market.model_dump(mode="json") for s in self.socs},
            "power_basis": {s.id: power_basis(s) for s in self.socs},
        }  # fmt: skip
        if self.target_s is not None:
            out |= {
                "target_ms": self.target_s * 1e3, "duration_s": self.duration_s, "ambient_c": self.ambient_c,
                "cheapest": {m: self.cheapest(m) for m in self.models},
            }  # fmt: skip
        return out


def _ms(value: float | None) -> float | None:
    return None if value is None else value * 1e3


def compare(
    models: Sequence[str | Path | Graph],
    socs: Sequence[str | Path | SoC],
    *,
    precision: str = "auto",
    runtime: str = "default",
    dims: Mapping[str, int] | None = None,
    target_s: float | None = None,
    duration_s: float | None = None,
    ambient_c: float = 25.0,
    solver: str = "auto",
    time_limit_s: float = TIME_LIMIT_S,
    public_anchors: bool = True,
    overrides: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Matrix:
    """Plan every model on every SoC and say what that means.

    Args:
        models: model files or graphs.
        socs: SoC ids, files or SoCs; ``["all"]`` is every SoC that ships, without the ``generic`` templates.
        precision: as of :func:`hetsched.plan`.
        runtime: as of :func:`hetsched.plan`; a SoC that does not know it refuses.
        dims: symbolic dimensions: ``name`` of every model, ``model:name`` of the model whose file is called so (with its ending
            or without).
        target_s: latency that must hold; then every SoC that reaches it is simulated, an inference every ``target_s``.
        duration_s: for how long it must hold; None: once.
        ambient_c: temperature around the phone.
        solver: of the plans.
        time_limit_s: budget of the solver for each plan.
        public_anchors: look known networks up in the table of public latencies.
        overrides: what-if hardware: field -> value, set on every SoC (``docs/soc_files.md``).
        progress: called with what is being done and the share done, 0..1.

    Raises:
        InputError: a model or a SoC cannot be read, or a figure makes no sense.
    """
    if not models or not socs:
        raise OptionError("compare needs at least one model and one SoC: --soc ID (repeatable) or --soc all")
    for name, value in (("--target", target_s), ("--for", duration_s)):
        if value is not None and not value > 0:
            raise OptionError(f"{name} must be more than 0")
    if duration_s is not None and target_s is None:
        raise OptionError("--for says how long --target must hold: give --target too")
    chips = cheapest_first(_chips(socs, overrides))
    bound = dims_of(models, dims or {})
    graphs = [m if isinstance(m, Graph) else load(m, d) for m, d in zip(models, bound, strict=True)]
    names = _names(graphs)
    options: dict[str, Any] = {
        "precision": precision, "runtime": runtime, "solver": solver, "time_limit_s": time_limit_s, "public_anchors": public_anchors,
    }  # fmt: skip
    cells: list[Cell] = []
    total = len(graphs) * len(chips)
    for name, graph in zip(names, graphs, strict=True):
        for chip in chips:
            if progress is not None:
                progress(f"{name} on {chip.id} ({len(cells) + 1} of {total})", len(cells) / total)
            cells.append(_cell(name, graph, chip, options, target_s, duration_s, ambient_c))
    return Matrix(tuple(names), tuple(chips), tuple(cells), target_s, duration_s, ambient_c)


def _chips(socs: Sequence[str | Path | SoC], overrides: Mapping[str, str] | None = None) -> list[SoC]:
    from hetsched.soc_files import list_socs

    chips: list[SoC] = []
    for wanted in socs:
        if wanted == "all":
            chips += [c for c in (find_soc(s, overrides) for s in list_socs()) if c.family != "generic"]
        else:
            chips.append(find_soc(wanted, overrides))
    return list({c.id: c for c in chips}.values())


def dims_of(models: Sequence[str | Path | Graph], dims: Mapping[str, int]) -> list[dict[str, int]]:
    """The dimensions of each model: those of all, and its own, which win.

    Examples:
        >>> dims_of(["a.onnx", "b.onnx"], {"batch": 1, "b:batch": 4, "a.onnx:width": 8})
        [{'batch': 1, 'width': 8}, {'batch': 4}]
    """
    called = [set() if isinstance(m, Graph) else {Path(m).name, Path(m).stem} for m in models]
    own = {key: model for key in dims if (model := key.partition(":")[0]) in set().union(*called) and ":" in key}
    shared = {k: v for k, v in dims.items() if k not in own}
    return [shared | {k.partition(":")[2]: dims[k] for k, model in own.items() if model in names} for names in called]


def _names(graphs: Sequence[Graph]) -> list[str]:
    """Names of the models, with a number where two have the same."""
    seen: dict[str, int] = {}
    out = []
    for g in graphs:
        seen[g.name] = seen.get(g.name, 0) + 1
        out.append(g.name if seen[g.name] == 1 else f"{g.name} ({seen[g.name]})")
    return out


def cheapest_first(chips: Sequence[SoC]) -> list[SoC]:
    """SoCs from cheap to dear by a proxy, since prices are not published.

    The tier counts first (:data:`~hetsched.soc_quantities.TIERS`), then age (an older one of a tier is cheaper), then the
    largest peak rate of the NPU (of the GPU or the CPU where there is none), then the id. What is not on the market comes last.
    """

    def key(chip: SoC) -> tuple[int, str, float, str]:
        main = next(p for kind in ("npu", "gpu", "cpu") for p in chip.processors if p.kind == kind)
        peak = sum(max(float(f) for f in c.peak_ops_s.values()) for c in main.clusters)
        tier, release = (len(TIERS), "") if chip.market is None else (TIERS.index(chip.market.tier), chip.market.release)
        return tier, release, peak, chip.id

    return sorted(chips, key=key)


def _cell(
    name: str, graph: Graph, chip: SoC, options: Mapping[str, Any], target_s: float | None, duration_s: float | None, ambient_c: float
) -> Cell:
    try:
        planned = plan(graph, chip, **options)
    except (UnsupportedModelError, InfeasibleError, UnknownRuntimeError) as e:
        return Cell(name, chip.id, "refused", str(e))
    cell = _planned_cell(name, planned)
    if target_s is None or cell.latency_s is None or cell.latency_s > target_s:
        return cell
    return replace(cell, sustained=_sustained(planned, target_s, duration_s, ambient_c))


def _planned_cell(name: str, planned: Planned) -> Cell:
    prediction, chip = planned.plan.prediction, planned.soc
    fallbacks, on_npu = fallbacks_of(planned)
    npu = next((p for p in chip.processors if p.kind == "npu"), None)
    verdict: Verdict = "not on the NPU" if npu is None or not on_npu else "falls back" if fallbacks else "runs"
    mine = held(planned)
    limit = None if npu is None else npu.address_bytes
    anchors = planned.deployment.anchors
    return Cell(
        name, chip.id, verdict, "it has no NPU" if npu is None else "", fallbacks, prediction.latency_s, prediction.latency_interval_s,
        prediction.energy_j, 0 if npu is None else addressed(planned, mine, npu), None if limit is None else limit.value,
        first_compile_s(planned, mine),
        anchors[0].describe() if anchors else "",
    )  # fmt: skip


def _sustained(planned: Planned, target_s: float, duration_s: float | None, ambient_c: float) -> Sustained:
    """Whether a SoC holds the target: a simulated run with an inference every ``target_s``."""
    import numpy as np

    from hetsched.app.simulating import Simulated, simulate

    run = simulate(planned, duration_s=duration_s, ambient_c=ambient_c, period_s=target_s if duration_s is not None else None)
    if not isinstance(run, Simulated):  # a graph is one phase
        raise OptionError("compare plans single graphs: give one phase of a language model with --dim")
    latencies = np.asarray(run.outcome.latencies_s)
    p99 = float(np.percentile(latencies, 100 * (1 - MISSES)))
    return Sustained(p99, float(latencies[-1]), run.outcome.throttling.seconds > 0, p99 <= target_s, len(latencies))
